"""The batcher with a fake runner: batches and their order, refusals, cancelled calls and failures."""

import asyncio
import gc
import random
import threading
import time
import weakref
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from service.errors import InvalidInput, NotReady, Overloaded
from service.runtime.batcher import Batcher, group_by_length

pytestmark = pytest.mark.anyio


@dataclass
class Work:
    """A value to double, in `runs` runs."""

    value: Any
    size: int = 1
    runs: int = 1
    done: int = 0


class Doubler:
    """A runner that doubles numbers and records its batches. It waits for `gate` before each run."""

    def __init__(self) -> None:
        self.batches: list[tuple[Any, list[Any]]] = []
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Event()

    def __call__(self, key: Any, items: Sequence[Work]) -> list[Any]:
        self.entered.set()
        assert self.gate.wait(10)
        self.batches.append((key, [item.value for item in items]))
        for item in items:
            if item.value == "broken":
                raise InvalidInput("this one is broken")
            if item.value == "fatal":
                raise SystemExit
        for item in items:
            item.runs -= 1
            item.done += item.size
        return [None if item.runs else item.value * 2 for item in items]


@asynccontextmanager
async def blocked_batcher(**options: Any) -> AsyncIterator[tuple[Doubler, Batcher[Any, Any]]]:
    """Yield a batcher whose runner waits until `gate` is set; check at the end that no item is left."""
    doubler = Doubler()
    batcher: Batcher[Any, Any] = Batcher(doubler, **{"budget": 1000, **options})
    doubler.gate.clear()
    hold = asyncio.create_task(batcher.submit("hold", [Work(0)]))
    await asyncio.to_thread(doubler.entered.wait, 5)
    yield doubler, batcher
    doubler.gate.set()
    await hold
    assert batcher.depth == 0
    batcher.stop()


async def enqueue(batcher: Batcher[Any, Any], *items: Work, key: str = "k") -> asyncio.Task[Any]:
    """Return a call that waits for the runner."""
    call = asyncio.create_task(batcher.submit(key, items))
    await asyncio.sleep(0.01)
    return call


async def test_batcher_runs_waiting_calls_together_by_key_when_the_runner_is_free() -> None:
    async with blocked_batcher() as (doubler, batcher):
        calls = [await enqueue(batcher, Work(n, 5), key="other" if n == 2 else "k") for n in range(5)]
        assert batcher.depth == 5
        assert await batcher.submit("k", []) == []
        doubler.gate.set()
        assert await asyncio.gather(*calls) == [[0], [2], [4], [6], [8]]
        assert doubler.batches == [("hold", [0]), ("k", [0, 1, 3, 4]), ("other", [2])]


async def test_long_item_takes_several_runs_with_those_of_others_between_them() -> None:
    async with blocked_batcher(budget=180) as (doubler, batcher):
        long = await enqueue(batcher, Work(100, 200, runs=3), Work(101, 200))
        short = [await enqueue(batcher, Work(n, 30)) for n in range(2)]
        assert batcher.depth == 4
        doubler.gate.set()
        assert await asyncio.gather(*short) == [[0], [2]]
        assert await long == [200, 202]
        assert doubler.batches[1:] == [("k", [100, 0]), ("k", [100, 1]), ("k", [100]), ("k", [101])]


async def test_batcher_runs_the_least_served_call_next_and_the_oldest_in_every_third_run() -> None:
    async with blocked_batcher(budget=200) as (doubler, batcher):
        large = await enqueue(batcher, *(Work(n, 200) for n in range(3)))
        small = await enqueue(batcher, *(Work(n, 50) for n in range(10, 16)))
        doubler.gate.set()
        await asyncio.gather(large, small)
        assert [items for _, items in doubler.batches[1:]] == [[0, 10], [1, 11], [12, 13, 14, 15], [2]]


async def test_short_calls_do_not_wait_for_long_ones_in_their_run() -> None:
    async with blocked_batcher() as (doubler, batcher):
        short = [await enqueue(batcher, Work(n, 50)) for n in range(3)]
        long = await enqueue(batcher, Work(10, 200), Work(11, 200))
        doubler.gate.set()
        await asyncio.gather(long, *short)
        assert [items for _, items in doubler.batches[1:]] == [[0, 1, 2], [10, 11]]


