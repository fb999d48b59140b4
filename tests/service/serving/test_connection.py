"""What a stranger may do with a connection: send too much, too slowly, out of turn, or not read."""

import asyncio
import json
import re
import resource
import socket
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import impatient
import psutil
import pytest
import uvicorn
from server import Server, eventually, python, serving
from wire import (
    announce,
    chunked,
    connect,
    exchange,
    find_fault,
    read_all,
    read_answer,
    read_status,
    status_of,
    whole,
)  # fmt: skip

from service.errors import ConfigurationError
from service.serving.connection import LARGEST_HEADS, UVICORN, Connection, State, check_uvicorn

QUESTION = b'{"input": "superb"}'
GET = b"GET /health HTTP/1.1\r\nhost: 127.0.0.1\r\n"
CHUNKED = chunked(QUESTION)
BROKEN = CHUNKED.replace(b"\r\n0\r\n", b"\r\nno size\r\n")


@pytest.fixture(scope="module")
def server(models: Path) -> Iterator[Server]:
    """One whose patience is short: 1 s for a head, 1 s to look at a body, 3 s for a reader."""
    options = {"default_model": "tiny", "payload_limit_mb": 0.4}
    with serving(models, command=(impatient.__file__,), **options) as server:
        yield server


def refused(answer: bytes, status: int, kind: str) -> str:
    """The sentence of a refusal in the one shape, after which the connection is closed."""
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status), answer[:300]
    assert b"\r\nconnection: close" in head
    error = json.loads(body)["error"]
    assert error["type"] == kind
    assert find_fault(200, head, body) in (None, "200 is called " + kind)
    return str(error["message"])


def assert_lives(server: Server) -> None:
    assert status_of(server.port, GET + b"\r\n") == 200


@pytest.mark.system
@pytest.mark.parametrize(
    "head",
    [
        GET + b"x: " + b"a" * 105_000_000 + b"\r\n\r\n",
        b"GET /" + b"a" * 105_000_000 + b" HTTP/1.1\r\nhost: localhost\r\n\r\n",
        GET + b"".join(b"x%d: y\r\n" % n for n in range(500_000)) + b"\r\n",
        GET + b"".join(b"x%d: y\r\n" % n for n in range(101)) + b"\r\n",
    ],
    ids=["one header", "target", "many headers", "101 headers"],
)
def test_head_over_its_bounds_is_refused_431_in_little_memory(server: Server, head: bytes) -> None:
    before, worked_s = server.memory, server.cpu_s
    with connect(server.port) as connection:
        answer = b""
        try:
            connection.sendall(head)
            answer = read_all(connection)
        except ConnectionError:  # it stopped reading a while ago
            pass
    if len(head) < 1_000_000:
        refused(answer, 431, "too_large")
    assert server.cpu_s - worked_s < 2  # it was 8
    assert server.memory - before < 20e6
    assert_lives(server)


def test_head_over_its_bounds_is_told_to_a_caller_who_listens(server: Server) -> None:
    sentence = refused(exchange(server.port, GET, b"x: " + b"a" * 100_000), 431, "too_large")
    assert sentence == "the head of the request is over 65536 bytes"
    assert (
        exchange(server.port, GET + b"x: " + b"a" * 60_000 + b"\r\nconnection: close\r\n\r\n")[9:12] == b"200"
    )


def counts(server: Server) -> Counter[str]:
    """Requests by status and failures by reason, so far."""
    with server.client() as client:
        page = client.get("/metrics").text
    found: Counter[str] = Counter()
    for name, count in re.findall(r'^hardmax_(?:requests|failures)_total{.*"(\S+)"} (\S+)$', page, re.M):
        found[name] += int(float(count))
    return found


def test_refusals_of_the_protocol_are_counted_and_logged(server: Server) -> None:
    before = counts(server)
    long = exchange(server.port, GET, b"x: " + b"a" * 100_000)
    refused(exchange(server.port, b"NONSENSE\r\n\r\n"), 400, "malformed_input")
    with connect(server.port) as slow:
        slow.sendall(b"GET /health HT")
        read_all(slow)
    name = json.loads(long.partition(b"\r\n\r\n")[2])["error"]["request_id"]
    eventually(lambda: re.search(rf"\(none\) \(none\) 431 \S+ ms {name}", server.output) is not None)
    told = counts(server) - before
    assert [told[name] for name in ("400", "408", "431", "too_large", "deadline_exceeded")] == [1] * 5


