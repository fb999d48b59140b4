"""Wrong and large bodies: the error names its place, and the event loop is not blocked."""

import asyncio
import json
import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import stall_server
from bundles import WORDS
from raw_http import (
    NPY,
    binary_tensor,
    chunked_request,
    connect,
    read_response,
    read_status,
    request_head,
    status_of,
)
from refusals import JSON, refusal
from server import Server, serving
from stall_server import MAX_PARSE_STALL_S, MAX_STALL_S, TARGET_STALL_S, measure_stall

from service.wire.documents import MAX_JSON_BYTES, MAX_JSON_PARTS, MAX_TEXT_ARRAYS, parse
from service.wire.requests import ClassifyRequest

MB = 1_000_000
INFER = "/v2/models/tiny/infer"
BODY = b'{"input": "superb"}'


@pytest.fixture(scope="module")
def watched(models: Path) -> Iterator[Server]:
    """A server that measures how long its event loop was blocked."""
    options = {"default_model": "tiny", "intra_op_threads": 1, "log_level": "error", "request_timeout_s": 600}
    with serving(models, command=(stall_server.__file__,), **options) as server:
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
def test_error_in_a_long_body_names_its_place(client: httpx.Client, body: bytes, param: str | None) -> None:
    assert refusal(client.post("/classify", content=body)) == (422, "invalid_input", param)


@pytest.mark.parametrize(
    ("path", "alternative"),
    [("/dynamics", "application/x-npy"), ("/classify", "several requests"), (INFER, "several requests")],
)
@pytest.mark.parametrize("announced", [True, False])
def test_json_over_4_mb_is_refused_with_what_to_send_instead(
    client: httpx.Client, path: str, alternative: str, announced: bool
) -> None:
    body = b" " * (MAX_JSON_BYTES + 1)
    response = client.post(path, content=body if announced else iter([body[:MB]] * 5))
    assert response.status_code == 413
    assert alternative in response.text
    assert "4 MB" in response.text


