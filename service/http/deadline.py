"""The time of a request: it ends when that is over, or when nobody waits for the answer any more."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.errors import Cancelled, CapacityError, DeadlineExceeded, NotReady
from service.http.middleware import WITH_BODY
from service.lifecycle import Service

WATCH_AFTER_S = 0.05  # most requests are answered before: a watcher costs more than a timer
DRAINING = "the service is stopping"


class Visit:
    """A request that is worked on: when its time is over, and whether its caller is still there."""

    def __init__(self, receive: Receive, timeout_s: float) -> None:
        self.ended_by: CapacityError | None = None  # why it was given up
        self._receive = receive
        self._task = asyncio.current_task()
        self._watcher: asyncio.Task[None] | None = None
        self._timers = [asyncio.get_running_loop().call_later(timeout_s, self._expire)]

    def watch(self) -> None:
        """Give up when the client leaves. Called once the body is here: nobody else may receive then."""
        self._timers.append(asyncio.get_running_loop().call_later(WATCH_AFTER_S, self._watch))

    def _watch(self) -> None:
        if self._watcher is None:
            self._watcher = asyncio.get_running_loop().create_task(self._await_departure())

    def _expire(self) -> None:
        self._end(DeadlineExceeded("the request took longer than it may"))

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
        for timer in self._timers:
            timer.cancel()
        if self._watcher is not None:
            self._watcher.cancel()
            with suppress(asyncio.CancelledError):
                await self._watcher


class Deadline:
    """504 when the time is over; work that nobody waits for is cancelled."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self.app = app
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        visit = scope["state"]["visit"] = Visit(receive, self._service.settings.request_timeout_s)
        if scope["method"] not in WITH_BODY:
            visit.watch()

        async def receive_to_the_end() -> Message:
            message = await receive()
            if message["type"] == "http.request" and not message.get("more_body"):
                visit.watch()
            return message

        try:
            await self.app(scope, receive_to_the_end, send)
        except asyncio.CancelledError:
            if visit.ended_by is None and not self._service.draining:
                raise
            visit.resume()
            raise (visit.ended_by or NotReady(DRAINING)) from None
        finally:
            await visit.close()