async def test_cancelled_call_stops_a_long_item_between_its_runs() -> None:
    async with blocked_batcher() as (doubler, batcher):
        long = await enqueue(batcher, Work(1, 200, runs=10**9))
        doubler.gate.set()
        while len(doubler.batches) < 5:
            await asyncio.sleep(0.001)
        long.cancel()
        await asyncio.sleep(0.05)
        runs = len(doubler.batches)
        await asyncio.sleep(0.05)
        assert (len(doubler.batches), batcher.depth) == (runs, 0)


async def test_batcher_runs_together_as_much_as_takes_a_tenth_of_a_second() -> None:
    def slow(key: Any, items: Sequence[Work]) -> list[Any]:
        time.sleep(sum(item.size for item in items) / 40_000)
        for item in items:
            item.done += item.size
        return [item.value for item in items]

    sizes: list[int] = []
    batcher: Batcher[Any, Any] = Batcher(slow, budget=10**6, report=lambda *run: sizes.append(run[1]))
    assert len(await batcher.submit("k", [Work(n, 10) for n in range(3000)])) == 3000
    assert sizes[0] == 1000  # by the pace that is assumed of a new runner
    assert 1500 < max(sizes) <= 4000  # by the measured pace, which is 4000 in that time
    batcher.stop()


@pytest.mark.parametrize(
    ("works", "seconds", "done"),
    [
        ([Work(n, 100) for n in range(5)], 0.005, 1),  # each is smaller than estimated
        ([Work("small and slow")], 0.01, 1),
        ([Work(InvalidInput("no"), 200)], 0.0, 0),
    ],
    ids=["overestimated", "small", "refused"],
)
async def test_pace_is_not_measured_on_small_runs_wrong_estimates_or_refusals(
    works: list[Work], seconds: float, done: int
) -> None:
    """After texts of one unknown word of 4,000 letters, a short text waited 7 s for the runs of long ones.

    Single words made the pace ten times too low, and refusals ten times too high.
    """

    def run(key: Any, items: Sequence[Work]) -> list[Any]:
        time.sleep(seconds if key == "first" else 0)
        for item in items:
            item.done += done if key == "first" else item.size
        return [item.value for item in items]

    sizes: list[int] = []
    batcher: Batcher[Any, Any] = Batcher(run, budget=10**6, report=lambda *run: sizes.append(run[1]))
    for _ in range(10):
        await batcher.submit("first", works)
    sizes.clear()
    await batcher.submit("k", [Work(n, 10) for n in range(300)])
    assert sizes[0] == 1000  # still by the pace of a new runner
    batcher.stop()


async def test_batcher_stays_within_its_budget_and_runs_an_item_over_it_alone() -> None:
    reports: list[tuple[int, int, float, float]] = []
    async with blocked_batcher(budget=100, report=lambda *run: reports.append(run)) as (doubler, batcher):
        call = await enqueue(batcher, *(Work(n, 200 if n > 6 else 30) for n in range(9)))
        doubler.gate.set()
        assert await call == [2 * n for n in range(9)]
        assert [len(items) for _, items in doubler.batches[1:]] == [3, 3, 1, 1, 1]
        assert [run[:2] for run in reports[1:]] == [(3, 90), (3, 90), (1, 30), (1, 200), (1, 200)]


async def test_batcher_gives_waiting_keys_their_turn_under_steady_load() -> None:
    async with blocked_batcher(budget=10) as (doubler, batcher):
        steady = [await enqueue(batcher, Work(n, 10), key="a") for n in range(20)]
        call = await enqueue(batcher, Work(99, 10), key="b")
        doubler.gate.set()
        await asyncio.gather(*steady, call)
        # After the blocking run and one run of the calls that waited already.
        assert [key for key, _ in doubler.batches].index("b") == 2


async def test_batcher_finds_the_broken_item_and_its_neighbours_get_their_results() -> None:
    async with blocked_batcher() as (doubler, batcher):
        calls = [await enqueue(batcher, Work(value, 5)) for value in (1, "broken", 3)]
        doubler.gate.set()
        first, broken, third = await asyncio.gather(*calls)
        assert (first, third) == ([2], [6])
        assert isinstance(broken[0], InvalidInput)


async def test_batcher_never_runs_a_cancelled_call() -> None:
    async with blocked_batcher() as (doubler, batcher):
        calls = [await enqueue(batcher, Work(n, 5)) for n in range(4)]
        calls[0].cancel()
        calls[2].cancel()
        await asyncio.sleep(0.01)
        doubler.gate.set()
        assert [await calls[1], await calls[3]] == [[2], [6]]
        assert doubler.batches[1] == ("k", [1, 3])


