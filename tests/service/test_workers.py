"""Workers under the supervisor of uvicorn: dead and stopped ones are replaced, and they count together."""

import signal
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest
from bundles import write_head
from raw_http import connect, request_head
from server import Server, eventually, serving

from service.server import KILL_AFTER_S


@pytest.fixture(scope="module")
def shared_server(models: Path) -> Iterator[Server]:
    """A server with two workers; every test leaves it with two."""
    with serving(models, default_model="tiny", workers=2) as server:
        yield server
        assert server.stop() == 0


@pytest.fixture
def pair(shared_server: Server) -> Server:
    """The server, once both workers are ready."""
    wait_for_workers(shared_server)
    return shared_server


def wait_for_workers(server: Server) -> None:
    with server.client() as client:
        eventually(lambda: len(server.workers) == 2 and "hardmax_ready 2.0" in client.get("/metrics").text)


def classify(server: Server) -> int:
    """Return the status of a request on a new connection."""
    with server.client() as client:
        return client.post("/classify", json={"input": "superb"}).status_code


@pytest.mark.system
@pytest.mark.timeout(300)
def test_reload_replaces_every_worker_and_refuses_no_request(pair: Server) -> None:
    """Connections that a worker had accepted and not yet read from were once closed with it."""
    outcomes: list[int | str] = []
    stop = threading.Event()

    def call() -> None:
        while not stop.is_set():
            try:
                outcomes.append(classify(pair))
            except httpx.TransportError as error:
                outcomes.append(repr(error))

    before = {worker.pid for worker in pair.workers}
    caller = threading.Thread(target=call)
    caller.start()
    pair.process.send_signal(signal.SIGHUP)
    eventually(lambda: len(pair.workers) == 2 and not before & {worker.pid for worker in pair.workers})
    stop.set()
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
    wait_for_workers(pair)
    assert pair.process.poll() is None


@pytest.mark.system
def test_killed_worker_is_replaced_while_the_other_serves(pair: Server) -> None:
    victim = pair.workers[0]
    victim.kill()
    statuses = set()
    while victim.is_running() or len(pair.workers) < 2:
        statuses.add(classify(pair))
    assert statuses == {200}
    eventually(lambda: f"Child process [{victim.pid}] died" in pair.output)
    wait_for_workers(pair)


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
        workers = server.workers
        server.process.kill()
        eventually(lambda: not any(worker.is_running() for worker in workers))


@pytest.mark.system
@pytest.mark.timeout(300)
def test_worker_that_cannot_start_leaves_the_others_alone(tmp_path: Path) -> None:
    """All workers once ended within five seconds."""
    write_head(tmp_path)
    with serving(tmp_path, default_model="tiny", workers=2) as server:
        wait_for_workers(server)
        model = (tmp_path / "tiny/model.onnx").read_bytes()
        (tmp_path / "tiny/model.onnx").write_bytes(b"broken")
        server.workers[0].kill()
        line = "hardmax: DEFAULT_MODEL: the model tiny was refused: tiny: model.onnx is not the file"
        eventually(lambda: server.output.count(line) >= 2)  # it is started again
        assert classify(server) == 200  # with the version before
        (tmp_path / "tiny/model.onnx").write_bytes(model)
        wait_for_workers(server)
        assert server.stop() == 0


@pytest.mark.system
@pytest.mark.timeout(300)
def test_stop_during_a_restart_of_workers_ends_within_the_grace_period(models: Path) -> None:
    """SIGTERM was once ignored for 55 s: until every worker was replaced, each after its last request."""
    with serving(models, default_model="tiny", workers=2, shutdown_grace_s=10) as server:
        wait_for_workers(server)
        with connect(server.port) as first, connect(server.port) as second:
            for caller in (first, second):  # bodies that do not arrive: workers wait for them
                caller.sendall(request_head(9))
            before = {worker.pid for worker in server.workers}
            server.process.send_signal(signal.SIGHUP)
            eventually(lambda: "Received SIGHUP" in server.output and len(server.workers) == 3)
            assert server.stop(timeout_s=10 + KILL_AFTER_S + 10) == 0
        assert len(before) == 2
        assert server.output.count("stopping on SIGTERM") >= 2
