"""Turns many small calls into few large runs. It contains no HTTP, no models and no ONNX.

A call brings items that know their size. Whenever the runner - one thread - is free it is handed what waits
at that moment: there is no timer, so a call at rest is run at once and under load batches grow by themselves.

* Items whose calls have the same `key` run together, up to about `RUN_S` of work by the pace that was
  measured, and up to `budget`.
* The next item is one of the call that was given least so far, by size: what is short is soon through,
  however much others ask for. One run in three serves calls in the order in which they came: none waits for
  ever.
* A call is refused if it would wait too long. By these turns it waits for each other call as long as that
  one's work takes, or as its own does: whichever is less.
* A run need not finish an item. What is left of it waits again, so long work has many runs, with others
  between them; a call that was cancelled is dropped before its next one.
* An item that fails is found by running the items of its batch one by one; its neighbours get their results.
* When the runner dies, all who wait and all who come later are told so.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from heapq import heapify, heappop, heapreplace
from typing import Any, Generic, Protocol, TypeVar

from service.errors import NotReady, Overloaded

log = logging.getLogger(__name__)

RUN_S = 0.1  # about how long a run takes
LEAST = 256  # size that may always run together, however slow that is; an item's most in one run
TELLING = LEAST // 2  # size from which a run may lower the measured pace: runs of a queue are larger
FIRST_COME_EVERY = 3  # one run in so many serves calls in the order in which they came
PACE = 10_000.0  # size that runs in a second, as long as nothing was measured
SHORT = 64  # lengths up to this are alike: the fixed cost of a run outweighs their padding
PATIENCE = 4  # the measured pace is a mean over about so many runs


class Sized(Protocol):
    @property
    def size(self) -> int:
        """How much the item's next run is, or is thought to be."""


Item = TypeVar("Item", bound=Sized)
Result = TypeVar("Result")
Results = list[Result | Exception]
Run = Callable[[Any, Sequence[Item]], Sequence[Result | Exception | None]]  # None: it is not finished


class Call(Generic[Item, Result]):
    """The items of one caller that wait, with their sizes, and the results that are there."""

    def __init__(self, items: Sequence[Item], future: asyncio.Future[Results[Result]]) -> None:
        self.future = future
        self.given = 0  # size of its items that ran
        self.queued = False
        self.queued_at = time.perf_counter()
        self.unfinished = len(items)
        self.results: list[Any] = [None] * len(items)
        self.waiting = deque((index, item, item.size) for index, item in enumerate(items))
        self.left = sum([size for _, _, size in self.waiting])  # size of the items that wait

    @property
    def step(self) -> int:
        """Of the size of its next item, what one run takes."""
        return min(self.waiting[0][2], LEAST)


@dataclass
class Batch(Generic[Item, Result]):
    """Items of several calls that run together."""

    key: Hashable
    places: list[tuple[Call[Item, Result], int]] = field(default_factory=list)
    items: list[Item] = field(default_factory=list)
    size: int = 0


