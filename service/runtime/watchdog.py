"""Stop runs of models that take too long: a graph may pass its proof and loop on another input."""

import logging
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

log = logging.getLogger(__name__)

RUN_S = 30  # of CPU time that a run may take: ten times what the longest text takes
STOP_S = 5  # that it may then take to stop
TICK_S = 1.0


@dataclass(eq=False)
class Run:
    """A run of a model that is in progress."""

    model: str
    options: Any  # RunOptions of ONNX Runtime
    ticks: float = 0.0
    stopped: bool = False
    given_up: bool = False


class Watchdog:
    """Counts the seconds of every run in a thread, as far as the process had a CPU: it may be suspended.

    Args:
        on_stop: Called in that thread with a model whose run is stopped, and whether it goes on regardless.
    """

    def __init__(self, on_stop: Callable[[str, bool], None] = lambda model, goes_on: None) -> None:
        self._on_stop = on_stop
        self._runs: set[Run] = set()
        self._thread = threading.Thread(target=_tick, args=(weakref.ref(self),), daemon=True)

    @contextmanager
    def watch(self, model: str, options: Any) -> Iterator[Run]:
        """Stop what runs with these options in the block when its time is over."""
        run = Run(model, options)
        self._runs.add(run)
        if self._thread.ident is None:
            self._thread.start()
        try:
            yield run
        finally:
            self._runs.discard(run)

    def tick(self, share: float = 1.0) -> None:
        """Count a share of a second of every run."""
        for run in list(self._runs):
            run.ticks += share
            if run.ticks >= RUN_S and not run.stopped:
                log.error("a run of %s takes more than %d s and is stopped", run.model, RUN_S)
                run.stopped = run.options.terminate = True
                self._on_stop(run.model, False)
            elif run.ticks >= RUN_S + STOP_S and not run.given_up:
                run.given_up = True
                log.critical("a run of %s cannot be stopped", run.model)
                self._on_stop(run.model, True)


def _tick(watchdog: weakref.ref[Watchdog]) -> None:
    """Count seconds as long as the watchdog is used."""
    cpu_s = time.process_time()
    while (present := watchdog()) is not None:
        used_s, cpu_s = time.process_time() - cpu_s, time.process_time()
        present.tick(min(1.0, used_s / TICK_S))
        del present
        time.sleep(TICK_S)
