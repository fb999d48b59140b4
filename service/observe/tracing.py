"""OpenTelemetry spans of requests, sent to the collector at OTLP_ENDPOINT.

A span is written down when its request is over: nothing is carried along while it runs but its stages (name,
begin, end on the clock of time.perf_counter). A caller's `traceparent` makes it part of the caller's trace.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from service.errors import ConfigurationError, needs

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import SpanProcessor


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
            problem = needs("OTLP_ENDPOINT", "OpenTelemetry", "tracing")
            raise ConfigurationError(problem, param="OTLP_ENDPOINT") from None
        return cls(BatchSpanProcessor(OTLPSpanExporter(endpoint=f"{endpoint.rstrip('/')}/v1/traces")))

    def record(self, scope: Mapping[str, Any], route: str, status: int, began: float, ended: float) -> None:
        """A span for a request, from `began` to `ended`, and one below it for each of its stages."""
        from opentelemetry.trace import SpanKind, Status, StatusCode, set_span_in_context

        state, given = scope["state"], dict(scope["headers"]).get(b"traceparent")
        span = self._tracer.start_span(
            f"{scope['method']} {route}",
            context=self._propagator.extract({"traceparent": given.decode("latin-1")} if given else {}),
            kind=SpanKind.SERVER,
            start_time=self._ns(began),
            attributes={
                "http.request.method": scope["method"],
                "http.route": route,
                "http.response.status_code": status,
                "hardmax.request_id": state["request_id"],
            },
        )
        inside = set_span_in_context(span)
        for stage, start, end in state.get("stages", ()):
            self._tracer.start_span(stage, context=inside, start_time=self._ns(start)).end(self._ns(end))
        if status >= 500:
            span.set_status(Status(StatusCode.ERROR))
        span.end(self._ns(ended))

    def _ns(self, moment: float) -> int:
        return self._epoch_ns + int(moment * 1e9)

    def close(self) -> None:
        """Send what is left."""
        self._provider.shutdown()
