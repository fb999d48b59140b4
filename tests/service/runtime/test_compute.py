"""The compute process: running and waiting jobs, cancelled callers, failures, and the limit of memory."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator

import jobs
import psutil
import pytest
from server import eventually

from service.errors import InferenceError, InvalidInput, NotReady, Overloaded, TooLarge
from service.runtime.compute import MAX_IDLE, MAX_RUNNING, Compute

pytestmark = pytest.mark.anyio


@pytest.fixture
async def compute() -> AsyncIterator[Compute]:
    compute = Compute(memory_bytes=200_000_000, depth=3, preload=["jobs"])
    compute.start()
    yield compute
    await asyncio.to_thread(compute.stop)


async def spare(compute: Compute) -> None:
    """Wait until there is a spare worker besides the one that has answered."""
    await asyncio.to_thread(eventually, lambda: len(compute._idle) == MAX_IDLE)


def children() -> set[int]:
    """Return the ids of the child processes that have not ended."""
    return {child.pid for child in psutil.Process().children() if child.status() != psutil.STATUS_ZOMBIE}


async def test_jobs_run_in_one_process_that_is_not_that_of_the_server(compute: Compute) -> None:
    pid = await compute.run(jobs.PID)
    assert pid != os.getpid()
    await spare(compute)
    assert len({await compute.run(jobs.PID) for _ in range(5)}) <= 2


async def test_large_jobs_wait_for_each_other_and_small_ones_do_not(compute: Compute) -> None:
    async def end_of(seconds: float, large: bool) -> float:
        await compute.run(jobs.sleep, seconds, large=large)
        return time.monotonic()

    await compute.run(jobs.PID)
    start_s = time.monotonic()
    large_jobs = asyncio.gather(end_of(1.5, True), end_of(0.0, True))
    await asyncio.sleep(0.1)
    small_s = await end_of(0.0, False) - start_s
    large_s = [end_s - start_s for end_s in await large_jobs]
    assert small_s < 1.4
    assert min(large_s) >= 1.5


async def test_small_job_waits_only_for_small_ones(compute: Compute) -> None:
    await compute.run(jobs.PID)
    tasks = [asyncio.create_task(compute.run(jobs.sleep, 3)) for _ in range(3)]
    await asyncio.sleep(0.1)
    start_s = time.monotonic()
    await compute.run(jobs.sleep, 0, small=True)
    assert time.monotonic() - start_s < 2.5
    assert compute.waiting == 1
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert compute.waiting == 0


async def test_more_jobs_than_may_wait_are_refused(compute: Compute) -> None:
    n_jobs = compute.depth + MAX_RUNNING - 1  # one place is kept for small jobs
    waiting = [asyncio.create_task(compute.run(jobs.sleep, 0.2)) for _ in range(n_jobs)]
    await asyncio.sleep(0)
    assert compute.waiting == compute.depth
    with pytest.raises(Overloaded, match="too many clouds are waiting"):
        await compute.run(jobs.sleep, 0)
    await asyncio.gather(*waiting)
    assert (compute.jobs, compute.waiting) == (0, 0)


async def test_process_is_killed_when_its_caller_leaves_and_a_spare_takes_over(compute: Compute) -> None:
    await compute.run(jobs.PID)
    await spare(compute)
    before = children()
    running = asyncio.create_task(compute.run(jobs.sleep, 60))
    await asyncio.sleep(0.2)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    start_s = time.monotonic()
    assert await compute.run(jobs.PID) in before
    assert time.monotonic() - start_s < 0.5
    await asyncio.to_thread(eventually, lambda: len(before & children()) < len(before))
    assert compute.jobs == 0


async def test_caller_who_leaves_while_a_process_starts_leaves_it_to_the_next() -> None:
    before = children()
    compute = Compute(memory_bytes=200_000_000, preload=["jobs"])
    try:
        for _ in range(3):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.001):
                    await compute.run(jobs.PID)
        assert await compute.run(jobs.PID) != os.getpid()
        # those that are not kept may still be ending
        await asyncio.to_thread(eventually, lambda: len(children() - before) <= MAX_IDLE)
    finally:
        await asyncio.to_thread(compute.stop)


async def test_deadline_ends_the_work(compute: Compute) -> None:
    await compute.run(jobs.PID)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await compute.run(jobs.sleep, 60)
    assert (await asyncio.wait_for(compute.run(jobs.PID), 10)) != os.getpid()


async def test_job_over_its_memory_is_too_large_and_the_next_one_is_not(compute: Compute) -> None:
    with pytest.raises(TooLarge, match=r"more than 200 MB of memory \(COMPUTE_MEMORY_MB\)"):
        await compute.run(jobs.allocate, 400)
    assert await compute.run(jobs.allocate, 100) == 100_000_000


async def test_process_that_keeps_memory_is_replaced(compute: Compute) -> None:
    pid = await compute.run(jobs.leak_memory)
    await asyncio.to_thread(eventually, lambda: pid not in children())


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
    await compute.run(jobs.PID)
    await spare(compute)
    for pid in (idle := children()):
        os.kill(pid, signal.SIGKILL)
    await asyncio.to_thread(eventually, lambda: not any(worker.usable for worker in compute._idle))
    assert await compute.run(jobs.PID) not in idle


async def test_progress_is_reported_at_intervals_and_the_result_follows(compute: Compute) -> None:
    reported: list[int] = []
    assert await compute.run(jobs.report, 60, 0.01, on_progress=reported.append) == "done"
    assert reported[0] == 0
    assert 3 <= len(reported) <= 20
    assert reported == sorted(reported)


async def test_output_of_a_job_does_not_disturb_its_answer(compute: Compute) -> None:
    assert await compute.run(jobs.write_to_stdout) == "written"


async def test_signals_that_stop_the_server_leave_a_running_job_alone(compute: Compute) -> None:
    await compute.run(jobs.PID)
    running = asyncio.create_task(compute.run(jobs.sleep, 0.5))
    await asyncio.sleep(0.1)
    for child in children():
        os.kill(child, signal.SIGTERM)
        os.kill(child, signal.SIGINT)
    assert await running != os.getpid()  # it ended by itself


async def test_stop_ends_every_process_and_refuses_further_jobs(compute: Compute) -> None:
    before = children()
    assert await compute.run(jobs.PID) != os.getpid()
    running = asyncio.create_task(compute.run(jobs.sleep, 60))
    await asyncio.sleep(0.1)
    await asyncio.to_thread(compute.stop)
    with pytest.raises(NotReady, match="stopping"):
        await running
    with pytest.raises(NotReady):
        await compute.run(jobs.PID)
    assert not children() - before


async def test_stop_closes_the_pipes_of_processes_that_have_just_ended() -> None:
    """The stop once cancelled the queue of the thread that closes them: they stayed open."""
    for _ in range(5):
        before = psutil.Process().num_fds()
        compute = Compute(memory_bytes=200_000_000, preload=["jobs"])
        with pytest.raises(InferenceError):
            await compute.run(jobs.exit_process)
        await asyncio.to_thread(compute.stop)
        assert psutil.Process().num_fds() <= before
