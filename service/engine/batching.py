"""Turns many small calls into few large runs. It contains no HTTP, no models and no ONNX.

A call brings items of known size. Whenever the runner - one thread - is free it is handed what waits at
that moment: there is no timer, so a call at rest is run at once and under load batches grow by themselves.

* Items run together when their calls have the same `key` and their sizes are alike (padding stays below a
  factor of two), up to `budget` padded tokens.
* Calls take turns item by item: a call of a thousand items shares every run with a call of one.
* A call that was cancelled is dropped before it runs. An item that fails is found by running the items of its
  batch one by one; its neighbours get their results.
* When the runner dies, all who wait and all who come later are told so.
"""

from __future__ import annotations

import asyncio
import logging
import operator
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from service.errors import NotReady, Overloaded

log = logging.getLogger(__name__)

Item = TypeVar("Item")
Result = TypeVar("Result")

_SIZE = operator.itemgetter(2)
ENOUGH = 32  # calls that are not made to wait for more
SMALL = 6  # items of up to 2^6 tokens are all alike: a run's fixed cost outweighs their padding


class Call(Generic[Item, Result]):
    """The items of one caller that still wait, and the results that are already there."""

    __slots__ = ("future", "key", "queued_at", "results", "unfinished", "waiting")

    def __init__(
        self,
        key: Hashable,
        items: Sequence[tuple[Item, int]],
        future: asyncio.Future[list[Result | Exception]],
    ) -> None:
        self.key = key
        self.future = future
        self.queued_at = time.perf_counter()
        self.unfinished = len(items)
        self.results: list[Any] = [None] * len(items)
        waiting = [(index, item, size) for index, (item, size) in enumerate(items)]
        if len(waiting) > 1:
            waiting.sort(key=_SIZE)  # so that neighbours in the queue are alike
        self.waiting = deque(waiting)

    def group(self) -> tuple[Hashable, int]:
        """What the next item may run together with."""
        return self.key, max(SMALL, (self.waiting[0][2] - 1).bit_length())


@dataclass
class Batch(Generic[Item, Result]):
    """Items of several calls that run together."""

    key: Hashable
    places: list[tuple[Call[Item, Result], int]]
    items: list[Item]
    longest: int  # tokens of its longest item
    tokens: int


