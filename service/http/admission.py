"""Who may come in: a place for each request, and bytes for its body and its answer (engine/account.py)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.engine.account import RequestLimit, Reservation
from service.errors import HardmaxError
from service.http.middleware import WITH_BODY
from service.http.problems import Refused
from service.lifecycle import Service

PROBES = (
    "/health",
    "/ready",
    "/metrics",
    "/v2/health/live",
    "/v2/health/ready",
)  # answered however full it is


class Admission:
    def __init__(self, app: ASGIApp, service: Service) -> None:
        self.app = app
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"].removeprefix(scope.get("root_path", "")) in PROBES:
            await self.app(scope, receive, send)
            return
        writes = scope["method"] in WITH_BODY
        limit = self._service.writing if writes else self._service.reading
        limit.check()  # a refusal costs little here, and much behind the routes
        reservation = Reservation(self._service.budget, _cut(scope))
        scope["state"]["reservation"] = reservation
        request = Admitted(scope, receive, send, limit, reservation)
        try:
            if not writes:
                request.enter()
            await self.app(scope, request.receive, request.send)
        finally:
            request.leave()
            reservation.end()


class Admitted:
    """One request on its way through: what it holds follows from the messages that pass."""

    def __init__(
        self, scope: Scope, receive: Receive, send: Send, limit: RequestLimit, reservation: Reservation
    ) -> None:
        self._scope = scope
        self._receive = receive
        self._send = send
        self._limit = limit
        self._reservation = reservation
        self._begun = self._entered = False

    def enter(self) -> None:
        if not self._entered:
            self._limit.enter()
            self._entered = True

    def leave(self) -> None:
        if self._entered:
            self._limit.leave()
            self._entered = False

    async def receive(self) -> Message:
        try:
            if not self._begun:
                self._begun = True
                self._check_announced()
            message = await self._receive()
            if message["type"] == "http.request":
                whole = not message.get("more_body")
                self._reservation.arrive(len(message.get("body", b"")), whole=whole)
                if whole:
                    self.enter()
        except HardmaxError as failure:
            raise Refused(failure) from None
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.leave()  # an answer that nobody reads takes no place
            for name, value in message.get("headers", ()):
                if name == b"content-length":
                    self._reservation.deliver(int(value))
        await self._send(message)
        if message["type"] == "http.response.body":
            self._reservation.sent(len(message.get("body", b"")))

    def _check_announced(self) -> None:
        for name, value in self._scope["headers"]:
            if name == b"content-length" and value.isdigit():
                self._reservation.check_body(int(value) if len(value) <= 15 else 10**15)


def _cut(scope: Scope) -> Callable[[], object] | None:
    """How to disconnect the caller from any thread, where the server can."""
    abort = scope["state"].get("abort")
    return partial(asyncio.get_running_loop().call_soon_threadsafe, abort) if abort else None
