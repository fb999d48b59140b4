"""The time of a request: it ends when that is over, or when nobody waits for the answer any more."""

from __future__ import annotations

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.errors import Cancelled, DeadlineExceeded, NotReady
from service.http.middleware import WITH_BODY
from service.lifecycle import Service


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

        timeout = asyncio.timeout(self._service.settings.request_timeout_s)
        scope["state"]["timeout"] = timeout
        try:
            async with timeout:
                if scope["method"] not in WITH_BODY:
                    watcher = loop.create_task(watch())
                await self.app(scope, receive_to_the_end, send)
        except TimeoutError:
            if not timeout.expired():
                raise
            if left:
                raise Cancelled("the client left") from None
            raise DeadlineExceeded("the request took longer than it may") from None
        except asyncio.CancelledError:
            if not self._service.draining:
                raise
            if (task := asyncio.current_task()) is not None:
                task.uncancel()
            raise NotReady("the service is stopping") from None
        finally:
            if watcher is not None:
                watcher.cancel()
