"""What every request passes, from the outside in: plain ASGI, one class for each concern.

    Observation      counts the request, writes its line in the log, and its span where traces are on
    Identity         gives it an id: the caller's if it is a sane one
    SecurityHeaders  what browsers are told with every answer
    Failures         turns what is raised further in into an answer: the edge of the request
    Hosts            refuses requests for another host name
    Origins          refuses writes that pages of other sites make
    Deadline         ends what takes too long, and what nobody waits for any more
    (Express         express.py: answers short texts here)
    Admission        a place for the request, room for its body and its answer

Middleware that is added to the application later lies around all of these and sees every request.
"""

from __future__ import annotations

import asyncio
import random
import re
import time
from contextlib import suppress

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.engine.capacity import Holding, Places, Room
from service.errors import (
    Cancelled,
    CapacityError,
    DeadlineExceeded,
    Forbidden,
    HardmaxError,
    MalformedInput,
    NotReady,
)
from service.http.problems import Refused, answer
from service.lifecycle import Service
from service.settings import Settings

SANE_ID = re.compile(rb"[A-Za-z0-9._:-]{1,128}").fullmatch
HOST = re.compile(r"(?:\[(?P<address>[0-9a-f:.]+)\]|(?P<name>[^:\[\]]+))(?::\d*)?").fullmatch
SECURITY = ((b"x-content-type-options", b"nosniff"), (b"referrer-policy", b"no-referrer"))
CLOSE = (b"connection", b"close")
WITH_BODY = ("POST", "PUT", "PATCH", "DELETE")
PATROL_S = 0.05
PROBES = (
    "/health",
    "/ready",
    "/metrics",
    "/v2/health/live",
    "/v2/health/ready",
)  # answered however full it is
DRAINING = "the service is stopping"


class Observation:
    """The numbers and the log line of a request, when it is over."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self.app = app
        self._metrics = service.metrics
        self._access = service.access
        self._tracer = service.tracer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        scope.setdefault("state", {})
        status = 0
        began = time.perf_counter()

        async def note_status(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self.app(scope, receive, note_status)
        finally:
            self._record(scope, status, began, time.perf_counter())

    def _record(self, scope: Scope, status: int, began: float, ended: float) -> None:
        route = getattr(scope.get("route"), "path", "(none)")
        method, state = scope["method"], scope["state"]
        self._metrics.answered(route, method, status, ended - began)
        self._access.write(state["request_id"], method, route, status, ended - began)
        if self._tracer is not None:
            traceparent = dict(scope["headers"]).get(b"traceparent")
            self._tracer.record(
                f"{method} {route}",
                traceparent=traceparent.decode("latin-1") if traceparent else None,
                began=began,
                ended=ended,
                attributes={
                    "http.request.method": method,
                    "http.route": route,
                    "http.response.status_code": status,
                    "hardmax.request_id": state["request_id"],
                },
                stages=state.get("stages", ()),
                failed=status >= 500,
            )


class Identity:
    """`request.state.request_id`, and the header x-request-id of the answer."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        given = next((value for name, value in scope["headers"] if name == b"x-request-id"), b"")
        name = given if SANE_ID(given) else b"%024x" % random.getrandbits(96)
        scope["state"]["request_id"] = name.decode("ascii")

        async def send_named(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), (b"x-request-id", name)]
            await send(message)

        await self.app(scope, receive, send_named)


