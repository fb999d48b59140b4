"""A bounded lane of threads for long work of any kind, so that it does not delay short work.

`width` visitors work at once, `depth` more may wait; one more is refused. A visitor who leaves while a
step of theirs still runs gives the place back when that step ends: threads cannot be stopped.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from service.errors import Overloaded

T = TypeVar("T")
STEP_S = 0.1  # what makes many pieces stops so often to look whether it should go on


class Place:
    """A visitor's right to use one thread of the lane."""

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        self._pool = pool
        self.step_ends: asyncio.Future[Any] | None = None

    async def step(self, work: Callable[[], T]) -> T:
        """Run `work` in the lane's thread. Cancelling the wait does not stop it."""
        ended = asyncio.get_running_loop().run_in_executor(self._pool, work)
        self.step_ends = ended
        return await asyncio.shield(ended)

    async def follow(self, steps: Generator[None, None, T]) -> T:
        """What a generator returns; every `STEP_S` or so there is room to stop."""
        while (end := await self.step(lambda: _end_of(steps))) is None:
            pass
        result: T = end.value
        return result

    async def collect(
        self, pieces: Iterator[T], hold: Callable[[list[T]], None] = lambda some: None
    ) -> list[T]:
        """All that an iterator makes in the lane's thread; every so often there is room to stop.

        What was made is shown to `hold`, which raises when it is too much to keep.
        """
        collected: list[T] = []
        while some := await self.step(lambda: _some(pieces)):
            hold(some)
            collected += some
        return collected


def _some(pieces: Iterator[T]) -> list[T]:
    """As many as are made in about `STEP_S`; none when there are no more."""
    some: list[T] = []
    end = time.perf_counter() + STEP_S
    for piece in pieces:
        some.append(piece)
        if time.perf_counter() > end:
            break
    return some


def _end_of(steps: Generator[None, None, Any]) -> StopIteration | None:
    """Work for about `STEP_S`; the end of the work, if it comes to it. (A future must not raise it.)"""
    late = time.perf_counter() + STEP_S
    try:
        while time.perf_counter() < late:
            next(steps)
    except StopIteration as end:
        return end
    return None


class Lane:
    """At most `width` at work, at most `depth` waiting, first come first served."""

    def __init__(self, name: str, *, width: int, depth: int) -> None:
        self.name = name
        self.width = width
        self.depth = depth
        self.waiting = 0
        self._free = asyncio.Semaphore(width)
        self._pool = ThreadPoolExecutor(width, thread_name_prefix=name)

    @asynccontextmanager
    async def place(self) -> AsyncIterator[Place]:
        """A place in the lane, or `Overloaded` when too many wait."""
        if self._free.locked() and self.waiting >= self.depth:
            raise Overloaded(f"too many {self.name} are waiting already; try again shortly")
        self.waiting += 1
        try:
            await self._free.acquire()
        finally:
            self.waiting -= 1
        place = Place(self._pool)
        try:
            yield place
        finally:
            self._leave(place)

    def _leave(self, place: Place) -> None:
        ended = place.step_ends
        if ended is None or ended.done():
            self._free.release()
        else:
            ended.add_done_callback(self._step_ended)

    def _step_ended(self, step: asyncio.Future[Any]) -> None:
        self._free.release()
        if not step.cancelled():
            step.exception()  # nobody waits for it any more: do not let asyncio complain that it was not read

    def stop(self) -> None:
        """Take no more work; a step that still runs is left to end by itself."""
        self._pool.shutdown(wait=False, cancel_futures=True)