async def test_batcher_refuses_what_would_wait_too_long_but_never_when_it_is_empty() -> None:
    async with blocked_batcher(wait_s=0.1) as (doubler, batcher):  # a thousand, by the pace of a new runner
        call = await enqueue(batcher, Work(1, 5000))
        with pytest.raises(Overloaded):
            await batcher.submit("k", [Work(1, 600)])
        call.cancel()
        call = await enqueue(batcher, Work(1, 900))
        doubler.gate.set()
        assert await call == [2]


async def test_large_call_does_not_get_others_refused() -> None:
    """While a call of a thousand long texts waited, all others were refused."""
    async with blocked_batcher(wait_s=0.1) as (doubler, batcher):
        long = await enqueue(batcher, *(Work(n, 1000) for n in range(100)))
        short = [await enqueue(batcher, Work(50, 30)) for _ in range(20)]
        with pytest.raises(Overloaded):  # behind twenty calls of its kind
            await batcher.submit("k", [Work(1, 500)])
        # a trial of a search that was not refused is not refused either
        trial = asyncio.create_task(batcher.submit("k", [Work(1, 500)], admitted=True))
        doubler.gate.set()
        assert await trial == [2]
        assert await asyncio.gather(*short) == [[100]] * 20
        assert len(await long) == 100


async def test_batcher_whose_runner_dies_fails_waiting_and_later_calls() -> None:
    failed = asyncio.Event()
    async with blocked_batcher(failed=failed.set) as (doubler, batcher):
        assert batcher.healthy()
        calls = [await enqueue(batcher, Work("fatal", 5)), await enqueue(batcher, Work(1, 5), key="b")]
        doubler.gate.set()
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(result) for result in results] == [NotReady, NotReady]
        await asyncio.wait_for(failed.wait(), 5)
        assert not batcher.healthy()
        with pytest.raises(NotReady):
            await batcher.submit("k", [Work(1, 5)])


async def test_batcher_that_is_stuck_is_not_healthy() -> None:
    async with blocked_batcher() as (_, batcher):
        await asyncio.sleep(0.05)
        assert not batcher.healthy(stuck_after_s=0.02)
        assert batcher.healthy(stuck_after_s=60)


async def test_batcher_serves_a_thousand_mixed_calls_of_which_some_are_cancelled() -> None:
    rng = random.Random(7)
    batcher: Batcher[Any, Any] = Batcher(Doubler(), budget=2000)
    expected: list[list[int]] = []
    calls = []
    for n in range(1000):
        items = [n * 100 + k for k in range(rng.choice([1, 1, 1, 2, 7, 40]))]
        expected.append([2 * item for item in items])
        works = [Work(item, rng.choice([3, 20, 90, 700]), rng.choice([1, 1, 3])) for item in items]
        calls.append(asyncio.create_task(batcher.submit(rng.choice("abc"), works)))
        if rng.random() < 0.1:
            await asyncio.sleep(0)
    cancelled = set(rng.sample(range(1000), 300))
    for n in cancelled:
        await asyncio.sleep(0)
        calls[n].cancel()
    results = await asyncio.gather(*calls, return_exceptions=True)
    dropped = {n for n, result in enumerate(results) if isinstance(result, asyncio.CancelledError)}
    assert dropped <= cancelled
    assert all(results[n] == expected[n] for n in set(range(1000)) - dropped)
    assert batcher.depth == 0
    batcher.stop()


async def test_runner_keeps_no_reference_to_a_finished_batch() -> None:
    class Answer:
        pass

    batcher: Batcher[Any, Any] = Batcher(lambda key, items: [Answer() for _ in items], budget=9)
    [answer] = await batcher.submit("k", [Work(0, 1)])
    reference = weakref.ref(answer)
    del answer
    await asyncio.sleep(0.1)
    gc.collect()
    assert reference() is None
    batcher.stop()


def test_lengths_that_are_alike_run_together() -> None:
    lengths = [900, 3, 64, 500, 60, 1000, 7]
    batches = [sorted(lengths[i] for i in batch) for batch in group_by_length(lengths, 10**6)]
    assert batches == [[3, 7, 60, 64], [500, 900, 1000]]
    assert [len(batch) for batch in group_by_length([10] * 5, 200, power=2)] == [2, 2, 1]
    assert list(group_by_length([50], 7)) == [[0]]  # an item over the budget runs alone
