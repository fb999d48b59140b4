"""Looks at a process and its children once a second: memory, open files, threads."""

import threading
from dataclasses import dataclass
from typing import Self

import psutil

EVERY_S = 1.0
PIPES = 2  # that the service has to each compute process


def is_compute(process: psutil.Process) -> bool:
    """Whether it runs the jobs of `service/runtime/compute.py`."""
    return any("compute_worker" in part for part in process.cmdline())


@dataclass(frozen=True)
class Sample:
    memory_mb: float
    files: int  # without those of compute processes, of which one or two wait for the next job
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
        family = [self._process, *self._process.children(recursive=True)]
        return Sample(
            sum(each.memory_info().rss for each in family) / 1e6,
            sum(-PIPES if is_compute(each) else each.num_fds() for each in family),
            sum(each.num_threads() for each in family),
        )

    def _look(self) -> None:
        while not self._over.wait(EVERY_S):
            try:
                self.samples.append(self.now())
            except psutil.NoSuchProcess:  # a worker that a fault has ended
                continue
