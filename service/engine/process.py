"""What a process of our own asks of the C library, the garbage collector and the interpreter.

A program that opens the service as a part of itself keeps its own settings.
"""

import ctypes
import gc
import sys
from contextlib import suppress

YOUNG = 10_000  # new objects before the garbage collector looks at them: a batch's answers are gone by then
TURN_S = 0.0005  # that a thread keeps the interpreter while others wait; Python's own is ten times that
MALLOPT = {  # parameters of mallopt, and what they are set to
    -8: 1,  # M_ARENA_MAX: heaps. Of those of other threads `malloc_trim` leaves what is free at their end
    -3: 32 << 20,  # M_MMAP_THRESHOLD: bytes from which a block is no part of the heap, the most there may be
    -1: 1 << 30,  # M_TRIM_THRESHOLD: bytes that are free at the heap's end before it shrinks by itself
}


def prepare() -> None:
    """Before there are threads: one heap for all of them, which keeps what is free until `release_memory`.

    Otherwise a run of long texts takes its memory anew from the system each time: a sixth of its CPU time.
    And short turns: the runner asks for the interpreter some twenty times a run, and beside a thread that
    reads bodies or computes on long integers it would wait a tenth of a second.
    """
    sys.setswitchinterval(TURN_S)
    for parameter, value in MALLOPT.items():
        _call("mallopt", parameter, value)


def settle() -> None:
    """Vocabularies are very many objects that stay: the garbage collector need not look at them again."""
    gc.unfreeze()  # models that were replaced may go
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG)


def release_memory() -> None:
    """Give back to the system what the C library and Python keep free for whoever asks next.

    The heap keeps what is freed; even with the library's own settings, a small object at its end keeps all
    before it. Bodies leave such memory behind, long texts, long answers and connections. Where the C library
    is not glibc (musl, macOS) this does nothing. Takes milliseconds: for a thread.
    """
    gc.collect()  # a request that was cut short is a cycle, with its body in it
    _call("malloc_trim", 0)


def _call(function: str, *numbers: int) -> None:
    with suppress(AttributeError, OSError):
        getattr(ctypes.CDLL(None), function)(*numbers)
