"""Run CPU work in processes, in lanes: what takes milliseconds never waits for what takes a minute.

    compute = Compute(memory_bytes=2**30, preload=["service.wire.clouds"])
    answer = await compute.run(answer_control, model, points)

A job is a function that can be pickled by reference; its result or exception comes back. Nobody knows before
a run how long it takes: a cloud of three points is certified after two layers or after all that it may have.
So every lane but the last has a slice, the CPU time that a job may take there. A job that takes longer ends
at its slice and begins again in the next lane, which costs it little, because slices grow a hundredfold. A
job therefore waits in a lane for as many slices as there are jobs before it, whatever these are.

A worker process (`compute_worker.py`) belongs to a lane and runs one job at a time. It may take
`memory_bytes` more than it has at its start. One that is lost (killed by the system, or stopped) loses its
job, which runs once more.
"""

import asyncio
import logging
import math
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

from service.errors import HardmaxError, InferenceError, NotReady, Overloaded, TooLarge
from service.memory import Slots

log = logging.getLogger(__name__)

T = TypeVar("T")
Report = Callable[[Any], None]
MAX_GROWTH_BYTES = 20 << 20  # a worker that has grown by more is replaced, so that its memory is given back
BEAT_S = 1.0  # between two looks at a worker that runs a job
SHORT_MEMORY_SHARE = 0.25  # of the memory of a worker; what needs more goes on to the next lane
LOST_BEATS = 5  # after so many without any CPU time it is lost


@dataclass(frozen=True)
class LaneOptions:
    """A lane: its processes, and what a job may take there."""

    slice_s: float  # of CPU time
    processes: int
    depth: int  # jobs that wait at most
    nice: int  # of its processes: where processors are few, short work comes first
    # Its answers are short, no job of it is ended early, and what needs much memory goes on to the next lane.
    is_short: bool = False


# A cloud of three points takes 2 ms, one of 1,000 takes 15 ms, one of 3,000 takes 75 ms. Behind a hundred
# jobs that all take their slice, two processes of the first lane begin with the next one after half a second.
LANES = (
    LaneOptions(slice_s=0.01, processes=2, depth=256, nice=0, is_short=True),
    LaneOptions(slice_s=1.0, processes=1, depth=32, nice=10),
    LaneOptions(slice_s=math.inf, processes=1, depth=16, nice=15),
)


class SliceOver(Exception):
    """A job took its slice of a lane."""


class WorkerLost(NotReady):
    """A worker was killed or stopped, and not by this service."""


class Compute:
    """Runs jobs in lanes of worker processes.

    Args:
        memory_bytes: What a worker may take.
        lanes: From the shortest slice to the last lane, which has none.
        max_answers: The number of answers of each lane but short ones that are in memory at once.
        preload: Modules that a worker imports at its start.
    """

    def __init__(
        self,
        *,
        memory_bytes: int,
        lanes: Sequence[LaneOptions] = LANES,
        max_answers: int = 4,
        preload: Sequence[str] = (),
    ) -> None:
        threads = ThreadPoolExecutor(sum(lane.processes + 1 for lane in lanes), thread_name_prefix="compute")
        self._threads = threads
        self.lanes = [Lane(options, memory_bytes, max_answers, preload, threads) for options in lanes]
        self._stopped = False

    @property
    def waiting(self) -> int:
        """The number of waiting jobs."""
        return sum(lane.waiting for lane in self.lanes)

    def start(self) -> None:
        """Start a worker before the first job comes."""
        self.lanes[0].prepare()

    async def run(
        self,
        function: Callable[..., T],
        *args: Any,
        seconds: float = 0.0,
        held: list[Slots] | None = None,
        on_progress: Report | None = None,
    ) -> T:
        """Run `function(*args)` in a worker process. Cancelling the wait ends the work.

        Args:
            function: The job.
            *args: Its arguments.
            seconds: What the job takes at least: it begins in the first lane with a longer slice.
            held: The slots that the request holds until it is answered; one of a lane is added.
            on_progress: called in the event loop with every report of the function, which then gets a keyword
                argument `on_progress` to report with. A job that begins again reports again.

        Raises:
            Overloaded: Too many jobs wait already.
            TooLarge: The job needs more memory than it may take.
            NotReady: The service stops, or two workers were lost.
        """
        loop = asyncio.get_running_loop()

        def report(value: Any) -> None:
            if on_progress is not None:
                with suppress(RuntimeError):  # the loop is closed: the caller has left
                    loop.call_soon_threadsafe(on_progress, value)

        job = (function, args, on_progress is not None)
        lanes = [lane for lane in self.lanes if lane.options.slice_s > seconds]
        for lane, following in zip(lanes, [*lanes[1:], None], strict=True):
            if self._stopped:
                raise NotReady("the service is stopping")
            if following is not None:
                following.prepare()
            with suppress(SliceOver):
                result: T = await lane.run(job, report, held)
                return result
        raise InferenceError("the last lane has a slice")

    def stop(self) -> None:
        """Take no more jobs and end all processes."""
        self._stopped = True
        for lane in self.lanes:
            lane.stop()
        self._threads.shutdown(cancel_futures=True)
        for lane in self.lanes:
            lane.close()


