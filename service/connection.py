"""One HTTP connection: uvicorn's, but that it shows short requests to the express lane first.

A request is offered before uvicorn makes a task for it, as soon as its body is there: many clients send it
right behind the head. What is not there within a moment, and what the lane does not take or hands over later,
starts as it always would. What is not HTTP at all is answered in our error shape. The only module that knows
the inside of uvicorn.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from service.api.exchange import JSON, NO_STORE, Header
from service.api.express import LONGEST_BODY, METHOD, PATH, Express
from service.api.gate import CLOSE, SECURITY


def _lines(*headers: Header) -> bytes:
    return b"".join([b"%b: %b\r\n" % header for header in headers])


OK = b"HTTP/1.1 200 OK\r\n" + _lines((b"content-type", JSON), NO_STORE, *SECURITY)
NOT_HTTP = b'{"error": {"type": "malformed_input", "message": "the request is not HTTP", "param": null}}'
BAD_REQUEST = b"HTTP/1.1 400 Bad Request\r\n" + _lines(
    (b"content-type", JSON), (b"content-length", b"%d" % len(NOT_HTTP)), CLOSE
)


PATIENCE_S = 0.005  # for a body that is still on its way


class Connection(HttpToolsProtocol):
    """`held` is the request that has not started yet."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._express: Express = self.config.app.state.service.express  # type: ignore[union-attr]
        self._reading = False
        self._held: Held | None = None
        self._patience: asyncio.TimerHandle | None = None

    def is_silent(self) -> bool:
        """Nothing was asked yet."""
        return self.cycle is None

    def data_received(self, data: bytes) -> None:
        self._reading = True
        super().data_received(data)
        self._reading = False
        if self._held is None or self._patience is not None:
            return
        if self.expect_100_continue or not self._held.is_short():
            self._give_up()
        else:
            self._patience = self.loop.call_later(PATIENCE_S, self._give_up)

    def connection_lost(self, exc: Exception | None) -> None:
        self._give_up()  # the gate takes note of who left
        super().connection_lost(exc)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        scope = cycle.scope
        if self._reading and scope["path"] == PATH and scope["method"] == METHOD:
            self._held = Held(self, cycle, app)
        else:
            self.start(cycle, app)

    def start(self, cycle: RequestResponseCycle, app: Any) -> None:
        """As uvicorn does: in a task of its own."""
        super()._start_asgi_task(cycle, app)

    def on_message_complete(self) -> None:
        super().on_message_complete()
        held = self._let_go()
        if held is None:
            return
        if self.flow.write_paused or not self._express.offer(held.headers(), bytes(held.cycle.body), held):
            held.hand_over()

    def _give_up(self) -> None:
        if (held := self._let_go()) is not None:
            held.hand_over()

    def _let_go(self) -> Held | None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None
        held, self._held = self._held, None
        return held

    def send_400_response(self, msg: str) -> None:
        self.transport.write(BAD_REQUEST + b"\r\n" + NOT_HTTP)
        self.transport.close()


class Held:
    """A request that has no task: an `express.Caller`."""

    __slots__ = ("app", "connection", "cycle")

    def __init__(self, connection: Connection, cycle: RequestResponseCycle, app: Any) -> None:
        self.connection = connection
        self.cycle = cycle
        self.app = app

    def headers(self) -> dict[bytes, bytes]:
        return dict(self.cycle.scope["headers"])

    def is_short(self) -> bool:
        """It says so itself."""
        announced = self.headers().get(b"content-length", b"")
        return len(announced) <= 4 and announced.isdigit() and int(announced) <= LONGEST_BODY

    def answer(self, request_id: bytes, body: bytes) -> bool:
        """What `cycle.send` does with the two messages of an answer, in one write."""
        cycle, connection = self.cycle, self.connection
        if cycle.disconnected or cycle.transport.is_closing():
            return False
        own = _lines(*cycle.default_headers) if cycle.keep_alive else _lines(*cycle.default_headers, CLOSE)
        head = b"%b%bx-request-id: %b\r\ncontent-length: %d\r\n\r\n" % (OK, own, request_id, len(body))
        cycle.transport.write(head + body)
        cycle.response_started = cycle.response_complete = True
        if not cycle.keep_alive:
            cycle.transport.close()
        connection.on_response_complete()
        return True

    def hand_over(self) -> None:
        self.connection.start(self.cycle, self.app)
