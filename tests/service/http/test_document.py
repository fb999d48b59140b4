"""The OpenAPI document: the committed copy is in step, and the service does what it says."""

from __future__ import annotations

import json
from pathlib import Path

from paths import ROOT
from server import Server, in_process

from service.app import create_app
from service.settings import Settings
from tests.fuzz.document import ask_operations

COPY = ROOT / "docs/openapi.json"


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


def test_every_route_wants_a_key_unless_it_is_public_and_is_counted_by_its_whole_path(models: Path) -> None:
    """Routers below routers told only the end of a path: /v2/models/{name}/ready passed for /ready."""
    paths = create_app(Settings()).openapi()["paths"]
    asked = [(method.upper(), path) for path, methods in paths.items() for method in methods]
    with in_process(models, api_keys="secret") as client:
        for method, path in asked:
            refused = client.request(method, path.format(name="tiny", version="1")).status_code == 401
            assert refused != (method == "GET" and path in Settings().public_paths.split(",")), (method, path)
        told = client.get("/metrics").text
    for method, path in asked:
        assert f'hardmax_requests_total{{method="{method}",route="{path}",status=' in told


def test_service_does_what_its_document_says(server: Server) -> None:
    """Schemathesis makes requests, right and wrong, from the document alone."""
    failures: list[str] = []
    asked = dict(ask_operations(server.url, 25, failures, repeatable=True))
    assert not failures
    paths = create_app(Settings()).openapi()["paths"]
    assert set(asked) == {f"{method.upper()} {path}" for path, methods in paths.items() for method in methods}
    assert sum(answers.statuses.total() for answers in asked.values()) > 250
    answered = {label for label, answers in asked.items() if answers.statuses[200]}
    assert answered >= {label for label in asked if label.startswith("GET")} | {"POST /classify"}


def test_every_field_of_the_document_is_described() -> None:
    schemas = create_app(Settings()).openapi()["components"]["schemas"]
    bare = [
        f"{name}.{field}"
        for name, schema in schemas.items()
        for field, told in schema.get("properties", {}).items()
        if not told.get("description")
    ]
    assert len(schemas) > 30
    assert not bare, bare
    assert not {"HTTPValidationError", "ValidationError"} & set(schemas), (
        "no route answers in FastAPI's shape"
    )
    assert "DynamicsRequest" in schemas, "bodies that are read piece by piece have names too"
