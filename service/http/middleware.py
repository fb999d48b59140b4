"""The middleware of every request, from the outside in: plain ASGI.

    RootPathMiddleware        only below a root path: adds it to paths from which a gateway has stripped it
    RequestContextMiddleware  gives the request an id, the caller's if it is a safe one; adds headers to
                              every response; counts and logs it
    CORSMiddleware            Starlette's; only if other origins may call; adds its headers to errors too
    GZipMiddleware            Starlette's
    RequestLimitMiddleware    checks host and origin; limits concurrent requests, the body and the time;
                              turns errors into responses

Middleware that is added to the application later wraps all of these.
"""

import asyncio
import random
import re
import time
from collections.abc import Mapping
from contextlib import suppress

from opentelemetry import trace
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.errors import (
    Cancelled,
    DeadlineExceeded,
    Forbidden,
    HardmaxError,
    MalformedInput,
    NotReady,
    Overloaded,
    TooLarge,
)
from service.http.compression import ENCODINGS, BodyDecompressor
from service.http.errors import DEADLINE_MESSAGE, BodyRefused, path_of, problem_response
from service.memory import Slots
from service.observability.logging import log_request
from service.settings import PAGE_FILES, Settings
from service.state import AppState
from service.wire.prices import LARGE_BYTES

match_request_id = re.compile(rb"[A-Za-z0-9._:-]{1,128}").fullmatch
match_host = re.compile(r"(?:\[(?P<address>[0-9a-f:.]+)\]|(?P<name>[^:\[\]]+))(?::\d*)?").fullmatch
SECURITY_HEADERS = ((b"x-content-type-options", b"nosniff"), (b"referrer-policy", b"no-referrer"))
MODEL_DIGEST = b"x-model-digest"
CLOSE_HEADER = (b"connection", b"close")  # while the service stops
METHODS_WITH_BODY = ("POST", "PUT", "PATCH", "DELETE")
METHODS = (*METHODS_WITH_BODY, "GET", "HEAD", "OPTIONS")  # others are counted as one
CLOUD_ROUTES = ("/dynamics", "/control", "/sequences/classify")
# exempt from MAX_CONCURRENT_REQUESTS
PROBES = ("/health", "/ready", "/metrics", "/v2/health/live", "/v2/health/ready")


class RootPathMiddleware:
    """Serve below a root path: paths begin with it, as ASGI requires, whether a gateway strips it or not.

    uvicorn's root path is for gateways that strip it; others would get 404.
    """

    def __init__(self, app: ASGIApp, root_path: str) -> None:
        self.app = app
        self._root_path = root_path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            path = scope["path"].removeprefix(self._root_path)
            is_stripped = path == scope["path"] or path[:1] not in ("", "/")  # /sentimental is another path
            scope["root_path"] = self._root_path
            scope["path"] = self._root_path + (scope["path"] if is_stripped else path or "/")
        await self.app(scope, receive, send)


class RequestContextMiddleware:
    """Give each request an id; add headers to its response, count and log it."""

    def __init__(self, app: ASGIApp, service: AppState) -> None:
        self.app = app
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        sent_id = next((value for name, value in scope["headers"] if name == b"x-request-id"), b"")
        request_id = sent_id if match_request_id(sent_id) else b"%024x" % random.getrandbits(96)
        state = scope.setdefault("state", {})
        state["request_id"] = request_id.decode("ascii")
        trace.get_current_span().set_attribute("hardmax.request_id", state["request_id"])
        status = 0
        start_s = time.perf_counter()

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = [*message.get("headers", ()), *SECURITY_HEADERS, (b"x-request-id", request_id)]
                if self._service.draining:
                    headers.append(CLOSE_HEADER)
                if "models" in state and status < 400:
                    headers.append((MODEL_DIGEST, ",".join(state["models"].values()).encode()))
                message["headers"] = headers
            await send(message)

        try:
            await self.app(scope, receive, send_with_headers)
        finally:
            seconds, method = time.perf_counter() - start_s, scope["method"]
            route = getattr(scope.get("route"), "path", "(none)")
            self._service.metrics.count_response(
                route, method if method in METHODS else "other", status, seconds
            )
            page_file = route == PAGE_FILES and status < 400  # the page has forty files
            details = {name: state[name] for name in ("error", "key", "texts") if state.get(name)}
            if "models" in state:
                details["model"] = ",".join(state["models"])
            log_request(state["request_id"], method, route, status, seconds, debug=page_file, **details)


