"""One request and its answer, as the routes see them: its headers and body come in, a `Reply` goes out."""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing, suppress

from starlette.types import Message, Receive, Scope, Send

from service.errors import Cancelled, CapacityError, DeadlineExceeded, TooLarge
from service.tracing import Stage

Header = tuple[bytes, bytes]

JSON = b"application/json"
NO_STORE: Header = (b"cache-control", b"no-store")
LARGE = 2**20  # bytes
SANE_ID = re.compile(rb"[A-Za-z0-9._:-]{1,128}").fullmatch


class Reply:
    """A status, headers and either the whole body or the pieces of a stream."""

    __slots__ = ("body", "headers", "media_type", "status")

    def __init__(
        self,
        body: bytes | AsyncGenerator[bytes],
        *,
        status: int = 200,
        media_type: bytes = JSON,
        headers: Sequence[Header] = (NO_STORE,),
    ) -> None:
        self.body = body
        self.status = status
        self.media_type = media_type
        self.headers = headers

    async def send(self, send: Send) -> None:
        body = self.body
        head = [(b"content-type", self.media_type), *self.headers]
        if isinstance(body, bytes):
            head.append((b"content-length", b"%d" % len(body)))
            await send({"type": "http.response.start", "status": self.status, "headers": head})
            await send({"type": "http.response.body", "body": body})
            return
        await send({"type": "http.response.start", "status": self.status, "headers": head})
        async with aclosing(
            body
        ):  # whoever streams holds something: it is given back even when the client left
            async for piece in body:
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


class Exchange:
    """What is known of a request while it is worked on."""

    __slots__ = (
        "_receive",
        "_task",
        "_watcher",
        "body_read",
        "deadline",
        "ended_by",
        "headers",
        "hold",
        "id",
        "method",
        "parameters",
        "path",
        "query",
        "route",
        "stages",
        "started",
        "status",
    )

    def __init__(self, scope: Scope, receive: Receive, timeout_s: float) -> None:
        self.headers: dict[bytes, bytes] = dict(scope["headers"])
        self.id = request_id(self.headers)
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.query: bytes = scope["query_string"]
        self.parameters: dict[str, str] = {}  # of the path
        self.route = ""  # the template of the path, once a route is found
        self.stages: list[Stage] = []  # what took time, for its trace
        self.status = 0  # of the answer, once it has begun
        self.started = time.perf_counter()
        self.deadline = self.started + timeout_s
        self.ended_by: CapacityError | None = None  # why it was given up
        self.body_read = False
        self.hold: Callable[[int], None] = _unbounded  # takes room for bytes whose number was not announced
        self._receive = receive
        self._task = asyncio.current_task()
        self._watcher: asyncio.Task[None] | None = None

    @property
    def text_id(self) -> str:
        return self.id.decode("ascii")

    async def read(self, limit: int) -> bytes:
        """The body, refused as soon as it is known to be over `limit` bytes: the rest is never kept."""
        declared = self.headers.get(b"content-length", b"0")
        if len(declared) > 15 or (declared.isdigit() and int(declared) > limit):
            raise _over(limit)
        message = await self._receive()
        if not message.get("more_body") and message["type"] == "http.request":
            self.body_read = True
            body: bytes = message["body"]
            if len(body) > limit:
                raise _over(limit)
            return body
        return await self._read_rest(message, limit)

    async def _read_rest(self, message: Message, limit: int) -> bytes:
        pieces: list[bytes] = []
        size = 0
        while message["type"] == "http.request":
            size += len(message["body"])
            if size > limit:
                raise _over(limit)
            self.hold(len(message["body"]))
            pieces.append(message["body"])
            if not message.get("more_body"):
                self.body_read = True
                if size < LARGE:
                    return b"".join(pieces)
                return await asyncio.to_thread(b"".join, pieces)  # which leaves the interpreter to others
            message = await self._receive()
        raise Cancelled("the client left before its request was whole")

    def expire(self) -> None:
        """Its time is over: whatever it waits for is cancelled."""
        self._end(DeadlineExceeded("the request took longer than it may"))

    def watch(self) -> None:
        """Give up when the client leaves. Only once the body is read: nobody else may receive then."""
        if self.body_read and self._watcher is None and self._task is not None:
            self._watcher = asyncio.get_running_loop().create_task(self._await_departure())

    async def _await_departure(self) -> None:
        message = await self._receive()
        if message["type"] == "http.disconnect":
            self._end(Cancelled("the client left"))

    def _end(self, reason: CapacityError) -> None:
        if self.ended_by is None and self._task is not None:
            self.ended_by = reason
            self._task.cancel()

    def resume(self) -> None:
        """Called where the cancellation of `expire` or `watch` arrived: the task may go on and answer."""
        if self._task is not None:
            self._task.uncancel()

    async def close(self) -> None:
        """Nobody watches any more; what it held may go now, not only when garbage is collected."""
        if self._watcher is not None:
            self._watcher.cancel()
            with suppress(asyncio.CancelledError):
                await self._watcher
        self._receive, self.hold, self._task = _nobody, _unbounded, None


def _unbounded(size: int) -> None:
    pass


async def _nobody() -> Message:
    return {"type": "http.disconnect"}


def request_id(headers: Mapping[bytes, bytes]) -> bytes:
    """The name that the caller gave the request, if it is a sane one, or a new one."""
    given = headers.get(b"x-request-id")
    return given if given is not None and SANE_ID(given) else b"%024x" % random.getrandbits(96)


def _over(limit: int) -> TooLarge:
    return TooLarge(f"the body is over the limit of {limit / 1e6:g} MB (PAYLOAD_LIMIT_MB)")