class Lane:
    """A queue before some worker processes."""

    def __init__(
        self,
        options: LaneOptions,
        memory_bytes: int,
        max_answers: int,
        preload: Sequence[str],
        threads: ThreadPoolExecutor,
    ) -> None:
        self.options = options
        self.waiting = 0
        self._memory_bytes = int(memory_bytes * (SHORT_MEMORY_SHARE if options.is_short else 1))
        numbers = map(str, (self._memory_bytes, options.nice))
        self._command = [sys.executable, "-m", "service.runtime.compute_worker", *numbers, *preload]
        self._threads = threads
        self._places = asyncio.Semaphore(options.processes)
        self._answers = None if options.is_short else Slots(max_answers)
        self._idle: list[Worker] = []
        self._open: set[Worker] = set()  # whose pipes are not closed yet
        self._starting = False
        self._start_lock = Lock()  # a lane has one worker too many if two threads start one at once
        self._stopped = False

    def prepare(self) -> None:
        """Start a worker in the background, unless the lane has one."""
        if not self._open and not self._starting:
            self._starting = True
            self._threads.submit(self._add_idle)

    async def run(self, job: tuple[Any, ...], report: Report, held: list[Slots] | None = None) -> Any:
        """Run a job when its turn comes."""
        if self.waiting >= self.options.depth:
            raise Overloaded("too many clouds are waiting already; try again shortly")
        self.waiting += 1
        try:
            if self._answers is not None and held is not None:
                await self._answers.take(held)
            await self._places.acquire()
        finally:
            self.waiting -= 1
        call = Call((*job, self.options.slice_s), report)
        running = asyncio.ensure_future(self._run(call))
        running.add_done_callback(lambda done: done.cancelled() or done.exception())  # the caller may be gone
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            call.leave(kill=not self.options.is_short)  # it ends soon, and a process starts slowly
            raise
        except SliceOver:
            if self._answers is not None and held is not None:
                held.remove(self._answers)
                self._answers.release()
            raise

    async def _run(self, call: "Call") -> Any:
        """Run a job in a worker, and once more if that is lost; then give the place to the next job."""
        try:
            try:
                return await self._run_once(call)
            except WorkerLost:
                if call.left:
                    raise
                log.warning("a compute process was killed or stopped: its job runs once more")
                return await self._run_once(call)
        finally:
            self._places.release()

    async def _run_once(self, call: "Call") -> Any:
        loop = asyncio.get_running_loop()
        worker = self._take_idle()
        if worker is None:
            worker = await loop.run_in_executor(self._threads, self._take_or_start)
        call.worker = worker
        try:
            if call.left:
                raise NotReady("the caller left")
            running = loop.run_in_executor(self._threads, worker.run, call.job, call.report)
            while not (await asyncio.wait({running}, timeout=BEAT_S))[0]:
                if not worker.beats():
                    worker.lose()
            return await running
        finally:
            call.worker = None
            self._release(worker)

    def _take_idle(self) -> "Worker | None":
        """Return an idle worker; those whose process has ended are closed."""
        with suppress(IndexError):  # two threads may take the last one
            while True:
                worker = self._idle.pop()
                if worker.usable:
                    return worker
                self._threads.submit(self._close, worker)
        return None

    def _release(self, worker: "Worker") -> None:
        """Keep a worker for the next job, unless it failed, was killed or has grown: then start another."""
        if worker.usable and not self._stopped:
            self._idle.append(worker)
            return
        worker.kill()
        if self._stopped:
            self._close(worker)
        else:
            self._threads.submit(self._replace, worker)

    def _take_or_start(self) -> "Worker":
        with self._start_lock:
            return self._take_idle() or self._start()

    def _start(self) -> "Worker":
        worker = Worker(self._command, self._memory_bytes, demotes=self.options.is_short)
        self._open.add(worker)
        if self._stopped:
            worker.kill()
        return worker

    def _replace(self, worker: "Worker") -> None:
        self._close(worker)
        self._add_idle()

    def _add_idle(self) -> None:
        try:
            with self._start_lock:
                if not self._open and not self._stopped:
                    self._idle.append(self._start())
        finally:
            self._starting = False

    def _close(self, worker: "Worker") -> None:
        worker.close()
        self._open.discard(worker)

    def stop(self) -> None:
        """End all processes."""
        self._stopped = True
        for worker in list(self._open):
            worker.kill()

    def close(self) -> None:
        """Close the pipes of all processes, also of those whose closing was just cancelled."""
        for worker in list(self._open):
            worker.kill()
            self._close(worker)
        self._idle.clear()