class RequestLimitMiddleware:
    """Limit the resources of a request, and turn errors into responses."""

    def __init__(self, app: ASGIApp, service: AppState) -> None:
        self.app = app
        self._service = service
        self._host_check = HostCheck(service.settings)
        self._origin_check = OriginCheck(service.settings)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        service, headers = self._service, dict(scope["headers"])
        exchange = Exchange(scope, headers, receive, send, service)
        service.running_requests += 1
        try:
            self._host_check.check(scope, headers)
            if scope["method"] in METHODS_WITH_BODY:
                self._origin_check.check(headers)
            is_full = service.running_requests > service.settings.max_concurrent_requests
            if is_full and path_of(scope) not in PROBES:
                raise Overloaded("too many requests at once (MAX_CONCURRENT_REQUESTS); try again shortly")
            await exchange.run(self.app)
        except Exception as error:  # the edge of the request
            if not exchange.response_started:
                await problem_response(error, scope)(scope, receive, send)
            elif not isinstance(error, Cancelled):
                raise  # the response has begun: the connection is closed
        finally:
            service.running_requests -= 1


class Exchange:
    """One request and its response, with a deadline and a body limit; it ends when the caller leaves."""

    def __init__(
        self, scope: Scope, headers: Mapping[bytes, bytes], receive: Receive, send: Send, service: AppState
    ) -> None:
        self.response_started = False
        self._scope, self._receive, self._send = scope, receive, send
        self._service = service
        self._max_bytes = service.settings.payload_limit_bytes
        self._small_bytes = min(LARGE_BYTES, self._max_bytes)
        is_cloud = scope["path"].endswith(CLOUD_ROUTES)
        self._large = service.large_clouds if is_cloud else service.large_texts
        self._held: list[Slots] = []
        self._watcher: asyncio.Task[None] | None = None
        self._timeout = asyncio.timeout(service.settings.request_timeout_s)
        self._announced_bytes = int(headers.get(b"content-length", b"0")[:16])
        self._body_bytes = 0
        self._decompressor: BodyDecompressor | None = None
        if headers.get(b"content-encoding", b"").lower() in ENCODINGS:
            self._decompressor = BodyDecompressor(self._max_bytes)
            dropped = (b"content-encoding", b"content-length")
            scope["headers"] = [header for header in scope["headers"] if header[0] not in dropped]

    async def run(self, app: ASGIApp) -> None:
        """Run the application for this request.

        Raises:
            DeadlineExceeded: It took longer than REQUEST_TIMEOUT_S.
            Cancelled: The caller left.
            NotReady: The service stops, and its grace is over.
        """
        self._scope["state"] |= {"held": self._held, "timeout": self._timeout, "caller_left": False}
        try:
            async with self._timeout:
                await app(self._scope, self.receive, self.send)
        except TimeoutError:
            if not self._timeout.expired():
                raise
            if self._scope["state"]["caller_left"]:
                raise Cancelled("the client left") from None
            raise DeadlineExceeded(DEADLINE_MESSAGE) from None
        except asyncio.CancelledError:
            if not self._service.draining:
                raise
            if (task := asyncio.current_task()) is not None:
                task.uncancel()
            raise NotReady("the service is stopping") from None
        finally:
            for slots in self._held:
                slots.release()
            if self._watcher is not None:
                self._watcher.cancel()

    async def receive(self) -> Message:
        """Receive a part of the request; refuse a body that is too large."""
        if not self._body_bytes and self._announced_bytes > self._small_bytes:
            await self._expect_large_body(self._announced_bytes)
        message = await self._receive()
        if message["type"] == "http.request":
            if self._decompressor is not None:
                message = await self._expand(message, self._decompressor)
            self._body_bytes += len(message.get("body", b""))
            if self._body_bytes > self._small_bytes:
                await self._expect_large_body(self._body_bytes)
            if not message.get("more_body"):
                self._watcher = asyncio.create_task(self._watch())
        return message

    async def send(self, message: Message) -> None:
        """Send a part of the response."""
        self.response_started = True
        if message["type"] == "http.response.body" and not message.get("more_body") and self._watcher:
            self._watcher.cancel()  # at the end of the response it would assume that the caller left
        await self._send(message)

    async def _expand(self, message: Message, decompressor: BodyDecompressor) -> Message:
        is_last = not message.get("more_body")
        try:
            body = await asyncio.to_thread(decompressor.expand, message.get("body", b""), is_last=is_last)
        except HardmaxError as error:
            raise BodyRefused(error) from None
        return {**message, "body": body}

    async def _expect_large_body(self, size: int) -> None:
        """Refuse a body that is too large; wait for a slot otherwise."""
        if size > self._max_bytes:
            limit = f"the limit of {self._max_bytes / 1e6:g} MB (PAYLOAD_LIMIT_MB)"
            raise BodyRefused(TooLarge(f"the body is over {limit}"))
        await self._large.take(self._held)

    async def _watch(self) -> None:
        """Cancel the request when the caller leaves. Nothing else receives after the end of the body."""
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._scope["state"]["caller_left"] = True
        with suppress(RuntimeError):  # the request has just ended
            self._timeout.reschedule(asyncio.get_running_loop().time())


