"""Who may come in: a place for each request, room for its body and for its answer."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.engine.capacity import Holding
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
    """A place for a request once its body is whole; room for the body as it arrives, and for its answer."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self.app = app
        self._room = service.room
        self._places = service.places
        self._reading_places = service.reading_places

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
        elif scope["method"] in WITH_BODY:
            await self._write(scope, receive, send)
        elif scope["path"].removeprefix(scope.get("root_path", "")) in PROBES:
            await self.app(scope, receive, send)
        else:
            await self._read(scope, receive, send)

    async def _read(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._reading_places.enter()
        try:
            await self.app(scope, receive, send)
        finally:
            self._reading_places.leave()

    async def _write(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._places.check()  # a refusal costs little here, and much behind the routes
        holding = scope["state"]["holding"] = Holding(self._room)
        begun = entered = False

        async def receive_held() -> Message:
            nonlocal begun, entered
            try:
                if not begun:
                    begun = True
                    self._check_announced(scope)
                message = await receive()
                if message["type"] == "http.request":
                    holding.take(len(message.get("body", b"")))
                    if not message.get("more_body") and not entered:
                        self._places.enter()
                        entered = True
            except HardmaxError as failure:
                raise Refused(failure) from None
            return message

        try:
            await self.app(scope, receive_held, send)
        finally:
            if entered:
                self._places.leave()
            holding.give_back()

    def _check_announced(self, scope: Scope) -> None:
        for name, value in scope["headers"]:
            if name == b"content-length" and value.isdigit():
                self._room.check(int(value) if len(value) <= 15 else 10**15)
