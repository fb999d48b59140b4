"""The lane of long work: who may work, who waits, who is sent away, and what becomes of those who leave."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Coroutine, Generator, Iterator
from typing import Any

import pytest

from service.engine.lane import STEP_S, Lane
from service.errors import Overloaded


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 20))


def test_lane_lets_one_work_some_wait_and_sends_the_others_away() -> None:
    async def work() -> None:
        lane = Lane("clouds", width=1, depth=2)
        order: list[int] = []
        may_end = threading.Event()

        async def visit(n: int) -> None:
            async with lane.place() as place:
                await place.step(may_end.wait)
                order.append(n)

        visits = [asyncio.create_task(visit(n)) for n in range(3)]
        await asyncio.sleep(0.01)
        assert lane.waiting == 2
        with pytest.raises(Overloaded, match="too many clouds are waiting"):
            await visit(3)
        may_end.set()
        await asyncio.gather(*visits)
        assert (order, lane.waiting) == ([0, 1, 2], 0)
        lane.stop()

    run(work())


def test_lane_gives_a_place_on_only_when_the_step_of_who_left_has_ended() -> None:
    async def work() -> None:
        lane = Lane("clouds", width=1, depth=2)
        may_end = threading.Event()

        async def visit(event: threading.Event) -> None:
            async with lane.place() as place:
                await place.step(event.wait)

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
        lane.stop()

    run(work())


def test_place_collects_all_that_is_made_in_order() -> None:
    async def work() -> None:
        lane = Lane("clouds", width=1, depth=0)
        async with lane.place() as place:
            assert await place.collect(iter(range(1000))) == list(range(1000))
            assert await place.collect(iter(())) == []
        lane.stop()

    run(work())


def test_place_stops_making_soon_after_its_visitor_left() -> None:
    async def work() -> None:
        lane = Lane("clouds", width=1, depth=1)
        made: list[int] = []

        def pieces() -> Iterator[int]:
            for n in range(10_000):
                time.sleep(STEP_S / 10)
                made.append(n)
                yield n

        async def visit() -> None:
            async with lane.place() as place:
                await place.collect(pieces())

        leaver = asyncio.create_task(visit())
        await asyncio.sleep(3 * STEP_S)
        leaver.cancel()
        async with lane.place() as place:  # free as soon as the step has ended
            count = len(made)
            await place.step(lambda: time.sleep(STEP_S))
        assert 0 < count == len(made) < 1000
        lane.stop()

    run(work())


def test_place_follows_work_to_its_end_and_stops_soon_after_its_visitor_left() -> None:
    done: list[int] = []

    def steps(count: int) -> Generator[None, None, str]:
        for n in range(count):
            done.append(n)
            time.sleep(STEP_S / 4)
            yield
        return "the end"

    async def work() -> None:
        lane = Lane("clouds", width=1, depth=0)
        async with lane.place() as place:
            assert await place.follow(steps(6)) == "the end"
        assert done == list(range(6))

        async def visit() -> None:
            async with lane.place() as place:
                await place.follow(steps(1000))

        visitor = asyncio.create_task(visit())
        await asyncio.sleep(STEP_S)
        visitor.cancel()
        await asyncio.sleep(2 * STEP_S)
        until = len(done)
        await asyncio.sleep(2 * STEP_S)
        assert len(done) == until < 40
        async with lane.place() as place:
            assert await place.step(lambda: "the place is free again") == "the place is free again"
        lane.stop()

    run(work())
