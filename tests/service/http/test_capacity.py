"""What the bodies of callers may take together, and that hostile ones leave no trace in memory."""

import json
import re
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path

import httpx
import numpy as np
import psutil
import pytest
from fastapi.testclient import TestClient
from server import Server, eventually, in_process, serving
from wire import NPY, announce, chunked, connect, npy, read_status, status_of, whole

from service.engine.account import Reservation
from service.settings import BUNDLED_MODELS

MB = 1_000_000
HELD = "hardmax_request_body_bytes"
GIVEN_BACK_S = 4.5  # memory is given back every two seconds


def gauge(client: httpx.Client, name: str) -> float:
    (value,) = re.findall(rf"^{name} (\S+)$", client.get("/metrics").text, re.MULTILINE)
    return float(value)


@pytest.mark.system
def test_body_that_comes_slowly_gives_way_to_one_that_needs_its_room(models: Path) -> None:
    text = b'{"input": "superb"' + b" " * 800_000 + b"}"
    with (
        serving(models, default_model="tiny", payload_limit_mb=1, payload_total_mb=1.5) as server,
        server.client() as client,
        connect(server.port) as first,
    ):
        # Will never have room, so coming back would not help.
        assert status_of(server.port, announce(MB + 1)) == 413
        first.sendall(announce(MB) + b" " * 950_000)
        eventually(lambda: gauge(client, HELD) == 950_000)
        time.sleep(1.1)
        for request in (whole(text), chunked(text)):
            assert status_of(server.port, request) == 200
        with suppress(ConnectionError):
            assert first.recv(1) == b""
        eventually(lambda: gauge(client, HELD) == 0)


@pytest.mark.alone
def test_answers_that_nobody_reads_hold_up_nobody(models: Path) -> None:
    """Four requests whose answers take all room, unread: others get theirs. Row 5 of the third attack."""
    points = np.random.default_rng(0).normal(size=(4000, 2)).tolist()
    document = {"points": points, "stop": "never", "max_layers": 200, "include": ["trajectory"]}
    body = json.dumps(document).encode()  # 30 MB
    limits = {"payload_limit_mb": 40, "payload_total_mb": 80}
    with (
        serving(models, default_model="tiny", **limits) as server,
        server.client() as client,
        ExitStack() as kept,
    ):

        def attack() -> None:
            for _ in range(2):
                caller = kept.enter_context(connect(server.port))
                caller.sendall(whole(body, "/dynamics"))
                assert caller.recv(12) == b"HTTP/1.1 200"

        attack()
        eventually(lambda: gauge(client, HELD) > 50 * MB)
        for _ in range(20):
            assert client.post("/classify", json={"input": "superb"}).status_code == 200
        time.sleep(1.1)
        attack()  # which takes the room of the first two
        assert client.post("/classify", json={"input": "superb"}).status_code == 200
        eventually(lambda: gauge(client, "hardmax_requests_in_flight") == 0)


@pytest.mark.system
def test_streams_that_nobody_reads_hold_no_place_among_clouds(models: Path) -> None:
    """Row 6: more streams than clouds may wait, each of 10 MB."""
    points = np.random.default_rng(0).normal(size=(2500, 2)).tolist()
    document = {"points": points, "stop": "never", "max_layers": 100, "include": ["trajectory"]}
    request = whole(json.dumps(document).encode(), "/dynamics").replace(
        b"host:", b"accept: application/x-ndjson\r\nhost:", 1
    )
    with serving(models, default_model="tiny") as server, server.client() as client, ExitStack() as kept:
        for _ in range(18):
            caller = kept.enter_context(connect(server.port))
            caller.sendall(request)
            assert caller.recv(12) == b"HTTP/1.1 200"
        small = {"points": [[1, 1], [-1, -1]]}
        eventually(lambda: client.post("/dynamics", json=small).status_code == 200, timeout_s=20)
        eventually(lambda: 'hardmax_queue_depth{queue="clouds"} 0.0' in client.get("/metrics").text)


@pytest.mark.system
def test_small_bodies_of_many_numbers_are_worked_on_one_at_a_time(models: Path) -> None:
    """Row 8: a body of int8 is as many numbers, and each takes 200 bytes: without turns 1.4 GB here."""
    body = npy(np.random.default_rng(0).integers(1, 100, (124_000, 8), np.int8))
    request = whole(body, "/dynamics?max_layers=2", NPY)
    with serving(models, default_model="tiny") as server, ExitStack() as kept:
        before = most = server.memory
        callers = [kept.enter_context(connect(server.port)) for _ in range(12)]
        for caller in callers:
            caller.sendall(request)
        with ThreadPoolExecutor(1) as pool:
            statuses = pool.submit(lambda: [read_status(caller) for caller in callers])
            while not statuses.done():
                most = max(most, server.memory)
                time.sleep(0.01)
        assert set(statuses.result()) == {200}
    assert most - before < 850 * MB


