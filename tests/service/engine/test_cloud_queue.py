"""The queue of clouds: who may work, who waits, who is sent away, and what becomes of those who leave."""

import asyncio
import gc
import os
import sys
import threading
import time
from collections.abc import Generator, Iterator
from weakref import ref

import numpy as np
import pytest
from numpy.typing import NDArray

from service.engine.cloud_queue import BRIEF_TURNS, NICE, STEP_S, CloudQueue
from service.errors import Overloaded

pytestmark = pytest.mark.anyio


@pytest.fixture
def queue() -> Iterator[CloudQueue]:
    queue = CloudQueue(depth=2)
    yield queue
    queue.stop()


async def take_turns(queue: CloudQueue, turns: list[str], name: str, count: int, large: bool = False) -> None:
    async with queue.slot(large=large) as slot:
        for _ in range(count):
            await slot.step(lambda: turns.append(name))


async def test_queue_lets_one_work_some_wait_and_sends_the_others_away(queue: CloudQueue) -> None:
    order: list[int] = []
    may_end = threading.Event()

    async def visit(n: int) -> None:
        async with queue.slot() as slot:
            await slot.step(may_end.wait)
            order.append(n)

    visits = [asyncio.create_task(visit(n)) for n in range(3)]
    await asyncio.sleep(0.01)
    assert queue.waiting == 2
    with pytest.raises(Overloaded, match="too many clouds are waiting"):
        await visit(3)
    may_end.set()
    await asyncio.gather(*visits)
    assert (order, queue.waiting) == ([0, 1, 2], 0)


async def test_what_steps_return_is_let_go_with_their_caller(queue: CloudQueue) -> None:
    """Not only when the garbage collector comes: it may be the layers of a million points."""

    def steps() -> Generator[None, None, NDArray[np.float64]]:
        yield
        return np.zeros(3)

    gc.disable()
    try:
        async with queue.slot() as slot:
            found = await slot.follow(steps())
        kept = ref(found)
        del found
        await slot.step(int)  # the one before is over for its thread too
        await asyncio.sleep(0)
        assert kept() is None
    finally:
        gc.enable()


async def test_queue_gives_a_slot_on_only_when_the_step_of_who_left_has_ended(queue: CloudQueue) -> None:
    may_end = threading.Event()

    async def visit(event: threading.Event) -> None:
        async with queue.slot() as slot:
            await slot.step(event.wait)

    leaver = asyncio.create_task(visit(may_end))
    await asyncio.sleep(0.01)
    over = threading.Event()
    over.set()
    follower = asyncio.create_task(visit(over))
    leaver.cancel()
    await asyncio.sleep(0.02)
    assert leaver.cancelled()
    assert not follower.done()
    may_end.set()
    await follower


async def test_caller_with_little_to_do_is_through_while_another_works_long(queue: CloudQueue) -> None:
    """It had to wait for the end of what came before."""
    turns: list[str] = []
    await asyncio.gather(take_turns(queue, turns, "long", 9), take_turns(queue, turns, "short", 2))
    assert turns == [*("long", "short") * 2, *["long"] * 7]


@pytest.mark.parametrize("large", [False, True])
async def test_long_work_is_done_one_after_the_other(queue: CloudQueue, large: bool) -> None:
    """If all went on in turn, all would be late together, and all their memory would be held at once."""
    turns: list[str] = []
    count = BRIEF_TURNS + 5
    callers = (("first", count, large), ("second", count, large), ("short", 2, False))
    await asyncio.gather(*(take_turns(queue, turns, *caller) for caller in callers))
    until = turns.index("second") if large else 2 * BRIEF_TURNS + 3
    assert turns.index("short") <= 2
    assert turns[until:] == ["first"] * (0 if large else 4) + ["second"] * (count if large else 5)
    assert (queue.here, queue.waiting) == (0, 0)
    async with queue.slot(large=True) as slot:
        assert await slot.step(lambda: "free again") == "free again"


async def test_caller_who_leaves_while_it_waits_for_long_work_leaves_nothing(queue: CloudQueue) -> None:
    async def wait() -> None:
        async with queue.slot(large=True):
            raise AssertionError("somebody is at work")

    async with queue.slot(large=True):
        waiting = asyncio.create_task(wait())
        await asyncio.sleep(0)
        assert queue.waiting == 1
        waiting.cancel()
        await asyncio.wait([waiting])
    assert queue.here == 0
    async with queue.slot(large=True):
        assert queue.here == 1


@pytest.mark.alone
async def test_slot_follows_work_to_its_end_and_stops_soon_after_its_caller_left(queue: CloudQueue) -> None:
    done: list[int] = []

    def steps(count: int) -> Generator[None, None, str]:
        for n in range(count):
            done.append(n)
            time.sleep(STEP_S / 4)
            yield
        return "the end"

    async with queue.slot() as slot:
        assert await slot.follow(steps(6)) == "the end"
    assert done == list(range(6))

    async def visit() -> None:
        async with queue.slot() as slot:
            await slot.follow(steps(1000))

    caller = asyncio.create_task(visit())
    await asyncio.sleep(STEP_S)
    caller.cancel()
    await asyncio.sleep(2 * STEP_S)
    until = len(done)
    await asyncio.sleep(2 * STEP_S)
    assert len(done) == until < 40
    async with queue.slot() as slot:
        assert await slot.step(lambda: "the slot is free again") == "the slot is free again"


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a process is nice as a whole")
async def test_queues_thread_lets_others_go_first(queue: CloudQueue) -> None:
    async with queue.slot() as slot:
        assert await slot.step(lambda: os.nice(0)) == os.nice(0) + NICE
