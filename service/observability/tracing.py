"""Send the spans of requests to an OpenTelemetry collector."""

from typing import Any

from service.errors import ConfigurationError, needs


def make_tracer_provider(endpoint: str) -> Any:
    """Return a tracer provider that sends FastAPI's spans to a collector by OTLP over HTTP.

    A request's span has child spans for its dependencies (keys, reading the body) and for its endpoint
    (queue, inference, writing the answer). A caller's `traceparent` makes it part of the caller's trace.
    OpenTelemetry's SDK is imported only here.
    """
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        problem = needs("OTLP_ENDPOINT", "OpenTelemetry", "tracing")
        raise ConfigurationError(problem, param="OTLP_ENDPOINT") from None
    provider = TracerProvider(resource=Resource.create({"service.name": "hardmax"}))
    exporter = OTLPSpanExporter(endpoint=f"{endpoint.rstrip('/')}/v1/traces")
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return provider
