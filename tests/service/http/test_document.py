"""The OpenAPI document: it is complete, and the service does what it says."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import settings
from openapi_cases import fuzz_operations
from refusals import JSON
from server import Server, in_process

from hardmax import Local
from service.app import create_app
from service.http.dependencies import PUBLIC_ROUTES
from service.settings import Settings


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return create_app(Settings()).openapi()


def operations(document: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the operations of a document by method and path."""
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
    n_sent = 0
    for (method, path), operation in operations(document).items():
        content = operation.get("requestBody", {}).get("content", {})
        assert all("schema" in part for part in content.values()), path
        if method == "POST" and (example := content.get("application/json", {}).get("example")):
            body = json.dumps(example).replace('"sentiment"', '"tiny"')
            response = client.post(path.format(name="tiny", version="1"), content=body, headers=JSON)
            if "version" not in path and "/sequences" not in path:
                assert response.status_code == 200, (path, response.text)
            n_sent += 1
            assert all("schema" in part for part in operation["responses"]["200"]["content"].values()), path
    assert n_sent >= 5


def shape(value: Any) -> Any:
    """Replace the values of a document by None, which leaves names and the numbers of entries."""
    if isinstance(value, dict):
        return {name: shape(member) for name, member in value.items()}
    return [*map(shape, value)] if isinstance(value, list) else None


def test_examples_are_answers_of_the_default_model(document: dict[str, Any], pretrained: Local) -> None:
    answer = pretrained.classify("A superb film.").document
    scores = [{"label": label, "score": score} for label, score in answer["probs"].items()]
    scores.sort(key=lambda item: -item["score"])
    documented = {
        path: operation["responses"]["200"]["content"]["application/json"].get("example")
        for (method, path), operation in operations(document).items()
        if method == "POST"
    }
    assert documented["/classify"]["data"] == [answer]
    assert (documented["/predict"], documented["/"]) == (scores, [scores])
    outputs = documented["/v2/models/{name}/infer"]["outputs"]
    assert [output["data"] for output in outputs[:3]] == [[answer[output["name"]]] for output in outputs[:3]]


def test_examples_of_clouds_have_the_shape_of_answers(document: dict[str, Any], client: httpx.Client) -> None:
    for path in ("/dynamics", "/control"):
        operation = operations(document)["POST", path]
        body = operation["requestBody"]["content"]["application/json"]["example"]
        example = operation["responses"]["200"]["content"]["application/json"]["example"]
        assert shape(example) == shape(client.post(path, json=body).json())


def test_document_lists_the_errors_of_every_route(document: dict[str, Any]) -> None:
    codes = {"400", "401", "404", "413", "415", "422", "429", "500", "503", "504"}
    for (method, path), operation in operations(document).items():
        assert {"200"} | (codes if method == "POST" else set()) <= operation["responses"].keys(), path


def test_every_route_needs_a_key_unless_it_is_public_and_is_counted_by_its_full_path(
    document: dict[str, Any], models: Path
) -> None:
    """Nested routers once gave only the end of a path: /v2/models/{name}/ready passed for /ready."""
    routes = operations(document)
    with in_process(models, api_keys="secret") as client:
        for method, path in routes:
            refused = client.request(method, path.format(name="tiny", version="1")).status_code == 401
            assert refused != (method == "GET" and path in PUBLIC_ROUTES), (method, path)
        metrics = client.get("/metrics").text
    for method, path in routes:
        assert f'hardmax_requests_total{{method="{method}",route="{path}",status=' in metrics


def test_service_does_what_its_document_says(document: dict[str, Any], server: Server) -> None:
    """Schemathesis makes valid and invalid requests from the document alone."""
    failures: list[str] = []
    n_examples = max(8, settings().max_examples // 12)
    statuses_by_operation = dict(
        fuzz_operations(server.url, n_examples, failures, repeatable=settings().derandomize)
    )
    assert not failures
    assert set(statuses_by_operation) == {" ".join(operation) for operation in operations(document)}
    assert sum(statuses.total() for statuses in statuses_by_operation.values()) > 10 * n_examples
    answered = {label for label, statuses in statuses_by_operation.items() if statuses[200]}
    assert answered >= {label for label in statuses_by_operation if label.startswith("GET")}
    # Which other routes answer 200 depends on what hypothesis draws, and so on the modules that are loaded.
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
            parts |= {f"{path} {field['name']}": field for field in operation.get("parameters", ())}
    parts |= {f"tag {tag['name']}": tag for tag in document["tags"]}
    bare = [name for name, part in parts.items() if len(part.get("description", "").split()) < 2]
    unfinished = [
        name for name, part in parts.items() if part.get("description", ".").rstrip()[-1] not in ".:)`"
    ]
    assert (bare, unfinished) == ([], [])
    assert len(schemas) > 30
    assert not {"HTTPValidationError", "ValidationError"} & set(schemas), "errors in FastAPI's shape"
    assert "DynamicsRequest" in schemas, "bodies that are read piece by piece have names too"
