"""Gives memory back to the system: what the C library and Python keep free for whoever asks next.

The heap keeps what is freed; even with the library's own settings, a small object at its end keeps all
before it. Bodies leave such memory behind, long texts, long answers and connections. Where the C library is
not glibc (musl, macOS) this does nothing.
"""

import ctypes
import gc
from contextlib import suppress

MALLOPT = {  # parameters of mallopt, and what they are set to
    -8: 1,  # M_ARENA_MAX: heaps. Of those of other threads `malloc_trim` leaves what is free at their end
    -3: 32 << 20,  # M_MMAP_THRESHOLD: bytes from which a block is no part of the heap, the most there may be
    -1: 1 << 30,  # M_TRIM_THRESHOLD: bytes that are free at the heap's end before it shrinks by itself
}


def prepare_heap() -> None:
    """One heap for all threads, which keeps what is free until `release_memory`.

    Otherwise a run of long texts takes its memory anew from the system each time: a sixth of its CPU time.
    At the start of a process that is our own: before there are threads.
    """
    for parameter, value in MALLOPT.items():
        _call("mallopt", parameter, value)


def release_memory() -> None:
    """Give back what is free. Takes milliseconds: for a thread."""
    gc.collect()  # a request that was cut short is a cycle, with its body in it
    _call("malloc_trim", 0)


def _call(function: str, *numbers: int) -> None:
    with suppress(AttributeError, OSError):
        getattr(ctypes.CDLL(None), function)(*numbers)
