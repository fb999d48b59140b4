"""The time of a request: it ends when that is over, or when nobody waits for the answer any more."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.errors import Cancelled, CapacityError, DeadlineExceeded, NotReady
from service.http.middleware import WITH_BODY
from service.lifecycle import Service

PATROL_S = 0.05
DRAINING = "the service is stopping"


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
