"""The metrics that Prometheus reads: their names, labels and meanings.

With several workers each process writes its numbers to files in one folder, and whichever worker is scraped
answers for all. The folder is our own, inside PROMETHEUS_MULTIPROC_DIR or the system's folder for temporary
files; nothing else there is touched.
"""

import fcntl
import logging
import os
import struct
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from prometheus_client import (
    GC_COLLECTOR,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.metrics_core import Metric
from prometheus_client.mmap_dict import MmapedDict
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead
from prometheus_client.registry import Collector

from service.errors import ConfigurationError

log = logging.getLogger(__name__)

MULTIPROCESS_DIR = "PROMETHEUS_MULTIPROC_DIR"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
OURS, LOCK = "hardmax-metrics-", "lock"

REQUEST_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
STAGE_S = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)
BATCH_ITEMS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
BATCH_TOKENS = (16, 64, 256, 1024, 4096, 16384, 65536, 262144)
SHARES = (0.05, 0.15, 0.25, 0.35, 0.45, 0.55, 0.65, 0.75, 0.85, 0.95, 1.0)


class Metrics:
    def __init__(self) -> None:
        registry = self._registry = CollectorRegistry()
        counter, histogram = partial(Counter, registry=registry), partial(Histogram, registry=registry)
        gauge = partial(Gauge, registry=registry, multiprocess_mode="livesum")
        self._requests = counter("hardmax_requests", "Requests answered.", ["route", "method", "status"])
        whole = "From the first header to the last byte handed over."
        self._durations = histogram("hardmax_request_duration_seconds", whole, ["route"], buckets=REQUEST_S)
        self._failures = counter("hardmax_failures", "Requests refused or failed.", ["reason"])
        stages = "Where the time of texts goes; inference includes tokenise."
        self._stages = histogram("hardmax_stage_duration_seconds", stages, ["stage"], buckets=STAGE_S)
        self._batch_items = histogram("hardmax_batch_size", "Texts that ran together.", buckets=BATCH_ITEMS)
        pieces = "Pieces of words that ran together."
        self._batch_tokens = histogram("hardmax_batch_tokens", pieces, buckets=BATCH_TOKENS)
        verdicts = "Texts answered, by label, and by why the verdict is undecided, or no."
        self._verdicts = counter("hardmax_verdicts", verdicts, ["model", "label", "undecided"])
        score = "Probability of the label."
        self._scores = histogram("hardmax_verdict_score", score, ["model"], buckets=SHARES)
        known = "Share of a text's words that the model knows."
        self._known = histogram("hardmax_text_known_share", known, ["model"], buckets=SHARES)
        self._in_flight = gauge("hardmax_requests_in_flight", "Requests being worked on.")
        held = "Of all bodies and answers that are here: what PAYLOAD_TOTAL_MB bounds."
        self._bodies = gauge("hardmax_request_body_bytes", held)
        self._queue = gauge("hardmax_queue_depth", "Texts or clouds that wait.", ["queue"])
        self._ready = gauge("hardmax_ready", "Workers that are loaded, warm and not draining.")
        served = ["model", "kind", "version"]
        self._models = gauge("hardmax_model_info", "Models served.", served, multiprocess_mode="livemax")
        self.bundles_refused = gauge(
            "hardmax_bundles_refused", "Bundles that are refused now.", multiprocess_mode="livemax"
        )
        self._queue_wait = self._stages.labels("queue")
        self.tokenise = self._stages.labels("tokenise")
        self._inference = self._stages.labels("inference")
        if MULTIPROCESS_DIR not in os.environ:
            ProcessCollector(registry=registry)
            registry.register(GC_COLLECTOR)

    def answered(self, route: str, method: str, status: int, seconds: float) -> None:
        self._requests.labels(route, method, status).inc()
        self._durations.labels(route).observe(seconds)

    def failed(self, reason: str) -> None:
        self._failures.labels(reason).inc()

    def batch_ran(self, items: int, tokens: int, waited_s: float, ran_s: float) -> None:
        self._batch_items.observe(items)
        self._batch_tokens.observe(tokens)
        self._queue_wait.observe(waited_s)
        self._inference.observe(ran_s)

    def judged(self, model: str, answer: Mapping[str, Any]) -> None:
        """One verdict: what an operator watches for drift."""
        self._verdicts.labels(model, answer["label"], answer["undecided"] or "no").inc()
        self._scores.labels(model).observe(answer["score"])
        self._known.labels(model).observe(1 - answer["unknown"] / max(1, answer["tokens"]))

    def sample(
        self, *, in_flight: int, body_bytes: int, texts_waiting: int, clouds_waiting: int, ready: bool
    ) -> None:
        """The state of the moment, taken a few times a second."""
        self._in_flight.set(in_flight)
        self._bodies.set(body_bytes)
        self._queue.labels("texts").set(texts_waiting)
        self._queue.labels("clouds").set(clouds_waiting)
        self._ready.set(ready)

    def model_served(self, name: str, kind: str, version: str, served: bool) -> None:
        labels = (name, kind, version[:12])
        if served:
            self._models.labels(*labels).set(1)
        elif MULTIPROCESS_DIR not in os.environ:
            self._models.remove(*labels)
        else:  # the files of several processes keep every series: `_Served` leaves this one out
            self._models.labels(*labels).set(0)

    def render(self) -> bytes:
        if MULTIPROCESS_DIR not in os.environ:
            return generate_latest(self._registry)
        try:
            return _render_all()
        except FileNotFoundError:  # a worker ended, and its files were added to the others' meanwhile
            return _render_all()


