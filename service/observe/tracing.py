"""OpenTelemetry spans of requests, sent to the collector at OTLP_ENDPOINT.

A span is written down when its request is over: nothing is carried along while it runs, and a caller's
`traceparent` makes it part of the caller's trace.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from service.errors import ConfigurationError

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import SpanProcessor

Stage = tuple[str, float, float]  # name, begin, end on the clock of time.perf_counter


class Tracer:
    """Writes spans. Imports OpenTelemetry only when one is made."""

    def __init__(self, processor: SpanProcessor) -> None:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._provider = TracerProvider(resource=Resource.create({"service.name": "hardmax"}))
        self._provider.add_span_processor(processor)
        self._tracer = self._provider.get_tracer("hardmax")
        self._propagator = TraceContextTextMapPropagator()
        self._epoch_ns = time.time_ns() - int(time.perf_counter() * 1e9)

    @classmethod
    def to(cls, endpoint: str) -> Tracer:
        """One that sends to a collector that speaks OTLP over HTTP."""
        try:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
        except ImportError:
            problem = "OTLP_ENDPOINT needs OpenTelemetry: pip install 'hardmax[tracing]'"
            raise ConfigurationError(problem, param="OTLP_ENDPOINT") from None
        return cls(BatchSpanProcessor(OTLPSpanExporter(endpoint=f"{endpoint.rstrip('/')}/v1/traces")))

    def record(
        self,
        name: str,
        *,
        traceparent: str | None,
        began: float,
        ended: float,
        attributes: Mapping[str, Any],
        stages: Sequence[Stage] = (),
        failed: bool = False,
    ) -> None:
        """A span from `began` to `ended`, and one below it for each stage."""
        from opentelemetry.trace import SpanKind, Status, StatusCode, set_span_in_context

        carrier = {"traceparent": traceparent} if traceparent else {}
        span = self._tracer.start_span(
            name,
            context=self._propagator.extract(carrier),
            kind=SpanKind.SERVER,
            start_time=self._ns(began),
            attributes=dict(attributes),
        )
        inside = set_span_in_context(span)
        for stage, start, end in stages:
            self._tracer.start_span(stage, context=inside, start_time=self._ns(start)).end(self._ns(end))
        if failed:
            span.set_status(Status(StatusCode.ERROR))
        span.end(self._ns(ended))

    def _ns(self, moment: float) -> int:
        return self._epoch_ns + int(moment * 1e9)

    def close(self) -> None:
        """Send what is left."""
        self._provider.shutdown()
