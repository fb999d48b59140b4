"""Read bodies, which endpoints get by a dependency, and send answers.

    async def classify(body: Annotated[ClassifyRequest, json_body(ClassifyRequest)]) -> Response: ...
    async def dynamics(body: BodyDep) -> Response: ...

The dependencies of the application, which check the key, run first: without a key no body is read. A route
accepts the media types that it documents. A short JSON body is parsed on the event loop, a long one in a
separate thread, one at a time, or, if it holds points, in a compute process (`parse_body`).

A short response is written on the event loop, a long one in a thread, and sent in pieces.

Large requests take one of MAX_LARGE_REQUESTS slots, texts and clouds from different ones. Together with
PAYLOAD_LIMIT_MB and MAX_CONCURRENT_REQUESTS that bounds the memory of a process.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import partial
from typing import Annotated, Any, NamedTuple, TypeVar

from fastapi import Depends, Request
from pydantic import BaseModel
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from service.errors import Cancelled, TooLarge, UnsupportedMediaType
from service.wire.documents import MAX_JSON_BYTES, parse

JSON = "application/json"
NPY = "application/x-npy"
NDJSON = "application/x-ndjson"
BINARY = "application/octet-stream"

MAX_INLINE_TEXTS = 16  # whose answers are written on the event loop, if no explanation is full
MAX_SENT_BYTES = 262_144  # of a response, sent at once
MAX_INLINE_BYTES = 65_536  # of a body that is parsed on the event loop, in half a millisecond

NO_STORE = {"cache-control": "no-store"}

T = TypeVar("T")
Model = TypeVar("Model", bound=BaseModel)


class Body(NamedTuple):
    """The bytes of a body and its media type."""

    content: bytearray
    media_type: str


async def parse_body(
    content: bytearray, read: Callable[[bytearray], T], run: Callable[[Callable[[], T]], Awaitable[T]]
) -> T:
    """Return `read(content)`: computed on the event loop if the body is short, otherwise by `run`.

    That is `AppState.run_in_parser`, or for points `Compute.run`, which has its own interpreter.
    """
    return read(content) if len(content) <= MAX_INLINE_BYTES else await run(partial(read, content))


async def get_body(request: Request) -> Body:
    """Return a body of a type that the route takes."""
    return await receive_body(request)


async def get_untyped_body(request: Request) -> Body:
    """Return a body of a type that the route takes; a body without a media type is JSON."""
    return await receive_body(request, untyped=JSON)


BodyDep = Annotated[Body, Depends(get_body)]
UntypedBodyDep = Annotated[Body, Depends(get_untyped_body)]


def json_body(model: type[Model]) -> Any:
    """Return the dependency with the JSON body of an endpoint as a `model`."""

    async def read(request: Request) -> Model:
        body = await receive_body(request)
        run_in_parser = request.app.state.service.run_in_parser
        return await parse_body(body.content, partial(parse, model=model), run_in_parser)

    return Depends(read)


def body_type(request: Request, accepted: Collection[str], untyped: str | None = None) -> str:
    """Return the media type of the body; `untyped` is the default for a body without Content-Type.

    Raises:
        UnsupportedMediaType: The type is not among the accepted ones, or the body is encoded.
    """
    content_type = request.headers.get("content-type", "")
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise UnsupportedMediaType("send the body without Content-Encoding, or in gzip or deflate")
    if not content_type and untyped:
        return untyped
    kind, *parameters = (part.strip().lower() for part in content_type.split(";"))
    if kind not in accepted:
        raise UnsupportedMediaType(f"send the header Content-Type: {' or '.join(accepted)}")
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name == "charset" and value.strip('"') not in ("utf-8", "utf8"):
            raise UnsupportedMediaType("the body's charset should be utf-8")
    return kind


def preferred_type(request: Request, *offered: str) -> str:
    """Return the first offered type in the Accept header; the first of all offered types if it has none."""
    accepted = [part.split(";")[0].strip() for part in request.headers.get("accept", "").lower().split(",")]
    return next((kind for kind in accepted if kind in offered), offered[0])


async def receive_body(request: Request, untyped: str | None = None) -> Body:
    """Return the complete body. The middleware has refused bodies over PAYLOAD_LIMIT_MB."""
    accepted = request.scope["route"].openapi_extra["requestBody"]["content"]
    media_type = body_type(request, accepted, untyped)
    content = bytearray()  # subtle: to join 64 MB at once would block the event loop
    try:
        async for part in request.stream():
            content += part
    except ClientDisconnect:
        raise Cancelled("the client left before its request was whole") from None
    if media_type == JSON and len(content) > MAX_JSON_BYTES:
        hint = f"send the array as {NPY} (numpy.save)" if NPY in accepted else "send it in several requests"
        raise TooLarge(f"a JSON body may have {MAX_JSON_BYTES / 1e6:g} MB: {hint}")
    return Body(content, media_type)


class LongResponse(Response):
    """A response that is sent in pieces; the event loop does other work between them."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        body = memoryview(self.body)
        for end in range(MAX_SENT_BYTES, len(body) + MAX_SENT_BYTES, MAX_SENT_BYTES):
            piece = body[end - MAX_SENT_BYTES : end]
            await send({"type": "http.response.body", "body": piece, "more_body": end < len(body)})
            await asyncio.sleep(0)


def reply(body: bytes, media_type: str = JSON, headers: Mapping[str, str] = NO_STORE) -> Response:
    """Return a response with status 200."""
    kind = LongResponse if len(body) > MAX_SENT_BYTES else Response
    return kind(body, 200, headers, media_type)


async def write_answers(write: Callable[[], T], texts: int, *, is_long: bool = False) -> T:
    """Return what `write` returns: computed on the event loop, or in a thread if that may take long."""
    is_short = texts <= MAX_INLINE_TEXTS and not is_long
    return write() if is_short else await asyncio.to_thread(write)
