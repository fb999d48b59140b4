"""The OpenAPI document: the committed copy is in step, and the service does what it says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from server import Server, serving
from test_api import write_models

from service.app import create_app
from service.settings import Settings

COPY = Path(__file__).parent.parent / "docs/openapi.json"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    models = write_models(tmp_path_factory.mktemp("models"))
    with serving(models, default_model="tiny", max_points=2000, max_layers=200) as server:
        yield server


def test_document_and_its_copy_are_in_step(server: Server) -> None:
    document = create_app(Settings()).openapi()
    text = json.dumps(document, indent=2, ensure_ascii=False) + "\n"
    assert COPY.read_text() == text, "run: hardmax openapi > docs/openapi.json"
    with server.client() as client:
        assert client.get("/openapi.json").json() == document


def test_document_has_an_example_of_every_request_and_answer(server: Server) -> None:
    """Every example is sent, and answered as the document says."""
    document = create_app(Settings()).openapi()
    sent = 0
    with server.client() as client:
        for path, methods in document["paths"].items():
            content = methods.get("post", {}).get("requestBody", {}).get("content", {})
            example = content.get("application/json", {}).get("example")
            if example is None:
                continue
            for name, value in {"name": "tiny", "version": "1"}.items():
                path = path.replace(f"{{{name}}}", value)
            given = json.dumps(example).replace('"sentiment"', '"tiny"')
            answer = client.post(path, content=given, headers={"content-type": "application/json"})
            if "version" not in path and "/sequences" not in path:
                assert answer.status_code == 200, (path, answer.text)
            sent += 1
    assert sent >= 5


def test_document_tells_of_no_route_without_errors() -> None:
    paths = create_app(Settings()).openapi()["paths"]
    for path, methods in paths.items():
        for method, operation in methods.items():
            assert "200" in operation["responses"], path
            if method == "post":
                codes = {"400", "401", "404", "413", "415", "422", "429", "500", "503", "504"}
                assert codes <= set(operation["responses"]), path


def test_service_does_what_its_document_says(server: Server) -> None:
    """Schemathesis makes requests, right and wrong, from the document alone."""
    schemathesis = pytest.importorskip("schemathesis")
    from hypothesis import HealthCheck, Phase, given, settings

    schema = schemathesis.openapi.from_url(f"{server.url}/openapi.json")
    failures: list[str] = []

    def check(operation: Any) -> None:
        @given(case=operation.as_strategy())
        @settings(
            max_examples=25, deadline=None, database=None, derandomize=True,
            suppress_health_check=list(HealthCheck), phases=[Phase.explicit, Phase.generate],
        )  # fmt: skip
        def holds(case: Any) -> None:
            answer = case.call(timeout=20)
            documented = set(operation.definition.raw["responses"]) | {"405"}
            if answer.status_code >= 500 or str(answer.status_code) not in documented:
                failures.append(f"{operation.label}: {answer.status_code} for {case.as_curl_command()}"[:500])

        holds()

    for result in schema.get_all_operations():
        check(result.ok())
    assert not failures
