"""Routes that FastAPI documents and plain ASGI runs.

A `Signature` is a function that is never called: FastAPI reads the request and response models off it for
the OpenAPI document. The handler beside it does the work, from bytes to bytes, without FastAPI's dependency
machinery, which would take as long as the inference.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from types import NoneType
from typing import Any, get_type_hints

from fastapi.routing import APIRoute
from starlette.responses import JSONResponse, Response

from service.api import examples
from service.api.exchange import Exchange, Reply
from service.schemas import ErrorResponse, InferenceError

Handler = Callable[[Exchange], Awaitable[Reply]]
Signature = Callable[..., Any]

PROBLEMS = {
    400: "Not JSON, or not UTF-8.",
    401: "No API key, or not one of ours.",
    404: "No such route or model.",
    413: "Over a limit; the message names it.",
    415: "A media type this route does not read.",
    422: "Well-formed but wrong; `param` says where.",
    429: "Overloaded; Retry-After says when to come back.",
    500: "The service failed; its log has an entry with the request id.",
    503: "Not ready, draining, or unable to infer.",
    504: "It took longer than a request may.",
}
ALL = tuple(PROBLEMS)


def problems(statuses: Sequence[int], model: type = ErrorResponse) -> dict[int | str, dict[str, Any]]:
    """The error answers of a route, for its documentation."""
    protocol = model is InferenceError
    return {
        status: {
            "model": model,
            "description": PROBLEMS[status],
            "content": {"application/json": {"example": examples.problem(status, protocol=protocol)}},
        }
        for status in statuses
    }


class HandledRoute(APIRoute):
    """Documented by its signature, run by its handler."""

    def __init__(
        self,
        path: str,
        signature: Signature,
        handler: Handler,
        *,
        method: str,
        tag: str,
        statuses: Sequence[int],
        errors: type = ErrorResponse,
        answers: dict[int | str, dict[str, Any]] | None = None,
        extra: dict[str, Any] | None = None,
    ) -> None:
        returned = get_type_hints(signature)["return"]
        super().__init__(
            path,
            signature,
            response_model=None if returned is NoneType else returned,
            methods=[method],
            tags=[tag],
            name=signature.__name__,
            operation_id=signature.__name__,
            summary=(signature.__doc__ or "").split("\n", 1)[0].strip(),
            description=_paragraphs(signature.__doc__ or ""),
            response_class=Response if returned is NoneType else JSONResponse,
            responses={**problems(statuses, errors), **(answers or {})},
            openapi_extra=extra,
        )
        self.method = method
        self.handler = handler


class Handlers:
    """Finds the handler of a request: most by their path, the others by the pattern of theirs."""

    def __init__(self, routes: Iterable[HandledRoute]) -> None:
        self._fixed: dict[tuple[str, str], Handler] = {}
        self._patterns: list[HandledRoute] = []
        for route in routes:
            if "{" in route.path:
                self._patterns.append(route)
            else:
                self._fixed[route.method, route.path] = route.handler

    def find(self, exchange: Exchange) -> Handler | None:
        """The handler, or None; the exchange learns its route and the parameters in its path."""
        method = "GET" if exchange.method == "HEAD" else exchange.method
        handler = self._fixed.get((method, exchange.path))
        if handler is not None:
            exchange.route = exchange.path
            return handler
        for route in self._patterns:
            if route.method == method and (match := route.path_regex.match(exchange.path)):
                exchange.route = route.path
                exchange.parameters = match.groupdict()
                return route.handler
        return None


def _paragraphs(docstring: str) -> str:
    """All of a docstring but its first line, unindented."""
    return "\n".join(line.strip() for line in docstring.split("\n")[1:]).strip()
