"""The express lane gives the answers of the ordinary way; what is unusual, or refused, goes that way."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bundles import write_sentiment
from server import Server, eventually, serving
from wire import announce, connect, is_express, read_answer, whole

from benchmarks.load import is_complete
from tests.fuzz.conversations import SETTINGS, conversations, play, same, taken

ASIDE = b"content-type: application/json; charset=utf-8"  # what the lane does not take


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    models = tmp_path_factory.mktemp("models")
    write_sentiment(models)
    with serving(models, default_model="tiny", log_level="error") as server:
        yield server


def ask(server: Server, body: dict[str, Any], *, aside: bool = False) -> tuple[bytes, bytes]:
    """Head and body of the answer to one request, with a fixed id."""
    request = whole(json.dumps(body).encode()).replace(b"host:", b"x-request-id: me\r\nhost:", 1)
    if aside:
        request = request.replace(b"content-type: application/json", ASIDE)
    with connect(server.port) as caller:
        caller.sendall(request)
        return read_answer(caller)


@pytest.mark.parametrize(
    ("body", "taken"),
    [
        ({"input": "the superb film"}, True),
        ({"input": ["superb", "not good, superb!", "unheard of"]}, True),
        ({"input": "good", "explain": "none"}, True),
        ({"input": "good", "explain": "leaders", "model": "tiny", "truncate": False}, True),
        ({"input": "good", "explain": "full"}, False),
        ({"input": "word " * 200}, False),
        ({"input": ""}, False),
        ({"input": []}, False),
        ({"input": "good", "model": "missing"}, False),
        ({"input": "good", "trajectory": True}, False),
        ({"input": "good", "misspelt": 1}, False),
        ({"input": ["good", 3]}, False),
    ],
    ids=lambda value: json.dumps(value)[:60],
)
def test_both_ways_say_the_same_to_the_bit(server: Server, body: dict[str, Any], taken: bool) -> None:
    lane, answer = ask(server, body)
    ordinary, answer_there = ask(server, body, aside=True)
    assert (is_express(lane), is_express(ordinary)) == (taken, False)
    assert answer == answer_there

    def lines(head: bytes) -> list[bytes]:
        return sorted(line for line in head.split(b"\r\n") if not line.startswith(b"date:"))

    assert lines(lane) == lines(ordinary)


@pytest.mark.parametrize("settings", SETTINGS)
def test_lane_answers_odd_requests_as_the_ordinary_way(tmp_path: Path, settings: str) -> None:
    write_sentiment(tmp_path)
    given = {"default_model": "tiny", "log_level": "error", **SETTINGS[settings]}
    with serving(tmp_path, **given) as lane, serving(tmp_path, express_lane=False, **given) as ordinary:
        express, statuses = 0, set()
        for pieces in conversations(0, 150):
            said, said_there = play(lane.port, pieces), play(ordinary.port, pieces)
            assert same(said, said_there), (pieces, said, said_there)
            express += taken(said)
            statuses |= set(re.findall(rb"HTTP/1.1 (\d+)", said))
        assert express > 5
        assert statuses > {b"200", b"400", b"415"}
        assert "Traceback" not in lane.output + ordinary.output


def test_lane_takes_room_and_reads_the_first_of_two_types(tmp_path: Path) -> None:
    write_sentiment(tmp_path)
    request = whole(b'{"input": "superb"}')
    typed_twice = request.replace(b"content-type", b"content-type: text/plain\r\ncontent-type", 1)
    with (
        serving(tmp_path, default_model="tiny", payload_limit_mb=0.0001, payload_total_mb=0.0055) as server,
        connect(server.port) as caller,
    ):
        for sent, status in (
            (request, 200),
            (typed_twice, 415),
            (whole(b'{"input": "%b"}' % (b"superb " * 20)), 413),
            (whole(b'{"input": ["superb", "good"]}'), 413),  # two answers, and room for one
        ):
            caller.sendall(sent)
            assert int(read_answer(caller)[0][9:12]) == status, sent


def test_lane_is_off_by_its_setting(tmp_path: Path) -> None:
    write_sentiment(tmp_path)
    with serving(tmp_path, default_model="tiny", express_lane=False) as server:
        head, _ = ask(server, {"input": "superb"})
    assert head.startswith(b"HTTP/1.1 200 ")
    assert not is_express(head)


def test_lane_asks_for_the_key(tmp_path: Path) -> None:
    write_sentiment(tmp_path)
    with serving(tmp_path, default_model="tiny", api_keys="secret") as server, server.client() as client:
        body = {"input": "superb"}
        keys = ({}, {"x-api-key": "wrong"}, {"x-api-key": "secret"}, {"authorization": "Bearer secret"})
        statuses = [client.post("/classify", json=body, headers=headers).status_code for headers in keys]
    assert statuses == [401, 401, 200, 200]


def test_lane_counts_and_logs_as_the_ordinary_way(tmp_path: Path) -> None:
    write_sentiment(tmp_path)
    with serving(tmp_path, default_model="tiny") as server, server.client() as client:
        for aside in (False, True):
            ask(server, {"input": "superb"}, aside=aside)
        counted = client.get("/metrics").text
        assert re.search(r'requests_total\{method="POST",route="/classify",status="200"\} 2.0', counted)
        assert "hardmax_batch_size_sum 2.0" in counted
        eventually(lambda: len(re.findall(r"POST /classify 200 \S+ ms me", server.output)) == 2)
        eventually(lambda: "hardmax_requests_in_flight 0" in client.get("/metrics").text)


def test_lane_answers_pipelined_requests_in_their_order(server: Server) -> None:
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


def test_request_in_pieces_is_answered(server: Server) -> None:
    request = whole(b'{"input": "superb"}')
    with connect(server.port) as caller:
        caller.sendall(request[:-9])
        caller.settimeout(0.2)
        with pytest.raises(TimeoutError):
            caller.recv(1)
        caller.settimeout(20)
        caller.sendall(request[-9:])
        assert json.loads(read_answer(caller)[1])["data"][0]["label"] == "positive"
        caller.sendall(request)  # and the connection goes on
        assert is_express(read_answer(caller)[0])


def test_caller_who_leaves_before_the_body_is_counted_as_cancelled(server: Server) -> None:
    def left() -> float:
        line = r'^hardmax_requests_total\{method="POST",route="/classify",status="(?:0|499)"\} (\S+)$'
        return sum(float(n) for n in re.findall(line, client.get("/metrics").text, re.MULTILINE))

    with server.client() as client:
        before = left()
        with connect(server.port) as caller:
            caller.sendall(announce(100))
        eventually(lambda: left() == before + 1)
