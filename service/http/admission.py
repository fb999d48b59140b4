"""Who may come in: a place for each request, room for its body and for its answer."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.engine.capacity import Holding, Places, Room
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
            holding = scope["state"]["holding"] = Holding(self._room)
            body = Body(scope, receive, self._places, self._room, holding)
            try:
                await self.app(scope, body.receive, send)
            finally:
                body.close()
                holding.give_back()
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


class Body:
    """The body of one request on its way in."""

    def __init__(self, scope: Scope, receive: Receive, places: Places, room: Room, holding: Holding) -> None:
        self._scope = scope
        self._receive = receive
        self._places = places
        self._room = room
        self._holding = holding
        self._entered = False
        self._begun = False

    async def receive(self) -> Message:
        try:
            if not self._begun:
                self._begun = True
                self._check_announced()
            message = await self._receive()
            if message["type"] == "http.request":
                self._take(len(message.get("body", b"")), last=not message.get("more_body"))
        except HardmaxError as failure:
            raise Refused(failure) from None
        return message

    def _check_announced(self) -> None:
        for name, value in self._scope["headers"]:
            if name == b"content-length" and value.isdigit():
                self._room.check(int(value) if len(value) <= 15 else 10**15)

    def _take(self, size: int, *, last: bool) -> None:
        self._holding.take(size)
        if last and not self._entered:
            self._places.enter()
            self._entered = True

    def close(self) -> None:
        if self._entered:
            self._places.leave()
            self._entered = False
