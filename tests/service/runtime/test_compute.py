"""Compute processes: lanes and slices, cancelled callers, failures, and the limit of memory."""

import asyncio
import math
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import jobs
import psutil
import pytest
from server import eventually

from service.errors import InferenceError, InvalidInput, NotReady, Overloaded, TooLarge
from service.memory import Slots
from service.runtime.compute import Compute, LaneOptions

pytestmark = pytest.mark.anyio

FIRST = LaneOptions(slice_s=0.05, processes=1, depth=100, nice=0, is_short=True)
LAST = LaneOptions(slice_s=math.inf, processes=1, depth=3, nice=5)


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """One event loop for all tests, which share the processes."""
    return "asyncio"


@pytest.fixture(scope="module")
async def compute() -> AsyncIterator[Compute]:
    """Two lanes of a process each: jobs start in the first one, with `run_long` in the last."""
    compute = Compute(memory_bytes=200_000_000, lanes=[FIRST, LAST], preload=["jobs"])
    compute.start()
    yield compute
    await asyncio.to_thread(compute.stop)


async def run_long(compute: Compute, *job: object, **options: Any) -> Any:
    return await compute.run(*job, seconds=1.0, **options)  # type: ignore[arg-type]


def children() -> set[int]:
    """Return the ids of the child processes that have not ended."""
    return {child.pid for child in psutil.Process().children() if child.status() != psutil.STATUS_ZOMBIE}


async def test_job_over_its_slice_runs_again_in_the_next_lane(compute: Compute) -> None:
    """The time of the processor counts: a job that waits stays where it is."""
    short, long = await compute.run(jobs.PID), await run_long(compute, jobs.PID)
    assert len({short, long, os.getpid()}) == 3
    assert await compute.run(jobs.spend, 0.2) == long
    assert await compute.run(jobs.spend, 0.001) == short
    assert await compute.run(jobs.sleep, 0.2) == short
    assert await compute.run(jobs.spend_in_callbacks, 0.2) == long


async def test_first_slice_ends_by_itself_when_its_caller_leaves(compute: Compute) -> None:
    """To start a process takes many times as long as a slice: callers who leave must not cause that."""
    pid = await compute.run(jobs.PID)
    for _ in range(3):
        running = asyncio.create_task(compute.run(jobs.spend, 60))
        await asyncio.sleep(0.02)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    assert await compute.run(jobs.PID) == pid


async def test_more_jobs_than_may_wait_are_refused(compute: Compute) -> None:
    await run_long(compute, jobs.PID)
    waiting = [asyncio.create_task(run_long(compute, jobs.sleep, 0.2)) for _ in range(LAST.depth + 1)]
    await asyncio.sleep(0.05)
    assert compute.waiting == LAST.depth
    with pytest.raises(Overloaded, match="too many clouds are waiting"):
        await run_long(compute, jobs.sleep, 0)
    await asyncio.gather(*waiting)
    assert compute.waiting == 0


async def test_process_is_killed_when_its_caller_leaves(compute: Compute) -> None:
    pid = await run_long(compute, jobs.PID)
    running = asyncio.create_task(run_long(compute, jobs.sleep, 60))
    await asyncio.sleep(0.2)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert await run_long(compute, jobs.PID) != pid
    await asyncio.to_thread(eventually, lambda: pid not in children())
    assert compute.waiting == 0


async def test_deadline_ends_the_work(compute: Compute) -> None:
    await run_long(compute, jobs.PID)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await run_long(compute, jobs.sleep, 60)
    assert (await asyncio.wait_for(run_long(compute, jobs.PID), 30)) != os.getpid()


async def test_job_over_its_memory_is_too_large_and_the_next_one_is_not(compute: Compute) -> None:
    """The first lane has less memory: what needs more of it goes on to the next lane."""
    with pytest.raises(TooLarge, match=r"more than 200 MB of memory \(COMPUTE_MEMORY_MB\)"):
        await compute.run(jobs.allocate, 400)
    assert await compute.run(jobs.allocate, 150) == 150_000_000


async def test_process_that_keeps_memory_is_replaced(compute: Compute) -> None:
    pid = await run_long(compute, jobs.leak_memory)
    await asyncio.to_thread(eventually, lambda: pid not in children())


