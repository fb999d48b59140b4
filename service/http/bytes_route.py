"""Endpoints that take and give bytes: FastAPI's own hook, used where a dict in between would cost too much.

    router = APIRouter(route_class=BytesRoute)

    @router.post("/classify", response_model=ClassifyResponse)
    async def classify(body: ClassifyRequest, service: ServiceOf) -> Response: ...

The signature is an ordinary one, and FastAPI documents it. A request meets it in another order: first the
dependencies, so that a caller without a key is refused before the body is read; then the body, which
pydantic-core validates straight from bytes. An endpoint that reads the body itself declares `Raw[Model]`.
Accepted media types are those that the route documents.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping, Set
from contextlib import aclosing
from dataclasses import replace
from typing import Any, Generic, TypeVar, get_args, get_origin

from fastapi import routing
from fastapi.dependencies.models import Dependant
from fastapi.dependencies.utils import solve_dependencies
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from service.errors import Cancelled, UnsupportedMediaType
from service.http.documents import each_in_turn
from service.http.large_json import WHOLE
from service.http.texts import TextReader

JSON = "application/json"
NPY = "application/x-npy"
NPZ = "application/x-npz"
NDJSON = "application/x-ndjson"
BINARY = "application/octet-stream"
LARGE = 2**20  # bytes
NO_STORE = {"cache-control": "no-store"}

T = TypeVar("T")
Handler = Callable[[Request], Awaitable[Response]]
Resolve = Callable[[Request], Awaitable[dict[str, Any]]]


class Raw(Generic[T]):
    """A body that the endpoint reads itself; the document shows it as a T."""

    __slots__ = ("content", "media_type")

    def __init__(self, content: bytes, media_type: str) -> None:
        self.content = content
        self.media_type = media_type

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return handler.generate_schema(get_args(source)[0])


class BytesRoute(APIRoute):
    untyped: str | None = None  # what a body without a media type is taken for; None: it is refused

    def get_route_handler(self) -> Handler:  # type: ignore[override]
        dependant = _included(self).dependant
        call: Callable[..., Awaitable[Any]] = dependant.call
        resolve = _resolver(dependant)
        if not dependant.body_params:
            return super().get_route_handler()
        (parameter,) = dependant.body_params
        model = parameter.field_info.annotation
        raw = get_origin(model) is Raw
        accepted = _accepted(self.openapi_extra)

        async def handle(request: Request) -> Response:
            values = await resolve(request)
            media_type = body_type(request, accepted, self.untyped)
            content = await read_body(request)
            reader: TextReader = request.app.state.reader
            values[parameter.name] = Raw(content, media_type) if raw else await reader.read(model, content)
            del content  # an endpoint may run long
            response: Response = await call(**values)
            return response

        return handle


def _included(route: APIRoute) -> Any:
    """The route with the dependencies of the routers that include it. The one private name of FastAPI's here:
    its default handler finds them in the same place."""
    context = routing._effective_route_context_var.get()
    return context if context is not None and context.original_route is route else route


def _resolver(dependant: Dependant) -> Resolve:
    """Gives an endpoint its arguments but the body.

    Most dependencies of ours are coroutines that take the request alone: calling them takes a microsecond,
    FastAPI's solver six each. Everything else, and every override, is left to the solver.
    """
    without_body = replace(dependant, body_params=[])
    leaves: list[Any] = dependant.dependencies
    own = dependant.request_param_name
    plain = {own, *(each.name for each in (*leaves, *dependant.body_params))}
    simple = _parameters(dependant) <= plain and all(map(_is_leaf, leaves))

    async def resolve(request: Request) -> dict[str, Any]:
        if not simple or request.app.dependency_overrides:
            return await _solve(request, without_body)
        values = {own: request} if own else {}
        for each in leaves:
            value = await each.call(**{each.request_param_name: request})
            if each.name:
                values[each.name] = value
        return values

    return resolve


async def _solve(request: Request, dependant: Dependant) -> dict[str, Any]:
    solved = await solve_dependencies(
        request=request,
        dependant=dependant,
        body=None,
        dependency_overrides_provider=request.app,
        async_exit_stack=request.scope["fastapi_inner_astack"],
        embed_body_fields=False,
    )
    if solved.errors:
        raise RequestValidationError(solved.errors)
    return solved.values


def _is_leaf(dependant: Dependant) -> bool:
    """A coroutine that takes the request and nothing else."""
    call = dependant.call
    is_coroutine = inspect.iscoroutinefunction(call) or inspect.iscoroutinefunction(type(call).__call__)
    return is_coroutine and _parameters(dependant) == {dependant.request_param_name}


def _parameters(dependant: Dependant) -> Set[str | None]:
    assert dependant.call is not None
    return set(inspect.signature(dependant.call).parameters)


def _accepted(extra: Mapping[str, Any] | None) -> Collection[str]:
    content: Mapping[str, Any] = (extra or {}).get("requestBody", {}).get("content", {})
    return [JSON, *(kind for kind in content if kind != JSON)]


def body_type(request: Request, accepted: Collection[str], untyped: str | None = None) -> str:
    """Which of the accepted types the body says it is."""
    given = request.headers.get("content-type", "")
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise UnsupportedMediaType("compressed bodies are not read: send it without Content-Encoding")
    if given in accepted:
        return given
    if not given and untyped:
        return untyped
    kind, *parameters = (part.strip().lower() for part in given.split(";"))
    if kind not in accepted:
        raise UnsupportedMediaType(f"send the header Content-Type: {' or '.join(accepted)}")
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name == "charset" and value.strip('"') not in ("utf-8", "utf8"):
            raise UnsupportedMediaType("the body's charset should be utf-8")
    return kind


def wanted(request: Request, *offered: str) -> str:
    """The first offered type that the Accept header names; the first of all if it names none of them."""
    named = [part.split(";")[0].strip() for part in request.headers.get("accept", "").lower().split(",")]
    return next((kind for kind in named if kind in offered), offered[0])


async def read_body(request: Request) -> bytes:
    """The whole body. `Admission` refuses one that is too large before it is kept."""
    message = await request.receive()
    if message["type"] == "http.request" and not message.get("more_body"):
        body: bytes = message.get("body", b"")
        return body
    pieces: list[bytes] = []
    size = 0
    while message["type"] == "http.request":
        pieces.append(message.get("body", b""))
        size += len(pieces[-1])
        if not message.get("more_body"):
            if size < LARGE:
                return b"".join(pieces)
            return await asyncio.to_thread(b"".join, pieces)  # which leaves the interpreter to others
        message = await request.receive()
    raise Cancelled("the client left before its request was whole")


def reply(body: bytes, media_type: str = JSON, headers: Mapping[str, str] = NO_STORE) -> Response:
    return Response(body, 200, headers, media_type)


def reply_parts(parts: list[bytes], media_type: str = JSON) -> Response:
    """At once where it is short."""
    if sum(map(len, parts)) <= WHOLE:
        return reply(b"".join(parts), media_type)
    return Pieces(each_in_turn(parts), media_type)


class Pieces(Response):
    """An answer piece by piece. When it ends, however that is, its generator is closed."""

    def __init__(self, pieces: AsyncGenerator[bytes], media_type: str = JSON) -> None:
        self.status_code = 200
        self.media_type = media_type
        self.background = None
        self.init_headers(NO_STORE)
        self.pieces = pieces

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with aclosing(self.pieces) as pieces:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            async for piece in pieces:
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
