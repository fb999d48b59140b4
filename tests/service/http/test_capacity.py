"""Large requests run a few at once, and hostile bodies are refused."""

import re
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest
from raw_http import NPY, chunked_request, connect, post_request, read_status, request_head, status_of
from server import Server, eventually, in_process, serving

MB = 1_000_000


def gauge(client: httpx.Client, name: str) -> float:
    (value,) = re.findall(rf"^{name} (\S+)$", client.get("/metrics").text, re.MULTILINE)
    return float(value)


def test_long_head_in_pieces_is_read(server: Server) -> None:
    head = b"GET /health?%s HTTP/1.1\r\nhost: localhost\r\n\r\n" % (b"a" * 60_000)
    with connect(server.port) as caller:
        caller.sendall(head[:30_000])
        time.sleep(0.2)  # so that the server reads the first piece alone
        caller.sendall(head[30_000:])
        assert read_status(caller) == 200


def test_large_requests_wait_for_each_other_and_small_ones_pass(models: Path) -> None:
    """While a large body takes the one slot, a second one waits and small requests do not."""
    large = b'{"input": "superb"' + b" " * 1_500_000 + b"}"
    with serving(models, default_model="tiny", max_large_requests=1) as server, server.client() as client:
        with connect(server.port) as first, connect(server.port) as second:
            first.sendall(request_head(len(large)) + large[:1_200_000])
            eventually(lambda: gauge(client, "hardmax_requests_in_flight") == 1)
            second.sendall(post_request(large))
            second.settimeout(0.5)
            with pytest.raises(TimeoutError):
                second.recv(1)
            assert client.post("/classify", json={"input": "superb"}).status_code == 200
            first.sendall(large[1_200_000:])
            assert read_status(first) == 200
            second.settimeout(60)
            assert read_status(second) == 200
        eventually(lambda: gauge(client, "hardmax_requests_in_flight") == 0)


def test_response_over_the_limit_is_refused_before_the_work(models: Path) -> None:
    points = np.random.default_rng(0).normal(size=(2000, 2)).tolist()
    document = {"points": points, "stop": "never", "max_layers": 650, "include": ["trajectory"]}
    with in_process(models) as client:
        response = client.post("/dynamics", json=document)
        assert (response.status_code, response.json()["error"]["type"]) == (413, "too_large")
        assert "holds 640 layers of 2000 points, not 651" in response.json()["error"]["message"]
        longest = client.post("/dynamics", json={**document, "max_layers": 639, "alpha": 1e-9})
        assert len(longest.json()["trajectory"]["points"]) == 640
        shorter = client.post("/dynamics", json={**document, "max_layers": 60, "trajectory_every": 20})
        assert shorter.json()["trajectory"]["layers"] == [0, 20, 40, 60]


LONG = b"a" * 1_900_000
ROWS = b"[1.5,2.5]," * 150_000
DEEP = b"[" * 900_000 + b"]" * 900_000
NAMES = b",".join(b'"n%d":0' % number for number in range(120_000))


def cloud(points: bytes) -> bytes:
    return post_request(b'{"points": ' + points + b"}", "/dynamics")


HOSTILE = {  # of two megabytes each, which is all that the server takes
    "announces too much": (request_head(60 * MB), 413),
    "sends too much": (post_request(b" " * 3 * MB), 413),
    "sends too much in chunks": (chunked_request(b" " * 3 * MB), 413),
    "no JSON": (post_request(b"\0" + LONG), 400),
    "a text without end": (post_request(b'{"input": "' + LONG), 400),
    "more after the end": (post_request(b'{"input": "a"}' + LONG), 400),
    "deep arrays": (post_request(b'{"input": ' + DEEP + b"}"), 413),
    "deep objects": (post_request(b'{"a":' * 300_000 + b"1" + b"}" * 300_000), 413),
    "lone surrogate": (post_request(b'{"input": "' + LONG + b'\\ud800"}'), 422),
    "no UTF-8": (post_request(b'{"input": "' + LONG + b'\xff"}'), 400),
    "UTF-16": (post_request(('{"input": "' + "a" * 900_000 + '"}').encode("utf-16")), 400),
    "an endless number": (post_request(b'{"input": ' + b"9" * 1_900_000 + b"}"), 400),
    "numbers for texts": (post_request(b'{"input": [' + b"1," * 900_000 + b"1]}"), 422),
    "too many texts": (post_request(b'{"input": [' + b'"a",' * 400_000 + b'"a"]}'), 413),
    "too long a text": (post_request(b'{"input": "' + LONG + b'"}'), 413),
    "unknown names": (post_request(b"{" + NAMES + b"}"), 422),
    "NaN after many rows": (cloud(b"[" + ROWS + b"[1,NaN]]"), 422),
    "1e400 after many rows": (cloud(b"[" + ROWS + b"[1,1e400]]"), 422),
    "a short row after many": (cloud(b"[" + ROWS + b"[1]]"), 422),
    "a broken row after many": (cloud(b"[" + ROWS + b"[1,]]"), 400),
    "points in deep arrays": (cloud(DEEP), 400),
    "points twice": (cloud(b"[" + ROWS + b'[1,2]], "points": [[1,2,3],4]'), 422),
    "points that are a text": (cloud(b'"' + LONG + b'"'), 422),
    "an npy header that lies": (post_request(b"\x93NUMPY\x01\x00\xff\xff" + LONG, "/dynamics", NPY), 400),
    "leaders that are a text": (post_request(b'{"leaders": "' + LONG + b'"}', "/control"), 422),
}


@pytest.fixture(scope="module")
def server(models: Path) -> Iterator[Server]:
    limits = {"payload_limit_mb": 2, "request_timeout_s": 4, "max_concurrent_requests": 1000}
    with serving(models, default_model="tiny", log_level="error", **limits) as server:
        yield server


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_body_is_refused_in_the_one_shape(server: Server, name: str) -> None:
    request, status = HOSTILE[name]
    assert status_of(server.port, request) == status


def test_body_that_never_arrives_is_answered_504(server: Server) -> None:
    assert status_of(server.port, request_head(9) + b"{") == 504
