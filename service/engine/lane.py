"""A bounded lane for long work of any kind: a thread of its own, so that it does not delay short work.

Visitors take turns, a step each, so that one with little to do is soon through. A visitor who has had
`BRIEF_TURNS`, or says at the start that the work is large, waits until no other such visitor is there. One
visitor more than the lane takes is refused. A visitor who leaves while a step of theirs still runs gives the
place back when that step ends: threads cannot be stopped.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

from service.errors import Overloaded

T = TypeVar("T")
Steps = Generator[None, None, T]  # short pieces of work, then a result; one may leave at every yield
STEP_S = 0.1  # what makes many pieces stops so often to look whether it should go on
BRIEF_TURNS = 10
LARGE = 65_536  # numbers: a visitor with more is long from the start. Work takes 200 bytes for each


class Place:
    """A visitor's right to use the lane's thread in turn with others."""

    def __init__(self, pool: ThreadPoolExecutor, long: asyncio.Lock) -> None:
        self._pool = pool
        self._long = long
        self._turns = 0
        self.is_long = False
        self.step_ends: asyncio.Future[Any] | None = None

    async def become_long(self) -> None:
        """Wait for those who have long work already."""
        if not self.is_long:
            await self._long.acquire()
            self.is_long = True

    async def step(self, work: Callable[[], T]) -> T:
        """Run `work` in the lane's thread. Cancelling the wait does not stop it."""
        self._turns += 1
        if self._turns > BRIEF_TURNS:
            await self.become_long()
        ended = asyncio.get_running_loop().run_in_executor(self._pool, work)
        self.step_ends = ended
        return await asyncio.shield(ended)

    async def follow(self, steps: Steps[T]) -> T:
        """What the steps return; every `STEP_S` or so there is room to stop."""
        try:
            while (end := await self.step(lambda: _end_of(steps))) is None:
                pass
        except asyncio.CancelledError:
            with suppress(RuntimeError):  # the lane has stopped
                self._pool.submit(steps.close)  # behind a step that still runs: what the steps hold is let go
            raise
        result: T = end.value
        return result


def _end_of(steps: Steps[Any]) -> StopIteration | None:
    """Work for about `STEP_S`; the end of the work, if it comes to it. (A future must not raise it.)"""
    late = time.perf_counter() + STEP_S
    try:
        while time.perf_counter() < late:
            next(steps)
    except StopIteration as end:
        return end
    return None


def result_of(steps: Steps[T]) -> T:
    """All steps at once, without a lane."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result


class Lane:
    """One thread, and at most `depth` visitors who wait for their turn."""

    def __init__(self, name: str, *, depth: int) -> None:
        self.name = name
        self.depth = depth
        self.here = 0
        self._long = asyncio.Lock()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix=name)

    @property
    def waiting(self) -> int:
        return max(0, self.here - 1)

    @asynccontextmanager
    async def place(self, *, large: bool = False) -> AsyncIterator[Place]:
        """A place in the lane, or `Overloaded` when too many wait."""
        if self.here > self.depth:
            raise Overloaded(f"too many {self.name} are waiting already; try again shortly")
        self.here += 1
        place = Place(self._pool, self._long)
        try:
            if large:
                await place.become_long()
            yield place
        finally:
            if place.step_ends is None or place.step_ends.done():
                self._leave(place)
            else:
                place.step_ends.add_done_callback(lambda step: self._step_ended(place, step))

    def _leave(self, place: Place) -> None:
        self.here -= 1
        if place.is_long:
            self._long.release()

    def _step_ended(self, place: Place, step: asyncio.Future[Any]) -> None:
        self._leave(place)
        if not step.cancelled():
            step.exception()  # nobody waits for it any more: do not let asyncio complain that it was not read

    def stop(self) -> None:
        """Take no more work; a step that still runs is left to end by itself."""
        self._pool.shutdown(wait=False, cancel_futures=True)
