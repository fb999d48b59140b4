"""Run long CPU work in processes: one job at a time in each, killed when its caller leaves.

    compute = Compute(memory_bytes=2**30, preload=["service.answers.clouds"])
    answer = await compute.run(answer_control, model, points)

A job is a function that can be pickled by reference; its result or exception comes back. A worker process
(`compute_worker.py`) may take `memory_bytes` more than it has at its start. An idle worker is always ready:
when it gets a job, another one is started.
"""

import asyncio
import logging
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, suppress
from typing import Any, TypeVar

from service.errors import HardmaxError, InferenceError, NotReady, Overloaded, TooLarge

log = logging.getLogger(__name__)

T = TypeVar("T")
Report = Callable[[Any], None]
# One may be large, two other than small: small jobs wait only for small ones, and only large ones for large.
MAX_RUNNING = 3
MAX_IDLE = 2
MAX_GROWTH_BYTES = 20 << 20  # a worker that has grown by more is replaced, so that its memory is given back


class Compute:
    """Runs jobs in worker processes; at most `depth` of them wait."""

    def __init__(self, *, memory_bytes: int, depth: int = 16, preload: Sequence[str] = ()) -> None:
        self.memory_bytes = memory_bytes
        self.depth = depth
        self.jobs = 0  # running and waiting
        self._n_running = 0
        self._command = [sys.executable, "-m", "service.runtime.compute_worker", str(memory_bytes), *preload]
        self._idle: list[Worker] = []
        self._active: set[Worker] = set()
        self._open: set[Worker] = set()  # whose pipes are not closed yet
        self._stopped = False
        self._running = asyncio.Semaphore(MAX_RUNNING)
        self._large = asyncio.Semaphore(MAX_RUNNING - 2)
        self._not_small = asyncio.Semaphore(MAX_RUNNING - 1)
        self._threads = ThreadPoolExecutor(MAX_RUNNING + 1, thread_name_prefix="compute")

    @property
    def waiting(self) -> int:
        """The number of waiting jobs."""
        return self.jobs - self._n_running

    def start(self) -> None:
        """Start a worker before the first job comes."""
        self._threads.submit(self._add_idle)

    async def run(
        self,
        function: Callable[..., T],
        *args: Any,
        small: bool = False,
        large: bool = False,
        on_progress: Report | None = None,
    ) -> T:
        """Run `function(*args)` in a worker process. Cancelling the wait kills the process.

        Args:
            small: whether it takes milliseconds, and so waits only for other small jobs.
            large: whether to wait until no other large job runs.
            on_progress: called in the event loop with every report of the function, which then gets a keyword
                argument `on_progress` to report with.

        Raises:
            Overloaded: `depth` jobs wait already.
            TooLarge: the job needs more memory than it may take.
        """
        if self._stopped:
            raise NotReady("the service is stopping")
        if self.waiting >= self.depth:
            raise Overloaded("too many clouds are waiting already; try again shortly")
        self.jobs += 1
        try:
            async with AsyncExitStack() as stack:
                if large:
                    await stack.enter_async_context(self._large)
                if not small:
                    await stack.enter_async_context(self._not_small)
                await stack.enter_async_context(self._running)
                self._n_running += 1
                try:
                    result: T = await self._run(function, args, on_progress)
                finally:
                    self._n_running -= 1
                return result
        finally:
            self.jobs -= 1

    async def _run(
        self, function: Callable[..., Any], args: Sequence[Any], on_progress: Report | None
    ) -> Any:
        loop = asyncio.get_running_loop()

        def report(value: Any) -> None:
            if on_progress is not None:
                with suppress(RuntimeError):  # the loop is closed: the caller has left
                    loop.call_soon_threadsafe(on_progress, value)

        worker = self._take_idle() or await self._start_in_thread()
        if not self._idle:
            self._threads.submit(self._add_idle)
        self._active.add(worker)
        job = (function, args, on_progress is not None)
        try:
            return await loop.run_in_executor(self._threads, worker.run, job, report)
        except asyncio.CancelledError:
            worker.kill()
            raise
        finally:
            self._release(worker)

    def _take_idle(self) -> "Worker | None":
        """Return an idle worker; those whose process has ended are closed."""
        while self._idle:
            worker = self._idle.pop(0)
            if worker.usable:
                return worker
            self._threads.submit(self._close, worker)
        return None

    async def _start_in_thread(self) -> "Worker":
        starting = asyncio.get_running_loop().run_in_executor(self._threads, self._start)
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            starting.add_done_callback(lambda started: self._release(started.result()))
            raise

    def _release(self, worker: "Worker") -> None:
        """Keep a worker for the next job, unless it failed, was killed or has grown."""
        self._active.discard(worker)
        if worker.usable and len(self._idle) < MAX_IDLE and not self._stopped:
            self._idle.append(worker)
        else:
            worker.kill()
            if self._stopped:
                self._close(worker)
            else:
                self._threads.submit(self._close, worker)

    def _start(self) -> "Worker":
        worker = Worker(self._command, self.memory_bytes)
        self._open.add(worker)
        return worker

    def _close(self, worker: "Worker") -> None:
        worker.close()
        self._open.discard(worker)

    def _add_idle(self) -> None:
        if not self._idle and not self._stopped:
            self._idle.append(self._start())

    def stop(self) -> None:
        """Take no more jobs and end all processes."""
        self._stopped = True
        for worker in list(self._active):  # the event loop may release one meanwhile
            worker.kill()
        self._threads.shutdown(cancel_futures=True)
        for worker in list(self._open):  # also those whose closing was just cancelled
            worker.kill()
            self._close(worker)
        self._idle.clear()


