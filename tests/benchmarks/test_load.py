"""The load generator, the texts that it sends, and the stopwatch."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from benchmarks.load import drive
from benchmarks.record import rate, run_times
from benchmarks.reviews import reviews
from benchmarks.servers import Request


class Echo(BaseHTTPRequestHandler):
    """Answers a POST with 200, `bad` with 429; `close` ends the connection without an answer."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.close_connection = body == b"close"
        if not self.close_connection:
            self.send_response(429 if body == b"bad" else 200)
            self.send_header("content-length", "0")
            self.end_headers()

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture
def port() -> Iterator[int]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Echo) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def test_drive_counts_responses_by_status_and_broken_connections(port: int) -> None:
    """A connection that breaks is opened again."""
    requests = [Request("/", body) for body in (b"one", b"bad", b"close")]
    load = drive(port, requests, connections=4, seconds=1.0, warm_s=0.05)
    assert len(load.latencies_s) == load.statuses[200] + load.statuses[429] > 4
    assert abs(load.statuses[200] - load.statuses[429]) <= 8
    assert 0 < load.quantile_ms(0.5) <= load.quantile_ms(0.99)
    assert load.broken >= 2


@pytest.mark.parametrize("words", [1, 22, 5000])
def test_reviews_have_exactly_the_requested_words_and_repeat_by_seed(words: int) -> None:
    texts = reviews(words, 3, seed=7)
    assert [len(text.split()) for text in texts] == [words] * 3
    assert texts == reviews(words, 3, seed=7)
    assert words == 1 or texts != reviews(words, 3, seed=8)


def test_run_times_and_rate_run_within_their_budget() -> None:
    runs: list[int] = []
    assert len(run_times(lambda: runs.append(1), repeats=4)) == 4
    assert len(runs) == 5, "one run warms up"
    assert len(run_times(lambda: threading.Event().wait(0.01), repeats=9, budget_s=0.005)) == 1
    assert 50 < rate(lambda: threading.Event().wait(0.01) or 2, seconds=0.1) <= 200
