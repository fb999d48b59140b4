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
        family = [self._process, *self._process.children(recursive=True)]
        memory_mb = [each.memory_full_info().pss / 1e6 for each in family]
        return Sample(
            sum(memory_mb),
            sum(mb for each, mb in zip(family, memory_mb, strict=True) if not is_compute(each)),
            sum(-PIPES if is_compute(each) else each.num_fds() for each in family),
            sum(each.num_threads() for each in family),
        )

    def _look(self) -> None:
        while not self._over.wait(EVERY_S):
            try:
                self.samples.append(self.now())
            except psutil.NoSuchProcess:  # a worker that a fault has ended
                continue