def is_own_origin(origin: bytes, host: bytes) -> bool:
    """Return whether an origin is the addressed host and port; either may leave out its scheme's port."""
    scheme, _, own = origin.partition(b"://")
    port = b":443" if scheme == b"https" else b":80"
    return own.removesuffix(port) == host.lower().removesuffix(port)


class HostCheck:
    """Refuse requests that are addressed to another host, as Starlette's TrustedHostMiddleware does.

    With DNS rebinding, a page lets its own name point to this machine and reads responses as its own. Such
    requests have the page's name as host: only the address that was connected to, which Starlette's does not
    know, and the names of this machine are allowed.
    """

    def __init__(self, settings: Settings) -> None:
        self._any_host = settings.any_host
        self._hosts = frozenset(settings.host_names)

    def check(self, scope: Scope, headers: Mapping[bytes, bytes]) -> None:
        """Raise MalformedInput for the host of another server, or for several hosts."""
        count = [name for name, _ in scope["headers"]].count(b"host")
        if count > 1 or (not count and scope["http_version"] == "1.1"):
            raise MalformedInput("send exactly one Host header")
        if not count or self._any_host:
            return
        match = match_host(headers[b"host"].decode("latin-1").lower())
        name = match and (match["address"] or match["name"])
        address, _ = scope.get("server") or ("", 0)
        if not name or not (name in self._hosts or name == address or name.endswith(".localhost")):
            raise MalformedInput("this is not a host name of this server: ALLOWED_HOSTS lists them")


class OriginCheck:
    """Refuse what a page of another site makes a visitor's browser write, unless CORS allows the origin."""

    def __init__(self, settings: Settings) -> None:
        self._origins = frozenset(settings.cors_origins)

    def check(self, headers: Mapping[bytes, bytes]) -> None:
        """Raise Forbidden for a request of a foreign origin."""
        origin, site = headers.get(b"origin", b""), headers.get(b"sec-fetch-site", b"")
        if site:  # older browsers send only the origin
            foreign = site in (b"cross-site", b"same-site")
        else:
            foreign = bool(origin) and not is_own_origin(origin, headers.get(b"host", b""))
        if foreign and not self._origins & {"*", origin.decode("latin-1")}:
            raise Forbidden("pages of this origin may not call here: it is not in CORS_ALLOW_ORIGIN")