@pytest.mark.system
def test_answers_that_nobody_reads_take_no_place() -> None:
    """Row 9: as many connections that do not read as there are places, one after the other is filled."""
    with serving(BUNDLED_MODELS, max_concurrent_requests=4) as small, ExitStack() as kept:
        for _ in range(4):
            caller = kept.enter_context(socket.socket())
            caller.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            caller.connect(("127.0.0.1", small.port))
            caller.sendall(b"GET /openapi.json HTTP/1.1\r\nhost: localhost\r\n\r\n" * 60)
            time.sleep(1)
        with small.client() as client:
            assert [client.get("/").status_code for _ in range(5)] == [200] * 5


@pytest.fixture(scope="module")
def narrow(models: Path) -> Iterator[Server]:
    """One with room for a megabyte, and for two requests."""
    limits = {"payload_limit_mb": 1, "payload_total_mb": 1, "max_concurrent_requests": 2}
    with serving(models, default_model="tiny", **limits) as server:
        yield server


@pytest.mark.system
def test_body_that_is_announced_and_not_sent_takes_no_room_and_no_place(narrow: Server) -> None:
    with narrow.client() as client, ExitStack() as silent:
        for _ in range(8):
            silent.enter_context(connect(narrow.port)).sendall(announce(MB) + b"{")
        time.sleep(0.5)
        assert gauge(client, "hardmax_requests_in_flight") == 0
        assert client.post("/classify", json={"input": "superb"}).status_code == 200


def test_room_for_a_body_is_given_back_when_its_caller_leaves(narrow: Server) -> None:
    with narrow.client() as client:
        eventually(lambda: gauge(client, HELD) == 0)
        for begun in (announce(MB) + b" " * 900_000, chunked(b" " * 900_000)[:-5]):
            with connect(narrow.port) as caller:
                caller.sendall(begun)
                eventually(lambda: gauge(client, HELD) > 800_000)
            eventually(lambda: gauge(client, HELD) == 0)


def test_answer_that_has_no_room_is_refused_and_leaves_nothing(models: Path) -> None:
    points = np.random.default_rng(0).normal(size=(2000, 2)).tolist()
    whole_way = {"points": points, "stop": "never", "max_layers": 60, "include": ["trajectory"]}  # 5 MB
    limits = {"payload_limit_mb": 2, "payload_total_mb": 2}
    with in_process(models, **limits) as client:
        refused = client.post("/dynamics", json=whole_way)
        assert (refused.status_code, refused.json()["error"]["type"]) == (413, "too_large")
        assert "PAYLOAD_TOTAL_MB" in refused.json()["error"]["message"]
        lines = client.post("/dynamics", json=whole_way, headers={"accept": "application/x-ndjson"}).text
        assert json.loads(lines.splitlines()[-1])["error"]["type"] == "too_large"
        eventually(lambda: gauge(client, HELD) == 0)
        short = client.post("/dynamics", json={**whole_way, "trajectory_every": 20})
        assert short.json()["trajectory"]["layers"] == [0, 20, 40, 60]
        eventually(lambda: gauge(client, HELD) == 0)


TENSOR = {"name": "text", "datatype": "BYTES", "shape": [1], "data": ["superb"]}
ROOMLESS = {
    "/classify": ({"input": ["superb film"] * 12, "explain": "full"}, {"explain": "none"}),
    "/control": ({"points": np.eye(40).tolist(), "leaders": [0]}, {"points": [[1, 2], [0, 1]]}),
    "/sequences/classify": ({"model": "scenes", "sequences": [[[1, 2]]] * 900}, {"sequences": [[[1, 2]]]}),
    "/v1/classify": ({"input": ["superb film"] * 12}, {"input": "superb film"}),
    "/predict": ({"inputs": ["superb film"] * 60}, {"inputs": "superb film"}),
    "/": ({"inputs": ["superb film"] * 60}, {"inputs": "superb film"}),
    "/models/tiny": ({"inputs": ["superb film"] * 60}, {"inputs": "superb film"}),
    "/v2/models/tiny/infer": (
        {"inputs": [TENSOR | {"shape": [60], "data": ["superb"] * 60}]},
        {"inputs": [TENSOR]},
    ),
}


@pytest.fixture(scope="module")
def roomless(models: Path) -> Iterator[TestClient]:
    with in_process(models, payload_limit_mb=0.02, payload_total_mb=0.02) as client:
        yield client


@pytest.mark.parametrize("path", ROOMLESS)
def test_answers_of_every_route_count_like_bodies(roomless: TestClient, path: str) -> None:
    large, small = ROOMLESS[path]
    refused = roomless.post(path, json=large)
    assert refused.status_code == 413
    assert "its answer would be over 0.02 MB (PAYLOAD_TOTAL_MB)" in refused.text
    assert roomless.post(path, json=large | small).status_code == 200
    eventually(lambda: gauge(roomless, HELD) == 0)