def filled(before: bytes, unit: bytes, after: bytes, size: int = MAX_JSON_BYTES - 200) -> Callable[[], bytes]:
    """Return a function that repeats a unit, with commas, until the body is as large as it may be."""
    return lambda: before + (unit + b",") * (size // (len(unit) + 1)) + unit + after


def document(**fields: object) -> Callable[[], bytes]:
    return lambda: json.dumps(fields).encode()


ANGLES = np.linspace(0, 2 * np.pi, 22_500, endpoint=False)
CIRCLE = np.stack([np.cos(ANGLES), np.sin(ANGLES)], 1).tolist()
CLOUD = np.random.default_rng(0).normal(size=(90_000, 2)).tolist()
SEQUENCES = np.reshape(CLOUD, (20, -1, 2)).tolist()
INNER_POINTS = np.random.default_rng(0).normal(size=(800, 32))
INNER_POINTS[:2] *= 0.1
PARTS = ["assignment", "limits", "polytope"]
ROW = b"[0.1234567890123456,0.6543210987654321]"
LARGE: dict[str, tuple[str, Callable[[], bytes], int]] = {
    "tiny texts": ("/classify", filled(b'{"input":[', b'"a"', b"]}"), 413),
    "as many texts as are parsed": ("/classify", filled(b'{"input":[', b'"a"', b"]}", 4 * MB), 413),
    "arrays in arrays": ("/classify", filled(b'{"x":[', b"[[]]", b"]}"), 413),
    "blanks": ("/classify", lambda: b'{"input":"superb"' + b" " * 3 * MB + b"}", 200),
    "one text": ("/classify", lambda: b'{"input":"' + b"a" * 3 * MB + b'"}', 413),
    "a blank text": ("/classify", lambda: b'{"input":"' + b" " * 3 * MB + b'"}', 413),
    "tensors": (INFER, filled(b'{"inputs":[', b'{"name":"","datatype":"","shape":[]}', b"]}"), 413),
    "points": ("/dynamics", filled(b'{"max_layers": 1, "tolerance": -1, "points":[', ROW, b"]}"), 422),
    "tiny rows": ("/dynamics", filled(b'{"points":[', b"[0]", b"]}"), 422),
    "a row": ("/control", filled(b'{"points":[[', b"1", b"]]}"), 413),
    "as many numbers as are parsed": ("/control", filled(b'{"points":[[', b"1", b"]]}", 7_999_900), 413),
    "members": ("/dynamics", filled(b"{", b'"x":0', b',"points":[[1,2]]}'), 422),
    "numbers": ("/dynamics", document(points=CLOUD, include=PARTS, max_layers=1), 200),
    "leaders": ("/dynamics", document(points=CIRCLE, include=PARTS), 200),  # and as many clusters
    "sequences": ("/sequences/classify", document(model="scenes", sequences=SEQUENCES), 200),
    "a wish": ("/control", document(points=INNER_POINTS.tolist(), leaders=[0, 1]), 200),
    "marks": ("/classify", document(input=["?!" * 254] * 16), 200),
}


@pytest.mark.system
@pytest.mark.parametrize("name", LARGE)
def test_large_body_blocks_the_interpreter_no_longer_than_documented(watched: Server, name: str) -> None:
    path, make, status = LARGE[name]
    with watched.client(headers=JSON) as client:
        stall = measure_stall(watched, client, path, make(), status)
    assert stall["turn_s"] < MAX_STALL_S, stall
    assert stall["step_s"] < MAX_PARSE_STALL_S, stall


@pytest.mark.system
def test_monitor_distinguishes_holding_from_sharing_the_interpreter_lock() -> None:
    def hold_lock() -> None:
        sum(range(10_000_000))  # one call that never releases the lock

    def share_lock() -> None:
        for _ in range(100_000):
            abs(0)

    async def longest_step(work: Any) -> tuple[float, str]:
        monitor = stall_server.StallMonitor()
        monitor.install_profiler()
        monitor.start(asyncio.get_running_loop())
        thread = threading.Thread(target=work)
        thread.start()
        while thread.is_alive():
            await asyncio.sleep(0.01)
        return monitor.step

    try:
        held, shared = (asyncio.run(longest_step(work)) for work in (hold_lock, share_lock))
    finally:
        threading.setprofile(None)  # type: ignore[arg-type]
    assert held[0] > TARGET_STALL_S
    assert "sum" in held[1]
    assert shared[0] < TARGET_STALL_S


def test_more_arrays_than_a_request_of_texts_has_are_refused_unparsed(client: httpx.Client) -> None:
    """Half a million spans once blocked the interpreter for .3 s, and took 140 MB for good."""
    spans = b"[0,1]," * MAX_TEXT_ARRAYS
    response = client.post("/classify", content=b'{"input": "superb", "without": [' + spans + b"[0,1]]}")
    assert refusal(response) == (413, "too_large", None)


@pytest.mark.parametrize("text", ["[{" * MAX_TEXT_ARRAYS, '"[' * MAX_TEXT_ARRAYS, "\\[" * MAX_TEXT_ARRAYS])
def test_brackets_in_a_text_are_no_arrays(text: str) -> None:
    assert parse(json.dumps({"input": text}).encode(), ClassifyRequest).input == text


def test_more_parts_than_are_parsed_are_refused_unparsed(client: httpx.Client) -> None:
    parts = b"[" * (MAX_JSON_PARTS + 1)  # which are no JSON either
    response = client.post("/classify", content=b'{"input":' + parts)
    assert refusal(response) == (413, "too_large", None)


@pytest.mark.system
@pytest.mark.parametrize(
    ("element", "count", "n_texts", "status"),
    [(b"", 15 * MB, 1, 422), ("я".encode() * 31 * MB, 1, 1, 413), (b"superb, " * 20_000, 25, 25, 200)],
    ids=["empty", "one", "long"],
)
def test_large_bytes_tensor_never_blocks_the_event_loop(
    watched: Server, element: bytes, count: int, n_texts: int, status: int
) -> None:
    body, headers = binary_tensor((len(element).to_bytes(4, "little") + element) * count, n_texts)
    with watched.client(headers=headers) as client:
        stall = measure_stall(watched, client, INFER, body, status)
    assert stall["turn_s"] < MAX_STALL_S, stall


def test_shape_of_many_dimensions_is_refused_unmultiplied(client: httpx.Client) -> None:
    tensor = {"name": "text", "datatype": "BYTES", "shape": [2**31] * 33, "data": ["a"]}
    response = client.post(INFER, json={"inputs": [tensor]})
    assert response.status_code == 422
    assert response.json()["error"] == "inputs[0].shape should have at most 32 items, not 33"


@pytest.mark.system
def test_long_response_never_blocks_the_event_loop(watched: Server) -> None:
    """The response has all words of fifteen long texts: 6 MB."""
    words = [word for word in WORDS if word.isalpha()]
    texts = [" ".join(random.Random(i).choices(words, k=2000)) for i in range(15)]
    body = json.dumps({"input": texts, "explain": "full"}).encode()
    with watched.client(headers=JSON) as client:
        stall = measure_stall(watched, client, "/classify", body, 200)
        response = client.post("/classify", content=body)
    assert stall["turn_s"] < MAX_STALL_S, stall
    assert [entry["index"] for entry in response.json()["data"]] == list(range(15))
    assert len(response.content) > 5 * MB


def expecting(head: bytes) -> bytes:
    """Add the header `Expect: 100-continue` to the head of a request."""
    return head.replace(b"host", b"expect: 100-continue\r\nhost", 1)


def test_body_over_the_limit_is_refused_before_it_is_sent(server: Server) -> None:
    with connect(server.port) as connection:
        connection.sendall(expecting(request_head(999_999_999_999, "/dynamics", NPY)))
        head, body = read_response(connection)
    assert head.startswith(b"HTTP/1.1 413 ")
    assert b"PAYLOAD_LIMIT_MB" in body


def test_expect_100_continue_is_answered(server: Server) -> None:
    with connect(server.port) as connection:
        connection.sendall(expecting(request_head(len(BODY))))
        assert connection.recv(65536).startswith(b"HTTP/1.1 100 ")
        connection.sendall(BODY)
        assert read_status(connection) == 200


def test_no_text_of_a_user_is_logged(server: Server, client: httpx.Client) -> None:
    secret = "xyzzyplugh"
    client.post("/classify", json={"input": secret})
    client.post("/classify", json={"input": [secret], secret: 1})
    client.post("/classify", content=f'{{"input": "{secret}'.encode(), headers=JSON)
    client.get(f"/{secret}")
    client.post(f"/dynamics?{secret}=1", json={"points": [[1, 1]]})
    assert secret not in server.output


def test_key_is_checked_before_the_body_is_read(locked: Server) -> None:
    assert status_of(locked.port, request_head(100)) == 401  # the body is never sent


def test_key_in_a_trailer_is_ignored(locked: Server) -> None:
    trailers = b"x-api-key: secret\r\nauthorization: Bearer secret\r\n\r\n"
    assert status_of(locked.port, chunked_request(BODY).removesuffix(b"\r\n") + trailers) == 401
