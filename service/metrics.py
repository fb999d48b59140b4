"""What Prometheus is told. Knows the names and labels of every metric, and nothing of what is measured.

With several workers (PROMETHEUS_MULTIPROC_DIR set before this module is imported) each process writes its
numbers to files there, and whichever worker is scraped answers for all.
"""

from __future__ import annotations

import os

from prometheus_client import (
    GC_COLLECTOR,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead

MULTIPROCESS_DIR = "PROMETHEUS_MULTIPROC_DIR"
CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"

REQUEST_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
STAGE_S = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)
BATCH_ITEMS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
BATCH_TOKENS = (16, 64, 256, 1024, 4096, 16384, 65536, 262144)


class Metrics:
    """All metrics of one process. Label children are kept: finding them again costs more than counting."""

    def __init__(self) -> None:
        registry = self._registry = CollectorRegistry()
        requests = ("route", "method", "status")
        self._requests = Counter("hardmax_requests", "Requests answered.", requests, registry=registry)
        self._durations = Histogram(
            "hardmax_request_duration_seconds", "From the first header to the last byte handed over.",
            ["route"], registry=registry, buckets=REQUEST_S,
        )  # fmt: skip
        self._failures = Counter(
            "hardmax_failures", "Requests refused or failed.", ["reason"], registry=registry
        )
        self._stages = Histogram(
            "hardmax_stage_duration_seconds", "Where the time of texts goes; inference includes tokenise.",
            ["stage"], registry=registry, buckets=STAGE_S,
        )  # fmt: skip
        self._batch_items = Histogram(
            "hardmax_batch_size", "Texts that ran together.", registry=registry, buckets=BATCH_ITEMS
        )
        self._batch_tokens = Histogram(
            "hardmax_batch_tokens",
            "Padded tokens that ran together.",
            registry=registry,
            buckets=BATCH_TOKENS,
        )
        self._in_flight = self._gauge("hardmax_requests_in_flight", "Requests being worked on.")
        self._bodies = self._gauge("hardmax_request_body_bytes", "Of all bodies that are here or announced.")
        self._queue = self._gauge("hardmax_queue_depth", "Texts or clouds that wait.", ["lane"])
        self._ready = self._gauge("hardmax_ready", "Workers that are loaded, warm and not draining.")
        self._models = self._gauge(
            "hardmax_model_info", "Models served.", ["model", "kind", "version"], "max"
        )
        self._refused = Counter("hardmax_bundles_refused", "Bundles not loaded.", registry=registry)
        self._answers: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}
        self.queue_wait = self._stages.labels("queue")
        self.tokenise = self._stages.labels("tokenise")
        self.inference = self._stages.labels("inference")
        self._waiting = {lane: self._queue.labels(lane) for lane in ("texts", "clouds")}
        if MULTIPROCESS_DIR not in os.environ:
            ProcessCollector(registry=registry)
            registry.register(GC_COLLECTOR)

    def _gauge(
        self, name: str, text: str, labels: tuple[str, ...] | list[str] = (), mode: str = "livesum"
    ) -> Gauge:
        return Gauge(name, text, labels, registry=self._registry, multiprocess_mode=mode)  # type: ignore[arg-type]

    def answered(self, route: str, method: str, status: int, seconds: float) -> None:
        key = (route, method, status)
        children = self._answers.get(key)
        if children is None:
            child = self._requests.labels(route, method, str(status))
            children = self._answers[key] = (child, self._durations.labels(route))
        children[0].inc()
        children[1].observe(seconds)

    def failed(self, reason: str) -> None:
        self._failures.labels(reason).inc()

    def batch_ran(self, items: int, tokens: int, waited_s: float, ran_s: float) -> None:
        self._batch_items.observe(items)
        self._batch_tokens.observe(tokens)
        self.queue_wait.observe(waited_s)
        self.inference.observe(ran_s)

    def sample(
        self, *, in_flight: int, body_bytes: int, texts_waiting: int, clouds_waiting: int, ready: bool
    ) -> None:
        """The state of the moment, taken a few times a second."""
        self._in_flight.set(in_flight)
        self._bodies.set(body_bytes)
        self._waiting["texts"].set(texts_waiting)
        self._waiting["clouds"].set(clouds_waiting)
        self._ready.set(ready)

    def model_served(self, name: str, kind: str, version: str, served: bool) -> None:
        self._models.labels(name, kind, version[:12]).set(1 if served else 0)

    def bundle_refused(self) -> None:
        self._refused.inc()

    def render(self) -> bytes:
        if MULTIPROCESS_DIR not in os.environ:
            return generate_latest(self._registry)
        together = CollectorRegistry()
        MultiProcessCollector(together)  # type: ignore[no-untyped-call]
        return generate_latest(together)


def forget_process(pid: int) -> None:
    """A worker has ended: its gauges no longer count, its counters do."""
    mark_process_dead(pid)  # type: ignore[no-untyped-call]
