"""What every request passes, from the outside in: plain ASGI.

    RequestContext  gives the request an id, the caller's if it is a safe one; refuses what pages of other
                    sites send; turns errors into answers; adds headers to all answers; counts and logs them
    Deadline        deadline.py: ends what takes too long, and what nobody waits for any more
    Admission       admission.py: a place for the request, bytes for its body and its answer

Middleware that is added to the application later lies around all of these and sees every request.
"""

from __future__ import annotations

import logging
import random
import re
import time

from opentelemetry import trace
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.errors import Cancelled, Forbidden, MalformedInput
from service.http.problems import answer
from service.lifecycle import FILES, Service
from service.observe.logs import log_request
from service.settings import Settings

SANE_ID = re.compile(rb"[A-Za-z0-9._:-]{1,128}").fullmatch
HOST = re.compile(r"(?:\[(?P<address>[0-9a-f:.]+)\]|(?P<name>[^:\[\]]+))(?::\d*)?").fullmatch
SECURITY = ((b"x-content-type-options", b"nosniff"), (b"referrer-policy", b"no-referrer"))
CLOSE = (b"connection", b"close")  # while the service stops: a client should go elsewhere
WITH_BODY = ("POST", "PUT", "PATCH", "DELETE")


class RequestContext:
    """The edge of a request. Nothing that an exception says about our inside reaches a caller."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self.app = app
        self._service = service
        self._guard = Guard(service.settings)

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
            self._guard.check(scope)
            await self.app(scope, receive, send_marked)
        except Exception as failure:  # the edge of the request
            response = answer(failure, scope)
            if not status:
                await response(scope, receive, send_marked)
            elif not isinstance(failure, Cancelled):
                raise  # the answer has begun: all that is left is to break the connection
        finally:
            if "refused" not in scope["state"]:  # or its connection has answered and counted it
                self._record(scope, status, began, time.perf_counter())

    def _record(self, scope: Scope, status: int, began: float, ended: float) -> None:
        route = getattr(scope.get("route"), "path", "(none)")
        method, service = scope["method"], self._service
        service.metrics.answered(route, method, status, ended - began)
        level = logging.DEBUG if route == FILES and status < 400 else logging.INFO  # forty with each page
        log_request(scope["state"]["request_id"], method, route, status, ended - began, level)


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
