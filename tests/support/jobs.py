"""Jobs for the compute process."""

import os
import time
from collections.abc import Callable

import numpy as np

from service.errors import InvalidInput

PID = os.getpid


def sleep(seconds: float) -> int:
    time.sleep(seconds)
    return os.getpid()


def allocate(megabytes: int) -> int:
    return np.ones(megabytes * 125_000).nbytes


def leak_memory(leaked: list[object] = []) -> int:  # noqa: B006 - shared between calls
    leaked.append(np.ones(5_000_000))
    return os.getpid()


def refuse() -> None:
    raise InvalidInput("points[3] is wrong", param="points[3]")


def raise_local() -> None:
    class Local(Exception):
        pass

    raise Local("cannot be pickled")


def exit_process() -> None:
    os._exit(3)


def report(count: int, seconds: float, *, on_progress: Callable[[int], None]) -> str:
    for step in range(count):
        on_progress(step)
        time.sleep(seconds)
    return "done"


def write_to_stdout() -> str:
    print("between answers")  # noqa: T201
    return "written"
