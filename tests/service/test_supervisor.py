"""The supervisor of several workers gives them time for their imports."""

import signal
from typing import Any

import uvicorn
from uvicorn.supervisors.multiprocess import SIGNALS

from service.server import Supervisor


class StartingWorker:
    """A worker of uvicorn's supervisor that imports for so many polls, then answers, or ends meanwhile."""

    def __init__(self, polls: int, *, ends: bool = False) -> None:
        self.parent_conn = self.process = self
        self.remaining, self.ends = polls, ends
        self.checks: list[int] = []  # the polls that were left at each health check

    def send(self, message: bytes) -> None:
        assert message == b"ping"

    def poll(self, timeout: float) -> bool:
        self.remaining -= 1
        return self.remaining <= 0

    def is_alive(self, timeout: float | None = None) -> bool:
        if timeout is not None:
            self.checks.append(self.remaining)
        return not self.ends or timeout is not None


def test_health_checks_of_a_worker_begin_after_its_imports() -> None:
    """Workers whose imports took longer than a health check were replaced for ever."""
    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    first, second, ended = StartingWorker(3), StartingWorker(2), StartingWorker(9, ends=True)
    try:
        supervisor: Any = Supervisor(uvicorn.Config("no:app"), [])
        for workers in ([first], [first], [first, second, ended]):
            supervisor.processes = workers
            supervisor.keep_subprocess_alive()
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    assert (first.checks, second.checks, ended.checks) == ([0, 0, 0], [0], [9])
