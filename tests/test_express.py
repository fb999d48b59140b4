"""The express lane answers as the gate does, only sooner; what is unusual, or fails, goes to the gate."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from bundles import write_sentiment
from server import Server, eventually, serving
from wire import announce, connect, is_express, read_answer, whole

from benchmarks.load import is_complete
from service.api.express import RUN_TOKENS, Express
from service.api.inflight import Capacity, InFlight
from service.api.keys import Keys
from service.errors import NotFound
from service.logs import AccessLog
from service.metrics import Metrics
from service.settings import Settings

GATE = b"origin: http://elsewhere"  # what the lane does not take


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    models = tmp_path_factory.mktemp("models")
    write_sentiment(models)
    with serving(models, default_model="tiny", log_level="error") as server:
        yield server


def ask(server: Server, body: dict[str, Any], *headers: bytes) -> tuple[bytes, dict[bytes, bytes], Any]:
    """In one piece, as the lane wants it: head, headers and document of the answer, without the id."""
    request = whole(json.dumps(body).encode()).replace(b"host: x", b"\r\n".join((b"host: x", *headers)))
    with connect(server.port) as caller:
        caller.sendall(request)
        head, answer = read_answer(caller)
    named = dict(line.split(b": ", 1) for line in head.split(b"\r\n")[1:])
    document = json.loads(answer)
    request_id = document.get("id") or document["error"].pop("request_id")
    assert named.pop(b"x-request-id") == request_id.encode()
    document.pop("id", None)
    return head, named, document


@pytest.mark.parametrize(
    ("body", "taken"),
    [
        ({"input": "the superb film"}, True),
        ({"input": ["superb", "not good, superb!", "unheard of"]}, True),
        ({"input": "good", "explain": "none"}, True),
        ({"input": "good", "explain": "leaders", "model": "tiny", "truncate": False}, True),
        ({"input": "good", "explain": "full"}, False),
        ({"input": ""}, False),
        ({"input": []}, False),
        ({"input": "good", "model": "missing"}, False),
        ({"input": "good", "trajectory": True}, False),
        ({"input": "good", "misspelt": 1}, False),
        ({"input": ["good", 3]}, False),
    ],
    ids=lambda value: json.dumps(value),
)
def test_express_and_gate_say_the_same(server: Server, body: dict[str, Any], taken: bool) -> None:
    lane, named, document = ask(server, body)
    gate, named_there, document_there = ask(server, body, GATE)
    assert (is_express(lane), is_express(gate)) == (taken, False)
    assert lane.split(b"\r\n")[0] == gate.split(b"\r\n")[0]
    assert document == document_there
    assert set(named) == set(named_there)
    assert {**named, b"date": b""} == {**named_there, b"date": b""}


def test_express_lane_is_taken_by_short_texts(server: Server) -> None:
    with connect(server.port) as caller:
        caller.sendall(whole(b'{"input": "superb"}'))
        assert is_express(read_answer(caller)[0])
        caller.sendall(whole(b'{"input": "superb", "explain": "full"}'))
        assert not is_express(read_answer(caller)[0])


def test_express_keeps_a_sane_request_id_and_replaces_others(server: Server) -> None:
    with server.client() as client:
        named = client.post("/classify", json={"input": "good"}, headers={"x-request-id": "order-66"})
        odd = client.post("/classify", json={"input": "good"}, headers={"x-request-id": "no spaces"})
    assert (named.json()["id"], named.headers["x-request-id"]) == ("order-66", "order-66")
    assert len(odd.json()["id"]) == 24


def test_express_answers_pipelined_requests_in_their_order(server: Server) -> None:
    texts = ["superb", "good", "the film", "superb film"]
    with connect(server.port) as caller:
        caller.sendall(b"".join(whole(json.dumps({"input": [text]}).encode()) for text in texts))
        received = b""
        while received.count(b"HTTP/1.1 200 OK") < len(texts) or not is_complete(
            received[received.rindex(b"HTTP/1.1") :]
        ):
            received += caller.recv(65536)
    answers = [json.loads(part.partition(b"\r\n\r\n")[2]) for part in received.split(b"HTTP/1.1 200 OK")[1:]]
    with server.client() as client:
        wanted = [client.post("/classify", json={"input": text}).json()["data"] for text in texts]
    assert [answer["data"] for answer in answers] == wanted


def test_express_waits_a_moment_for_the_body(server: Server) -> None:
    """As most clients in Python send: the head, then the body."""
    head, _, body = whole(b'{"input": "superb"}').partition(b"\r\n\r\n")
    taken = 0
    with connect(server.port) as caller:
        caller.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(20):
            caller.sendall(head + b"\r\n\r\n")
            time.sleep(0.0005)
            caller.sendall(body)
            taken += is_express(read_answer(caller)[0])
    assert taken > 0  # all, where the machine is not late


def test_caller_who_leaves_before_the_body_is_taken_note_of(server: Server) -> None:
    def left() -> float:
        text = client.get("/metrics").text
        line = r'^hardmax_requests_total{method="POST",route="/classify",status="499"} (\S+)$'
        return float((re.findall(line, text, re.MULTILINE) or [0])[0])

    with server.client() as client:
        before = left()
        with connect(server.port) as caller:
            caller.sendall(announce(100))
        eventually(lambda: left() == before + 1)


def test_request_in_pieces_is_answered_by_the_gate(server: Server) -> None:
    request = whole(b'{"input": "superb"}')
    with connect(server.port) as caller:
        caller.sendall(request[:-9])
        caller.settimeout(0.2)
        with pytest.raises(TimeoutError):
            caller.recv(1)
        caller.settimeout(20)
        caller.sendall(request[-9:])
        head, answer = read_answer(caller)
        assert not is_express(head)
        data = json.loads(answer)["data"]
        assert data[0]["label"] == "positive"
        caller.sendall(request)  # and the connection goes on
        assert json.loads(read_answer(caller)[1])["data"] == data


def test_express_closes_the_connection_when_asked_to(server: Server) -> None:
    request = whole(b'{"input": "superb"}').replace(b"host: x", b"host: x\r\nconnection: close")
    with connect(server.port) as caller:
        caller.sendall(request)
        head, _ = read_answer(caller)
        assert b"\r\nconnection: close" in head
        assert caller.recv(1) == b""


def test_express_asks_for_the_key(tmp_path: Path) -> None:
    write_sentiment(tmp_path)
    with serving(tmp_path, default_model="tiny", api_keys="secret") as server, server.client() as client:
        body = {"input": "superb"}
        statuses = [
            client.post("/classify", json=body, headers=headers).status_code
            for headers in ({}, {"x-api-key": "wrong"}, {"x-api-key": "secret"})
        ]
    assert statuses == [401, 401, 200]


class Words:
    """A model that counts its runs, and fails when a text says so."""

    max_length = 1000

    def __init__(self) -> None:
        self.runs: list[list[str]] = []

    def tokenise_many(self, texts: Sequence[str]) -> list[SimpleNamespace]:
        self.runs.append(list(texts))
        if "unlucky" in texts:
            raise ValueError("unlucky")
        return [SimpleNamespace(length=1, truncated=text == "long") for text in texts]

    def classify(self, batch: Sequence[Any], explain: str, *, trajectory: bool) -> list[dict[str, Any]]:
        return [{"label": explain, "tokens": 1} for _ in batch]


class Models:
    """One model, whatever its name but one."""

    def __init__(self, model: Words) -> None:
        self._model = model

    def find(self, name: str, kind: str) -> Words:
        if name == "missing":
            raise NotFound("there is no such model")
        return self._model


class Caller:
    """What became of a request."""

    def __init__(self, *, stays: bool = True) -> None:
        self.stays = stays
        self.answered: dict[str, Any] | None = None
        self.handed_over = False

    def answer(self, request_id: bytes, body: bytes) -> bool:
        self.answered = json.loads(body)
        assert self.answered["id"] == request_id.decode()
        return self.stays

    def hand_over(self) -> None:
        self.handed_over = True


class Lane:
    """An express lane with its surroundings."""

    def __init__(self, *, places: int = 1000, is_open: bool = True) -> None:
        self.model = Words()
        self.metrics = Metrics()
        self.inflight = InFlight(Capacity(places, 10**6, 10**6))
        self.express = Express(
            Models(self.model),  # type: ignore[arg-type]
            Settings(),
            Keys("", None),
            self.inflight,
            self.metrics,
            AccessLog(None, "text"),
            lambda: is_open,
        )

    def offer(self, caller: Caller, **body: Any) -> bool:
        headers = {b"content-type": b"application/json"}
        return self.express.offer(headers, json.dumps(body).encode(), caller)

    async def settle(self) -> None:
        while len(self.express):
            await asyncio.sleep(0)


def test_express_runs_what_one_round_brings_together() -> None:
    async def work() -> None:
        lane = Lane()
        callers = [Caller() for _ in range(6)]
        for n, caller in enumerate(callers):
            assert lane.offer(caller, input=f"text {n}", explain="none" if n % 3 else "leaders")
        await lane.settle()
        assert lane.model.runs == [["text 0", "text 3"], ["text 1", "text 2", "text 4", "text 5"]]
        labels = [caller.answered["data"][0]["label"] for caller in callers if caller.answered]
        assert labels == ["leaders", "none", "none"] * 2
        counted = lane.metrics.render()
        assert b'hardmax_requests_total{method="POST",route="/classify",status="200"} 6.0' in counted
        assert b'hardmax_stage_duration_seconds_count{stage="tokenise"} 2.0' in counted

    asyncio.run(work())


def test_express_bounds_the_tokens_of_a_run() -> None:
    async def work() -> None:
        lane = Lane()
        text = "word " * 70  # some 117 tokens
        for _ in range(50):
            assert lane.offer(Caller(), input=text)
        await lane.settle()
        assert [len(run) for run in lane.model.runs] == [RUN_TOKENS // 117, RUN_TOKENS // 117, 16]

    asyncio.run(work())


def test_express_hands_over_a_run_that_fails_and_a_text_that_may_not_be_cut() -> None:
    async def work() -> None:
        lane = Lane()
        unlucky, neighbour, long = Caller(), Caller(), Caller()
        assert lane.offer(unlucky, input="unlucky")
        assert lane.offer(neighbour, input="lucky")
        assert lane.offer(long, input="long", truncate=False)
        await lane.settle()
        assert [caller.handed_over for caller in (unlucky, neighbour, long)] == [True, True, True]
        assert [caller.answered for caller in (unlucky, neighbour, long)] == [None, None, None]

    asyncio.run(work())


def test_express_counts_who_left_as_cancelled() -> None:
    async def work() -> None:
        lane = Lane()
        assert lane.offer(Caller(stays=False), input="text")
        await lane.settle()
        counted = lane.metrics.render()
        assert b'hardmax_failures_total{reason="cancelled"} 1.0' in counted
        assert b'route="/classify",status="499"} 1.0' in counted

    asyncio.run(work())


def test_express_declines_what_is_not_for_it() -> None:
    async def work() -> None:
        lane = Lane()
        assert not lane.offer(Caller(), input="text", explain="full")
        assert not lane.offer(Caller(), input="text", model="missing")
        assert not lane.offer(Caller(), input="word " * 100)
        assert not lane.offer(Caller(), input=[])
        plain = b'{"input": "text"}'
        for header in (b"origin", b"content-encoding", b"expect", b"traceparent"):
            assert not lane.express.offer({header: b"x"}, plain, Caller())
        assert not lane.express.offer({b"content-type": b"text/plain"}, plain, Caller())
        assert not lane.express.offer({}, plain + b" " * 5000, Caller())
        assert not Lane(is_open=False).offer(Caller(), input="text")
        lane.inflight.draining = True
        assert not lane.offer(Caller(), input="text")
        assert len(lane.express) == 0

    asyncio.run(work())


def test_express_declines_when_there_is_no_place() -> None:
    async def work() -> None:
        lane = Lane(places=2)
        assert [lane.offer(Caller(), input="text") for _ in range(3)] == [True, True, False]
        await lane.settle()
        assert lane.offer(Caller(), input="text")
        await lane.settle()

    asyncio.run(work())