class SecurityHeaders:
    """Headers for browsers; and while the service stops, the one that asks a client to go elsewhere."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self.app = app
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                closing = (CLOSE,) if self._service.draining else ()
                message["headers"] = [*message.get("headers", ()), *SECURITY, *closing]
            await send(message)

        await self.app(scope, receive, send_with_headers)


class Failures:
    """Answers what fails further in. Nothing that an exception says about our inside reaches a caller."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = False

        async def note_start(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self.app(scope, receive, note_start)
        except Exception as failure:  # the edge of the request
            if scope["type"] != "http":
                raise
            response = answer(failure, scope)
            if not started:
                await response(scope, receive, send)
            elif not isinstance(failure, Cancelled):
                raise  # the answer has begun: all that is left is to break the connection


class Visit:
    """A request that is worked on: when its time is over, and whether its caller is still there."""

    __slots__ = ("_receive", "_task", "_watcher", "began", "deadline", "ended_by", "whole")

    def __init__(self, receive: Receive, timeout_s: float) -> None:
        self.began = time.perf_counter()
        self.deadline = self.began + timeout_s
        self.ended_by: CapacityError | None = None  # why it was given up
        self.whole = False  # its body has arrived
        self._receive = receive
        self._task = asyncio.current_task()
        self._watcher: asyncio.Task[None] | None = None

    def expire(self) -> None:
        """Its time is over: whatever it waits for is cancelled."""
        self._end(DeadlineExceeded("the request took longer than it may"))

    def watch(self) -> None:
        """Give up when the client leaves. Only once the body is here: nobody else may receive then."""
        if self.whole and self._watcher is None and self._task is not None:
            self._watcher = asyncio.get_running_loop().create_task(self._await_departure())

    async def _await_departure(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._end(Cancelled("the client left"))

    def _end(self, reason: CapacityError) -> None:
        if self.ended_by is None and self._task is not None:
            self.ended_by = reason
            self._task.cancel()

    def resume(self) -> None:
        """Called where the cancellation arrived: the task may go on and answer."""
        if self._task is not None:
            self._task.uncancel()

    async def close(self) -> None:
        self._task = None
        if self._watcher is not None:
            self._watcher.cancel()
            with suppress(asyncio.CancelledError):
                await self._watcher


class Patrol:
    """Ends the late and the abandoned, looking at all requests a few times a second.

    A timer and a watcher for each would cost more: most requests are answered before its first round.
    """

    def __init__(self) -> None:
        self.visits: set[Visit] = set()

    async def run(self) -> None:
        """For the life of the application."""
        while True:
            await asyncio.sleep(PATROL_S)
            now = time.perf_counter()
            for visit in tuple(self.visits):
                if now > visit.deadline:
                    visit.expire()
                elif now - visit.began > PATROL_S:
                    visit.watch()


class Deadline:
    """504 when the time is over; work that nobody waits for is cancelled."""

    def __init__(self, app: ASGIApp, service: Service, patrol: Patrol) -> None:
        self.app = app
        self._service = service
        self._visits = patrol.visits
        self._timeout_s = service.settings.request_timeout_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        visit = scope["state"]["visit"] = Visit(receive, self._timeout_s)
        visit.whole = scope["method"] not in WITH_BODY

        async def receive_to_the_end() -> Message:
            message = await receive()
            if message["type"] == "http.request" and not message.get("more_body"):
                visit.whole = True
            return message

        self._visits.add(visit)
        try:
            await self.app(scope, receive_to_the_end, send)
        except asyncio.CancelledError:
            if visit.ended_by is None and not self._service.draining:
                raise
            visit.resume()
            raise (visit.ended_by or NotReady(DRAINING)) from None
        finally:
            self._visits.discard(visit)
            await visit.close()


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


class Hosts:
    """Refuses names that are not this server's.

    A page can let its own name point to this machine and then read answers as its own: such requests carry
    the page's name. The address that was connected to and the names of this machine are always allowed.
    """

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self.app = app
        self._any = settings.any_host
        self._names = frozenset(settings.host_names)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            hosts = [value for name, value in scope["headers"] if name == b"host"]
            if len(hosts) > 1 or (not hosts and scope["http_version"] == "1.1"):
                raise MalformedInput("send one Host header")
            if hosts and not self._any and not self._is_ours(hosts[0], scope):
                raise MalformedInput("this server has another name (ALLOWED_HOSTS lists what it answers to)")
        await self.app(scope, receive, send)

    def _is_ours(self, host: bytes, scope: Scope) -> bool:
        given = HOST(host.decode("latin-1").lower())
        if given is None:
            return False
        name = given["address"] or given["name"]
        server = scope.get("server") or ("", 0)
        return name in self._names or name == server[0] or name.endswith(".localhost")


class Origins:
    """Refuses writes that pages of other sites make through a visitor's browser, unless CORS allows them."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self.app = app
        self._allowed = frozenset(settings.cors_origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] in WITH_BODY and "*" not in self._allowed:
            host = origin = site = b""
            for name, value in scope["headers"]:
                if name == b"host":
                    host = value
                elif name == b"origin":
                    origin = value
                elif name == b"sec-fetch-site":
                    site = value
            if site:  # what the browser knows; older ones tell only the origin
                foreign = site in (b"cross-site", b"same-site")
            else:
                foreign = bool(origin) and origin.partition(b"://")[2] != host
            if foreign and origin.decode("latin-1") not in self._allowed:
                raise Forbidden("pages of this site may not ask here: it is not in CORS_ALLOW_ORIGIN")
        await self.app(scope, receive, send)
