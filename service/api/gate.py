"""What every request passes, once: its id, key, capacity, deadline, security headers, metrics and log line.

Plain ASGI before everything: it hands requests straight to their handlers, and to FastAPI only what has none.
The edge where an unforeseen exception ends. Knows no route by name, only which paths need no key.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.api import problems
from service.api.exchange import Exchange, Header
from service.api.inflight import InFlight
from service.api.keys import Keys
from service.api.routes import Handlers
from service.errors import NotReady
from service.logs import AccessLog
from service.metrics import Metrics
from service.tracing import Tracer

SECURITY: tuple[Header, ...] = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
)
CLOSE: Header = (b"connection", b"close")


class Gate:
    def __init__(
        self,
        app: ASGIApp,
        *,
        handlers: Handlers,
        inflight: InFlight,
        keys: Keys,
        public: Collection[str],
        metrics: Metrics,
        access: AccessLog,
        tracer: Tracer | None,
        timeout_s: float,
    ) -> None:
        self.app = app
        self._handlers = handlers
        self._inflight = inflight
        self._keys = keys
        self._public = frozenset(public)
        self._metrics = metrics
        self._access = access
        self._tracer = tracer
        self._timeout_s = timeout_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        exchange = scope["exchange"] = Exchange(scope, receive, self._timeout_s)

        async def send_dressed(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._dress(exchange, message)
            await send(message)

        try:
            self._admit(exchange)
            handler = self._handlers.find(exchange)
            if handler is not None:
                await (await handler(exchange)).send(send_dressed)
            else:
                await self.app(scope, receive, send_dressed)
        except asyncio.CancelledError:
            await self._answer_cancelled(exchange, send_dressed)
        except Exception as failure:  # the edge of the request  # noqa: BLE001
            await self._answer_failure(failure, exchange, send_dressed)
        finally:
            self._inflight.leave(exchange)
            await exchange.close()
            self._record(scope, exchange)

    def _admit(self, exchange: Exchange) -> None:
        if self._keys and not self._is_public(exchange):
            self._keys.check(exchange.headers)
        if exchange.method == "POST":
            self._inflight.enter(exchange)

    def _is_public(self, exchange: Exchange) -> bool:
        path = exchange.path
        return exchange.method == "OPTIONS" or path in self._public or path.startswith("/web/")

    def _dress(self, exchange: Exchange, message: Message) -> None:
        exchange.status = message["status"]
        headers: list[Header] = list(message.get("headers", ()))
        headers += ((b"x-request-id", exchange.id), *SECURITY)
        if self._inflight.draining:
            headers.append(CLOSE)
        message["headers"] = headers

    async def _answer_cancelled(self, exchange: Exchange, send: Send) -> None:
        """The patrol or the stopping server cancelled it: the task goes on just long enough to say so."""
        reason = exchange.ended_by or NotReady("the service is stopping")
        exchange.resume()
        await self._answer_failure(reason, exchange, send)

    async def _answer_failure(self, failure: Exception, exchange: Exchange, send: Send) -> None:
        self._metrics.failed(problems.status_of(failure)[1])
        if exchange.status:
            raise failure  # its answer has begun: all that is left is to break the connection
        await problems.reply(failure, exchange).send(send)

    def _record(self, scope: Scope, exchange: Exchange) -> None:
        seconds = time.perf_counter() - exchange.started
        route = exchange.route or getattr(scope.get("route"), "path", "") or "(none)"
        self._metrics.answered(route, exchange.method, exchange.status, seconds)
        self._access.write(exchange.text_id, exchange.method, route, exchange.status, seconds)
        if self._tracer is not None:
            self._trace(self._tracer, exchange, route, exchange.started + seconds)

    def _trace(self, tracer: Tracer, exchange: Exchange, route: str, ended: float) -> None:
        traceparent = exchange.headers.get(b"traceparent")
        tracer.record(
            f"{exchange.method} {route}",
            traceparent=traceparent.decode("latin-1") if traceparent else None,
            began=exchange.started,
            ended=ended,
            attributes={
                "http.request.method": exchange.method,
                "http.route": route,
                "http.response.status_code": exchange.status,
                "hardmax.request_id": exchange.text_id,
            },
            stages=exchange.stages,
            failed=exchange.status >= 500,
        )
