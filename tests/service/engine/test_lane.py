"""The lane of long work: who may work, who waits, who is sent away, and what becomes of those who leave."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Coroutine, Generator
from typing import Any

import pytest

from service.engine.lane import BRIEF_TURNS, STEP_S, Lane
from service.errors import Overloaded


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 20))


def test_lane_lets_one_work_some_wait_and_sends_the_others_away() -> None:
    async def work() -> None:
        lane = Lane("clouds", depth=2)
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
        lane = Lane("clouds", depth=2)
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


def test_visitor_with_little_to_do_is_through_while_another_works_long() -> None:
    """It had to wait for the end of what came before."""

    async def work() -> None:
        lane = Lane("clouds", depth=2)
        turns: list[str] = []

        async def visit(name: str, count: int) -> None:
            async with lane.place() as place:
                for _ in range(count):
                    await place.step(lambda: turns.append(name))

        await asyncio.gather(visit("long", 9), visit("short", 2))
        assert turns == [*("long", "short") * 2, *["long"] * 7]
        lane.stop()

    run(work())


@pytest.mark.parametrize("large", [False, True])
def test_long_work_is_done_one_after_the_other(large: bool) -> None:
    """If all went on in turn, all would be late together, and all their memory would be held at once."""

    async def work() -> None:
        lane = Lane("clouds", depth=2)
        turns: list[str] = []

        async def visit(name: str, count: int, *, large: bool = False) -> None:
            async with lane.place(large=large) as place:
                for _ in range(count):
                    await place.step(lambda: turns.append(name))

        count = BRIEF_TURNS + 5
        await asyncio.gather(
            visit("first", count, large=large), visit("second", count, large=large), visit("short", 2)
        )
        until = turns.index("second") if large else 2 * BRIEF_TURNS + 3
        assert turns.index("short") <= 2
        assert turns[until:] == ["first"] * (0 if large else 4) + ["second"] * (count if large else 5)
        assert (lane.here, lane.waiting) == (0, 0)
        async with lane.place(large=True) as place:
            assert await place.step(lambda: "free again") == "free again"
        lane.stop()

    run(work())


def test_visitor_who_leaves_while_it_waits_for_long_work_leaves_nothing() -> None:
    async def work() -> None:
        lane = Lane("clouds", depth=2)

        async def wait() -> None:
            async with lane.place(large=True):
                raise AssertionError("somebody is at work")

        async with lane.place(large=True):
            waiting = asyncio.create_task(wait())
            await asyncio.sleep(0)
            assert lane.waiting == 1
            waiting.cancel()
            await asyncio.wait([waiting])
        assert lane.here == 0
        async with lane.place(large=True):
            assert lane.here == 1
        lane.stop()

    run(work())


@pytest.mark.alone
def test_place_follows_work_to_its_end_and_stops_soon_after_its_visitor_left() -> None:
    done: list[int] = []

    def steps(count: int) -> Generator[None, None, str]:
        for n in range(count):
            done.append(n)
            time.sleep(STEP_S / 4)
            yield
        return "the end"

    async def work() -> None:
        lane = Lane("clouds", depth=0)
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
