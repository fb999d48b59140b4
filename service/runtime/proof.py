"""Prove that a bundle is harmless before it is served: a graph is a program, and may loop or take all memory.

A process with a bound of memory opens the bundle and runs it on the shortest and the longest input. If it
fails, takes more than `PROOF_S` of CPU time or more memory than a cloud may (COMPUTE_MEMORY_MB, but not less
than `MIN_BYTES`), the bundle is refused by name. The result is remembered for the digest of the bundle, until
`forget_failures`.
"""

import math
import resource
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

from service.errors import BundleError, HardmaxError, NotReady, TooLarge
from service.runtime.bundle import Bundle
from service.runtime.compute import Worker, WorkerLost

PROOF_S = 60  # of CPU time
MAX_WAIT_S = 600.0  # on a machine that is busy
MIN_BYTES = 1 << 30
NICE = 5  # requests come first


class Prover:
    """Proves bundles by a job, a function that can be pickled by reference; `arguments` follow the bundle."""

    def __init__(self, job: Callable[..., None], *arguments: Any, memory_bytes: int) -> None:
        self._job = job
        self._arguments = arguments
        self._memory_bytes = max(memory_bytes, MIN_BYTES)
        self._failures: dict[str, str | None] = {}  # by the digest of a bundle; None: it is harmless

    def prove(self, bundle: Bundle) -> None:
        """Return if the bundle is harmless.

        Raises:
            BundleError: It is not, or this could not be shown.
        """
        if bundle.digest not in self._failures:
            self._failures[bundle.digest] = self._try(bundle)
        if failure := self._failures[bundle.digest]:
            raise BundleError(f"{bundle.name} {failure}", param=bundle.name)

    def forget_failures(self) -> None:
        """Prove the bundles again that were refused: the machine may have been busy."""
        self._failures = {digest: None for digest, failure in self._failures.items() if failure is None}

    def _try(self, bundle: Bundle) -> str | None:
        """Return what a bundle does wrong when it is opened and run in a process of its own, or None."""
        command = [sys.executable, "-m", "service.runtime.compute_worker", str(self._memory_bytes)]
        worker = Worker([*command, str(NICE), self._job.__module__], self._memory_bytes)
        timer = threading.Timer(MAX_WAIT_S, worker.kill)
        timer.daemon = True
        timer.start()
        try:
            arguments = PROOF_S, self._job, bundle, *self._arguments
            worker.run((run_limited, arguments, False, math.inf), lambda report: None)
        except (TooLarge, WorkerLost):
            bound = f"{self._memory_bytes / 1e6:.0f} MB of memory (COMPUTE_MEMORY_MB)"
            return f"needs more than {bound} to open and to run once"
        except NotReady:  # killed
            return f"took more than {MAX_WAIT_S:g} s to open and to run once; SIGHUP tries again"
        except HardmaxError as error:
            if worker.exit_code == -signal.SIGXCPU:
                return f"took more than {PROOF_S} s to open and to run once; SIGHUP tries again"
            return f"cannot be opened and run: {error.message}"
        finally:
            timer.cancel()
            worker.kill()
            worker.close()
        return None


def run_limited(seconds: int, job: Callable[..., None], *arguments: Any) -> None:
    """Run a job in this process, which the system ends after so many seconds of CPU time."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    limit = int(used.ru_utime + used.ru_stime) + 1 + seconds
    resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 1))
    job(*arguments)
