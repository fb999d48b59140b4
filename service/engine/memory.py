"""Gives memory back to the system: what the C library and Python keep free for whoever asks next.

Where the C library is not glibc (musl, macOS) this does nothing.
"""

from __future__ import annotations

import ctypes
import gc
import resource
from contextlib import suppress
from pathlib import Path

PAGES = Path("/proc/self/statm")
GROWN = 8_000_000  # bytes
MALLOPT = {  # parameters of mallopt, and what they are set to
    -8: 1,  # M_ARENA_MAX: heaps. Of those of other threads `malloc_trim` leaves what is free at their end
    -3: 32 << 20,  # M_MMAP_THRESHOLD: bytes from which a block is no part of the heap, the most there may be
    -1: 1 << 30,  # M_TRIM_THRESHOLD: bytes that are free at the heap's end before it shrinks by itself
}


def prepare_heap() -> None:
    """One heap for all threads, which keeps what is free until `Leftovers` gives it back.

    Otherwise a run of long texts takes its memory anew from the system each time: a sixth of its CPU time.
    At the start of a process that is our own: before there are threads.
    """
    for parameter, value in MALLOPT.items():
        _call("mallopt", parameter, value)


class Leftovers:
    """Memory that work has left behind, seen from outside: the process is larger than it was at rest.

    The heap keeps what is freed; even without `prepare_heap`, a small object at its end keeps all before it.
    Bodies do this, and also long texts and long answers.
    """

    def __init__(self) -> None:
        self._at_rest = 0  # what starting has left behind is given back too

    def there(self) -> bool:
        """Whether there is enough to be worth the work."""
        now = resident_bytes()
        self._at_rest = min(self._at_rest, now)
        return now > self._at_rest + GROWN

    def give_back(self) -> None:
        """Takes milliseconds: for a thread."""
        gc.collect()  # a request that was cut short is a cycle, with its body in it
        _call("malloc_trim", 0)

    def settle(self) -> None:
        """What is here now is all in use."""
        self._at_rest = resident_bytes()


def resident_bytes() -> int:
    """The memory of this process; 0 where the system does not tell."""
    try:
        return int(PAGES.read_text().split()[1]) * resource.getpagesize()
    except OSError:
        return 0


def _call(function: str, *numbers: int) -> None:
    with suppress(AttributeError, OSError):
        getattr(ctypes.CDLL(None), function)(*numbers)
