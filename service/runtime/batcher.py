"""Combine many small calls into few large runs. It contains no HTTP, no models and no ONNX.

A call has items that have a size. Whenever the runner, one thread, is free, it gets the items that wait at
that moment. There is no timer: on an idle service a call runs at once, and under load batches grow.

* Items whose calls have the same `key` run together, up to about `RUN_S` of work by the pace that was
  measured, and up to `budget`.
* The next item is one of the call that was served least so far, by size: short calls end soon, however much
  other callers request, and do not wait for long ones in the same run. Every third run serves calls in the
  order of arrival, so that none waits for ever. Round-robin by caller would be simpler: among 32 callers of
  long texts the 99th percentile of short ones is then 1.1 s instead of 0.19 s (simulated at 4,400 tokens a
  second).
* A call is refused if it would wait too long. With these turns it waits for each other call as long as the
  work of that call or its own work takes, whichever is less.
* A run need not finish an item. An unfinished item waits again, so long work has many runs, with those of
  other calls between them; a call that was cancelled is dropped before its next run.
* To find an item that fails, the items of its batch run one by one; the other items get their results.
* When the runner dies, all waiting and all later calls fail.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from heapq import heapify, heappop, heappush
from typing import Any, Generic, Protocol, TypeVar

from service.errors import NotReady, Overloaded

log = logging.getLogger(__name__)

RUN_S = 0.1  # about how long a run takes
MAX_STEP_SIZE = 128  # of an item in one run, so that other items need not wait long
MIN_BATCH_SIZE = 256  # may always run together, however slow that is
MIN_MEASURED_SIZE = MIN_BATCH_SIZE // 2  # from which a run may lower the pace: runs of a queue are larger
FIRST_COME_EVERY = 3  # every third run serves calls in the order of arrival
INITIAL_PACE = 10_000.0  # size per second, until a run is measured
SHORT_LENGTH = 64  # lengths up to this run together: the fixed cost of a run outweighs their padding
MEASURED_RUNS = 4  # over about so many runs the measured pace is a mean


class Sized(Protocol):
    """An item of a call."""

    @property
    def size(self) -> int:
        """The size of the item that has not run yet, or an estimate."""

    @property
    def done(self) -> int:
        """The size that has run so far, which is no estimate: the pace is measured by it."""


Item = TypeVar("Item", bound=Sized)
Result = TypeVar("Result")
Results = list[Result | Exception]
Run = Callable[[Any, Sequence[Item]], Sequence[Result | Exception | None]]  # None: not finished


class Call(Generic[Item, Result]):
    """The waiting items of one caller, with their sizes, and the results so far."""

    def __init__(self, items: Sequence[Item], future: asyncio.Future[Results[Result]]) -> None:
        self.future = future
        self.served = 0  # size of its items that ran
        self.queued_at = time.perf_counter()
        self.unfinished = len(items)
        self.results: list[Any] = [None] * len(items)
        self.waiting = deque([(index, item, item.size) for index, item in enumerate(items)])
        self.remaining = sum([size for _, _, size in self.waiting])

    @property
    def is_long(self) -> bool:
        """Whether its items, with those that have run, do not fit in one run."""
        return self.served + self.remaining > MIN_BATCH_SIZE


@dataclass
class Batch(Generic[Item, Result]):
    """Items of several calls that run together."""

    key: Hashable
    max_size: int = 0
    is_fair: bool = True  # of the call that was served least, otherwise in the order of arrival
    sources: list[tuple[Call[Item, Result], int]] = field(default_factory=list)  # an item's call and index
    items: list[Item] = field(default_factory=list)
    size: int = 0
    has_short: bool = False  # then long calls wait for the next run

    def fill(self, calls: Sequence[Call[Item, Result]]) -> None:
        """Take items of calls in turn, until no next item fits."""

        def turn(i: int) -> tuple[float, float, int]:
            return (calls[i].served if self.is_fair else 0, calls[i].queued_at, i)

        heap = list(map(turn, range(len(calls))))
        heapify(heap)
        while heap:
            *_, i = heappop(heap)
            if self._fits(calls[i]):
                self._take_item(calls[i])
                if calls[i].waiting:
                    heappush(heap, turn(i))

    def _fits(self, call: Call[Item, Result]) -> bool:
        """Return whether the next item of a call can run too."""
        step = min(call.waiting[0][2], MAX_STEP_SIZE)
        delays_short = self.has_short and call.is_long
        return not self.items or (self.size + step <= self.max_size and not delays_short)

    def _take_item(self, call: Call[Item, Result]) -> None:
        self.has_short = self.has_short or (self.is_fair and not call.is_long)
        index, item, size = call.waiting.popleft()
        step = min(size, MAX_STEP_SIZE)  # the part of its size that one run takes
        call.remaining -= size
        call.served += step
        self.sources.append((call, index))
        self.items.append(item)
        self.size += step


class Batcher(Generic[Item, Result]):
    """The queue before the runner. Belongs to one event loop: everything but the run happens there.

    Args:
        run: Runs items of one key together, in the runner's thread.
        budget: The size that runs together at most.
        wait_s: How long calls may wait, by the measured pace.
        report: Receives of each run its items, their size, their longest wait, and how long it took.
        failed: Called when the runner has died.
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
        self.wait_s = wait_s
        self.depth = 0  # number of waiting items
        self._pace = INITIAL_PACE
        self._runs = 0
        self._run = run
        self._report = report
        self._failed = failed
        self._queues: dict[Hashable, list[Call[Item, Result]]] = {}  # in the order in which their keys run
        self._running: Batch[Item, Result] | None = None
        self._runner = ThreadPoolExecutor(1, thread_name_prefix="runner")
        self._running_since: float | None = None
        self._gathering = False  # the next run starts in the next round of the event loop
        self._dead = False

    def stop(self) -> None:
        """Fail all calls that wait, and stop the runner."""
        self._runner.shutdown(wait=False)
        self._fail_all("the service is stopping")

    def healthy(self, stuck_after_s: float = float("inf")) -> bool:
        """Return whether the runner lives and its present run is not stuck."""
        since = self._running_since
        return not self._dead and (since is None or time.perf_counter() - since < stuck_after_s)

    async def submit(
        self, key: Hashable, items: Sequence[Item], *, admitted: bool = False
    ) -> Results[Result]:
        """Return for each item, in order, its result or the exception that it raised.

        `admitted`: the call belongs to one that was not refused, and is not refused either.
        """
        if self._dead:
            raise NotReady("inference is not available")
        if not items:
            return []
        loop = asyncio.get_running_loop()
        call: Call[Item, Result] = Call(items, loop.create_future())
        waiting = [other for calls in self._queues.values() for other in calls if not other.future.done()]
        # no more of another call than the size of this call runs before it
        ahead = sum([min(other.remaining, call.remaining) for other in waiting])
        if ahead and not admitted and ahead + call.remaining > self._pace * self.wait_s:
            raise Overloaded("too much is waiting already; try again shortly")
        self.depth += len(items)
        self._queues.setdefault(key, []).append(call)
        if self._running is None and not self._gathering:
            self._gathering = True  # calls of the same round of the event loop run together
            loop.call_soon(self._start_next)
        try:
            return await call.future
        except asyncio.CancelledError:
            self.depth -= len(call.waiting)
            raise

    def _start_next(self) -> None:
        self._gathering = False
        self._running = batch = self._take_batch()
        if batch is not None:
            self._running_since = time.perf_counter()
            run = asyncio.get_running_loop().run_in_executor(self._runner, self._run_batch, batch)
            run.add_done_callback(partial(self._finish, batch))

    def _take_batch(self) -> Batch[Item, Result] | None:
        """Return the items that run next, all of one key; the next batch is of another key."""
        while self._queues:
            key = next(iter(self._queues))
            calls = [call for call in self._queues.pop(key) if not call.future.done()]
            if not calls:
                continue
            self._runs += 1
            max_size = min(self.budget, max(MIN_BATCH_SIZE, int(self._pace * RUN_S)))
            batch: Batch[Item, Result] = Batch(key, max_size, self._runs % FIRST_COME_EVERY != 0)
            batch.fill(calls)
            self.depth -= len(batch.items)
            if unfinished := [call for call in calls if call.waiting]:
                self._queues[key] = unfinished
            return batch
        return None

    def _run_batch(self, batch: Batch[Item, Result]) -> tuple[list[Any], int, float]:
        """Run a batch in the runner: for each item a result, an exception or None; the size; the duration."""
        start_s = time.perf_counter()
        start_size = sum([item.done for item in batch.items])
        try:
            results = list(self._run(batch.key, batch.items))
        except Exception as error:  # the edge of the worker loop
            if len(batch.items) == 1:
                log.error("an item failed", exc_info=error)
                return [error], 0, time.perf_counter() - start_s
            log.warning("a batch of %d failed; running its items one by one", len(batch.items))
            singles = [Batch[Item, Result](batch.key, items=[item]) for item in batch.items]
            results = [self._run_batch(single)[0][0] for single in singles]
        size = sum([item.done for item in batch.items]) - start_size
        return results, size, time.perf_counter() - start_s

    def _finish(self, batch: Batch[Item, Result], run: asyncio.Future[tuple[list[Any], int, float]]) -> None:
        """Answer a batch that the thread has run. An exception outside `_run_batch` ends inference."""
        self._running_since = None
        if (error := run.exception()) is not None:
            log.critical("the inference thread died", exc_info=error)
            self._fail_all("inference is not available")
            self._failed()
            return
        results, size, ran_s = run.result()
        pace = size / max(ran_s, 1e-9)
        # a small run takes little more than its fixed cost, which says little about larger runs
        if size >= MIN_MEASURED_SIZE or pace > self._pace:
            self._pace += (pace - self._pace) / MEASURED_RUNS
        oldest = min([call.queued_at for call, _ in batch.sources])
        waited_s = max(0.0, time.perf_counter() - ran_s - oldest)
        answered = self._store(batch, results)
        if not self._dead:
            self._start_next()  # the runner then works while the answers are written
        for call in answered:
            call.future.set_result(call.results)
        self._report(len(batch.items), size, waited_s, ran_s)

    def _store(self, batch: Batch[Item, Result], results: Sequence[Any]) -> list[Call[Item, Result]]:
        """Store results, and return the calls that are complete. An unfinished item is the next one of its
        call, because it takes memory.
        """
        answered = []
        for (call, index), item, result in zip(batch.sources, batch.items, results, strict=True):
            if call.future.done():
                continue
            if result is not None:
                call.results[index] = result
                call.unfinished -= 1
                if not call.unfinished:
                    answered.append(call)
                continue
            size = item.size
            queue = self._queues.setdefault(batch.key, [])
            if call not in queue:
                queue.append(call)
            call.waiting.appendleft((index, item, size))
            call.remaining += size
            self.depth += 1
        return answered

    def _fail_all(self, message: str) -> None:
        self._dead = True
        waiting = [call for calls in self._queues.values() for call in calls]
        for call in [*waiting, *(call for call, _ in (self._running.sources if self._running else []))]:
            if not call.future.done():
                call.future.set_exception(NotReady(message))
        self._queues.clear()
        self._running = None
        self.depth = 0


def group_by_length(lengths: Sequence[int], max_sum: int, power: int = 1) -> Iterator[list[int]]:
    """Yield the indices of items that run together: items of similar length, each padded to the longest.

    An item is padded to twice its length at most, unless it is short. The sum of the padded lengths, raised
    to `power`, is at most `max_sum`.
    """
    batch: list[int] = []
    for i in sorted(range(len(lengths)), key=lengths.__getitem__):
        length = lengths[i]
        is_alike = not batch or length <= max(SHORT_LENGTH, 2 * lengths[batch[0]])
        if batch and not (is_alike and (len(batch) + 1) * length**power <= max_sum):
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch
