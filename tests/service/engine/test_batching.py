"""The batcher on fakes: what runs together, what is refused, who is dropped, what a failure costs whom."""

from __future__ import annotations

import asyncio
import gc
import random
import threading
import time
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from service.engine.batching import Batcher, by_length
from service.errors import InvalidInput, NotReady, Overloaded

pytestmark = pytest.mark.anyio


@dataclass
class Work:
    """Something to double; it takes `runs` runs."""

    value: Any
    size: int = 1
    runs: int = 1


class Doubler:
    """Doubles numbers, and remembers what came together. Waits for `gate` before each run."""

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
        return [None if item.runs else item.value * 2 for item in items]


def make(doubler: Doubler, **options: Any) -> Batcher[Any, Any]:
    return Batcher(doubler, **{"budget": 1000, **options})


async def hold(doubler: Doubler, batcher: Batcher[Any, Any]) -> asyncio.Task[Any]:
    """Occupy the runner, so that what is submitted next waits."""
    doubler.gate.clear()
    doubler.entered.clear()
    task = asyncio.create_task(batcher.submit("hold", [Work(0)]))
    await asyncio.to_thread(doubler.entered.wait, 5)
    return task


async def waiting(batcher: Batcher[Any, Any], values: Sequence[Any]) -> list[asyncio.Task[Any]]:
    """A call for each, which all wait for the runner."""
    calls = [asyncio.create_task(batcher.submit("k", [Work(value, 5)])) for value in values]
    await asyncio.sleep(0.01)
    return calls


async def test_batcher_gives_results_in_the_order_of_the_items() -> None:
    batcher = make(Doubler())
    items = [
        Work(n, size) for n, size in zip(range(50), random.Random(1).sample(range(1, 999), 50), strict=True)
    ]
    assert await batcher.submit("k", items) == [2 * n for n in range(50)]
    assert await batcher.submit("k", []) == []
    batcher.stop()


async def test_batcher_runs_what_waits_together_when_the_runner_is_free() -> None:
    doubler = Doubler()
    batcher = make(doubler)
    held = await hold(doubler, batcher)
    calls = await waiting(batcher, range(5))
    assert batcher.depth == 5
    doubler.gate.set()
    assert await asyncio.gather(*calls) == [[0], [2], [4], [6], [8]]
    await held
    assert doubler.batches == [("hold", [0]), ("k", [0, 1, 2, 3, 4])]
    assert batcher.depth == 0
    batcher.stop()


async def test_batcher_keeps_keys_apart() -> None:
    doubler = Doubler()
    batcher = make(doubler)
    held = await hold(doubler, batcher)
    keys = {"a": "k", "b": "other", "c": "k"}
    calls = [asyncio.create_task(batcher.submit(key, [Work(name, 5)])) for name, key in keys.items()]
    await asyncio.sleep(0.01)
    doubler.gate.set()
    await asyncio.gather(*calls, held)
    assert doubler.batches[1:] == [("k", ["a", "c"]), ("other", ["b"])]
    batcher.stop()


async def test_long_item_takes_several_runs_with_those_of_others_between_them() -> None:
    doubler = Doubler()
    batcher = make(doubler, budget=256)
    held = await hold(doubler, batcher)
    long = asyncio.create_task(batcher.submit("k", [Work(100, 200, runs=3), Work(101, 200)]))
    await asyncio.sleep(0.01)
    short = [asyncio.create_task(batcher.submit("k", [Work(n, 30)])) for n in range(2)]
    await asyncio.sleep(0.01)
    assert batcher.depth == 4
    doubler.gate.set()
    assert await asyncio.gather(*short) == [[0], [2]]
    assert await long == [200, 202]
    await held
    assert doubler.batches[1:] == [("k", [100, 0]), ("k", [1, 100]), ("k", [100]), ("k", [101])]
    assert batcher.depth == 0
    batcher.stop()


async def test_caller_who_leaves_stops_a_long_item_between_its_runs() -> None:
    doubler = Doubler()
    batcher = make(doubler)
    held = await hold(doubler, batcher)
    long = asyncio.create_task(batcher.submit("k", [Work(1, 200, runs=10**9)]))
    doubler.gate.set()
    await held
    while len(doubler.batches) < 5:
        await asyncio.sleep(0.001)
    long.cancel()
    await asyncio.sleep(0.05)
    runs = len(doubler.batches)
    await asyncio.sleep(0.05)
    assert (len(doubler.batches), batcher.depth, batcher.idle) == (runs, 0, True)
    batcher.stop()


