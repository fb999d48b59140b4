"""The metrics that Prometheus reads: their names, labels and meanings.

With several workers each process writes its numbers to files in one folder, and the worker that is scraped
answers for all. The service makes this folder inside PROMETHEUS_MULTIPROC_DIR or the system's folder for
temporary files, and changes nothing else there.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from fcntl import LOCK_EX, flock
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
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from service.errors import ConfigurationError

MULTIPROCESS_DIR = "PROMETHEUS_MULTIPROC_DIR"
MIN_FREE_BYTES = 4_000_000  # of the folder that workers share: each writes files of up to 256 kB
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

REQUEST_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
STAGE_S = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)
BATCH_ITEMS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
BATCH_TOKENS = (16, 64, 256, 1024, 4096, 16384, 65536, 262144)
SHARES = (0.05, 0.15, 0.25, 0.35, 0.45, 0.55, 0.65, 0.75, 0.85, 0.95, 1.0)


class Metrics:
    """The metrics of the service, for Prometheus."""

    def __init__(self) -> None:
        registry = self._registry = CollectorRegistry()
        counter, histogram = partial(Counter, registry=registry), partial(Histogram, registry=registry)
        gauge = partial(Gauge, registry=registry, multiprocess_mode="livesum")
        self._requests = counter("hardmax_requests", "Requests answered.", ["route", "method", "status"])
        duration = "Duration of a request, from its first header to the last byte of the response."
        name = "hardmax_request_duration_seconds"
        self._durations = histogram(name, duration, ["route"], buckets=REQUEST_S)
        self._failures = counter("hardmax_failures", "Requests refused or failed.", ["reason"])
        stages = "Duration of a stage: queue, tokenize, inference (which includes tokenize)."
        self._stages = histogram("hardmax_stage_duration_seconds", stages, ["stage"], buckets=STAGE_S)
        self._batch_items = histogram("hardmax_batch_size", "Texts in one batch.", buckets=BATCH_ITEMS)
        tokens = "Subword tokens in one batch."
        self._batch_tokens = histogram("hardmax_batch_tokens", tokens, buckets=BATCH_TOKENS)
        verdicts = "Texts answered, by label and by the reason to abstain (or none)."
        self._verdicts = counter("hardmax_verdicts", verdicts, ["model", "label", "abstain_reason"])
        score = "Probability of the label."
        self._scores = histogram("hardmax_verdict_score", score, ["model"], buckets=SHARES)
        share = "Share of a text's words that the model knows."
        self._known = histogram("hardmax_text_known_share", share, ["model"], buckets=SHARES)
        self._in_flight = gauge("hardmax_requests_in_flight", "Requests in progress.")
        self._queue = gauge("hardmax_queue_depth", "Texts or clouds that wait, by queue.", ["queue"])
        self._ready = gauge("hardmax_ready", "Workers that are loaded, warm and not draining.")
        served = ["model", "kind", "digest"]
        self._models = gauge("hardmax_model_info", "Models served.", served, multiprocess_mode="livemax")
        self.bundles_refused = gauge(
            "hardmax_bundles_refused", "Bundles that could not be loaded.", multiprocess_mode="livemax"
        )
        self._queue_wait = self._stages.labels("queue")
        self.tokenize = self._stages.labels("tokenize")
        self._inference = self._stages.labels("inference")
        if MULTIPROCESS_DIR not in os.environ:
            ProcessCollector(registry=registry)
            registry.register(GC_COLLECTOR)

    def count_response(self, route: str, method: str, status: int, seconds: float) -> None:
        """Count a response and its duration."""
        self._requests.labels(route, method, status).inc()
        self._durations.labels(route).observe(seconds)

    def count_error(self, reason: str) -> None:
        """Count a request that was refused or failed."""
        self._failures.labels(reason).inc()

    def record_batch(self, items: int, tokens: int, waited_s: float, ran_s: float) -> None:
        """Record a batch: its size, its waiting time and its duration."""
        self._batch_items.observe(items)
        self._batch_tokens.observe(tokens)
        self._queue_wait.observe(waited_s)
        self._inference.observe(ran_s)

    def count_verdict(self, model: str, answer: Mapping[str, Any]) -> None:
        """Count an answer, its score and the share of known words: an operator watches them for drift."""
        self._verdicts.labels(model, answer["label"], answer["abstain_reason"] or "none").inc()
        self._scores.labels(model).observe(answer["score"])
        self._known.labels(model).observe(1 - answer["unknown"] / max(1, answer["n_words"]))

    def set_gauges(self, *, in_flight: int, texts_waiting: int, clouds_waiting: int, ready: bool) -> None:
        """Set the gauges."""
        self._in_flight.set(in_flight)
        self._queue.labels("texts").set(texts_waiting)
        self._queue.labels("clouds").set(clouds_waiting)
        self._ready.set(ready)

    def set_model_served(self, name: str, kind: str, version: str, served: bool) -> None:
        """Set whether a model is served."""
        labels = (name, kind, version[:12])
        if served:
            self._models.labels(*labels).set(1)
        elif MULTIPROCESS_DIR not in os.environ:
            self._models.remove(*labels)
        else:  # the files of several processes keep every series: `_ServedCollector` leaves this one out
            self._models.labels(*labels).set(0)

    def render(self) -> bytes:
        """Return the metrics in the text format of Prometheus."""
        if MULTIPROCESS_DIR not in os.environ:
            return generate_latest(self._registry)
        shared = CollectorRegistry()
        shared.register(_ServedCollector())
        with (Path(os.environ[MULTIPROCESS_DIR]) / "lock").open("w") as lock:
            flock(lock, LOCK_EX)  # no other process adds up files meanwhile
            _add_up_ended_processes()
            return generate_latest(shared)


class _ServedCollector(Collector):
    """The numbers of all processes, without models that are no longer served."""

    def collect(self) -> Iterator[Metric]:
        for metric in MultiProcessCollector(None).collect():  # type: ignore[no-untyped-call]
            if metric.name == "hardmax_model_info":
                metric.samples = [sample for sample in metric.samples if sample.value]
            yield metric


@contextmanager
def shared_metrics() -> Iterator[None]:
    """Share the numbers of several processes in a new folder, which is removed at the end."""
    try:
        parent = os.environ.get(MULTIPROCESS_DIR)
        if parent is not None:
            Path(parent).mkdir(parents=True, exist_ok=True)
        folder = tempfile.TemporaryDirectory(prefix="hardmax-metrics-", dir=parent)
    except OSError as error:
        problem = f"{MULTIPROCESS_DIR}: several workers need a folder that can be written: {error.strerror}"
        raise ConfigurationError(problem, param=MULTIPROCESS_DIR) from None
    with folder:
        free = shutil.disk_usage(folder.name).free
        if free < MIN_FREE_BYTES:  # a process that writes to a mapped file on a full disk ends with SIGBUS
            needed = f"several workers need {MIN_FREE_BYTES / 1e6:.0f} MB for metrics"
            problem = f"{needed}; {Path(folder.name).parent} has {free / 1e6:.1f} MB left"
            raise ConfigurationError(f"{MULTIPROCESS_DIR}: {problem}", param=MULTIPROCESS_DIR)
        os.environ[MULTIPROCESS_DIR] = folder.name
        yield


def _add_up_ended_processes() -> None:
    """Drop the gauges of workers that ended, and keep the sums of their other numbers."""
    for path in Path(os.environ[MULTIPROCESS_DIR]).glob("*_[0-9]*.db"):
        kind, _, pid = path.stem.rpartition("_")
        try:
            os.kill(int(pid), 0)
        except ProcessLookupError:
            if not kind.startswith("gauge"):
                sums: Any = MmapedDict(str(path.with_name(f"{kind}_ended.db")))  # type: ignore[no-untyped-call]
                for key, value, when, _ in MmapedDict.read_all_values_from_file(str(path)):  # type: ignore[no-untyped-call]
                    sums.write_value(key, sums.read_value(key)[0] + value, when)
                sums.close()
            path.unlink()
