"""Tracing: spans reach a collector, as part of the trace of the caller."""

import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from server import in_process

pytest.importorskip("opentelemetry.sdk")

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from service.app import create_app
from service.errors import ConfigurationError
from service.settings import Settings


class Collector(HTTPServer):
    """A collector that stores the spans it receives."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), SpanHandler)
        self.spans: list[Span] = []


class SpanHandler(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        assert self.path == "/v1/traces"
        body = self.rfile.read(int(self.headers["content-length"]))
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            for scope in resource.scope_spans:
                self.server.spans += scope.spans
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as collector:
        thread = threading.Thread(target=collector.serve_forever)
        thread.start()
        yield collector
        collector.shutdown()
        thread.join()


def test_request_becomes_a_span_of_its_callers_trace(collector: Collector, models: Path) -> None:
    endpoint = f"http://127.0.0.1:{collector.server_port}"
    trace, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
    with in_process(models, otlp_endpoint=endpoint) as client:
        headers = {"traceparent": f"00-{trace}-{parent}-01", "x-request-id": "me"}
        assert client.post("/classify", json={"input": "superb"}, headers=headers).status_code == 200
        assert client.get("/nowhere").status_code == 404
    spans = {span.name: span for span in collector.spans}
    request, stage = spans["POST /classify"], spans["fastapi.endpoint"]
    assert (request.trace_id.hex(), request.parent_span_id.hex()) == (trace, parent)
    assert (stage.trace_id, stage.parent_span_id) == (request.trace_id, request.span_id)
    assert request.start_time_unix_nano <= stage.start_time_unix_nano
    assert stage.end_time_unix_nano <= request.end_time_unix_nano
    attributes = {attribute.key: attribute.value for attribute in request.attributes}
    assert attributes["http.response.status_code"].int_value == 200
    assert attributes["hardmax.request_id"].string_value == "me"
    assert "GET" in spans


def test_service_without_opentelemetry_is_not_created_with_an_endpoint(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in [name for name in sys.modules if name.startswith("opentelemetry.exporter")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter", None)  # as where the extra is not installed
    with pytest.raises(ConfigurationError, match=r"^OTLP_ENDPOINT needs OpenTelemetry: pip install '.\[tr"):
        create_app(Settings(otlp_endpoint="http://127.0.0.1:1"))


def test_requests_are_traced_only_where_the_setting_says(
    models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spans = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    monkeypatch.setattr("opentelemetry.trace._TRACER_PROVIDER", provider)  # one for the whole process
    with in_process(models) as client:
        assert client.get("/health").status_code == 200
    assert spans.get_finished_spans() == ()