def with_trailers(*trailers: bytes) -> bytes:
    return CHUNKED.removesuffix(b"\r\n") + b"".join(trailers) + b"\r\n"


def test_trailers_are_counted_and_are_never_headers(server: Server) -> None:
    flood = [b"x%d: %b\r\n" % (n, b"y" * 60) for n in range(5_000)]
    refused(exchange(server.port, with_trailers(*flood)), 431, "too_large")
    refused(exchange(server.port, with_trailers(b"x: " + b"y" * 200_000 + b"\r\n")), 431, "too_large")
    with connect(server.port) as connection:
        trailers = (b"x-request-id: from-a-trailer\r\n", b"content-type: text/plain\r\n")
        connection.sendall(with_trailers(*trailers))
        answer = connection.recv(65536)
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert b"from-a-trailer" not in answer


def test_chunk_extensions_count_like_a_head(server: Server) -> None:
    extended = CHUNKED.replace(b"\r\n\r\n", b"\r\n\r\n5;" + b"x" * 300_000, 1)
    refused(exchange(server.port, extended), 431, "too_large")


def test_head_that_does_not_come_is_given_up(server: Server) -> None:
    began = time.monotonic()
    with connect(server.port) as silent, connect(server.port) as slow, connect(server.port) as blank:
        slow.sendall(b"GET /health HT")
        blank.sendall(b"\r\n")
        assert read_all(slow).startswith(b"HTTP/1.1 408 ")
        assert read_all(blank).startswith(b"HTTP/1.1 408 ")
        assert silent.recv(1) == b""
    assert time.monotonic() - began > 0.5


@pytest.mark.alone
def test_body_that_hardly_moves_is_given_up(server: Server) -> None:
    with connect(server.port) as slow, connect(server.port) as steady:
        slow.sendall(announce(1000))
        steady.sendall(announce(300_000 + len(QUESTION)))
        for _ in range(30):
            slow.sendall(b" ")
            steady.sendall(b" " * 10_000)
            time.sleep(0.1)
        steady.sendall(QUESTION)
        assert steady.recv(65536).startswith(b"HTTP/1.1 200 ")
        assert "under 1000 bytes a second" in refused(read_all(slow), 408, "deadline_exceeded")


def test_pipelined_requests_are_all_answered_in_order(server: Server) -> None:
    with connect(server.port) as connection:
        for number in range(200):
            connection.sendall(GET + b"x-request-id: n%d\r\n\r\n" % number)
        answer = b""
        while answer.count(b"x-request-id: n") < 200:
            piece = connection.recv(65536)
            assert piece
            answer += piece
    order = [int(line[15:]) for line in answer.split(b"\r\n") if line.startswith(b"x-request-id: n")]
    assert order == list(range(200))


@pytest.mark.system
def test_callers_who_pipeline_and_do_not_read_hold_little_and_are_dropped(server: Server) -> None:
    """Thirty connections that did once held a gigabyte, for ever."""
    request = b"GET /docs HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"
    before = server.memory
    callers = [socket.socket() for _ in range(8)]
    for caller in callers:
        caller.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)  # soon full
        caller.connect(("127.0.0.1", server.port))
        caller.setblocking(False)
        try:
            while caller.send(request * 1000):
                pass
        except BlockingIOError:
            continue
    time.sleep(1)
    assert server.memory - before < 60e6
    assert_lives(server)
    process = psutil.Process(server.process.pid)
    eventually(lambda: sum(each.status == "ESTABLISHED" for each in process.net_connections()) == 0)
    for caller in callers:
        caller.close()


@pytest.mark.parametrize("offer", ["h2c", "websocket", "TLS/1.0"])
def test_offer_of_another_protocol_is_ignored(server: Server, offer: str) -> None:
    fields = b"connection: Upgrade, HTTP2-Settings\r\nupgrade: %b\r\nhttp2-settings: AAMAAABkAAQ\r\n"
    offered = whole(QUESTION).replace(b"\r\n", b"\r\n" + fields % offer.encode(), 1)
    with connect(server.port) as connection:
        for _ in range(2):  # and the connection goes on
            connection.sendall(offered)
            head, body = read_answer(connection)
            assert head.startswith(b"HTTP/1.1 200 ")
            assert json.loads(body)["data"][0]["label"] == "positive"
        connection.sendall(GET + fields % offer.encode() + b"\r\n")
        assert read_status(connection) == 200


