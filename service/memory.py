"""Free memory that glibc keeps: only the end of a heap goes back to the system by itself."""

import ctypes

_malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # other C libraries have none


def release_free_memory() -> None:
    """Give the pages of the heap that hold nothing back to the system."""
    if _malloc_trim is not None:
        _malloc_trim(0)