class Call:
    """A job that runs, and whether its caller has left."""

    def __init__(self, job: tuple[Any, ...], report: Report) -> None:
        self.job = job
        self.report = report
        self.worker: Worker | None = None
        self.left = False

    def leave(self, *, kill: bool) -> None:
        """Note that the caller has left; `kill` ends the work."""
        self.left = True
        if kill and self.worker is not None:
            self.worker.kill()


class Worker:
    """A process that runs jobs, seen from the server. `run` and `close` block."""

    def __init__(self, command: Sequence[str], memory_bytes: int, *, demotes: bool = False) -> None:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        environment["MALLOC_ARENA_MAX"] = "1"  # heaps of other threads do not give free memory back
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
        )
        self._memory_bytes = memory_bytes
        self._demotes = demotes  # a job that needs more memory gets it in the next lane
        self._killed = False
        self._spent = False  # it failed, or it has grown
        self._ticks, self._still_beats = -1, 0

    @property
    def usable(self) -> bool:
        """Whether it can run another job; not if a result arrives while it is killed."""
        return not self._killed and not self._spent and self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        """The exit code of the process: minus the number of the signal that ended it."""
        return self._process.poll()

    def run(self, job: object, report: Report) -> Any:
        """Send a job and wait for its end; pass on its reports."""
        source, sink = self._process.stdout, self._process.stdin
        assert source is not None
        assert sink is not None
        self._still_beats = 0
        try:
            pickle.dump(job, sink, pickle.HIGHEST_PROTOCOL)
            sink.flush()
            while (message := pickle.load(source))[0] == "progress":
                report(message[1])
        except (OSError, EOFError, pickle.UnpicklingError, ValueError) as error:
            self._spent = True
            raise self._explain_death() from error
        kind, value, grown_bytes = message
        failed = kind == "error" and not isinstance(value, HardmaxError)  # a HardmaxError is a result
        self._spent = failed or grown_bytes >= MAX_GROWTH_BYTES
        if kind == "result":
            return value
        if isinstance(value, MemoryError):
            raise SliceOver if self._demotes else self._too_large() from value
        raise SliceOver if kind == "slice" else value

    def _explain_death(self) -> Exception:
        code = self._process.wait()
        if self._killed:
            return NotReady("the service is stopping")
        if code == -signal.SIGKILL:  # by the system, which is out of memory, or by `lose`
            return WorkerLost("the compute process was killed or stopped, twice; try again later")
        return InferenceError(f"the compute process ended with code {code}")

    def _too_large(self) -> TooLarge:
        return TooLarge(
            f"this needs more than {self._memory_bytes / 1e6:.0f} MB of memory (COMPUTE_MEMORY_MB)"
        )

    def beats(self) -> bool:
        """Return whether the process got CPU time lately: stopped ones get none (Linux)."""
        try:
            fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return True
        ticks = int(fields[11]) + int(fields[12])
        self._still_beats = self._still_beats + 1 if ticks == self._ticks else 0
        self._ticks = ticks
        return self._still_beats < LOST_BEATS

    def lose(self) -> None:
        """End a process that does not run; its job may run in another one."""
        with suppress(OSError):
            self._process.kill()

    def kill(self) -> None:
        """End the process at once."""
        self._killed = True
        self.lose()

    def close(self) -> None:
        """Wait for the end of a killed process, and close its pipes."""
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with suppress(OSError, ValueError):  # bytes of a job that could not be sent
                pipe.close()
