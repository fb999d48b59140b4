"""Run blocking work with a deadline."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from contextvars import copy_context
from threading import Thread
from typing import TypeVar

T = TypeVar("T")


def run_with_timeout(function: Callable[[], T], seconds: float) -> T:
    """Run a function in a thread, and return its result.

    A read from a socket has a timeout, but a server that sends a byte from time to time never exceeds it. The
    thread of a call that timed out ends with its connection.

    Raises:
        TimeoutError: The function took longer.
    """
    outcome: Future[T] = Future()

    def run() -> None:
        try:
            outcome.set_result(function())
        except BaseException as error:  # noqa: BLE001 (raised again by the caller)
            outcome.set_exception(error)

    Thread(target=copy_context().run, args=[run], daemon=True).start()
    return outcome.result(seconds)