def test_answer_that_is_there_is_sent_when_no_room_is_left(roomless: TestClient) -> None:
    budget = roomless.app.state.service.budget  # type: ignore[attr-defined]
    large, small = Reservation(budget), Reservation(budget)
    large.expect(20_000)
    small.expect(2500)  # all that is kept for small requests
    try:
        assert roomless.get("/nowhere").status_code == 404
        assert roomless.get("/v1/models").status_code == 200
        refused = roomless.post("/classify", json={"input": "superb"})
        assert (refused.status_code, refused.json()["error"]["type"]) == (429, "overloaded")
    finally:
        large.end()
        small.end()


LONG = b"a" * 1_900_000
ROWS = b"[1.5,2.5]," * 150_000
DEEP = b"[" * 900_000 + b"]" * 900_000
NAMES = b",".join(b'"n%d":0' % number for number in range(120_000))


def cloud(points: bytes) -> bytes:
    return whole(b'{"points": ' + points + b"}", "/dynamics")


HOSTILE = {  # of two megabytes each, which is all that the server takes
    "announces too much": (announce(60 * MB), 413),
    "sends too much": (whole(b" " * 3 * MB), 413),
    "sends too much in chunks": (chunked(b" " * 3 * MB), 413),
    "no JSON": (whole(b"\0" + LONG), 400),
    "a text without end": (whole(b'{"input": "' + LONG), 400),
    "more after the end": (whole(b'{"input": "a"}' + LONG), 400),
    "deep arrays": (whole(b'{"input": ' + DEEP + b"}"), 400),
    "deep objects": (whole(b'{"a":' * 300_000 + b"1" + b"}" * 300_000), 400),
    "lone surrogate": (whole(b'{"input": "' + LONG + b'\\ud800"}'), 400),
    "no UTF-8": (whole(b'{"input": "' + LONG + b'\xff"}'), 400),
    "UTF-16": (whole(('{"input": "' + "a" * 900_000 + '"}').encode("utf-16")), 400),
    "an endless number": (whole(b'{"input": ' + b"9" * 1_900_000 + b"}"), 400),
    "numbers for texts": (whole(b'{"input": [' + b"1," * 900_000 + b"1]}"), 422),
    "too many texts": (whole(b'{"input": [' + b'"a",' * 400_000 + b'"a"]}'), 413),
    "too long a text": (whole(b'{"input": "' + LONG + b'"}'), 413),
    "unknown names": (whole(b"{" + NAMES + b"}"), 422),
    "NaN after many rows": (cloud(b"[" + ROWS + b"[1,NaN]]"), 422),
    "1e400 after many rows": (cloud(b"[" + ROWS + b"[1,1e400]]"), 422),
    "a short row after many": (cloud(b"[" + ROWS + b"[1]]"), 422),
    "a broken row after many": (cloud(b"[" + ROWS + b"[1,]]"), 400),
    "points in deep arrays": (cloud(DEEP), 400),
    "points twice": (cloud(b"[" + ROWS + b'[1,2]], "points": [[1,2,3],4]'), 422),
    "points that are a text": (cloud(b'"' + LONG + b'"'), 422),
    "an npy header that lies": (whole(b"\x93NUMPY\x01\x00\xff\xff" + LONG, "/dynamics", NPY), 400),
    "a wish that is a text": (whole(b'{"leaders": "' + LONG + b'"}', "/control"), 422),
}


@pytest.fixture(scope="module")
def server(models: Path) -> Iterator[Server]:
    limits = {"payload_limit_mb": 2, "request_timeout_s": 1, "max_concurrent_requests": 1000}
    with serving(models, default_model="tiny", log_level="error", **limits) as server:
        yield server


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_body_is_refused_in_the_one_shape(server: Server, name: str) -> None:
    request, status = HOSTILE[name]
    assert status_of(server.port, request) == status


def attack(server: Server) -> None:
    """Everything hostile, and bodies that never end: 170 MB."""
    for request, _ in HOSTILE.values():
        status_of(server.port, request)
    slow = [connect(server.port) for _ in range(60)]
    for caller in slow:
        caller.sendall(announce(2 * MB) + LONG)
    assert {read_status(caller) for caller in slow} == {504}
    for caller in slow:
        caller.close()


@pytest.mark.system
def test_hostile_bodies_leave_no_trace_in_memory(server: Server) -> None:
    """After the first attacks, which start threads and their heaps, one more leaves nothing: not one body."""
    process = psutil.Process(server.process.pid)
    with server.client() as client:
        assert client.post("/classify", json={"input": "superb"}).status_code == 200
        files = process.num_fds()

        def attack_leaves() -> tuple[int, int]:
            memory, threads = server.memory, process.num_threads()
            attack(server)
            eventually(lambda: gauge(client, HELD) == 0)
            time.sleep(GIVEN_BACK_S)
            return server.memory - memory, process.num_threads() - threads

        attacks = (attack_leaves() for _ in range(12))
        assert any(memory < MB and threads <= 0 for memory, threads in attacks), "it grows with every attack"
        eventually(lambda: process.num_fds() <= files)
        eventually(lambda: gauge(client, "hardmax_requests_in_flight") == 0)
        assert client.post("/classify", json={"input": "superb"}).json()["data"][0]["label"] == "positive"
