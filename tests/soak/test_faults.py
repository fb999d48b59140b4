"""Fault injection: what must hold during each fault, while a steady crowd checks every answer."""

import asyncio
import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from email.utils import parsedate_to_datetime
from pathlib import Path

import pytest
from edge import edge
from raw_http import connect, post_request, read_response
from server import SERVE, Server, environ, eventually, serving

from benchmarks.servers import free_port
from tests.soak.crowd import Crowd
from tests.soak.mix import Mix, build_mix

pytestmark = [pytest.mark.soak, pytest.mark.timeout(180)]

REQUEST = post_request(b'{"input": "a superb film"}')
FAKETIME = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1")
CALLERS = 16


@pytest.fixture(scope="module")
def mix(small_models: Path) -> Mix:
    return build_mix(small_models)


def run_crowd_during(
    port: int, mix: Mix, fault: Callable[[], None], *, seconds: float = 10, rate: float = 100, lost: int = 0
) -> None:
    """Inject a fault while a steady crowd runs: no answer is wrong, at most `lost` connections break."""
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(asyncio.run, Crowd(port, mix, CALLERS, rate).run(seconds))
        time.sleep(seconds / 4)
        fault()
        tally = future.result()
    assert tally.wrong_answers == []
    assert len(tally.broken_connections) <= lost, tally.broken_connections
    assert len(tally.accepted_s) > 50


def send_request(port: int, request: bytes) -> tuple[int, bytes]:
    """Send a request on a new connection; return the status and the body of the response."""
    with connect(port) as connection:
        connection.sendall(request)
        head, body = read_response(connection)
    return int(head[9:12]), body


def all_workers_ready(server: Server) -> bool:
    """Whether both workers are loaded, warm and taking requests, according to /metrics."""
    try:
        status, page = send_request(server.port, b"GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n")
    except OSError:
        return False
    return status == 200 and b"hardmax_ready 2.0" in page


@pytest.mark.parametrize("victims", [1, 2])
def test_killed_workers_lose_only_requests_in_flight(victims: int, small_models: Path, mix: Mix) -> None:
    """The supervisor starts others; requests that come meanwhile wait at the socket."""
    with serving(small_models, workers=2, log_level="error") as server:

        def kill() -> None:
            killed = server.workers[:victims]
            for worker in killed:
                worker.kill()
            eventually(lambda: len(server.workers) == 2 and not any(w.is_running() for w in killed))
            eventually(lambda: all_workers_ready(server))

        eventually(lambda: all_workers_ready(server))
        run_crowd_during(server.port, mix, kill, lost=CALLERS)  # the requests in flight
        assert server.stop() == 0


def test_stopped_worker_loses_no_request(small_models: Path, mix: Mix) -> None:
    with serving(small_models, workers=2, log_level="error") as server:
        eventually(lambda: all_workers_ready(server))
        victim = server.workers[0]

        def fault() -> None:
            victim.suspend()
            time.sleep(3)
            victim.resume()

        run_crowd_during(server.port, mix, fault)
        assert server.stop() == 0


def test_full_disk_for_logs_stops_no_request(small_models: Path, mix: Mix) -> None:
    port = free_port()
    env = environ(port=port, log_level="debug", models_dir=small_models, pretrained_models=False)
    with open("/dev/full", "wb") as full:
        process = subprocess.Popen([sys.executable, *SERVE], env=env, stdout=full, stderr=full)
    try:
        eventually(lambda: process.poll() is not None or _answers(port))
        assert process.poll() is None, f"it ended with {process.returncode}"
        run_crowd_during(port, mix, lambda: None)
    finally:
        process.send_signal(signal.SIGTERM)
        code = process.wait(30)
    assert code in (0, 120), "120 is Python's own: it could not flush its log at the end"


def _answers(port: int) -> bool:
    try:
        return send_request(port, REQUEST)[0] == 200
    except OSError:
        return False


def test_corrupt_bundle_at_reload_leaves_the_old_model_serving(
    tmp_path: Path, small_models: Path, mix: Mix
) -> None:
    models = Path(shutil.copytree(small_models, tmp_path / "models"))
    with serving(models, log_level="warning") as server:

        def fault() -> None:
            for name in ("sentiment-small", "dynamics"):  # truncated
                graph = models / name / "model.onnx"
                graph.write_bytes(graph.read_bytes()[:-100])
            server.process.send_signal(signal.SIGHUP)

        run_crowd_during(server.port, mix, fault)
        eventually(lambda: "not the file its card describes" in server.output)
        info = json.loads(send_request(server.port, b"GET /info HTTP/1.1\r\nhost: localhost\r\n\r\n")[1])
        refused = info["load_errors"]
        assert {model["name"] for model in refused} >= {"sentiment-small", "dynamics"}
        assert server.stop() == 0


@pytest.mark.skipif(not FAKETIME.exists(), reason="needs libfaketime (apt-get install faketime)")
def test_clock_that_jumps_changes_no_answer_and_no_deadline(
    small_models: Path, mix: Mix, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offset = tmp_path / "offset"
    offset.write_text("+0\n")
    monkeypatch.setenv("LD_PRELOAD", str(FAKETIME))
    monkeypatch.setenv("FAKETIME_TIMESTAMP_FILE", str(offset))
    for name in ("NO_CACHE", "DONT_FAKE_MONOTONIC"):
        monkeypatch.setenv(f"FAKETIME_{name}", "1")
    with serving(small_models, log_level="error") as server, edge(tmp_path, server.port) as (_, port):
        monkeypatch.delenv("LD_PRELOAD")

        def fault() -> None:
            for jump, hours in (("+1d", 24), ("-2d", -48), ("+0", 0)):
                offset.write_text(f"{jump}\n")
                # a busy server reads the clock for the date of its answers now and then
                eventually(lambda hours=hours: abs(_hours_off(server) - hours) < 0.1)  # type: ignore[misc]

        run_crowd_during(port, mix, fault, seconds=12)
        assert server.stop() == 0


def _hours_off(server: Server) -> float:
    """Return the hours by which the server's clock differs, according to the date of its answers."""
    with server.client() as client:
        date = parsedate_to_datetime(client.get("/health").headers["date"])
    return (date.timestamp() - time.time()) / 3600