class Worker:
    """A process that runs jobs, seen from the server. All its methods but `kill` block."""

    def __init__(self, command: Sequence[str], memory_bytes: int) -> None:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        environment["MALLOC_ARENA_MAX"] = "1"  # heaps of other threads do not give free memory back
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
        )
        self._memory_bytes = memory_bytes
        self._killed = False
        self._spent = False  # it failed, or it has grown

    @property
    def usable(self) -> bool:
        """Whether it can run another job; not if a result arrives while it is killed."""
        return not self._killed and not self._spent and self._process.poll() is None

    def run(self, job: object, report: Report) -> Any:
        """Send a job and wait for its end; pass on its reports."""
        source, sink = self._process.stdout, self._process.stdin
        assert source is not None
        assert sink is not None
        try:
            pickle.dump(job, sink, pickle.HIGHEST_PROTOCOL)
            sink.flush()
            while (message := pickle.load(source))[0] == "progress":
                report(message[1])
        except (OSError, EOFError, pickle.UnpicklingError, ValueError) as error:
            self._spent = True
            raise self._explain_death() from error
        kind, value, grown_bytes = message
        failed = kind != "result" and not isinstance(value, HardmaxError)  # a HardmaxError is a result
        self._spent = failed or grown_bytes >= MAX_GROWTH_BYTES
        if kind == "result":
            return value
        if isinstance(value, MemoryError):
            raise self._too_large() from value
        raise value

    def _explain_death(self) -> Exception:
        code = self._process.wait()
        if self._killed:
            return NotReady("the service is stopping")
        if code == -signal.SIGKILL:  # by the system, which is out of memory
            return self._too_large()
        return InferenceError(f"the compute process ended with code {code}")

    def _too_large(self) -> TooLarge:
        return TooLarge(
            f"this needs more than {self._memory_bytes / 1e6:.0f} MB of memory (COMPUTE_MEMORY_MB)"
        )

    def kill(self) -> None:
        """End the process at once."""
        self._killed = True
        with suppress(OSError):
            self._process.kill()

    def close(self) -> None:
        """Wait for the end of a killed process, and close its pipes."""
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with suppress(OSError, ValueError):  # bytes of a job that could not be sent
                pipe.close()
