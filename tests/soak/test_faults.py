"""Fault injection: what must hold during each fault. results/faults.json records what was observed."""

import asyncio
import json
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from email.utils import parsedate_to_datetime
from pathlib import Path

import pytest
from edge import edge
from raw_http import connect, post_request, read_response, request_head
from server import SERVE, Server, environ, eventually, serving

from benchmarks.record import Case, Record
from benchmarks.servers import free_port
from tests.soak.crowd import Crowd, Tally
from tests.soak.mix import Mix, build_mix

pytestmark = [pytest.mark.soak, pytest.mark.timeout(180)]

BODY = b'{"input": "a superb film"}'
REQUEST = post_request(BODY)
CHUNKED = request_head(0).replace(b"content-length: 0", b"transfer-encoding: chunked")
# What a slow caller sends, one item a second: bytes of a head, or chunks of one byte.
DRIPS = {
    "a byte": [REQUEST[i : i + 1] for i in range(10)],
    "a chunk": [CHUNKED, *(b"1\r\n%c\r\n" % byte for byte in BODY[:9])],
}
FAKETIME = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1")
FAULTS = 8
CALLERS = 16


class FaultRecord:
    """A row per fault: what the crowd observed, the time until recovery, and what happened."""

    def __init__(self) -> None:
        self._record = Record("faults", "Fault injection", ["uvicorn", "onnxruntime"])
        self._record.note(
            "Each fault is injected while callers send requests at a steady rate; all answers are checked. "
            "The other requests were refused, as they should, or their callers left."
        )
        self._table = self._record.table("Faults and responses")
        self._faults: set[str] = set()

    def add(self, fault: str, outcome: str, tally: Tally, recovered_after_s: float | None = None) -> None:
        case: Case = {"fault": fault}
        figures: dict[str, float] = {
            "requests": tally.requests,
            "correct answers": len(tally.accepted_s),
            "wrong answers": len(tally.wrong_answers),
            "broken connections": len(tally.broken_connections),
            "slowest answer, s": max(tally.accepted_s, default=0.0),
        }
        if recovered_after_s is not None:
            figures["recovered after, s"] = recovered_after_s
        for subject, value in figures.items():
            self._table.add(subject, case, [round(float(value), 2)])
        self._table.add("outcome", case, [], outcome)
        self._faults.add(fault)

    def write(self) -> None:
        """Replace results/faults.json if every fault was injected."""
        if len(self._faults) == FAULTS:
            self._record.write()


@pytest.fixture(scope="module")
def mix(small_models: Path) -> Mix:
    return build_mix(small_models)


@pytest.fixture(scope="module")
def fault_record() -> Iterator[FaultRecord]:
    fault_record = FaultRecord()
    yield fault_record
    fault_record.write()


def run_crowd_during(
    port: int, mix: Mix, fault: Callable[[], None], *, seconds: float = 10, rate: float = 100, lost: int = 0
) -> Tally:
    """Inject a fault while a steady crowd runs: no answer is wrong, at most `lost` connections break."""
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(asyncio.run, Crowd(port, mix, CALLERS, rate).run(seconds))
        time.sleep(seconds / 4)
        fault()
        tally = future.result()
    assert tally.wrong_answers == []
    assert len(tally.broken_connections) <= lost, tally.broken_connections
    assert len(tally.accepted_s) > 50
    return tally


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


@pytest.mark.parametrize(
    ("victims", "fault", "outcome"),
    [
        (1, "kill -9 of one of two workers",
         "the supervisor started another, the other went on; its callers' connections were reset at once"),
        (2, "kill -9 of both workers at once",
         "requests in flight were lost; later ones waited at the socket for the new workers"),
    ],
    ids=["one", "both"],
)  # fmt: skip
def test_killed_workers_lose_only_requests_in_flight(
    victims: int, fault: str, outcome: str, small_models: Path, mix: Mix, fault_record: FaultRecord
) -> None:
    recovered_after_s = 0.0
    with serving(small_models, workers=2, log_level="error") as server:

        def kill() -> None:
            nonlocal recovered_after_s
            killed = server.workers[:victims]
            for worker in killed:
                worker.kill()
            start_s = time.monotonic()
            eventually(lambda: len(server.workers) == 2 and not any(w.is_running() for w in killed))
            eventually(lambda: all_workers_ready(server))
            recovered_after_s = time.monotonic() - start_s

        eventually(lambda: all_workers_ready(server))
        tally = run_crowd_during(server.port, mix, kill, lost=CALLERS)  # the requests in flight
        assert server.stop() == 0
    fault_record.add(fault, outcome, tally, recovered_after_s)


