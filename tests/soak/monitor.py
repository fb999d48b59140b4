"""Samples the memory, open files and threads of a process and its children once a second."""

import threading
from contextlib import suppress
from dataclasses import dataclass
from typing import Self

import psutil

INTERVAL_S = 1.0
PIPES_PER_COMPUTE_PROCESS = 2  # that the service keeps open


def is_compute(process: psutil.Process) -> bool:
    """Whether it runs the jobs of `service/runtime/compute.py`."""
    try:
        return any("compute_worker" in part for part in process.cmdline())
    except psutil.NoSuchProcess:  # it has ended, as compute processes do
        return True


@dataclass(frozen=True)
class Sample:
    memory_mb: float  # a page that several processes share counts once
    server_mb: float  # memory without compute processes, of which one or two wait for the next job
    files: int  # without those of compute processes
    threads: int


class ResourceMonitor:
    """Takes samples from entering to leaving the block."""

    def __init__(self, pid: int) -> None:
        self._process = psutil.Process(pid)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.samples: list[Sample] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stop.set()
        self._thread.join()

    def sample(self) -> Sample:
        """Add up what the living processes use."""
        total = Sample(0.0, 0.0, 0, 0)
        for process in (self._process, *self._process.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):  # it has ended
                memory_mb, of_server = process.memory_full_info().pss / 1e6, not is_compute(process)
                total = Sample(
                    total.memory_mb + memory_mb,
                    total.server_mb + of_server * memory_mb,
                    total.files + (process.num_fds() if of_server else -PIPES_PER_COMPUTE_PROCESS),
                    total.threads + process.num_threads(),
                )
        return total

    def _run(self) -> None:
        while not self._stop.wait(INTERVAL_S):
            with suppress(psutil.NoSuchProcess):  # a worker that a fault has ended
                self.samples.append(self.sample())
