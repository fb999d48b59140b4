"""A server that watches how long its event loop is held up. `python tests/support/stalls.py`, then SIGUSR1.

Two things can hold the loop: what it does itself, and another thread that keeps the interpreter's lock. Both
are counted in CPU time of the thread that does it, so that a busy machine changes nothing. A step of another
thread is what happens between two events of its profile; it held the loop only if the loop, which wants to
tick every millisecond, hardly ticked meanwhile.
"""

import asyncio
import json
import signal
import sys
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import FrameType
from typing import Any

import httpx
from fastapi import FastAPI
from server import Server, eventually

from service.app import create_app
from service.server import serve
from service.settings import Settings, load_settings

TICK_S = 0.001
PROMISED_S = 0.05  # docs/verification.md
HELD_S = 0.25  # there too: the one step that parses a JSON body
LONGEST_S = 0.025  # half of what is promised: a whole document at once takes as long
FEW = 2  # ticks come in between a step's end and this thread's being asked: the lock is let go there


class Watch:
    """The longest turn of the loop and the longest step of other threads since it was last asked."""

    def __init__(self) -> None:
        self._ticks = 0
        self._turn_began = 0.0
        self._steps = threading.local()
        self.turn_s = 0.0
        self.step: tuple[float, str] = (0.0, "")

    def follow(self) -> None:
        """Called before other threads are made."""
        threading.setprofile(self._on_event)

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Called in the loop."""
        loop.add_signal_handler(signal.SIGUSR1, self._tell)
        self._turn_began = time.thread_time()
        self._tick(loop)

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        now = time.thread_time()
        self.turn_s = max(self.turn_s, now - self._turn_began)
        self._turn_began = now
        self._ticks += 1
        loop.call_later(TICK_S, self._tick, loop)

    def _on_event(self, frame: FrameType, event: str, arg: Any) -> None:
        steps = self._steps
        spent_s = time.thread_time() - getattr(steps, "began", float("inf"))
        if spent_s > self.step[0] and self._ticks - steps.ticks <= FEW:
            what = getattr(arg, "__qualname__", "") if event.startswith("c_") else ""
            self.step = (spent_s, f"{frame.f_code.co_qualname} {frame.f_lineno} {event} {what}")
        steps.ticks = self._ticks
        steps.began = time.thread_time()

    def _tell(self) -> None:
        found = {"turn_s": self.turn_s, "step_s": self.step[0], "step": self.step[1]}
        print(json.dumps(found), flush=True)  # noqa: T201
        self.turn_s, self.step = 0.0, (0.0, "")


def told(server: Server) -> dict[str, Any]:
    """The longest stalls since this was last asked."""
    before = len(server.lines)
    server.process.send_signal(signal.SIGUSR1)
    eventually(lambda: len(server.lines) > before)
    return dict(json.loads(server.lines[before]))


def stall_of(server: Server, client: httpx.Client, path: str, body: bytes, status: int) -> dict[str, Any]:
    """The longest stalls during a request; the least of three, for what holds the loop does so every time."""
    found = []
    for _ in range(3):
        told(server)
        assert client.post(path, content=body).status_code == status
        found.append(told(server))
        if max(found[-1]["turn_s"], found[-1]["step_s"]) < LONGEST_S:
            break
    return min(found, key=lambda stall: max(stall["turn_s"], stall["step_s"]))


def watched(settings: Settings) -> FastAPI:
    """The application, with a watch over its loop."""
    watch = Watch()
    watch.follow()
    app = create_app(settings)
    lifespan = app.router.lifespan_context

    @asynccontextmanager
    async def watching(app: FastAPI) -> AsyncIterator[None]:
        async with lifespan(app):
            watch.start(asyncio.get_running_loop())
            yield

    app.router.lifespan_context = watching
    return app


if __name__ == "__main__":
    sys.exit(serve(load_settings(), watched))