def test_request_followed_by_garbage_is_answered_then_the_connection_closes(server: Server) -> None:
    answer = exchange(server.port, whole(QUESTION) + b"\x00\x01 this is not HTTP\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert answer.count(b"HTTP/1.1") == 1
    assert b"connection: close" in answer
    assert b"positive" in answer


def test_requests_before_a_broken_one_are_answered_then_the_connection_closes(server: Server) -> None:
    """All come at once, so the broken one is read while the first is worked on."""
    answer = exchange(server.port, whole(QUESTION) * 3 + BROKEN)
    assert re.findall(rb"HTTP/1.1 (\d+)", answer) == [b"200"] * 3
    assert answer.count(b"connection: close") == 1


@pytest.mark.parametrize("expects", [b"", b"expect: 100-continue\r\n"])
def test_request_whose_body_is_no_http_has_one_answer(server: Server, expects: bytes) -> None:
    broken = BROKEN.replace(b"\r\n", b"\r\n" + expects, 1)
    for request in (broken, broken.replace(b"application/json", b"text/plain")):
        before = counts(server)
        answer = exchange(server.port, request)
        assert refused(answer, 400, "malformed_input") == "the request is not HTTP"
        told = counts(server) - before
        assert (told["400"], told["malformed_input"]) == (1, 1)
        name = json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["request_id"]
        eventually(lambda name=name: f" ms {name}" in server.output)  # type: ignore[misc]
        assert server.output.count(name) == 1, "a line in the log for each request"
    assert "Traceback" not in server.output


@pytest.mark.parametrize(
    "fields",
    [
        b"transfer-encoding: gzip, chunked",
        b"transfer-encoding: chunked, chunked",
        b"transfer-encoding: chunked\r\ntransfer-encoding: chunked",
        b"transfer-encoding: gzip\r\ntransfer-encoding: chunked",
        b"transfer-encoding: identity, chunked",
        b"transfer-encoding: identity",
        b"transfer-encoding: chunked, gzip",
        b"transfer-encoding: ,chunked",
        b"transfer-encoding: xchunked",
        b"transfer-encoding:",
        b"transfer-encoding: chunked\r\ncontent-length: 5",
        b"content-length: 5\r\ntransfer-encoding: chunked",
        b"content-length: 19\r\ntransfer-encoding: identity",
    ],
)
def test_framing_that_a_proxy_may_read_in_another_way_is_refused(server: Server, fields: bytes) -> None:
    request = CHUNKED.replace(b"transfer-encoding: chunked", fields)
    refused(exchange(server.port, request), 400, "malformed_input")


def test_chunks_are_what_http_1_1_has_by_any_case_of_their_name(server: Server) -> None:
    refused(exchange(server.port, CHUNKED.replace(b"HTTP/1.1", b"HTTP/1.0")), 400, "malformed_input")
    assert status_of(server.port, CHUNKED.replace(b": chunked", b": Chunked")) == 200


@pytest.mark.parametrize(
    "target", [b"http://evil.example/health", b"http://x@localhost/health", b"HTTPS://evil.example?/health"]
)
def test_target_that_names_another_host_than_the_header_is_refused(server: Server, target: bytes) -> None:
    request = b"GET %b HTTP/1.1\r\nhost: localhost\r\n\r\n"
    refused(exchange(server.port, request % target), 400, "malformed_input")
    assert status_of(server.port, request % b"http://LOCALHOST/health") == 200


@pytest.mark.parametrize("ask", [b"GET / HTTP/2.0", b"GET / HTTP/0.9", b"GET /", b"CONNECT x:443 HTTP/1.1"])
def test_other_versions_of_http_and_tunnels_are_refused(server: Server, ask: bytes) -> None:
    refused(exchange(server.port, ask + b"\r\nhost: localhost\r\n\r\n"), 400, "malformed_input")


def test_caller_who_sends_far_over_the_limit_reads_the_413(server: Server) -> None:
    """urllib closes its connections; it once saw a reset instead of the answer."""
    body = b'{"input": "' + b"x" * 3_000_000 + b'"}'
    request = urllib.request.Request(f"{server.url}/classify", body, {"content-type": "application/json"})
    for _ in range(5):
        with pytest.raises(urllib.error.HTTPError) as failure:
            urllib.request.urlopen(request, timeout=10)
        with failure.value as answer:
            assert answer.status == 413
            assert json.loads(answer.read())["error"]["type"] == "too_large"


def test_caller_who_leaves_makes_no_traceback(server: Server) -> None:
    before = counts(server)["499"]
    for _ in range(20):
        with connect(server.port) as caller:
            caller.sendall(announce(1000) + b"{")
        with connect(server.port) as caller:
            caller.sendall(whole(QUESTION) * 3)
    eventually(lambda: counts(server)["499"] >= before + 20)
    assert "Traceback" not in server.output


@pytest.mark.system
def test_silent_connections_make_room_for_those_who_ask(models: Path, tmp_path: Path) -> None:
    """300 connects that say nothing under a limit of 256 descriptors: the longest silent ones go."""
    script = tmp_path / "limited.py"
    script.write_text(
        "import resource, runpy, sys\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))\n"
        "sys.argv = ['hardmax', 'serve']\n"
        "runpy.run_module('service.cli.main', run_name='__main__')\n"
    )
    with serving(models, command=(str(script),), default_model="tiny") as server:
        silent = [connect(server.port) for _ in range(300)]
        with server.client() as client:
            for _ in range(20):
                assert client.get("/health").status_code == 200
        eventually(lambda: "connections are open, the most there may be" in server.output)
        assert server.output.count("connections are open, the most there may be") == 1
        for each in silent:
            each.close()


class Stranger:
    """What `State` knows of a connection: how long its head has been coming, and how to close it."""

    def __init__(self, since: float) -> None:
        self.since = since
        self.closed = False
        self.transport = self

    def age(self, now: float) -> float:
        return now - self.since

    def abort(self) -> None:
        self.closed = True


def test_half_heads_give_way_to_newcomers_and_have_a_bound_together() -> None:
    """Row 11: when all descriptors were taken by half heads, every ordinary request was cut."""
    state = State(most=3)
    half, young, newcomer = (Stranger(since) for since in (0.0, 9.5, 10.0))
    for head in (half, young):
        state.count_head(head, 60_000)  # type: ignore[arg-type]
    state.make_room(newcomer, 10.0)  # type: ignore[arg-type]
    assert [each.closed for each in (half, young, newcomer)] == [True, False, False]
    silent = Stranger(9.0)
    state.waiting[silent] = None  # type: ignore[index]
    state.make_room(newcomer, 10.0)  # type: ignore[arg-type]
    assert [each.closed for each in (young, silent, newcomer)] == [False, True, False]
    state.count_head(young, 0)  # type: ignore[arg-type]
    state.make_room(newcomer, 10.0)  # type: ignore[arg-type]
    assert newcomer.closed
    many = [Stranger(0.0) for _ in range(600)]
    for each in many:
        state.count_head(each, 60_000)  # type: ignore[arg-type]
    kept = [each for each in many if not each.closed]
    assert many[0].closed
    assert len(kept) * 60_000 <= LARGEST_HEADS < (len(kept) + 1) * 60_000


def test_connection_whose_body_comes_after_its_refusal_is_silent_like_others() -> None:
    """With neither a timer nor a place among those that give way, such connections would fill the server."""

    async def refuse(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 401, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"no"})

    async def ask() -> tuple[int, bytes]:
        config = uvicorn.Config(refuse, lifespan="off", log_config=None, timeout_keep_alive=1)
        config.load()
        state = State(most=3)
        make = partial(Connection, config=config, server_state=state, app_state={})
        server = await asyncio.get_running_loop().create_server(make, "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(announce(2))
        await reader.readuntil(b"no")
        writer.write(b"{}")
        await asyncio.sleep(0.2)
        waiting = len(state.waiting)
        end = await asyncio.wait_for(reader.read(), 10)
        writer.close()
        server.close()
        return waiting, end

    assert asyncio.run(ask()) == (1, b"")


def test_another_minor_version_of_uvicorn_stops_the_start() -> None:
    check_uvicorn()
    check_uvicorn(f"{UVICORN}.99")
    with pytest.raises(ConfigurationError, match=r"uvicorn is 1\.2\.3"):
        check_uvicorn("1.2.3")


def test_soft_limit_of_descriptors_is_raised_to_the_hard_one() -> None:
    code = (
        "import resource; from service.serving.server import begin; from service.settings import Settings\n"
        "begin(Settings()); print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])"
    )
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    told = python(f"import resource; resource.setrlimit(7, (200, {min(hard, 9_000)}));{code}")
    assert told.stdout.strip() == str(min(hard, 9_000)), told.stderr