def _render_all() -> bytes:
    together = CollectorRegistry()
    together.register(_Served())
    return generate_latest(together)


class _Served(Collector):
    """The numbers of all processes, without models that are served no more."""

    def collect(self) -> Iterator[Metric]:
        for metric in MultiProcessCollector(None).collect():  # type: ignore[no-untyped-call]
            if metric.name == "hardmax_model_info":
                metric.samples = [sample for sample in metric.samples if sample.value]
            yield metric


@contextmanager
def shared_metrics() -> Iterator[None]:
    """A folder for the numbers of several processes, removed at the end with what they wrote there."""
    home = _home()
    try:
        home.mkdir(parents=True, exist_ok=True)
        for left_behind in home.glob(f"{OURS}*"):
            _remove_unless_in_use(left_behind)
        folder = Path(tempfile.mkdtemp(prefix=OURS, dir=home))
        lock = (folder / LOCK).open("w")
    except OSError as failure:
        problem = f"{MULTIPROCESS_DIR}: {home} cannot be written: {failure.strerror}"
        raise ConfigurationError(problem, param=MULTIPROCESS_DIR) from None
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        os.environ[MULTIPROCESS_DIR] = str(folder)
        try:
            yield
        finally:
            _remove(folder)


def _home() -> Path:
    try:
        return Path(os.environ.get(MULTIPROCESS_DIR) or tempfile.gettempdir())
    except FileNotFoundError:
        problem = f"{MULTIPROCESS_DIR}: several workers need a folder for metrics; /tmp cannot be written"
        raise ConfigurationError(problem, param=MULTIPROCESS_DIR) from None


def _remove_unless_in_use(folder: Path) -> None:
    """Remove a folder whose service was killed: its lock is free."""
    with suppress(OSError), (folder / LOCK).open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _remove(folder)


def _remove(folder: Path) -> None:
    """Remove what our processes write, and the folder if nothing else is in it."""
    for path in (*folder.glob("*.db"), folder / LOCK):
        path.unlink(missing_ok=True)
    with suppress(OSError):
        folder.rmdir()


def forget_process(pid: int) -> None:
    """Drop the gauges of a worker that ended, and add its counters to those of others that ended."""
    mark_process_dead(pid)  # type: ignore[no-untyped-call]
    folder = Path(os.environ[MULTIPROCESS_DIR])
    for path in folder.glob(f"*_{pid}.db"):
        try:
            values = list(MmapedDict.read_all_values_from_file(str(path)))  # type: ignore[no-untyped-call]
        except (struct.error, RuntimeError, ValueError):  # killed while it wrote
            log.warning("the last numbers of worker %d are lost: %s cannot be read", pid, path.name)
            values = []
        ended = MmapedDict(str(folder / f"{path.name.partition('_')[0]}_ended.db"))  # type: ignore[no-untyped-call]
        for key, value, when, _ in values:
            before, _ = ended.read_value(key)  # type: ignore[no-untyped-call]
            ended.write_value(key, before + value, when)  # type: ignore[no-untyped-call]
        ended.close()  # type: ignore[no-untyped-call]
        path.unlink()
