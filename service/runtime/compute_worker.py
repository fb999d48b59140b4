"""The worker process of `compute.py`: it runs one job after the other, within bounds of memory and CPU time.

    python -m service.runtime.compute_worker MEMORY_BYTES NICE [MODULE..]

It reads jobs as pickles from standard input and writes answers to standard output. It ends when its input
ends, even in the middle of a job: the server has then ended.
"""

import importlib
import math
import os
import pickle
import queue
import resource
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from service.errors import InferenceError
from service.memory import release_free_memory

CHECK_S = 0.002  # between two looks at the CPU time of a job whose slice may be over
PROGRESS_S = 0.1  # minimum time between two reports of a job


def main(arguments: Sequence[str]) -> None:
    """Run the worker process: read jobs from standard input, write answers to standard output."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # the output of a job must not get between answers
    for number in (signal.SIGINT, signal.SIGTERM):  # meant for the server, which finishes its requests
        signal.signal(number, signal.SIG_IGN)
    for module in arguments[2:]:
        importlib.import_module(module)
    np.linalg.inv(np.eye(300) @ np.eye(300))  # the linear algebra library takes its buffers before the bound
    os.nice(int(arguments[1]))  # after the imports: a worker should be ready soon
    _limit_memory(int(arguments[0]))
    resident = _resident_bytes()
    jobs: queue.SimpleQueue[Any] = queue.SimpleQueue()
    cpu = Slice()
    threading.Thread(target=_read_jobs, args=(sys.stdin.buffer, jobs), daemon=True).start()
    while True:
        kind, value = _run(answers, cpu, *jobs.get())
        release_free_memory()
        _send(answers, (kind, value, _resident_bytes() - resident))


def _read_jobs(source: BinaryIO, jobs: queue.SimpleQueue[Any]) -> None:
    """Read jobs as they come; end the process when the server closes its end."""
    while True:
        try:
            jobs.put(pickle.load(source))
        except EOFError:
            os._exit(0)
        except BaseException as error:  # noqa: BLE001 - sent to the server as the answer
            jobs.put((_raise, (error,), False, math.inf))


def _raise(error: BaseException) -> None:
    raise error


class SliceEnd(BaseException):
    """Ends a job at its slice; a BaseException, so that no job catches it."""


class Slice:
    """Ends jobs that take more CPU time than they may, between two steps of the interpreter."""

    def __init__(self) -> None:
        self._running = False
        self._end_s = 0.0
        signal.signal(signal.SIGALRM, self._check)

    def run(self, job: Callable[[], Any], seconds: float) -> Any:
        """Return the result of a job that takes at most this CPU time.

        Raises:
            SliceEnd: It takes more.
        """
        self._running = seconds < math.inf
        try:
            if self._running:
                self._end_s = time.process_time() + seconds
                signal.setitimer(signal.ITIMER_REAL, seconds, CHECK_S)
            return job()
        finally:
            self._running = False
            signal.setitimer(signal.ITIMER_REAL, 0)

    def _check(self, number: int, frame: object) -> None:
        # subtle: the kernel's timers of CPU time (ITIMER_PROF) count whole ticks of up to 10 ms
        if self._running and time.process_time() >= self._end_s:
            raise SliceEnd


def _run(
    answers: BinaryIO, cpu: Slice, function: Any, args: Sequence[Any], wants_progress: bool, slice_s: float
) -> tuple[str, Any]:
    """Return the result of a job, or its error, or that its slice is over."""
    options = {"on_progress": Reporter(answers)} if wants_progress else {}
    try:
        return "result", cpu.run(partial(function, *args, **options), slice_s)
    except SliceEnd:
        return "slice", None
    except Exception as error:  # noqa: BLE001 - raised again in the server
        return "error", _portable(error)


def _portable(error: Exception) -> Exception:
    """Return the same error, or one that can be pickled, with its traceback as a note."""
    if isinstance(error, MemoryError) or "bad_alloc" in str(error) or "allocate memory" in str(error):
        return MemoryError()
    text = "".join(traceback.format_exception(error))
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # noqa: BLE001 - of the error's own class
        error = InferenceError(text)
    error.add_note(text)
    return error


class Reporter:
    """Sends the first report of a job, and later ones that are `PROGRESS_S` apart."""

    def __init__(self, answers: BinaryIO) -> None:
        self._answers = answers
        self._next = 0.0

    def __call__(self, value: Any) -> None:
        if time.monotonic() >= self._next:
            _send(self._answers, ("progress", value))
            self._next = time.monotonic() + PROGRESS_S


def _send(answers: BinaryIO, message: object) -> None:
    try:
        pickle.dump(message, answers, pickle.HIGHEST_PROTOCOL)
        answers.flush()
    except BrokenPipeError:
        os._exit(1)


def _limit_memory(more_bytes: int) -> None:
    """Let this process take `more_bytes` more than it has (Linux)."""
    if sys.platform == "linux":
        (kilobytes,) = (
            int(line.split()[1])
            for line in Path("/proc/self/status").read_text().splitlines()
            if line.startswith("VmData:")
        )
        limit = kilobytes * 1024 + more_bytes
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))


def _resident_bytes() -> int:
    """Return the resident memory, or its peak where the system has no file for it."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    main(sys.argv[1:])