async def test_batcher_runs_together_what_takes_a_tenth_of_a_second() -> None:
    def slow(key: Any, items: Sequence[Work]) -> list[Any]:
        time.sleep(sum(item.size for item in items) / 40_000)
        return [item.value for item in items]

    sizes: list[int] = []
    batcher: Batcher[Work, Any] = Batcher(
        slow, budget=10**6, report=lambda items, size, waited_s, ran_s: sizes.append(size)
    )
    assert len(await batcher.submit("k", [Work(n, 10) for n in range(3000)])) == 3000
    assert sizes[0] == 1000  # by the pace that is thought of a new runner
    assert 1500 < max(sizes) <= 4000  # which was too little: it runs 4000 in that time
    batcher.stop()


async def test_batcher_stays_within_its_budget() -> None:
    reports: list[tuple[int, int, float, float]] = []
    doubler = Doubler()
    batcher = make(doubler, budget=100, report=lambda *run: reports.append(run))
    held = await hold(doubler, batcher)
    call = asyncio.create_task(batcher.submit("k", [Work(n, 30) for n in range(7)]))
    await asyncio.sleep(0.01)
    doubler.gate.set()
    assert await call == [0, 2, 4, 6, 8, 10, 12]
    await held
    assert [len(items) for _, items in doubler.batches[1:]] == [3, 3, 1]
    assert [run[:2] for run in reports[1:]] == [(3, 90), (3, 90), (1, 30)]
    batcher.stop()


async def test_batcher_runs_an_item_over_the_budget_alone() -> None:
    doubler = Doubler()
    batcher = make(doubler, budget=10)
    assert await batcher.submit("k", [Work(1, 500), Work(2, 500)]) == [2, 4]
    assert doubler.batches == [("k", [1]), ("k", [2])]
    batcher.stop()


async def test_batcher_lets_a_call_of_one_into_the_next_run_beside_a_call_of_a_thousand() -> None:
    doubler = Doubler()
    batcher = make(doubler, budget=100)
    held = await hold(doubler, batcher)
    big = asyncio.create_task(batcher.submit("k", [Work(n, 10) for n in range(1000)]))
    await asyncio.sleep(0.01)
    singles = [asyncio.create_task(batcher.submit("k", [Work(10_000 + n, 10)])) for n in range(4)]
    await asyncio.sleep(0.01)
    doubler.gate.set()
    assert await asyncio.gather(*singles) == [[20_000], [20_002], [20_004], [20_006]]
    assert len(await big) == 1000
    await held
    assert {10_000, 10_001, 10_002, 10_003} < set(doubler.batches[1][1])
    batcher.stop()


async def test_batcher_gives_waiting_keys_their_turn_under_steady_load() -> None:
    doubler = Doubler()
    batcher = make(doubler, budget=10)
    held = await hold(doubler, batcher)
    steady = [asyncio.create_task(batcher.submit("a", [Work(n, 10)])) for n in range(20)]
    await asyncio.sleep(0.01)
    other = asyncio.create_task(batcher.submit("b", [Work(99, 10)]))
    await asyncio.sleep(0.01)
    doubler.gate.set()
    await asyncio.gather(*steady, other, held)
    keys = [key for key, _ in doubler.batches]
    assert keys.index("b") == 2  # after the hold and one run of those that waited already
    batcher.stop()


async def test_batcher_finds_the_broken_item_and_its_neighbours_get_their_results() -> None:
    doubler = Doubler()
    batcher = make(doubler)
    held = await hold(doubler, batcher)
    calls = await waiting(batcher, (1, "broken", 3))
    doubler.gate.set()
    first, broken, third = await asyncio.gather(*calls)
    await held
    assert (first, third) == ([2], [6])
    assert isinstance(broken[0], InvalidInput)
    batcher.stop()


async def test_batcher_never_runs_a_cancelled_call() -> None:
    doubler = Doubler()
    batcher = make(doubler)
    held = await hold(doubler, batcher)
    calls = await waiting(batcher, range(4))
    calls[0].cancel()
    calls[2].cancel()
    await asyncio.sleep(0.01)
    doubler.gate.set()
    await held
    assert [await calls[1], await calls[3]] == [[2], [6]]
    assert doubler.batches[1] == ("k", [1, 3])
    assert batcher.depth == 0
    batcher.stop()


