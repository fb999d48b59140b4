"""The queue of long work, of clouds above all: a thread of its own, so that it does not delay short work, and
behind all others where processors are few.

Callers take turns, a step each, so that one with little to do is soon through. Who has had `BRIEF_TURNS`, or
says at the start that the work is large, waits until nobody else has long work. One caller more than the
queue takes is refused. Who leaves while a step still runs gives the slot back when that step ends: threads
cannot be stopped.
"""

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from service.errors import Overloaded

T = TypeVar("T")
Steps = Generator[None, None, T]  # short pieces of work, then a result; one may leave at every yield
STEP_S = 0.1  # what makes many pieces stops so often to look whether it should go on
BRIEF_TURNS = 10
NICE = 5  # where processors are few, the thread gets a third of what one that reads texts gets
LARGE = 65_536  # numbers: work on more is long from the start. It takes 200 bytes for each


@dataclass
class Slot:
    """A caller's right to use the queue's thread in turn with others."""

    pool: ThreadPoolExecutor
    long: asyncio.Lock  # of the one that has long work
    turns: int = 0
    is_long: bool = False
    step_ends: asyncio.Future[Any] | None = None

    async def become_long(self) -> None:
        """Wait for those who have long work already."""
        if not self.is_long:
            await self.long.acquire()
            self.is_long = True

    async def step(self, work: Callable[[], T]) -> T:
        """Run `work` in the queue's thread. Cancelling the wait does not stop it."""
        self.turns += 1
        if self.turns > BRIEF_TURNS:
            await self.become_long()
        ended = asyncio.get_running_loop().run_in_executor(self.pool, work)
        self.step_ends = ended
        return await asyncio.shield(ended)

    async def follow(self, steps: Steps[T]) -> T:
        """What the steps return; every `STEP_S` or so there is room to stop."""
        try:
            while (end := await self.step(lambda: _end_of(steps))) is None:
                pass
        except asyncio.CancelledError:
            with suppress(RuntimeError):  # the queue has stopped
                self.pool.submit(steps.close)  # behind a step that still runs: what the steps hold is let go
            raise
        result: T = end.value
        return result


def _go_behind() -> None:
    """Others go before this thread and those that it starts."""
    if sys.platform == "linux":  # elsewhere it would be said of the whole process
        os.nice(NICE)


def _end_of(steps: Steps[Any]) -> StopIteration | None:
    """Work for about `STEP_S`; the end of the work, if it comes to it. (A future must not raise it.)"""
    late = time.perf_counter() + STEP_S
    try:
        while time.perf_counter() < late:
            next(steps)
    except StopIteration as end:
        return end.with_traceback(None)  # which holds this work, and that its end: a cycle
    return None


def result_of(steps: Steps[T]) -> T:
    """All steps at once, without a queue."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result


class CloudQueue:
    """One thread, and at most `depth` callers who wait for their turn."""

    def __init__(self, *, depth: int) -> None:
        self.depth = depth
        self.here = 0
        self._long = asyncio.Lock()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="clouds", initializer=_go_behind)

    @property
    def waiting(self) -> int:
        return max(0, self.here - 1)

    @asynccontextmanager
    async def slot(self, *, large: bool = False) -> AsyncIterator[Slot]:
        """A slot in the queue, or `Overloaded` when too many wait."""
        if self.here > self.depth:
            raise Overloaded("too many clouds are waiting already; try again shortly")
        self.here += 1
        slot = Slot(self._pool, self._long)
        try:
            if large:
                await slot.become_long()
            yield slot
        finally:
            if slot.step_ends is None or slot.step_ends.done():
                self._leave(slot)
            else:
                slot.step_ends.add_done_callback(lambda step: self._step_ended(slot, step))

    def _leave(self, slot: Slot) -> None:
        self.here -= 1
        if slot.is_long:
            self._long.release()

    def _step_ended(self, slot: Slot, step: asyncio.Future[Any]) -> None:
        self._leave(slot)
        if not step.cancelled():
            step.exception()  # nobody waits for it any more: do not let asyncio complain that it was not read

    def stop(self) -> None:
        """Take no more work; a step that still runs is left to end by itself."""
        self._pool.shutdown(wait=False, cancel_futures=True)
