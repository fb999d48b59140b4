"""POST /classify over a socket: answers by value, refusals by status, type and place."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from bundles import plane_weights, write_sentiment
from refusals import JSON, refusal
from server import Server, serving


@pytest.fixture(scope="module")
def server(models: Path) -> Iterator[Server]:
    limits = {"max_text_chars": 400, "max_client_batch_size": 8, "max_points": 300_000, "max_dimension": 4}
    with serving(models, default_model="tiny", **limits) as server:
        yield server


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[httpx.Client]:
    with server.client() as client:
        yield client


def test_classify_answers_one_text_with_its_exact_reason(client: httpx.Client) -> None:
    answer = client.post("/classify", json={"input": "The film superb film"}).json()
    assert answer["model"] == "tiny"
    assert answer["usage"] == {"texts": 1, "tokens": 4}
    (one,) = answer["data"]
    assert (one["index"], one["label"], one["truncated"], one["undecided"]) == (0, "positive", False, None)
    # Weights: the 2, two films 1 each, superb 1; superb is at 4 along the readout, the others at 0.
    assert one["leaders"] == [
        {"word": "superb", "cluster": 0, "since_layer": 0, "followers": 0, "contribution": 0.8,
         "spans": [[9, 15]], "context": [0, 20]},
        {"word": "the", "cluster": 1, "since_layer": 0, "followers": 2, "contribution": 0, "spans": [[0, 3]],
         "context": [0, 15]},
    ]  # fmt: skip
    clusters = [(cluster["words"], cluster["size"], cluster["contribution"]) for cluster in one["clusters"]]
    assert clusters == [(["superb"], 1, 0.8), (["the", "film"], 3, 0)]
    assert (one["bias"], one["logit"]) == (0.5, 1.3)
    assert one["probs"]["positive"] == one["score"] == pytest.approx(1 / (1 + np.exp(-1.3)), abs=1e-6)


def test_classify_answers_a_list_as_it_answers_its_texts_alone(client: httpx.Client) -> None:
    texts = ["superb", "awful film", "the film was not good", "a waste of time", "superb superb superb"]
    together = client.post("/classify", json={"input": texts}).json()["data"]
    for index, text in enumerate(texts):
        (alone,) = client.post("/classify", json={"input": text}).json()["data"]
        assert together[index] == {**alone, "index": index}


def test_classify_counts_spans_as_it_is_asked_to(client: httpx.Client) -> None:
    body = {"input": "🙂 superb", "explain": "full"}
    for spans, expected in (("codepoints", [[2, 8]]), ("utf16", [[3, 9]])):
        answer = client.post("/classify", json={**body, "spans": spans}).json()
        assert answer["data"][0]["words"][-1]["spans"] == expected


def test_classify_answers_with_a_number_for_each_of_several_labels(tmp_path: Path) -> None:
    readout = np.array([[1, 0], [0, 1], [-1, 0]], np.float32)
    bias = np.array([0, 0.25, 0], np.float32)
    labels = ["good", "so so", "bad"]
    write_sentiment(tmp_path, plane_weights(readout=readout, bias=bias), labels=labels)
    with serving(tmp_path, default_model="tiny") as server, server.client() as client:
        (one,) = client.post("/classify", json={"input": "superb the", "explain": "full"}).json()["data"]
        # W = 3: superb (weight 1) stays at (4, 0), the (weight 2) at (0, 1)
        logits = {"good": 4 / 3, "so so": 0.25 + 2 / 3, "bad": -4 / 3}
        assert one["logit"] == pytest.approx(logits, abs=2e-7)
        assert one["bias"] == {"good": 0.0, "so so": 0.25, "bad": 0.0}
        own = {"good": 4 / 3, "so so": 0, "bad": -4 / 3}
        assert one["leaders"][0]["contribution"] == pytest.approx(own, abs=2e-7)
        assert (one["label"], round(sum(one["probs"].values()), 7)) == ("good", 1.0)
        for label in labels:
            for parts in (one["clusters"], one["words"]):
                total = Decimal(str(one["bias"][label])) + sum(
                    Decimal(str(part["contribution"][label])) for part in parts
                )
                assert total == Decimal(str(one["logit"][label]))


def test_classify_explains_as_much_as_it_is_asked_for(client: httpx.Client) -> None:
    def ask(**options: Any) -> dict[str, Any]:
        body = {"input": "the superb film", **options}
        return dict(client.post("/classify", json=body).json()["data"][0])

    assert not {"leaders", "clusters", "words"} & set(ask(explain="none"))
    assert "words" not in ask(explain="leaders")
    full = ask(explain="full", trajectory=True)
    assert [word["text"] for word in full["words"]] == ["the", "superb", "film"]
    assert [word["spans"] for word in full["words"]] == [[[0, 3]], [[4, 10]], [[11, 15]]]
    assert np.shape(full["trajectory"]) == (3, 3, 2)
    assert full["trajectory"][0] == [word["start"] for word in full["words"]]
    total = Decimal(str(full["bias"])) + sum(Decimal(str(word["contribution"])) for word in full["words"])
    assert total == Decimal(str(full["logit"]))


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({}, (422, "invalid_input", "input")),
        ({"input": 7}, (422, "invalid_input", "input")),
        ({"input": ["good", 7]}, (422, "invalid_input", "input[1]")),
        ({"input": []}, (422, "invalid_input", "input")),
        ({"input": ""}, (422, "invalid_input", "input")),
        ({"input": ["good", " \n"]}, (422, "invalid_input", "input[1]")),
        ({"input": "good", "explain": "much"}, (422, "invalid_input", "explain")),
        ({"input": "good", "trajectory": True}, (422, "invalid_input", "trajectory")),
        ({"input": "good", "truncate": "no"}, (422, "invalid_input", "truncate")),
        ({"input": "good", "explian": "full"}, (422, "invalid_input", "explian")),
        ({"input": "good", "model": "nobody"}, (404, "not_found", "model")),
        ({"input": "good", "model": "dynamics"}, (404, "not_found", "model")),
        ({"input": ["good"] * 9}, (413, "too_large", "input")),
        ({"input": ["good", "x" * 401]}, (413, "too_large", "input[1]")),
        (["good"], (422, "invalid_input", None)),
        ("good", (422, "invalid_input", None)),
    ],
)
def test_classify_refuses_by_name(client: httpx.Client, body: object, expected: tuple[Any, ...]) -> None:
    assert refusal(client.post("/classify", json=body)) == expected


def test_classify_refuses_a_long_text_only_where_it_may_not_be_cut(models: Path, tmp_path: Path) -> None:
    write_sentiment(tmp_path, max_length=3)
    with serving(tmp_path, default_model="tiny") as server, server.client() as client:
        cut = client.post("/classify", json={"input": "good good good awful"}).json()["data"][0]
        assert (cut["truncated"], cut["tokens"], cut["label"]) == (True, 3, "positive")
        body = {"input": ["good", "good good good awful"], "truncate": False}
        assert refusal(client.post("/classify", json=body)) == (413, "too_large", "input[1]")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b'{"input": "a"} x',
        b"\xef\xbb\xbf" + b'{"input": "good"}',
        '{"input": "good"}'.encode("utf-16"),
        b'{"input": "\xff"}',
        b'{"input": "\\ud800"}',
        b'{"input": ' + b"[" * 10_000 + b"]" * 10_000 + b"}",
        b'{"input": ' + b"9" * 10_000 + b"}",
        b"\x00\x01\x02",
    ],
)
@pytest.mark.parametrize("path", ["/classify", "/dynamics", "/sequences/classify", "/control"])
def test_routes_refuse_what_is_not_json(client: httpx.Client, path: str, body: bytes) -> None:
    status, kind, _ = refusal(client.post(path, content=body, headers=JSON))
    assert (status, kind) == (400, "malformed_input")


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", "1e400"])
def test_classify_refuses_numbers_for_texts(client: httpx.Client, value: str) -> None:
    body = f'{{"input": {value}}}'
    assert refusal(client.post("/classify", content=body, headers=JSON)) == (422, "invalid_input", "input")


def test_classify_takes_the_last_of_two_equal_names_as_json_parsers_do(client: httpx.Client) -> None:
    body = '{"input": "awful", "input": "superb"}'
    answer = client.post("/classify", content=body, headers=JSON).json()
    assert answer["data"][0]["label"] == "positive"


@pytest.mark.parametrize(
    "media_type", ["text/plain", "application/x-www-form-urlencoded", "application/json; charset=latin-1"]
)
def test_classify_refuses_other_media_types(client: httpx.Client, media_type: str) -> None:
    response = client.post("/classify", content=b'{"input": "x"}', headers={"content-type": media_type})
    assert refusal(response) == (415, "unsupported_media_type", None)


def test_classify_takes_json_by_any_of_its_names(client: httpx.Client) -> None:
    for headers in (JSON, {"content-type": "Application/JSON; charset=UTF-8"}):
        assert client.post("/classify", content=b'{"input": "superb"}', headers=headers).status_code == 200


def test_body_without_a_media_type_is_refused_with_the_header_to_send(client: httpx.Client) -> None:
    for path in ("/classify", "/sequences/classify", "/control"):
        response = client.post(path, content=b'{"input": "superb"}')
        assert refusal(response) == (415, "unsupported_media_type", None)
        assert response.json()["error"]["message"] == "send the header Content-Type: application/json"


def test_packed_body_is_refused_and_not_misread(client: httpx.Client) -> None:
    headers = {**JSON, "content-encoding": "gzip"}
    response = client.post("/classify", content=gzip.compress(b'{"input": "superb"}'), headers=headers)
    assert refusal(response) == (415, "unsupported_media_type", None)


def test_classify_takes_a_chunked_body(client: httpx.Client) -> None:
    def pieces() -> Iterator[bytes]:
        yield b'{"input": '
        yield b'"superb"}'

    answer = client.post("/classify", content=pieces(), headers=JSON)
    assert answer.json()["data"][0]["label"] == "positive"
