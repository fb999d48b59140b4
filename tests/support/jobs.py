"""Jobs for the compute process."""

import os
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import numpy as np

from service.errors import InvalidInput

PID = os.getpid


def sleep(seconds: float) -> int:
    time.sleep(seconds)
    return os.getpid()


def spend(seconds: float) -> int:
    """Use the processor."""
    end_s = time.process_time() + seconds
    while time.process_time() < end_s:
        sum(range(100))
    return os.getpid()


def spend_in_callbacks(seconds: float) -> int:
    """Use the processor where most exceptions are swallowed."""
    end_s = time.process_time() + seconds
    while time.process_time() < end_s:
        with suppress(Exception):
            sum(map(partial(pow, 2), range(100)))
    return os.getpid()


def signal_self(number: int) -> str:
    os.kill(os.getpid(), number)
    return "not ended"


def signal_once(path: str, number: int) -> str:
    """Send a signal to the process that runs this first."""
    with Path(path).open("a") as file:
        file.write("x")
    if Path(path).read_text() == "x":
        signal_self(number)
    return "second time"


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
