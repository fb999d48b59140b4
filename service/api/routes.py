"""Routes that FastAPI documents and plain ASGI runs.

A `Signature` is a function that is never called: FastAPI reads the request and response models off it for
the OpenAPI document. The handler beside it does the work, from bytes to bytes, without FastAPI's dependency
machinery, which would take as long as the inference.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from fastapi.routing import APIRoute
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

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
    return {status: {"model": model, "description": PROBLEMS[status]} for status in statuses}


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
        super().__init__(
            path,
            signature,
            methods=[method],
            tags=[tag],
            name=signature.__name__,
            operation_id=signature.__name__,
            summary=(signature.__doc__ or "").split("\n", 1)[0].strip(),
            description=_paragraphs(signature.__doc__ or ""),
            response_class=Response if signature.__annotations__.get("return") in (None, "None") else _JSON,
            responses={**problems(statuses, errors), **(answers or {})},
            openapi_extra=extra,
        )
        self.method = method
        self.handler = handler
        self.app: ASGIApp = self._run

    async def _run(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange: Exchange = scope["exchange"]
        exchange.route = self.path
        exchange.parameters = scope.get("path_params", {})
        await (await self.handler(exchange)).send(send)


class _JSON(Response):
    media_type = "application/json"


def v2_problems(statuses: Sequence[int]) -> dict[int | str, dict[str, Any]]:
    return problems(statuses, InferenceError)


def _paragraphs(docstring: str) -> str:
    """All of a docstring but its first line, unindented."""
    return "\n".join(line.strip() for line in docstring.split("\n")[1:]).strip()
