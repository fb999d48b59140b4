"""Long bodies: what is wrong with them is said, and nothing holds up the event loop for long."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
import stalls
from bundles import WORDS
from refusals import JSON, refusal
from server import Server, serving
from stalls import HELD_S, PROMISED_S, stall_of

from service.http.bodies import LARGEST_JSON
from service.schemas.reading import MOST_PARTS

MB = 1_000_000
INFER = "/v2/models/tiny/infer"


@pytest.fixture(scope="module")
def watched(models: Path) -> Iterator[Server]:
    """One that tells how long its event loop was held up."""
    options = {"default_model": "tiny", "intra_op_threads": 1, "log_level": "error"}
    with serving(models, command=(stalls.__file__,), **options) as server:
        yield server


@pytest.fixture
def client(server: Server) -> Iterator[httpx.Client]:
    with server.client(headers=JSON) as client:
        yield client


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (b'{"input": [' + b"1," * 200_000 + b"1]}", "input[0]"),
        (b'{"input": "a", "x": "' + b"b" * 150_000 + b'"}', "x"),
        (b'{"input": "a", "model": "' + b"b" * 150_000 + b'"}', "model"),
        (b'["' + b"b" * 150_000 + b'"]', None),
    ],
)
def test_long_request_that_is_wrong_is_refused_by_its_place(
    client: httpx.Client, body: bytes, param: str | None
) -> None:
    assert refusal(client.post("/classify", content=body)) == (422, "invalid_input", param)


@pytest.mark.parametrize(
    ("path", "instead"),
    [("/dynamics", "application/x-npy"), ("/classify", "several requests"), (INFER, "several requests")],
)
@pytest.mark.parametrize("announced", [True, False])
def test_json_over_16_mb_is_refused_with_what_to_send_instead(
    client: httpx.Client, path: str, instead: str, announced: bool
) -> None:
    body = b" " * (LARGEST_JSON + 1)
    answer = client.post(path, content=body if announced else iter([body[:MB]] * 17))
    assert answer.status_code == 413
    assert instead in answer.text
    assert "16 MB" in answer.text


def filled(before: bytes, unit: bytes, after: bytes, size: int = LARGEST_JSON - 200) -> Callable[[], bytes]:
    """So much of a unit and commas that the body is as large as it may be."""
    return lambda: before + (unit + b",") * (size // (len(unit) + 1)) + unit + after


ROW = b"[0.1234567890123456,0.6543210987654321]"
LARGE: dict[str, tuple[str, Callable[[], bytes], int]] = {
    "tiny texts": ("/classify", filled(b'{"input":[', b'"a"', b"]}"), 413),
    "as many texts as are parsed": ("/classify", filled(b'{"input":[', b'"a"', b"]}", 4 * MB), 413),
    "arrays in arrays": ("/classify", filled(b'{"x":[', b"[[]]", b"]}"), 413),
    "blanks": ("/classify", lambda: b'{"input":"superb"' + b" " * 15 * MB + b"}", 200),
    "one text": ("/classify", lambda: b'{"input":"' + b"a" * 15 * MB + b'"}', 413),
    "a blank text": ("/classify", lambda: b'{"input":"' + b" " * 15 * MB + b'"}', 413),
    "tensors": (INFER, filled(b'{"inputs":[', b'{"name":"","datatype":"","shape":[]}', b"]}"), 413),
    "points": ("/dynamics", filled(b'{"max_layers": 1, "tie_tolerance": 2, "points":[', ROW, b"]}"), 422),
    "tiny rows": ("/dynamics", filled(b'{"points":[', b"[0]", b"]}"), 413),
    "a row": ("/control", filled(b'{"points":[[', b"1", b"]]}"), 413),
    "members": ("/dynamics", filled(b"{", b'"x":0', b',"points":[[1,2]]}'), 413),
}


@pytest.mark.system
@pytest.mark.parametrize("name", LARGE)
def test_large_body_holds_the_interpreter_no_longer_than_is_said(watched: Server, name: str) -> None:
    path, make, status = LARGE[name]
    with watched.client(headers=JSON) as client:
        stall = stall_of(watched, client, path, make(), status)
    assert stall["turn_s"] < PROMISED_S, stall
    assert stall["step_s"] < HELD_S, stall


def test_more_parts_than_are_parsed_are_refused_unparsed(client: httpx.Client) -> None:
    answer = client.post("/classify", content=b'{"input":' + b"[" * (MOST_PARTS + 1))  # and no JSON either
    assert refusal(answer) == (413, "too_large", None)


@pytest.mark.system
@pytest.mark.parametrize(
    ("element", "count", "said", "status"),
    [(b"", 15 * MB, 1, 422), ("я".encode() * 31 * MB, 1, 1, 413), (b"superb, " * 20_000, 25, 25, 200)],
    ids=["empty", "one", "long"],
)
def test_large_bytes_tensor_never_holds_up_the_event_loop(
    watched: Server, element: bytes, count: int, said: int, status: int
) -> None:
    tensor = (len(element).to_bytes(4, "little") + element) * count
    given = {
        "name": "text",
        "datatype": "BYTES",
        "shape": [said],
        "parameters": {"binary_data_size": len(tensor)},
    }
    head = json.dumps({"inputs": [given]}).encode()
    headers = {"content-type": "application/octet-stream", "inference-header-content-length": str(len(head))}
    with watched.client(headers=headers) as client:
        stall = stall_of(watched, client, INFER, head + tensor, status)
    assert stall["turn_s"] < PROMISED_S, stall


def test_shape_of_many_dimensions_is_refused_unmultiplied(client: httpx.Client) -> None:
    tensor = {"name": "text", "datatype": "BYTES", "shape": [2**31] * 33, "data": ["a"]}
    answer = client.post(INFER, json={"inputs": [tensor]})
    assert (answer.status_code, answer.json()["error"]) == (422, "the shape has more than 32 dimensions")


@pytest.mark.system
def test_long_answer_never_holds_up_the_event_loop(watched: Server) -> None:
    """All words of fifteen long texts: 6 MB."""
    words = [word for word in WORDS if word.isalpha()]
    texts = [" ".join(random.Random(i).choices(words, k=2000)) for i in range(15)]
    body = json.dumps({"input": texts, "explain": "full"}).encode()
    with watched.client(headers=JSON) as client:
        stall = stall_of(watched, client, "/classify", body, 200)
        answer = client.post("/classify", content=body)
    assert stall["turn_s"] < PROMISED_S, stall
    assert [each["index"] for each in answer.json()["data"]] == list(range(15))
    assert len(answer.content) > 5 * MB
