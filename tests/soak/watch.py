"""Looks at a process and its children once a second: memory, open files, threads."""

import threading
from contextlib import suppress
from dataclasses import dataclass
from typing import Self

import psutil

EVERY_S = 1.0
PIPES = 2  # that the service has to each compute process


def is_compute(process: psutil.Process) -> bool:
    """Whether it runs the jobs of `service/runtime/compute.py`."""
    try:
        return any("compute_worker" in part for part in process.cmdline())
    except psutil.NoSuchProcess:  # it ended meanwhile, as these do
        return True


@dataclass(frozen=True)
class Sample:
    memory_mb: float  # a page that several processes share counts once
    server_mb: float  # of it, without compute processes, of which one or two wait for the next job
    files: int  # without those of compute processes
    threads: int


class Watch:
    """Samples from entering to leaving the block."""

    def __init__(self, pid: int) -> None:
        self._process = psutil.Process(pid)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self.samples: list[Sample] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._over.set()
        self._thread.join()

    def now(self) -> Sample:
        """Add up what the living processes have."""
        total = Sample(0.0, 0.0, 0, 0)
        for each in (self._process, *self._process.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):  # it ended meanwhile
                memory_mb, of_server = each.memory_full_info().pss / 1e6, not is_compute(each)
                total = Sample(
                    total.memory_mb + memory_mb,
                    total.server_mb + of_server * memory_mb,
                    total.files + (each.num_fds() if of_server else -PIPES),
                    total.threads + each.num_threads(),
                )
        return total

    def _look(self) -> None:
        while not self._over.wait(EVERY_S):
            try:
                self.samples.append(self.now())
            except psutil.NoSuchProcess:  # a worker that a fault has ended
                continue
