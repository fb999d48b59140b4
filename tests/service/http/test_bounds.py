"""Every text, list and object of a request has a bound, and docs/reference/bounds.md lists them all."""

import importlib.util
import json
from typing import Any

import httpx
import pytest
from paths import ROOT
from refusals import JSON, refusal

spec = importlib.util.spec_from_file_location("bounds_docs", ROOT / "docs/bounds.py")
assert spec
assert spec.loader
bounds = importlib.util.module_from_spec(spec)
spec.loader.exec_module(bounds)

DOCUMENT = json.loads((ROOT / "docs/openapi.json").read_text())
POINTS = [[1.0, 0.0], [0.0, 1.0]]
INFER = "/v2/models/tiny/infer"
LABELS = "parameters.candidate_labels"
NAMES = list(map(str, range(100_001)))


def tensor(**changes: Any) -> dict[str, Any]:
    return {"name": "text", "datatype": "BYTES", "shape": [1], "data": ["a"], **changes}


def test_page_lists_the_bounds_of_the_schema() -> None:
    text = (ROOT / "docs/reference/bounds.md").read_text()
    assert text == bounds.page(text, DOCUMENT), "run: python docs/bounds.py"


def test_every_text_list_and_object_of_a_request_has_a_bound() -> None:
    rows = list(bounds.rows(DOCUMENT))
    assert {path for path, _, _ in rows} >= {"/classify", "/dynamics", "/control", "/sequences/classify", "/"}
    assert [row for row in rows if "unbounded" in row[2]] == []


def test_list_without_a_bound_is_called_unbounded() -> None:
    field = {"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}]}
    assert bounds.bound_of({}, field) == "unbounded"
    assert bounds.bound_of({}, {**field, "x-limits": ["MAX_POINTS"]}) == "`MAX_POINTS`"


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/classify", {"input": "a", "model": ["tiny"] * 33}, "model"),
        ("/classify", {"input": "a superb film", "without": [[0, 1]] * 257}, "without"),
        ("/dynamics", {"points": POINTS, "include": ["limits"] * 17}, "include"),
        ("/control", {"points": POINTS, "leaders": [0] * 10_001}, "leaders"),
        ("/control", {"points": POINTS, "assignment": dict.fromkeys(NAMES, 0)}, "assignment"),
        ("/", {"inputs": "a", "parameters": {"candidate_labels": ["a"] * 1_001}}, LABELS),
        ("/", {"inputs": "a", "parameters": {"candidate_labels": ["a" * 201]}}, f"{LABELS}[0]"),
    ],
)  # fmt: skip
def test_one_more_than_the_bound_is_refused_by_name(
    client: httpx.Client, path: str, body: dict[str, Any], param: str
) -> None:
    assert refusal(client.post(path, json=body, headers=JSON)) == (422, "invalid_input", param)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"inputs": [tensor()] * 65}, "inputs"),
        ({"inputs": [tensor()], "outputs": [{"name": "label"}] * 65}, "outputs"),
        ({"inputs": [tensor()], "id": "a" * 201}, "id"),
        ({"inputs": [tensor()], "parameters": dict.fromkeys(map(str, range(65)), 0)}, "parameters"),
        ({"inputs": [tensor(name="a" * 201)]}, "inputs[0].name"),
    ],
)
def test_one_more_than_the_bound_of_a_tensor_is_refused(
    client: httpx.Client, body: dict[str, Any], field: str
) -> None:
    response = client.post(INFER, json=body)
    assert response.status_code == 422
    assert response.json()["error"].startswith(f"{field} should have at most ")
