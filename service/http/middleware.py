"""What every request passes, from the outside in: plain ASGI.

    RequestContext  gives the request an id, the caller's if it is a safe one; adds headers to all answers;
                    counts and logs them
    (CORS)          only where other origins may call; pages of theirs can read refusals too
    Refusals        turns errors into answers; refuses what pages of other sites send
    Deadline        ends what takes too long, and what nobody waits for any more
    Admission       a place for the request, bytes for its body and its answer (engine/account.py)

Middleware that is added to the application later lies around all of these and sees every request.
"""

import asyncio
import logging
import random
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from opentelemetry import trace
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.engine.account import RequestLimit, Reservation
from service.errors import Cancelled, DeadlineExceeded, Forbidden, HardmaxError, MalformedInput, NotReady
from service.http.problems import LATE, Refused, answer, path_of
from service.lifecycle import Service
from service.observe.logs import log_request
from service.settings import PAGE_FILES, Settings

SANE_ID = re.compile(rb"[A-Za-z0-9._:-]{1,128}").fullmatch
HOST = re.compile(r"(?:\[(?P<address>[0-9a-f:.]+)\]|(?P<name>[^:\[\]]+))(?::\d*)?").fullmatch
SECURITY = ((b"x-content-type-options", b"nosniff"), (b"referrer-policy", b"no-referrer"))
CLOSE = (b"connection", b"close")  # while the service stops: a client should go elsewhere
WITH_BODY = ("POST", "PUT", "PATCH", "DELETE")
# Answered however many requests there are.
PROBES = ("/health", "/ready", "/metrics", "/v2/health/live", "/v2/health/ready")


