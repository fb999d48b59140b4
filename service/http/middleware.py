"""What every request passes, from the outside in: plain ASGI, one class for each concern.

    Observation      counts the request, writes its line in the log, and its span where traces are on
    Identity         gives it an id: the caller's if it is a sane one
    SecurityHeaders  what browsers are told with every answer
    Failures         turns what is raised further in into an answer: the edge of the request
    Hosts            refuses requests for another host name
    Origins          refuses writes that pages of other sites make
    Deadline         deadline.py: ends what takes too long, and what nobody waits for any more
    Admission        admission.py: a place for the request, room for its body and its answer
    Express          express.py: answers short texts here

Middleware that is added to the application later lies around all of these and sees every request.
"""

from __future__ import annotations

import random
import re
import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.errors import Cancelled, Forbidden, MalformedInput
from service.http.problems import answer
from service.lifecycle import Service
from service.settings import Settings

SANE_ID = re.compile(rb"[A-Za-z0-9._:-]{1,128}").fullmatch
HOST = re.compile(r"(?:\[(?P<address>[0-9a-f:.]+)\]|(?P<name>[^:\[\]]+))(?::\d*)?").fullmatch
SECURITY = ((b"x-content-type-options", b"nosniff"), (b"referrer-policy", b"no-referrer"))
CLOSE = (b"connection", b"close")
WITH_BODY = ("POST", "PUT", "PATCH", "DELETE")


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
                raise MalformedInput("send exactly one Host header")
            if hosts and not self._any and not self._is_ours(hosts[0], scope):
                raise MalformedInput("this is not a host name of this server: ALLOWED_HOSTS lists them")
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
                raise Forbidden("pages of this origin may not call here: it is not in CORS_ALLOW_ORIGIN")
        await self.app(scope, receive, send)