class Batcher(Generic[Item, Result]):
    """The queue before the runner. Belongs to one event loop: everything but the run happens there.

    `report` is told of each run its items, their padded tokens, their longest wait, and how long it took.
    """

    def __init__(
        self,
        run: Callable[[Any, Sequence[Item]], Sequence[Result | Exception]],
        *,
        budget: int,
        bound: int,
        report: Callable[[int, int, float, float], None] = lambda items, tokens, waited_s, ran_s: None,
        failed: Callable[[], None] = lambda: None,
    ) -> None:
        self.budget = budget
        self.bound = bound
        self.depth = 0  # items that wait
        self._tokens = 0
        self._run = run
        self._report = report
        self._failed = failed
        self._calls: deque[Call[Item, Result]] = deque()
        self._running: Batch[Item, Result] | None = None
        self._runner = ThreadPoolExecutor(1, thread_name_prefix="runner")
        self._busy_since: float | None = None  # when the thread's run began
        self._dead = False
        self._gathering = False  # a look at what has come is due

    def stop(self) -> None:
        self._runner.shutdown(wait=False)
        self._fail_all("the service is stopping")

    def healthy(self, stuck_after_s: float = float("inf")) -> bool:
        """The runner lives, and its present run has not taken suspiciously long."""
        since = self._busy_since
        return not self._dead and (since is None or time.perf_counter() - since < stuck_after_s)

    @property
    def idle(self) -> bool:
        """Nothing runs in the thread."""
        return self._running is None

    async def submit(self, key: Hashable, items: Sequence[tuple[Item, int]]) -> list[Result | Exception]:
        """For each (item, size in tokens), in order, its result or the exception that it raised."""
        if self._dead:
            raise NotReady("inference is not available")
        if not items:
            return []
        tokens = sum([size for _, size in items])
        if self._calls and self._tokens + tokens > self.bound:
            raise Overloaded("too much is waiting already; try again shortly")
        call: Call[Item, Result] = Call(key, items, asyncio.get_running_loop().create_future())
        self._calls.append(call)
        self._tokens += tokens
        self.depth += len(items)
        if self._running is None:
            self._gather()
        return await call.future

    def _gather(self) -> None:
        """Run once a round of the event loop has brought nothing more, or enough: without a timer."""
        if not self._gathering:
            self._gathering = True
            asyncio.get_running_loop().call_soon(self._look, 0)

    def _look(self, seen: int) -> None:
        there = len(self._calls)
        if seen < there < ENOUGH:
            asyncio.get_running_loop().call_soon(self._look, there)
        else:
            self._gathering = False
            self._next()

    def _next(self) -> None:
        """Give the runner's thread what waits, if anything does."""
        batch = self._take()
        self._running = batch
        if batch is None:
            return
        self._busy_since = time.perf_counter()
        run = asyncio.get_running_loop().run_in_executor(self._runner, self._timed_results, batch)
        run.add_done_callback(partial(self._ended, batch))

    def _timed_results(self, batch: Batch[Item, Result]) -> tuple[list[Any], float]:
        started = time.perf_counter()
        return self._results(batch.key, batch.items), time.perf_counter() - started

    def _results(self, key: Hashable, items: Sequence[Item]) -> list[Any]:
        """A result or an exception for each item."""
        try:
            return list(self._run(key, items))
        except Exception as failure:  # the edge of the worker loop
            if len(items) == 1:
                log.error("an item failed", exc_info=failure)
                return [failure]
            log.warning("a batch of %d failed; running its items one by one", len(items))
        return [self._results(key, [item])[0] for item in items]

    def _ended(self, batch: Batch[Item, Result], run: asyncio.Future[tuple[list[Any], float]]) -> None:
        """Answer a batch that the thread has run. What raises in spite of `_results` ends inference."""
        self._busy_since = None
        if (death := run.exception()) is not None:
            log.critical("the inference thread died", exc_info=death)
            self._fail_all("inference is not available")
            self._failed()
            return
        self._next()  # first, so that the runner works while the answers are written
        self._answer(batch, *run.result())

    def _take(self) -> Batch[Item, Result] | None:
        """The first call's next item and all that may run with it, one item of each call in turn."""
        while self._calls and self._calls[0].future.done():
            self._forget(self._calls.popleft())
        if not self._calls:
            return None
        group = self._calls[0].group()
        batch: Batch[Item, Result] = Batch(group[0], [], [], 0, 0)
        aside: list[Call[Item, Result]] = []
        while self._calls:
            call = self._calls[0]
            if call.future.done():
                self._forget(self._calls.popleft())
            elif call.group() != group:
                aside.append(self._calls.popleft())
            else:
                index, item, size = call.waiting[0]
                longest = max(batch.longest, size)
                if batch.items and longest * (len(batch.items) + 1) > self.budget:
                    break
                batch.longest = longest
                call.waiting.popleft()
                self._calls.popleft()
                batch.places.append((call, index))
                batch.items.append(item)
                batch.tokens = longest * len(batch.items)
                self._tokens -= size
                self.depth -= 1
                if call.waiting:
                    self._calls.append(call)
        self._calls.extendleft(reversed(aside))  # still in front: the next run is theirs
        return batch

    def _forget(self, call: Call[Item, Result]) -> None:
        self.depth -= len(call.waiting)
        self._tokens -= sum([size for _, _, size in call.waiting])

    def _answer(self, batch: Batch[Item, Result], results: list[Any], ran_s: float) -> None:
        oldest = min([call.queued_at for call, _ in batch.places])
        waited_s = max(0.0, time.perf_counter() - ran_s - oldest)
        for (call, index), result in zip(batch.places, results, strict=True):
            call.results[index] = result
            call.unfinished -= 1
            if not call.unfinished and not call.future.done():
                call.future.set_result(call.results)
        self._report(len(batch.items), batch.tokens, waited_s, ran_s)

    def _fail_all(self, message: str) -> None:
        self._dead = True
        waiting = list(self._calls) + [call for call, _ in (self._running.places if self._running else [])]
        for call in waiting:
            if not call.future.done():
                call.future.set_exception(NotReady(message))
        self._calls.clear()
        self._running = None
        self.depth = self._tokens = 0


def by_length(lengths: Sequence[int], most: int) -> Iterator[list[int]]:
    """Which items run together, by their places: those of similar length, up to `most` padded tokens."""
    batch: list[int] = []
    for i in sorted(range(len(lengths)), key=lengths.__getitem__):
        if batch and (len(batch) + 1) * lengths[i] > most:
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch
