"""The OpenAPI document: the committed copy is in step, and the service does what it says."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import settings
from refusals import JSON
from server import Server, in_process

from service.app import create_app
from service.http import examples
from service.http.dependencies import PUBLIC_ROUTES
from service.settings import Settings
from tests.fuzz.openapi import fuzz_operations


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return create_app(Settings()).openapi()


def operations(document: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    """By method and path."""
    return {
        (method.upper(), path): operation
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }


def test_document_is_served(document: dict[str, Any], client: httpx.Client) -> None:
    assert client.get("/openapi.json").json() == document


def test_document_has_an_example_of_every_request_and_answer(
    document: dict[str, Any], client: httpx.Client
) -> None:
    """Every example is sent, and answered as the document says."""
    sent = 0
    for (method, path), operation in operations(document).items():
        content = operation.get("requestBody", {}).get("content", {})
        if method == "POST" and (example := content.get("application/json", {}).get("example")):
            given = json.dumps(example).replace('"sentiment"', '"tiny"')
            answer = client.post(path.format(name="tiny", version="1"), content=given, headers=JSON)
            if "version" not in path and "/sequences" not in path:
                assert answer.status_code == 200, (path, answer.text)
            sent += 1
    assert sent >= 5


def shape(value: Any) -> Any:
    """The names in a document, and the numbers of entries."""
    if isinstance(value, dict):
        return {name: shape(each) for name, each in value.items()}
    return [*map(shape, value)] if isinstance(value, list) else None


def test_examples_of_answers_are_what_is_answered(client: httpx.Client) -> None:
    """Of texts the names of fields: the model that answers here is another one, and has other leaders."""

    def ask(path: str, body: object) -> Any:
        return shape(client.post(path, json=body).json())

    asked = {"input": "A superb film.", "model": "tiny"}
    for path, example in (("/classify", examples.CLASSIFIED), ("/v1/classify", examples.VLLM_CLASSIFIED)):
        told, said = shape(example)["data"][0], ask(path, asked)["data"][0]
        assert told.keys() == said.keys()
        for part in said.keys() & {"leaders", "clusters"}:
            assert told[part][0].keys() == said[part][0].keys()
    assert shape(examples.RESULT) == ask("/dynamics", examples.DYNAMICS)
    assert shape(examples.CONTROLLED) == ask("/control", examples.CONTROL)


def test_document_tells_of_no_route_without_errors(document: dict[str, Any]) -> None:
    codes = {"400", "401", "404", "413", "415", "422", "429", "500", "503", "504"}
    for (method, path), operation in operations(document).items():
        assert {"200"} | (codes if method == "POST" else set()) <= operation["responses"].keys(), path


def test_every_route_wants_a_key_unless_it_is_public_and_is_counted_by_its_whole_path(
    document: dict[str, Any], models: Path
) -> None:
    """Routers below routers told only the end of a path: /v2/models/{name}/ready passed for /ready."""
    asked = operations(document)
    with in_process(models, api_keys="secret") as client:
        for method, path in asked:
            refused = client.request(method, path.format(name="tiny", version="1")).status_code == 401
            assert refused != (method == "GET" and path in PUBLIC_ROUTES), (method, path)
        told = client.get("/metrics").text
    for method, path in asked:
        assert f'hardmax_requests_total{{method="{method}",route="{path}",status=' in told


def test_service_does_what_its_document_says(document: dict[str, Any], server: Server) -> None:
    """Schemathesis makes requests, right and wrong, from the document alone."""
    failures: list[str] = []
    each = 25 if settings().max_examples > 100 else 8  # the profiles of tests/conftest.py
    asked = dict(fuzz_operations(server.url, each, failures, repeatable=True))
    assert not failures
    assert set(asked) == {" ".join(operation) for operation in operations(document)}
    assert sum(statuses.total() for statuses in asked.values()) > 10 * each
    answered = {label for label, statuses in asked.items() if statuses[200]}
    assert answered >= {label for label in asked if label.startswith("GET")}
    # Which of the others are depends on what hypothesis draws, and that on the modules that are loaded.
    assert any(label.startswith("POST") for label in answered)


def test_every_part_of_the_document_is_described_by_a_sentence(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    parts = {name: schema for name, schema in schemas.items() if "enum" not in schema}
    parts |= {
        f"{name}.{field}": part
        for name, schema in schemas.items()
        for field, part in schema.get("properties", {}).items()
    }
    for path, by_method in document["paths"].items():
        for method, operation in by_method.items():
            assert operation.get("summary"), (method, path)
            parts[f"{method} {path}"] = operation
            parts |= {f"{path} {each['name']}": each for each in operation.get("parameters", ())}
    parts |= {f"tag {tag['name']}": tag for tag in document["tags"]}
    bare = [name for name, part in parts.items() if len(part.get("description", "").split()) < 2]
    unfinished = [
        name for name, part in parts.items() if part.get("description", ".").rstrip()[-1] not in ".:)`"
    ]
    assert (bare, unfinished) == ([], [])
    assert len(schemas) > 30
    ours = "no route answers in FastAPI's shape"
    assert not {"HTTPValidationError", "ValidationError"} & set(schemas), ours
    assert "DynamicsRequest" in schemas, "bodies that are read piece by piece have names too"
