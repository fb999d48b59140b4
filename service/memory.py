"""The memory of large requests: slots that bound it, and how it returns to the system.

Freed memory lies in holes between objects that stay, and glibc by itself returns only the end of a heap: one
list of 500,000 spans left 140 MB. Objects in cycles wait for the garbage collector.
"""

import asyncio
import ctypes
import gc
import time

MAX_HEAPS = 2
# New objects before the garbage collector runs: the responses of a batch are freed by then. A long answer has
# very many objects that live on, so all objects are seldom looked at, which takes 50 ms.
GC_THRESHOLDS = 10_000, 5, 1_000
M_ARENA_MAX = -8  # of malloc.h

_libc = ctypes.CDLL(None)
_malloc_trim = getattr(_libc, "malloc_trim", None)  # other C libraries have none


class Slots(asyncio.Semaphore):
    """Slots of large requests, and the time when the last one was released."""

    released_at = -float("inf")

    async def take(self, held: "list[Slots]") -> None:
        """Wait for a slot for a request that holds these until it is answered, unless it has one."""
        if self not in held:
            await self.acquire()
            held.append(self)

    def release(self) -> None:
        """Release a slot."""
        self.released_at = time.monotonic()
        super().release()


def limit_heaps() -> None:
    """Let all threads share a few heaps: every heap keeps holes. Call it before threads start.

    After the siege of `tests/soak/test_attacks.py` a process holds 227 MB instead of 300 to 440.
    """
    if _malloc_trim is not None:
        _libc.mallopt(M_ARENA_MAX, MAX_HEAPS)


def freeze_gc() -> None:
    """Let the garbage collector skip loaded models: vocabularies are very many objects that stay.

    Call it once, at the start: a collection of the whole heap would delay all running requests.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)


def collect_garbage() -> None:
    """Free objects in cycles, and return their memory to the system."""
    gc.collect()
    release_free_memory()


def release_free_memory() -> None:
    """Return the free pages of the heap to the system."""
    if _malloc_trim is not None:
        _malloc_trim(0)