class RequestContext:
    """The edge of a request."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self.app = app
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        given = next((value for name, value in scope["headers"] if name == b"x-request-id"), b"")
        request_id = given if SANE_ID(given) else b"%024x" % random.getrandbits(96)
        scope.setdefault("state", {})["request_id"] = request_id.decode("ascii")
        trace.get_current_span().set_attribute("hardmax.request_id", scope["state"]["request_id"])
        status = 0
        began = time.perf_counter()

        async def send_marked(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                closing = (CLOSE,) if self._service.draining else ()
                own = (*SECURITY, (b"x-request-id", request_id), *closing)
                message["headers"] = [*message.get("headers", ()), *own]
            await send(message)

        try:
            await self.app(scope, receive, send_marked)
        finally:
            if "refused" not in scope["state"]:  # or its connection has answered and counted it
                self._record(scope, status, began, time.perf_counter())

    def _record(self, scope: Scope, status: int, began: float, ended: float) -> None:
        route = getattr(scope.get("route"), "path", "(none)")
        method, service = scope["method"], self._service
        service.metrics.answered(route, method, status, ended - began)
        quiet = route == PAGE_FILES and status < 400  # the page has forty files
        level = logging.DEBUG if quiet else logging.INFO
        request_id, error = scope["state"]["request_id"], scope["state"].get("error")
        log_request(request_id, method, route, status, ended - began, error=error, level=level)


class Refusals:
    """Nothing that an exception says about our inside reaches a caller."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self.app = app
        self._guard = Guard(service.settings)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        begun = False

        async def send_noted(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            self._guard.check(scope)
            await self.app(scope, receive, send_noted)
        except Exception as failure:  # the edge of the request
            response = answer(failure, scope)
            if not begun:
                await response(scope, receive, send)
            elif not isinstance(failure, Cancelled):
                raise  # the answer has begun: all that is left is to break the connection


class Guard:
    """Refuses what a page of another site can make a visitor's browser send.

    A page can let its own name point to this machine and then read answers as its own: such requests carry
    the page's name, and only the address that was connected to and the names of this machine are allowed.
    Writes from other origins are refused unless CORS allows them.
    """

    def __init__(self, settings: Settings) -> None:
        self._any_host = settings.any_host
        self._hosts = frozenset(settings.host_names)
        self._origins = frozenset(settings.cors_origins)

    def check(self, scope: Scope) -> None:
        hosts = [value for name, value in scope["headers"] if name == b"host"]
        if len(hosts) > 1 or (not hosts and scope["http_version"] == "1.1"):
            raise MalformedInput("send exactly one Host header")
        if hosts and not self._any_host and not self._is_ours(hosts[0], scope):
            raise MalformedInput("this is not a host name of this server: ALLOWED_HOSTS lists them")
        if scope["method"] in WITH_BODY and "*" not in self._origins:
            self._check_origin(dict(scope["headers"]))

    def _is_ours(self, host: bytes, scope: Scope) -> bool:
        given = HOST(host.decode("latin-1").lower())
        if given is None:
            return False
        name = given["address"] or given["name"]
        server = scope.get("server") or ("", 0)
        return name in self._hosts or name == server[0] or name.endswith(".localhost")

    def _check_origin(self, headers: dict[bytes, bytes]) -> None:
        origin, site = headers.get(b"origin", b""), headers.get(b"sec-fetch-site", b"")
        if site:  # what the browser knows; older ones tell only the origin
            foreign = site in (b"cross-site", b"same-site")
        else:
            foreign = bool(origin) and origin.partition(b"://")[2] != headers.get(b"host")
        if foreign and origin.decode("latin-1") not in self._origins:
            raise Forbidden("pages of this origin may not call here: it is not in CORS_ALLOW_ORIGIN")


class Deadline:
    """504 when the time is over; work that nobody waits for is cancelled."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self.app = app
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        loop = asyncio.get_running_loop()
        watcher: asyncio.Task[None] | None = None
        left = False

        async def watch() -> None:
            nonlocal left
            while (await receive())["type"] != "http.disconnect":
                pass
            left = True
            timeout.reschedule(loop.time())

        async def receive_to_the_end() -> Message:
            nonlocal watcher
            message = await receive()
            if message["type"] == "http.request" and not message.get("more_body"):
                watcher = loop.create_task(watch())  # nobody else may receive from now on
            return message

        async def send_to_the_end(message: Message) -> None:
            if message["type"] == "http.response.body" and not message.get("more_body") and watcher:
                watcher.cancel()  # from now on it would take the end of the answer for a client that left
            await send(message)

        timeout = asyncio.timeout(self._service.settings.request_timeout_s)
        scope["state"]["timeout"] = timeout
        try:
            async with timeout:
                if scope["method"] not in WITH_BODY:
                    watcher = loop.create_task(watch())
                await self.app(scope, receive_to_the_end, send_to_the_end)
        except TimeoutError:
            if not timeout.expired():
                raise
            if left:
                raise Cancelled("the client left") from None
            raise DeadlineExceeded(LATE) from None
        except asyncio.CancelledError:
            if not self._service.draining:
                raise
            if (task := asyncio.current_task()) is not None:
                task.uncancel()
            raise NotReady("the service is stopping") from None
        finally:
            if watcher is not None:
                watcher.cancel()


class Admission:
    def __init__(self, app: ASGIApp, service: Service) -> None:
        self.app = app
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or path_of(scope) in PROBES:
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


@dataclass
class Admitted:
    """One request on its way through: what it holds follows from the messages that pass."""

    scope: Scope
    receive_next: Receive
    send_on: Send
    limit: RequestLimit
    reservation: Reservation
    begun: bool = False
    entered: bool = False

    def enter(self) -> None:
        if not self.entered:
            self.limit.enter()
            self.entered = True

    def leave(self) -> None:
        if self.entered:
            self.limit.leave()
            self.entered = False

    async def receive(self) -> Message:
        try:
            if not self.begun:
                self.begun = True
                self._check_announced()
            message = await self.receive_next()
            if message["type"] == "http.request":
                whole = not message.get("more_body")
                self.reservation.arrive(len(message.get("body", b"")), whole=whole)
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
                    self.reservation.deliver(int(value))
        await self.send_on(message)
        if message["type"] == "http.response.body":
            self.reservation.sent(len(message.get("body", b"")))

    def _check_announced(self) -> None:
        for name, value in self.scope["headers"]:
            if name == b"content-length" and value.isdigit():
                self.reservation.check_body(int(value) if len(value) <= 15 else 10**15)


def _cut(scope: Scope) -> Callable[[], object] | None:
    """How to disconnect the caller from any thread, where the server can."""
    abort = scope["state"].get("abort")
    return partial(asyncio.get_running_loop().call_soon_threadsafe, abort) if abort else None