@pytest.mark.parametrize("signal_number", [signal.SIGKILL, signal.SIGSTOP])
async def test_job_of_a_lost_process_runs_once_more(
    compute: Compute, tmp_path: Path, signal_number: signal.Signals
) -> None:
    """A killed process was answered 413 "needs more memory", a stopped one held its lane for a minute."""
    started = tmp_path / "started"
    assert await run_long(compute, jobs.signal_once, str(started), signal_number) == "second time"
    assert started.read_text() == "xx"


async def test_job_that_loses_two_processes_is_refused_for_now(compute: Compute) -> None:
    with pytest.raises(NotReady, match="killed or stopped, twice"):
        await run_long(compute, jobs.signal_self, signal.SIGKILL)
    assert await run_long(compute, jobs.PID) != os.getpid()


async def test_errors_of_a_job_arrive_as_they_were_raised(compute: Compute) -> None:
    with pytest.raises(InvalidInput) as exc_info:
        await compute.run(jobs.refuse)
    assert (exc_info.value.message, exc_info.value.param) == ("points[3] is wrong", "points[3]")
    assert "in refuse" in exc_info.value.__notes__[0]
    with pytest.raises(InferenceError, match="cannot be pickled"):
        await compute.run(jobs.raise_local)


async def test_process_that_ends_by_itself_is_a_failure_of_this_job_alone(compute: Compute) -> None:
    with pytest.raises(InferenceError, match="ended with code 3"):
        await compute.run(jobs.exit_process)
    assert await compute.run(jobs.PID) != os.getpid()


async def test_job_does_not_get_a_process_that_has_ended_while_it_was_idle(compute: Compute) -> None:
    pid = await run_long(compute, jobs.PID)
    os.kill(pid, signal.SIGKILL)
    await asyncio.to_thread(eventually, lambda: not any(worker.usable for worker in compute.lanes[-1]._idle))
    assert await run_long(compute, jobs.PID) != pid


async def test_progress_is_reported_at_intervals_and_the_result_follows(compute: Compute) -> None:
    reported: list[int] = []
    assert await run_long(compute, jobs.report, 60, 0.01, on_progress=reported.append) == "done"
    assert reported[0] == 0
    assert 3 <= len(reported) <= 20
    assert reported == sorted(reported)


async def test_output_of_a_job_does_not_disturb_its_answer(compute: Compute) -> None:
    assert await compute.run(jobs.write_to_stdout) == "written"


async def test_signals_that_stop_the_server_leave_a_running_job_alone(compute: Compute) -> None:
    await run_long(compute, jobs.PID)
    running = asyncio.create_task(run_long(compute, jobs.sleep, 0.5))
    await asyncio.sleep(0.1)
    for child in children():
        os.kill(child, signal.SIGTERM)
        os.kill(child, signal.SIGINT)
    assert await running != os.getpid()  # it ended by itself


async def test_stop_ends_every_process_closes_its_pipes_and_refuses_further_jobs() -> None:
    """The stop once cancelled the queue of the thread that closes pipes: those of a job that ended stayed."""
    before, n_files = children(), psutil.Process().num_fds()
    compute = Compute(memory_bytes=200_000_000, lanes=[FIRST, LAST], preload=["jobs"])
    running = asyncio.create_task(run_long(compute, jobs.sleep, 60))
    with pytest.raises(InferenceError):
        await compute.run(jobs.exit_process)
    await asyncio.to_thread(compute.stop)
    with pytest.raises(NotReady, match="stopping"):
        await running
    with pytest.raises(NotReady):
        await compute.run(jobs.PID)
    assert not children() - before
    assert psutil.Process().num_fds() <= n_files


async def test_answers_of_a_lane_are_held_until_they_are_sent() -> None:
    """Callers who left while its process was started leave that to the next."""
    before = children()
    compute = Compute(memory_bytes=200_000_000, lanes=[LAST], max_answers=1, preload=["jobs"])
    try:
        for _ in range(3):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.001):
                    await compute.run(jobs.PID)
        first: list[Slots] = []
        second: list[Slots] = []
        await compute.run(jobs.PID, held=first)
        await asyncio.to_thread(eventually, lambda: len(children() - before) <= 1)
        waiting = asyncio.create_task(compute.run(jobs.PID, held=second))
        await asyncio.sleep(0.2)
        assert not waiting.done()
        first.pop().release()
        await asyncio.wait_for(waiting, 30)
        assert len(second) == 1
    finally:
        await asyncio.to_thread(compute.stop)
