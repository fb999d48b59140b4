"""Workers under uvicorn's supervisor: ended and stopped ones are replaced, and count together."""

import re
import signal
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest
from server import Server, eventually, serving


@pytest.fixture(scope="module")
def two(models: Path) -> Iterator[Server]:
    """A server with two workers, and so every test leaves it."""
    with serving(models, default_model="tiny", workers=2) as server:
        yield server
        assert server.stop() == 0


@pytest.fixture
def pair(two: Server) -> Server:
    with two.client() as client:
        eventually(lambda: are_ready(two, client))
    return two


def are_ready(server: Server, client: httpx.Client) -> bool:
    return len(server.workers) == 2 and "hardmax_ready 2.0" in client.get("/metrics").text


def classify(server: Server) -> int:
    """The status of a request on a connection of its own."""
    with server.client() as client:
        return client.post("/classify", json={"input": "superb"}).status_code


@pytest.mark.system
@pytest.mark.timeout(300)
def test_reload_replaces_every_worker_and_refuses_no_request(pair: Server) -> None:
    """Connections that a worker had accepted and not yet read from were closed with it."""
    outcomes: list[int | str] = []
    over = threading.Event()

    def ask() -> None:
        while not over.is_set():
            try:
                outcomes.append(classify(pair))
            except httpx.TransportError as lost:
                outcomes.append(repr(lost))

    before = {worker.pid for worker in pair.workers}
    caller = threading.Thread(target=ask)
    caller.start()
    pair.process.send_signal(signal.SIGHUP)
    eventually(lambda: len(pair.workers) == 2 and not before & {each.pid for each in pair.workers})
    over.set()
    caller.join()
    assert set(outcomes) == {200}


@pytest.mark.system
@pytest.mark.timeout(300)
def test_stopped_worker_is_killed_and_replaced_while_the_other_serves(pair: Server) -> None:
    """The supervisor once ended with an OverflowError, and the healthy worker with it."""
    victim = pair.workers[0]
    victim.suspend()
    statuses = set()
    while victim.is_running() or len(pair.workers) < 2:
        # The stopped worker may have accepted the connection before it stopped.
        with (
            suppress(httpx.ReadTimeout),
            httpx.Client(base_url=pair.url, timeout=1, trust_env=False) as client,
        ):
            statuses.add(client.post("/classify", json={"input": "superb"}).status_code)
    assert statuses == {200}
    assert victim.pid not in {worker.pid for worker in pair.workers}
    with pair.client() as client:
        eventually(lambda: "hardmax_ready 2.0" in client.get("/metrics").text)
    assert pair.process.poll() is None


@pytest.mark.system
def test_killed_worker_comes_back_and_the_others_go_on(pair: Server) -> None:
    victim = pair.workers[0]
    victim.kill()
    statuses = set()
    while victim.is_running() or len(pair.workers) < 2:
        statuses.add(classify(pair))
    assert statuses == {200}
    eventually(lambda: f"Child process [{victim.pid}] died" in pair.output)
    with pair.client() as client:
        eventually(lambda: "hardmax_ready 2.0" in client.get("/metrics").text)


@pytest.mark.system
def test_workers_count_together(pair: Server) -> None:
    def count() -> float:
        line = r'^hardmax_requests_total{method="POST",route="/classify",status="200"} (\S+)$'
        with pair.client() as client:
            return sum(map(float, re.findall(line, client.get("/metrics").text, re.MULTILINE)))

    before = count()
    for _ in range(40):  # each on a connection of its own: both workers get some
        with pair.client() as client:
            assert client.post("/classify", json={"input": "superb"}).status_code == 200
    assert count() == before + 40


@pytest.mark.system
def test_stop_while_a_dead_worker_waits_to_be_replaced_is_a_clean_stop(models: Path) -> None:
    with serving(models, default_model="tiny", workers=2) as server:
        eventually(lambda: len(server.workers) == 2)
        server.workers[0].kill()
        assert server.stop() == 0
        assert "Traceback" not in server.output


@pytest.mark.system
def test_workers_end_when_their_supervisor_is_killed(models: Path) -> None:
    with serving(models, default_model="tiny", workers=2) as server:
        family = server.workers
        server.process.kill()
        eventually(lambda: not any(each.is_running() for each in family))
