"""Combine many small calls into few large runs. It contains no HTTP, no models and no ONNX.

A call has items that know their size. Whenever the runner, one thread, is free, it gets the items that wait
at that moment. There is no timer: on an idle service a call runs at once, and under load batches grow.

* Items whose calls have the same `key` run together, up to about `RUN_S` of work by the pace that was
  measured, and up to `budget`.
* The next item is one of the call that was given least so far, by size: what is short is soon through,
  however much others ask for, and does not wait for what is long in the same run. One run in three serves
  calls in the order in which they came: none waits for ever. Round-robin by caller would be simpler: among 32
  callers of long texts the 99th percentile of short ones is then 1.1 s instead of 0.19 s (simulated at 4,400
  tokens a second).
* A call is refused if it would wait too long. By these turns it waits for each other call as long as that
  one's work takes, or as its own does: whichever is less.
* A run need not finish an item. What is left of it waits again, so long work has many runs, with others
  between them; a call that was cancelled is dropped before its next one.
* An item that fails is found by running the items of its batch one by one; its neighbours get their results.
* When the runner dies, all calls that wait and all later ones fail.
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
MIN_BATCH_SIZE = 256  # that may always run together, however slow that is; an item's most in one run
MIN_MEASURED_SIZE = MIN_BATCH_SIZE // 2  # from which a run may lower the pace: runs of a queue are larger
FIRST_COME_EVERY = 3  # one run in so many serves calls in the order in which they came
INITIAL_PACE = 10_000.0  # size that runs in a second, as long as nothing was measured
SHORT_LENGTH = 64  # lengths up to this are alike: the fixed cost of a run outweighs their padding
MEASURED_RUNS = 4  # the measured pace is a mean over about so many runs


class Sized(Protocol):
    """An item of a call."""

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
        self.served = 0  # size of its items that ran
        self.queued_at = time.perf_counter()
        self.unfinished = len(items)
        self.results: list[Any] = [None] * len(items)
        self.waiting = deque([(index, item, item.size) for index, item in enumerate(items)])
        self.remaining = sum([size for _, _, size in self.waiting])


@dataclass
class Batch(Generic[Item, Result]):
    """Items of several calls that run together."""

    key: Hashable
    sources: list[tuple[Call[Item, Result], int]] = field(default_factory=list)  # an item's call and index
    items: list[Item] = field(default_factory=list)
    size: int = 0


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
        self.depth = 0  # how many items wait
        self._pace = INITIAL_PACE
        self._runs = 0
        self._run = run
        self._report = report
        self._failed = failed
        self._queues: dict[Hashable, list[Call[Item, Result]]] = {}  # the key that is next comes first
        self._running: Batch[Item, Result] | None = None
        self._runner = ThreadPoolExecutor(1, thread_name_prefix="runner")
        self._busy_since: float | None = None  # when the thread's run began
        self._gathering = False  # the start of a run is due
        self._dead = False

    def stop(self) -> None:
        """Fail all calls that wait, and stop the runner."""
        self._runner.shutdown(wait=False)
        self._fail_all("the service is stopping")

    def healthy(self, stuck_after_s: float = float("inf")) -> bool:
        """Return whether the runner lives and its present run is not stuck."""
        since = self._busy_since
        return not self._dead and (since is None or time.perf_counter() - since < stuck_after_s)

    async def submit(self, key: Hashable, items: Sequence[Item]) -> Results[Result]:
        """For each item, in order, its result or the exception that it raised."""
        if self._dead:
            raise NotReady("inference is not available")
        if not items:
            return []
        loop = asyncio.get_running_loop()
        call: Call[Item, Result] = Call(items, loop.create_future())
        waiting = [other for calls in self._queues.values() for other in calls if not other.future.done()]
        # Of each that waits no more than its own size runs before it.
        ahead = sum([min(other.remaining, call.remaining) for other in waiting])
        if ahead and ahead + call.remaining > self._pace * self.wait_s:
            raise Overloaded("too much is waiting already; try again shortly")
        self.depth += len(items)
        self._queues.setdefault(key, []).append(call)
        if self._running is None and not self._gathering:
            self._gathering = True  # what comes in the same round of the event loop runs together
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
            self._busy_since = time.perf_counter()
            run = asyncio.get_running_loop().run_in_executor(self._runner, self._run_batch, batch)
            run.add_done_callback(partial(self._finish, batch))

    def _take_batch(self) -> Batch[Item, Result] | None:
        """Return the items that run next, all of one key; the next batch is of another key."""
        max_size = min(self.budget, max(MIN_BATCH_SIZE, int(self._pace * RUN_S)))
        while self._queues:
            key = next(iter(self._queues))
            calls = [call for call in self._queues.pop(key) if not call.future.done()]
            if not calls:
                continue
            self._runs += 1
            fair = self._runs % FIRST_COME_EVERY != 0
            batch: Batch[Item, Result] = Batch(key)
            heap = [(call.served if fair else 0, call.queued_at, i, call) for i, call in enumerate(calls)]
            heapify(heap)
            has_short = False  # then what is long waits for the next run
            left = []  # calls that still have items
            while heap:
                *_, i, call = heappop(heap)
                index, item, size = call.waiting[0]
                step = min(size, MIN_BATCH_SIZE)  # of its size, what one run takes
                is_long = call.served + call.remaining > MIN_BATCH_SIZE
                if batch.items and (batch.size + step > max_size or (has_short and is_long)):
                    left.append(call)
                    continue
                has_short = has_short or (fair and not is_long)
                call.waiting.popleft()
                call.remaining -= size
                call.served += step
                batch.sources.append((call, index))
                batch.items.append(item)
                batch.size += step
                if call.waiting:
                    heappush(heap, (call.served if fair else 0, call.queued_at, i, call))
            self.depth -= len(batch.items)
            if left:
                self._queues[key] = left
            return batch
        return None

    def _run_batch(self, batch: Batch[Item, Result]) -> tuple[list[Any], float]:
        """Return a result, an exception or None for each item, and the seconds it took. In the runner."""
        started = time.perf_counter()
        try:
            results = list(self._run(batch.key, batch.items))
        except Exception as error:  # the edge of the worker loop
            if len(batch.items) == 1:
                log.error("an item failed", exc_info=error)
                return [error], time.perf_counter() - started
            log.warning("a batch of %d failed; running its items one by one", len(batch.items))
            alone = [Batch[Item, Result](batch.key, items=[item]) for item in batch.items]
            results = [self._run_batch(each)[0][0] for each in alone]
        return results, time.perf_counter() - started

    def _finish(self, batch: Batch[Item, Result], run: asyncio.Future[tuple[list[Any], float]]) -> None:
        """Answer a batch that the thread has run. What raises in spite of `_run_batch` ends inference."""
        self._busy_since = None
        if (death := run.exception()) is not None:
            log.critical("the inference thread died", exc_info=death)
            self._fail_all("inference is not available")
            self._failed()
            return
        results, ran_s = run.result()
        pace = batch.size / max(ran_s, 1e-9)
        has_run = not all(isinstance(result, Exception) for result in results)
        # A small run takes its fixed cost above all, which says little about larger ones.
        if has_run and (batch.size >= MIN_MEASURED_SIZE or pace > self._pace):
            self._pace += (pace - self._pace) / MEASURED_RUNS
        oldest = min([call.queued_at for call, _ in batch.sources])
        waited_s = max(0.0, time.perf_counter() - ran_s - oldest)
        answered = self._store(batch, results)
        if not self._dead:
            self._start_next()  # first, so that the runner works while the answers are written
        for call in answered:
            call.future.set_result(call.results)
        self._report(len(batch.items), batch.size, waited_s, ran_s)

    def _store(self, batch: Batch[Item, Result], results: Sequence[Any]) -> list[Call[Item, Result]]:
        """Store results, and return the calls that are complete. Items that are not finished are the next of
        their calls: what was begun takes memory.
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
