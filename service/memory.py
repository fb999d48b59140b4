"""Memory of large requests, and how it goes back to the system.

It lies in holes between objects that stay, of which glibc by itself returns only the end of a heap: one list
of 500,000 spans left 140 MB. What is part of a cycle waits for the garbage collector.
"""

import ctypes
import gc

MAX_HEAPS = 2
GC_THRESHOLD = 10_000  # new objects before it runs: the responses of a batch are gone by then
M_ARENA_MAX = -8  # of malloc.h

_libc = ctypes.CDLL(None)
_malloc_trim = getattr(_libc, "malloc_trim", None)  # other C libraries have none


def limit_heaps() -> None:
    """Let all threads share a few heaps: each heap of its own keeps holes. Call it before threads start.

    After the siege of `tests/soak/test_attacks.py` a process holds 227 MB instead of 300 to 440.
    """
    if _malloc_trim is not None:
        _libc.mallopt(M_ARENA_MAX, MAX_HEAPS)


def freeze_gc() -> None:
    """Let the garbage collector skip what is loaded: vocabularies are very many objects that stay.

    Once, at the start: a collection of the whole heap while requests run holds up all of them.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD)


def collect_garbage() -> None:
    """Free what cycles hold, and give it back."""
    gc.collect()
    release_free_memory()


def release_free_memory() -> None:
    """Give the pages of the heap that hold nothing back to the system."""
    if _malloc_trim is not None:
        _malloc_trim(0)
