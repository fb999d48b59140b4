"""Gives memory back to the system: free memory that Python and the C library keep."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable


def find_trim() -> Callable[[], None]:
    """A function that returns what the allocator keeps free; it does nothing where there is no such call.

    glibc learns from large blocks that were freed to take the next ones from its heap, and a single small
    object at the end of the heap keeps all of it: after a burst of large bodies hundreds of megabytes stay.
    """
    try:
        malloc_trim = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError):  # musl, macOS
        return lambda: None

    def trim() -> None:
        gc.collect()  # a request that was cut short is a cycle, with its body in it
        malloc_trim(0)

    return trim