def test_stopped_worker_loses_no_request(small_models: Path, mix: Mix, fault_record: FaultRecord) -> None:
    with serving(small_models, workers=2, log_level="error") as server:
        eventually(lambda: all_workers_ready(server))
        victim = server.workers[0]

        def fault() -> None:
            victim.suspend()
            time.sleep(3)
            victim.resume()

        tally = run_crowd_during(server.port, mix, fault)
        assert server.stop() == 0
    outcome = "its requests waited until it went on; the other worker answered meanwhile"
    fault_record.add("SIGSTOP of one of two workers for 3 s", outcome, tally)


def test_full_disk_for_logs_stops_no_request(small_models: Path, mix: Mix, fault_record: FaultRecord) -> None:
    port = free_port()
    env = environ(port=port, log_level="debug", models_dir=small_models, pretrained_models=False)
    with open("/dev/full", "wb") as full:
        process = subprocess.Popen([sys.executable, *SERVE], env=env, stdout=full, stderr=full)
    try:
        eventually(lambda: process.poll() is not None or _answers(port))
        assert process.poll() is None, f"it ended with {process.returncode}"
        tally = run_crowd_during(port, mix, lambda: None)
    finally:
        process.send_signal(signal.SIGTERM)
        code = process.wait(30)
    assert code in (0, 120), "120 is Python's own: it could not flush its log at the end"
    outcome = f"every request answered, log lines lost; ended with {code}"
    fault_record.add("the disk behind the log is full", outcome, tally)


def _answers(port: int) -> bool:
    try:
        return send_request(port, REQUEST)[0] == 200
    except OSError:
        return False


def test_corrupt_bundle_at_reload_leaves_the_old_model_serving(
    tmp_path: Path, small_models: Path, mix: Mix, fault_record: FaultRecord
) -> None:
    models = Path(shutil.copytree(small_models, tmp_path / "models"))
    with serving(models, log_level="warning") as server:

        def fault() -> None:
            for name in ("sentiment-small", "dynamics"):  # truncated
                graph = models / name / "model.onnx"
                graph.write_bytes(graph.read_bytes()[:-100])
            server.process.send_signal(signal.SIGHUP)

        tally = run_crowd_during(server.port, mix, fault)
        eventually(lambda: "not the file its card describes" in server.output)
        info = json.loads(send_request(server.port, b"GET /info HTTP/1.1\r\nhost: localhost\r\n\r\n")[1])
        refused = info["load_errors"]
        assert {model["name"] for model in refused} >= {"sentiment-small", "dynamics"}
        assert server.stop() == 0
    outcome = "the models in use stayed; /info and the log say what was refused and why"
    fault_record.add("two truncated model files at reload", outcome, tally)


@pytest.mark.skipif(not FAKETIME.exists(), reason="needs libfaketime (apt-get install faketime)")
def test_clock_that_jumps_changes_no_answer_and_no_deadline(
    small_models: Path, mix: Mix, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault_record: FaultRecord
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

        tally = run_crowd_during(port, mix, fault, seconds=12)
        assert server.stop() == 0
    outcome = (
        "edge and service went on: deadlines use the monotonic clock; only dates in answers and log jumped "
        "(libfaketime, which reads a file for every time stamp, slows everything down)"
    )
    fault_record.add("the clock jumps a day ahead, two days back, and to the right time", outcome, tally)


def _hours_off(server: Server) -> float:
    """Return the hours by which the server's clock differs, according to the date of its answers."""
    with server.client() as client:
        date = parsedate_to_datetime(client.get("/health").headers["date"])
    return (date.timestamp() - time.time()) / 3600


@pytest.mark.parametrize("drip", DRIPS)
def test_slow_callers_delay_nobody(
    small_models: Path, mix: Mix, fault_record: FaultRecord, tmp_path: Path, drip: str
) -> None:
    """The edge waits for slow callers, which have another address; the service sees complete requests."""
    with ExitStack() as stack:
        server = stack.enter_context(serving(small_models, max_concurrent_requests=64, log_level="error"))
        _, port = stack.enter_context(edge(tmp_path, server.port))

        def send_slowly() -> None:
            source = ("127.0.0.2", 0)
            callers = [
                stack.enter_context(socket.create_connection(("127.0.0.1", port), 5, source))
                for _ in range(100)
            ]
            for data in DRIPS[drip]:
                for caller in callers:
                    with suppress(OSError):  # the edge takes four bodies of unknown length from one address
                        caller.send(data)
                time.sleep(1)

        tally = run_crowd_during(port, mix, send_slowly, rate=50)
        assert tally.refused == 0, "an incomplete request takes no slot of the service"
        assert server.stop() == 0
    outcome = "no other caller was delayed: only complete requests reach the service"
    fault_record.add(f"100 callers that send {drip} a second", outcome, tally)