async def test_batcher_refuses_what_would_wait_too_long_but_never_when_it_is_empty() -> None:
    doubler = Doubler()
    batcher = make(doubler, wait_s=0.1)  # a thousand, by the pace of a new runner
    held = await hold(doubler, batcher)
    waits = asyncio.create_task(batcher.submit("k", [Work(1, 5000)]))
    await asyncio.sleep(0.01)
    with pytest.raises(Overloaded):
        await batcher.submit("k", [Work(1, 400)])
    waits.cancel()
    waits = asyncio.create_task(batcher.submit("k", [Work(1, 900)]))
    await asyncio.sleep(0.01)
    doubler.gate.set()
    assert await waits == [2]
    await held
    batcher.stop()


async def test_short_calls_have_room_where_a_long_one_fills_the_queue() -> None:
    doubler = Doubler()
    batcher = make(doubler, wait_s=0.1)
    held = await hold(doubler, batcher)
    long = asyncio.create_task(batcher.submit("k", [Work(n, 100) for n in range(12)]))
    await asyncio.sleep(0.01)
    short = asyncio.create_task(batcher.submit("k", [Work(50, 30)]))
    await asyncio.sleep(0.01)
    doubler.gate.set()
    assert await short == [100]
    assert len(await long) == 12
    await held
    batcher.stop()


async def test_batcher_whose_runner_dies_fails_all_who_wait_and_all_who_come_later() -> None:
    told = asyncio.Event()
    doubler = Doubler()
    batcher = make(doubler, failed=told.set)
    assert batcher.healthy()
    held = await hold(doubler, batcher)
    doomed = asyncio.create_task(batcher.submit("a", [Work("fatal", 5)]))
    await asyncio.sleep(0.01)
    waits = asyncio.create_task(batcher.submit("b", [Work(1, 5)]))
    await asyncio.sleep(0.01)
    doubler.gate.set()
    await held
    results = await asyncio.gather(doomed, waits, return_exceptions=True)
    assert [type(result) for result in results] == [NotReady, NotReady]
    await asyncio.wait_for(told.wait(), 5)
    assert not batcher.healthy()
    with pytest.raises(NotReady):
        await batcher.submit("k", [Work(1, 5)])


async def test_batcher_that_is_stuck_does_not_look_healthy() -> None:
    doubler = Doubler()
    batcher = make(doubler)
    held = await hold(doubler, batcher)
    await asyncio.sleep(0.05)
    assert not batcher.healthy(stuck_after_s=0.02)
    assert batcher.healthy(stuck_after_s=60)
    doubler.gate.set()
    await held
    batcher.stop()


async def test_batcher_serves_a_thousand_mixed_callers_with_random_cancellations_rightly() -> None:
    chance = random.Random(7)
    doubler = Doubler()
    batcher = make(doubler, budget=2000)
    wanted: list[list[int]] = []
    calls = []
    for n in range(1000):
        items = [n * 100 + k for k in range(chance.choice([1, 1, 1, 2, 7, 40]))]
        wanted.append([2 * item for item in items])
        sized = [Work(item, chance.choice([3, 20, 90, 700]), chance.choice([1, 1, 3])) for item in items]
        calls.append(asyncio.create_task(batcher.submit(chance.choice("abc"), sized)))
        if chance.random() < 0.1:
            await asyncio.sleep(0)
    left = set(chance.sample(range(1000), 300))
    for n in left:
        await asyncio.sleep(0)
        calls[n].cancel()
    found = await asyncio.gather(*calls, return_exceptions=True)
    for n, result in enumerate(found):
        if isinstance(result, asyncio.CancelledError):
            assert n in left
        else:
            assert result == wanted[n]
    assert sum(not isinstance(result, asyncio.CancelledError) for result in found) >= 700
    assert batcher.depth == 0
    batcher.stop()


async def test_runner_keeps_nothing_of_a_batch_that_is_over() -> None:
    class Answer:
        pass

    batcher: Batcher[Any, Any] = Batcher(lambda key, items: [Answer() for _ in items], budget=9)
    [answer] = await batcher.submit("k", [Work(0, 1)])
    kept = weakref.ref(answer)
    del answer
    await asyncio.sleep(0.1)
    gc.collect()
    assert kept() is None
    batcher.stop()


def test_lengths_that_are_alike_run_together() -> None:
    lengths = [900, 3, 64, 500, 60, 1000, 7]
    assert [sorted(lengths[i] for i in batch) for batch in by_length(lengths, 10**6)] == [
        [3, 7, 60, 64],
        [500, 900, 1000],
    ]
    squares = list(by_length([10] * 5, 200, power=2))
    assert [len(batch) for batch in squares] == [2, 2, 1]
    assert list(by_length([50], 7)) == [[0]]  # what is over the bound runs alone
