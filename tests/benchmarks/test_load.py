"""The load generator and the texts that it sends."""

import asyncio
import threading
from collections.abc import Iterator

import pytest

from benchmarks.load import drive, is_complete, post, send_request, unchunk
from benchmarks.reviews import reviews

pytestmark = pytest.mark.alone


class EchoServer:
    """Answers every POST with its body, `bad` with a 429; `close` ends the connection."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.port = 0

    async def serve(self, started: threading.Event) -> None:
        self.loop, self.stopped = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(self.handle, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        started.set()
        async with server:
            await self.stopped.wait()
            while handlers := asyncio.all_tasks() - {asyncio.current_task()}:  # they end with their clients
                await asyncio.wait(handlers)

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                body = await reader.readexactly(int(head.partition(b"content-length: ")[2].split()[0]))
                self.bodies.append(body)
                if body == b"close":
                    break
                status = b"429 Too Many" if body == b"bad" else b"200 OK"
                writer.write(b"HTTP/1.1 " + status + b"\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        except asyncio.IncompleteReadError:
            pass
        finally:
            writer.transport.abort()  # the client may have left without reading


@pytest.fixture
def echo() -> Iterator[EchoServer]:
    server, started = EchoServer(), threading.Event()
    thread = threading.Thread(target=lambda: asyncio.run(server.serve(started)))
    thread.start()
    started.wait(5)
    yield server
    server.loop.call_soon_threadsafe(server.stopped.set)
    thread.join(5)


def test_send_request_returns_status_and_body(echo: EchoServer) -> None:
    assert send_request(echo.port, post("/", b"hello")) == (200, b"hello")
    assert send_request(echo.port, post("/", b"bad")) == (429, b"bad")


def test_drive_counts_responses_by_status(echo: EchoServer) -> None:
    load = drive(echo.port, [post("/", b"one"), post("/", b"bad")], connections=4, seconds=0.3, warm_s=0.05)
    n_responses = len(load.latencies_s)
    assert n_responses == load.statuses[200] + load.statuses[429] > 50
    assert abs(load.statuses[200] - load.statuses[429]) <= 8
    assert n_responses <= len(echo.bodies)
    assert 0 < load.quantile_ms(0.5) <= load.quantile_ms(0.99) < 1000


def test_drive_replaces_connections_that_break(echo: EchoServer) -> None:
    load = drive(echo.port, [post("/", b"one"), post("/", b"close")], connections=2, seconds=0.2, warm_s=0.0)
    assert load.broken > 5
    assert load.statuses[200] > 5


def test_response_is_complete_only_with_its_whole_body() -> None:
    response = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
    assert [is_complete(response[:n]) for n in (10, len(response) - 1, len(response))] == [False, False, True]
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n1\r\n!\r\n0\r\n\r\n"
    assert not is_complete(chunked[:-5])
    assert is_complete(chunked)
    assert unchunk(chunked.partition(b"\r\n\r\n")[2]) == b"hello!"


@pytest.mark.parametrize("words", [1, 22, 5000])
def test_reviews_have_exactly_the_requested_words_and_repeat_by_seed(words: int) -> None:
    texts = reviews(words, 3, seed=7)
    assert [len(text.split()) for text in texts] == [words] * 3
    assert texts == reviews(words, 3, seed=7)
    assert words == 1 or texts != reviews(words, 3, seed=8)
