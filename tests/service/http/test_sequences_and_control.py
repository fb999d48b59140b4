"""POST /sequences/classify and /control over a socket."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from refusals import refusal


def test_sequences_are_labelled_exactly(client: httpx.Client) -> None:
    body = {"model": "scenes", "sequences": [[[0, 0], [5, 5]], [[2, 1]], [[1, 1], [0, 0]]]}
    answer = client.post("/sequences/classify", json=body).json()
    assert answer["model"] == "scenes"
    assert [each["label"] for each in answer["data"]] == ["storm", "calm", "calm"]
    assert [each["index"] for each in answer["data"]] == [0, 1, 2]
    assert all(each["margin"] > 0 for each in answer["data"])


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"sequences": [[[0, 0]]]}, (422, "invalid_input", "model")),
        ({"model": "tiny", "sequences": [[[0, 0]]]}, (404, "not_found", "model")),
        ({"model": "scenes"}, (422, "invalid_input", "sequences")),
        ({"model": "scenes", "sequences": []}, (422, "invalid_input", "sequences")),
        ({"model": "scenes", "sequences": [[[0, 0]], []]}, (422, "invalid_input", "sequences[1]")),
        ({"model": "scenes", "sequences": [[[0, 0], [1]]]}, (422, "invalid_input", "sequences[0][1]")),
        ({"model": "scenes", "sequences": [[[0, 0, 0]]]}, (422, "invalid_input", "sequences[0]")),
        ({"model": "scenes", "sequences": [[[0, 0]]] * 9}, (413, "too_large", "sequences")),
    ],
)
def test_sequences_refuse_by_name(client: httpx.Client, body: object, expected: tuple[Any, ...]) -> None:
    status, kind, param = refusal(client.post("/sequences/classify", json=body))
    assert (status, kind) == expected[:2]
    assert (param or "").startswith(str(expected[2]))


def test_control_finds_the_matrix_that_makes_a_wish_true(client: httpx.Client) -> None:
    points = [[1.0, 0.2], [0.9, 0.8], [-0.6, 1.0], [0.2, -1.0]]
    answer = client.post("/control", json={"points": points, "leaders": [0, 2]}).json()
    assert answer["feasible"] is True
    assert answer["margin"] > 0
    again = client.post("/dynamics", json={"points": points, "A": answer["A"]}).json()
    assert {0, 2} <= {leader["index"] for leader in again["leaders"]}
    assert [each["index"] for each in answer["dynamics"]["leaders"]] == [
        each["index"] for each in again["leaders"]
    ]


@pytest.mark.parametrize(
    "body",
    [
        {"points": [[1, 0], [0, 1]]},
        {"points": [[1, 0], [0, 1]], "leaders": [0], "assignment": {"0": 1}},
        {"points": [[1, 0], [0, 1]], "leaders": [7]},
        {"points": [[1, 0], [0, 1]], "assignment": {"x": 1}},
        {"points": [[1, 0], [0, 1]], "assignment": {"0": 9}},
        {"leaders": [0]},
    ],
)
def test_control_refuses_what_is_no_wish(client: httpx.Client, body: object) -> None:
    assert refusal(client.post("/control", json=body))[:2] == (422, "invalid_input")