class Batcher(Generic[Item, Result]):
    """The queue before the runner. Belongs to one event loop: everything but the run happens there.

    `report` is told of each run its items, their size, their longest wait, and how long it took.
    """

    def __init__(
        self,
        run: Run[Item, Result],
        *,
        budget: int,
        wait_s: float = 60.0,
        report: Callable[[int, int, float, float], None] = lambda items, size, waited_s, ran_s: None,
        failed: Callable[[], None] = lambda: None,
    ) -> None:
        self.budget = budget
        self.wait_s = wait_s  # how long calls may wait, by the measured pace
        self.depth = 0  # how many items wait
        self._pace = PACE
        self._runs = 0
        self._run = run
        self._report = report
        self._failed = failed
        self._queues: dict[Hashable, list[Call[Item, Result]]] = {}  # the key that is next comes first
        self._running: Batch[Item, Result] | None = None
        self._runner = ThreadPoolExecutor(1, thread_name_prefix="runner")
        self._busy_since: float | None = None  # when the thread's run began
        self._gathering = False  # a look at what has come is due
        self._dead = False

    def stop(self) -> None:
        self._runner.shutdown(wait=False)
        self._fail_all("the service is stopping")

    def healthy(self, stuck_after_s: float = float("inf")) -> bool:
        """The runner lives, and its present run has not taken suspiciously long."""
        since = self._busy_since
        return not self._dead and (since is None or time.perf_counter() - since < stuck_after_s)

    @property
    def idle(self) -> bool:
        """Nothing runs."""
        return self._running is None

    async def submit(self, key: Hashable, items: Sequence[Item]) -> Results[Result]:
        """For each item, in order, its result or the exception that it raised."""
        if self._dead:
            raise NotReady("inference is not available")
        if not items:
            return []
        call: Call[Item, Result] = Call(items, asyncio.get_running_loop().create_future())
        ahead = self._ahead(call)
        if ahead and ahead + call.left > self._pace * self.wait_s:
            raise Overloaded("too much is waiting already; try again shortly")
        self.depth += len(items)
        self._queue(key, call)
        if self._running is None and not self._gathering:
            self._gathering = True  # what comes in the same round of the event loop runs together
            asyncio.get_running_loop().call_soon(self._next)
        try:
            return await call.future
        except asyncio.CancelledError:
            self.depth -= len(call.waiting)
            raise

    def _ahead(self, call: Call[Item, Result]) -> int:
        """Size that is about to run before the call is through: of each that waits, no more than its own."""
        waiting = [other for calls in self._queues.values() for other in calls if not other.future.done()]
        return sum([min(other.left, call.left) for other in waiting])

    def _queue(self, key: Hashable, call: Call[Item, Result]) -> None:
        if not call.queued:
            call.queued = True
            self._queues.setdefault(key, []).append(call)

    def _next(self) -> None:
        self._gathering = False
        self._running = batch = self._take()
        if batch is not None:
            self._busy_since = time.perf_counter()
            run = asyncio.get_running_loop().run_in_executor(self._runner, self._timed_results, batch)
            run.add_done_callback(partial(self._ended, batch))

    def _take(self) -> Batch[Item, Result] | None:
        """What runs next: items of one key. Other keys come before it is its turn again."""
        most = min(self.budget, max(LEAST, int(self._pace * RUN_S)))
        while self._queues:
            key = next(iter(self._queues))
            calls = [call for call in self._queues.pop(key) if not call.future.done()]
            if not calls:
                continue
            self._runs += 1
            fair = self._runs % FIRST_COME_EVERY != 0
            batch: Batch[Item, Result] = Batch(key)
            heap = [(call.given if fair else 0, call.queued_at, i, call) for i, call in enumerate(calls)]
            heapify(heap)
            passed = []
            while heap:
                *_, i, call = heap[0]
                if batch.items and batch.size + call.step > most:
                    passed.append(heappop(heap)[-1])
                    continue
                self._add(batch, call)
                if call.queued:
                    heapreplace(heap, (call.given if fair else 0, call.queued_at, i, call))
                else:
                    heappop(heap)
            if passed:
                self._queues[key] = passed
            return batch
        return None

    def _add(self, batch: Batch[Item, Result], call: Call[Item, Result]) -> None:
        """The next item of the call."""
        step = call.step
        index, item, size = call.waiting.popleft()
        batch.places.append((call, index))
        batch.items.append(item)
        batch.size += step
        self.depth -= 1
        call.left -= size
        call.given += step
        call.queued = bool(call.waiting)

    def _timed_results(self, batch: Batch[Item, Result]) -> tuple[list[Any], float]:
        started = time.perf_counter()
        return self._results(batch.key, batch.items), time.perf_counter() - started

    def _results(self, key: Hashable, items: Sequence[Item]) -> list[Any]:
        """A result, an exception or None for each item."""
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
        results, ran_s = run.result()
        if any(not isinstance(result, Exception) for result in results):
            self._measure(batch.size / max(ran_s, 1e-9), batch.size)
        oldest = min([call.queued_at for call, _ in batch.places])
        waited_s = max(0.0, time.perf_counter() - ran_s - oldest)
        self._wait_again(batch, results)
        if not self._dead:
            self._next()  # first, so that the runner works while the answers are written
        self._answer(batch, results)
        self._report(len(batch.items), batch.size, waited_s, ran_s)

    def _measure(self, pace: float, size: int) -> None:
        """Learn from a run. A small one takes its fixed cost above all, which tells little of larger ones."""
        if size >= TELLING or pace > self._pace:
            self._pace += (pace - self._pace) / PATIENCE

    def _wait_again(self, batch: Batch[Item, Result], results: Sequence[Any]) -> None:
        """Items that are not finished are the next of their calls: what was begun takes memory."""
        for (call, index), item, result in zip(batch.places, batch.items, results, strict=True):
            if result is None and not call.future.done():
                call.waiting.appendleft((index, item, item.size))
                call.left += item.size
                self.depth += 1
                self._queue(batch.key, call)

    def _answer(self, batch: Batch[Item, Result], results: Sequence[Any]) -> None:
        for (call, index), result in zip(batch.places, results, strict=True):
            if result is not None:
                call.results[index] = result
                call.unfinished -= 1
                if not call.unfinished and not call.future.done():
                    call.future.set_result(call.results)

    def _fail_all(self, message: str) -> None:
        self._dead = True
        waiting = [call for calls in self._queues.values() for call in calls]
        for call in [*waiting, *(call for call, _ in (self._running.places if self._running else []))]:
            if not call.future.done():
                call.future.set_exception(NotReady(message))
        self._queues.clear()
        self._running = None
        self.depth = 0


def group_by_length(lengths: Sequence[int], most: int, power: int = 1) -> Iterator[list[int]]:
    """Which items run together, by their places: those of similar length, as each is padded to the longest.

    An item is padded to twice its length at most, unless it is short. The sum of the padded lengths, raised
    to `power`, is at most `most`.
    """
    batch: list[int] = []
    for i in sorted(range(len(lengths)), key=lengths.__getitem__):
        length = lengths[i]
        is_alike = not batch or length <= max(SHORT, 2 * lengths[batch[0]])
        if batch and not (is_alike and (len(batch) + 1) * length**power <= most):
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch
