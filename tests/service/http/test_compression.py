"""Compression: a body may expand to the size that a plain one may have, and large responses are packed."""

import gzip
import json
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from refusals import refusal
from server import in_process

JSON = {"content-type": "application/json"}
BODY = json.dumps({"input": "superb"}).encode()


@pytest.fixture(scope="module")
def client(models: Path) -> Iterator[TestClient]:
    with in_process(models, payload_limit_mb=1) as client:
        yield client


@pytest.mark.parametrize(("encoding", "compress"), [("gzip", gzip.compress), ("deflate", zlib.compress)])
def test_compressed_body_is_answered_as_the_plain_one(
    client: TestClient, encoding: str, compress: Callable[[bytes], bytes]
) -> None:
    headers = {**JSON, "content-encoding": encoding}
    for path, body in (
        ("/classify", {"input": "superb film"}),
        ("/predict", {"inputs": "superb film"}),
        ("/v2/models/tiny/infer",
         {"inputs": [{"name": "text", "datatype": "BYTES", "shape": [1], "data": ["superb film"]}]}),
    ):  # fmt: skip
        plain = client.post(path, json=body).json()
        compressed = client.post(path, content=compress(json.dumps(body).encode()), headers=headers)
        assert compressed.status_code == 200
        document = compressed.json()
        if path == "/classify":
            del plain["id"], document["id"]
        assert document == plain


def test_body_that_expands_over_the_limit_is_refused(client: TestClient) -> None:
    bomb = gzip.compress(b'{"input": "' + b" " * 50_000_000 + b'"}')
    assert len(bomb) < 100_000
    response = client.post("/classify", content=bomb, headers={**JSON, "content-encoding": "gzip"})
    assert refusal(response) == (413, "too_large", None)
    assert "expanded" in response.json()["error"]["message"]


@pytest.mark.parametrize(
    "body", [BODY, gzip.compress(BODY)[:-5], gzip.compress(BODY) + b"more", b""],
    ids=["plain", "cut", "followed", "empty"],
)  # fmt: skip
def test_body_that_is_not_compressed_as_it_says_is_malformed(client: TestClient, body: bytes) -> None:
    response = client.post("/classify", content=body, headers={**JSON, "content-encoding": "gzip"})
    assert refusal(response) == (400, "malformed_input", None)


def test_large_responses_are_compressed_where_the_caller_accepts_it(client: TestClient) -> None:
    body = {"input": ["superb film"] * 60, "explain": "full"}
    plain = client.post("/classify", json=body, headers={"accept-encoding": "identity"})
    packed = client.post("/classify", json=body, headers={"accept-encoding": "gzip"})
    assert "content-encoding" not in plain.headers
    assert packed.headers["content-encoding"] == "gzip"
    assert packed.json()["data"] == plain.json()["data"]
    assert int(packed.headers["content-length"]) < len(plain.content) / 10
