"""A server that measures the stalls of its event loop: `python tests/support/stall_server.py`, then SIGUSR1.

Two things can stall the loop: its own work, and another thread that keeps the interpreter lock. Both are
measured in CPU time of the thread that works, which does not depend on the load of the machine. A step of
another thread is what happens between two of its profile events; it stalled the loop only if the loop, which
ticks every millisecond, hardly ticked during the step.
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

from service.app import Lifespan, make_app
from service.server import serve
from service.settings import Settings, load_settings
from service.state import AppState

TICK_S = 0.001
MAX_STALL_S = 0.05  # docs/concepts/verification.md
MAX_PARSE_STALL_S = 0.25  # docs/concepts/verification.md: the one step that parses a JSON body
TARGET_STALL_S = 0.025  # half of MAX_STALL_S: handling a whole document at once takes that long
MAX_TICKS = 2  # ticks between the end of a step and its profile event, when the lock is free


class StallMonitor:
    """The longest turn of the loop and the longest step of other threads since the last report."""

    def __init__(self) -> None:
        self._ticks = 0
        self._turn_start_s = 0.0
        self._steps = threading.local()
        self.turn_s = 0.0
        self.step: tuple[float, str] = (0.0, "")

    def install_profiler(self) -> None:
        """Measure the steps of threads that are started after this."""
        threading.setprofile(self._on_event)

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Measure the turns of the running loop, and report at SIGUSR1."""
        loop.add_signal_handler(signal.SIGUSR1, self._report)
        self._turn_start_s = time.thread_time()
        self._tick(loop)

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        now_s = time.thread_time()
        self.turn_s = max(self.turn_s, now_s - self._turn_start_s)
        self._turn_start_s = now_s
        self._ticks += 1
        loop.call_later(TICK_S, self._tick, loop)

    def _on_event(self, frame: FrameType, event: str, arg: Any) -> None:
        steps = self._steps
        elapsed_s = time.thread_time() - getattr(steps, "start_s", float("inf"))
        if elapsed_s > self.step[0] and self._ticks - steps.ticks <= MAX_TICKS:
            function = getattr(arg, "__qualname__", "") if event.startswith("c_") else ""
            self.step = (elapsed_s, f"{frame.f_code.co_qualname} {frame.f_lineno} {event} {function}")
        steps.ticks = self._ticks
        steps.start_s = time.thread_time()

    def _report(self) -> None:
        report = {"turn_s": self.turn_s, "step_s": self.step[0], "step": self.step[1]}
        print(json.dumps(report), flush=True)  # noqa: T201
        self.turn_s, self.step = 0.0, (0.0, "")


def read_stalls(server: Server) -> dict[str, Any]:
    """Return the longest stalls since the last call."""
    n_lines = len(server.lines)
    server.process.send_signal(signal.SIGUSR1)
    eventually(lambda: len(server.lines) > n_lines)
    return dict(json.loads(server.lines[n_lines]))


def measure_stall(
    server: Server, client: httpx.Client, path: str, body: bytes, status: int
) -> dict[str, Any]:
    """Return the longest stalls during a request: the least of three, as a real stall happens every time."""
    stalls = []
    for _ in range(3):
        read_stalls(server)
        assert client.post(path, content=body).status_code == status
        stalls.append(read_stalls(server))
        if max(stalls[-1]["turn_s"], stalls[-1]["step_s"]) < TARGET_STALL_S:
            break
    return min(stalls, key=lambda stall: max(stall["turn_s"], stall["step_s"]))


def create_monitored_app(settings: Settings, lifespan: Lifespan) -> FastAPI:
    """Create the application with a monitor of its event loop."""
    monitor = StallMonitor()
    monitor.install_profiler()

    @asynccontextmanager
    async def monitored(service: AppState, app: FastAPI) -> AsyncIterator[None]:
        async with lifespan(service, app):
            monitor.start(asyncio.get_running_loop())
            yield

    return make_app(settings, monitored)


if __name__ == "__main__":
    sys.exit(serve(load_settings(), create_monitored_app))
