"""Several server processes on one socket: the dead are replaced, signals passed on. Knows not what they do.

uvicorn has a supervisor too, but on SIGHUP it starts all workers anew, where ours read models and keys
again; it polls, where ours is woken; and it builds uvicorn's own server, which ends by the signal instead
of with an exit code.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from types import FrameType

from service.metrics import MULTIPROCESS_DIR, forget_process
from service.settings import Settings

log = logging.getLogger(__name__)

YOUNG_S = 5.0  # a worker that dies younger than this is not replaced at once
PAUSE_S = 1.0
MISCONFIGURED = 2  # the exit code of a worker that would end the same way every time

Work = Callable[[Settings, socket.socket, bool], int]  # serves on the socket, greets or not; its exit code


def supervise(settings: Settings, listener: socket.socket, work: Work) -> int:
    """Run `work` in `settings.workers` processes until a signal says stop. `work` is importable by name."""
    folder = os.environ.get(MULTIPROCESS_DIR) or tempfile.mkdtemp(prefix="hardmax-metrics-")
    os.environ[MULTIPROCESS_DIR] = folder
    try:
        return Supervisor(settings, listener, work).run()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class Supervisor:
    def __init__(self, settings: Settings, listener: socket.socket, work: Work) -> None:
        self._settings = settings
        self._listener = listener
        self._work = work
        self._spawn = multiprocessing.get_context("spawn")
        self._workers: dict[int, tuple[BaseProcess, float]] = {}  # by place: the process, when it started
        self._stopping = False
        self._wake_up, self._wake = os.pipe()
        self._first = True

    def run(self) -> int:
        os.set_blocking(self._wake, False)
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._on_signal)
        for place in range(self._settings.workers):
            self._start(place)
        codes: list[int] = []
        deadline = float("inf")
        while self._workers:
            if self._stopping and deadline == float("inf"):
                deadline = time.monotonic() + self._settings.shutdown_grace_s + 5
                self._stop()
            self._sleep(min(1.0, max(0.0, deadline - time.monotonic())))
            codes += self._bury()
            if time.monotonic() >= deadline:
                self._pass_on(signal.SIGKILL)
        return next((code for code in codes if code), 0)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGHUP:
            self._pass_on(signal.SIGHUP)
        else:
            self._stopping = True  # no more here: a worker may be starting at this moment

    def _stop(self) -> None:
        self._listener.close()  # once the workers close it too, who comes is refused instead of kept waiting
        self._pass_on(signal.SIGTERM)

    def _pass_on(self, number: int) -> None:
        for process, _ in self._workers.values():
            if process.pid is not None and process.is_alive():
                os.kill(process.pid, number)

    def _start(self, place: int) -> None:
        greeting = self._first
        self._first = False
        life = (self._work, self._settings, self._listener, greeting)
        process = self._spawn.Process(target=_live, args=life, name=f"worker-{place}")
        process.start()
        self._workers[place] = (process, time.monotonic())

    def _sleep(self, seconds: float) -> None:
        """Until a worker ends, a signal comes, or the time is over."""
        wait([self._wake_up, *(process.sentinel for process, _ in self._workers.values())], timeout=seconds)
        while wait([self._wake_up], timeout=0):
            os.read(self._wake_up, 1024)

    def _bury(self) -> list[int]:
        """Take note of the workers that ended, and replace them unless we are stopping. Their exit codes."""
        codes: list[int] = []
        for place, (process, started) in list(self._workers.items()):
            if process.is_alive():
                continue
            process.join()
            del self._workers[place]
            forget_process(process.pid or 0)
            code = process.exitcode or 0
            if self._stopping:
                codes.append(0 if code == -signal.SIGTERM else code)  # it had not begun to serve
            elif code == MISCONFIGURED:
                codes.append(code)
                self._stopping = True
            else:
                self._replace(place, process, started)
        return codes

    def _replace(self, place: int, process: BaseProcess, started: float) -> None:
        log.warning("worker %s ended with %s; starting another", process.pid, process.exitcode)
        if time.monotonic() - started < YOUNG_S:
            wait([self._wake_up], timeout=PAUSE_S)
        if not self._stopping:
            self._start(place)


def _live(work: Work, settings: Settings, listener: socket.socket, greeting: bool) -> None:
    """The life of a worker process. It goes when the supervisor is gone."""
    threading.Thread(target=_follow, daemon=True).start()
    sys.exit(work(settings, listener, greeting))


def _follow() -> None:
    """Stop when the supervisor ended without a word: nobody else would ever stop us."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)
