"""What breaks in real life, done on purpose: what must then hold; the chronicle keeps what was seen."""

from __future__ import annotations

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
from email.utils import parsedate_to_datetime
from pathlib import Path

import pytest
from server import Server, environ, eventually, serving

from benchmarks.load import ask, post
from benchmarks.servers import free_port
from service.settings import BUNDLED_MODELS
from tests.soak import chronicle as faults
from tests.soak.chronicle import Chronicle
from tests.soak.crowd import Crowd, Tally
from tests.soak.mix import Mix, prepare

pytestmark = [pytest.mark.soak, pytest.mark.timeout(180)]

SERVE = [sys.executable, "-m", "service.cli.main", "serve"]
REQUEST = post("/classify", b'{"input": "a superb film"}')
FAKETIME = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1")


@pytest.fixture(scope="module")
def mix() -> Mix:
    return prepare()


@pytest.fixture(scope="module")
def chronicle() -> Iterator[Chronicle]:
    chronicle = Chronicle()
    yield chronicle
    chronicle.write()


@pytest.fixture
def models(tmp_path: Path) -> Path:
    return Path(shutil.copytree(BUNDLED_MODELS, tmp_path / "models"))


def cut(models: Path, name: str) -> None:
    """The file of a model loses its end."""
    graph = models / name / "model.onnx"
    graph.write_bytes(graph.read_bytes()[:-100])


def crowd_during(server: Server, mix: Mix, fault: Callable[[], None], seconds: float = 10) -> Tally:
    """A steady crowd that a fault befalls in the middle."""
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(asyncio.run, Crowd(server.port, mix, 16, 100).ask_for(seconds))
        time.sleep(seconds / 4)
        fault()
        return asking.result()


def whole(server: Server) -> bool:
    """Whether both workers are loaded, warm and taking requests, as /metrics tells of all of them."""
    try:
        status, page = ask(server.port, b"GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n")
    except OSError:
        return False
    return status == 200 and b"hardmax_ready 2.0" in page


@pytest.mark.parametrize(
    ("victims", "fault", "happened"),
    [
        (
            1,
            faults.KILLED,
            "the supervisor started another, the other worker went on; callers saw a reset at once",
        ),
        (
            2,
            faults.ALL_KILLED,
            "what was on the way was lost; who came meanwhile waited at the socket for the new workers",
        ),
    ],
    ids=["one", "both"],
)
def test_killed_workers_cost_only_what_was_on_the_way(
    victims: int, fault: str, happened: str, mix: Mix, chronicle: Chronicle
) -> None:
    whole_after_s = 0.0
    with serving(workers=2, log_level="error") as server:

        def kill() -> None:
            nonlocal whole_after_s
            dying = server.workers[:victims]
            for each in dying:
                each.kill()
            began = time.monotonic()
            eventually(lambda: len(server.workers) == 2 and not any(each.is_running() for each in dying))
            eventually(lambda: whole(server))
            whole_after_s = time.monotonic() - began

        eventually(lambda: whole(server))
        tally = crowd_during(server, mix, kill)
        assert tally.wrong == []
        assert len(tally.broken) <= 16, "at most what each caller had on the way"
        assert len(tally.accepted_s) > 50
        assert server.stop() == 0
    chronicle.tell(fault, happened, tally, whole_after_s)


def test_stopped_worker_loses_nothing_and_goes_on_when_continued(mix: Mix, chronicle: Chronicle) -> None:
    with serving(workers=2, log_level="error") as server:
        eventually(lambda: whole(server))
        victim = server.workers[0]

        def fault() -> None:
            victim.suspend()
            time.sleep(3)
            victim.resume()

        tally = crowd_during(server, mix, fault)
        assert tally.wrong == []
        assert tally.broken == []
        assert server.stop() == 0
    happened = "its connections waited, the other worker went on; continued, it answered"
    chronicle.tell(faults.STOPPED, happened, tally)


def test_stopped_worker_cannot_hold_up_the_end(chronicle: Chronicle) -> None:
    with serving(workers=2, log_level="error", shutdown_grace_s=2) as server:
        eventually(lambda: whole(server))
        family = server.workers
        family[0].suspend()
        began = time.monotonic()
        code = server.stop()
        took = time.monotonic() - began
        assert took < 2 + 5 + 5, "the grace, what the supervisor adds to it, and some"
        assert code != 0, "a worker had to be killed, and the exit code says so"
        assert not any(each.is_running() for each in family)
    happened = (
        f"killed when the grace of 2 s and 5 s more were over: ended after {took:.1f} s, nothing left behind"
    )
    chronicle.tell(faults.STOPPED_FOR_GOOD, happened)


def test_full_disk_for_logs_stops_no_request(mix: Mix, chronicle: Chronicle) -> None:
    port = free_port()
    with open("/dev/full", "wb") as full:
        process = subprocess.Popen([*SERVE, "--port", str(port), "--log-level", "debug"],
                                   env=environ(), stdout=full, stderr=full)  # fmt: skip
    try:
        eventually(lambda: process.poll() is not None or _answers(port))
        assert process.poll() is None, f"it ended with {process.returncode}"
        tally = asyncio.run(Crowd(port, mix, 16, 100).ask_for(10))
        assert tally.wrong == []
        assert tally.broken == []
        assert len(tally.accepted_s) > 50
    finally:
        process.send_signal(signal.SIGTERM)
        code = process.wait(30)
    assert code in (0, 120), "120 is Python's own: it could not flush its log at the end"
    chronicle.tell(faults.FULL_LOG, f"every request answered, log lines lost; ended with {code}", tally)


def _answers(port: int) -> bool:
    try:
        return ask(port, REQUEST)[0] == 200
    except OSError:
        return False


def test_corrupt_bundle_stops_the_start_and_says_why(models: Path, chronicle: Chronicle) -> None:
    cut(models, "sentiment")
    command = [*SERVE, "--port", "0", "--models-dir", str(models)]
    ended = subprocess.run(command, env=environ(), capture_output=True, text=True, timeout=60)
    assert ended.returncode == 2
    assert "model.onnx is not the file its card describes" in ended.stderr
    assert "Traceback" not in ended.stderr
    chronicle.tell(faults.CORRUPT_START, "the start stopped with exit code 2 and a line that names the file")


def test_corrupt_bundle_at_reload_leaves_the_old_model_serving(
    models: Path, mix: Mix, chronicle: Chronicle
) -> None:
    with serving(models, log_level="warning") as server:

        def fault() -> None:
            cut(models, "sentiment")
            cut(models, "dynamics")
            server.process.send_signal(signal.SIGHUP)

        tally = crowd_during(server, mix, fault)
        assert tally.wrong == []
        assert tally.broken == []
        eventually(lambda: "not the file its card describes" in server.output)
        refused = json.loads(ask(server.port, b"GET /info HTTP/1.1\r\nhost: localhost\r\n\r\n")[1])["refused"]
        assert {each["name"] for each in refused} >= {"sentiment", "dynamics"}
        assert server.stop() == 0
    happened = "the old models went on serving; /info and the log say what was refused and why"
    chronicle.tell(faults.CORRUPT_RELOAD, happened, tally)


@pytest.mark.skipif(not FAKETIME.exists(), reason="needs libfaketime (apt-get install faketime)")
def test_clock_that_jumps_changes_no_answer_and_no_deadline(
    mix: Mix, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chronicle: Chronicle
) -> None:
    offset = tmp_path / "offset"
    offset.write_text("+0\n")
    monkeypatch.setenv("LD_PRELOAD", str(FAKETIME))
    monkeypatch.setenv("FAKETIME_TIMESTAMP_FILE", str(offset))
    monkeypatch.setenv("FAKETIME_NO_CACHE", "1")
    monkeypatch.setenv("FAKETIME_DONT_FAKE_MONOTONIC", "1")
    with serving(log_level="error") as server:
        monkeypatch.delenv("LD_PRELOAD")

        seen: list[float] = []

        def fault() -> None:
            for jump in ("+1d", "-2d", "+0"):
                offset.write_text(f"{jump}\n")
                time.sleep(2)
                seen.append(_hours_off(server.port))

        tally = crowd_during(server, mix, fault, seconds=12)
        assert tally.wrong == []
        assert tally.broken == []
        assert server.stop() == 0
    assert seen == pytest.approx([24, -48, 0], abs=0.1), "the server's own clock did jump"
    happened = (
        "nothing: deadlines and pauses run on the monotonic clock; only dates in answers and log jumped "
        "(libfaketime opens a file at every look at the clock, which slows all)"
    )
    chronicle.tell(faults.CLOCK, happened, tally)


def _hours_off(port: int) -> float:
    """How far the clock of the server is from ours, by the date in its answers."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        head = connection.recv(4096).decode()
    [date] = [line for line in head.splitlines() if line.lower().startswith("date:")]
    return (parsedate_to_datetime(date[5:].strip()).timestamp() - time.time()) / 3600


@pytest.fixture
def dribblers() -> Iterator[Callable[[int, int], list[socket.socket]]]:
    """Connects callers that will send their request byte by byte."""
    open_ones: list[socket.socket] = []

    def connect(port: int, count: int) -> list[socket.socket]:
        open_ones.extend(socket.create_connection(("127.0.0.1", port), timeout=5) for _ in range(count))
        return open_ones

    yield connect
    for each in open_ones:
        each.close()


def test_callers_of_one_byte_a_second_hold_up_nobody(
    mix: Mix, dribblers: Callable[[int, int], list[socket.socket]], chronicle: Chronicle
) -> None:
    with serving(max_concurrent_requests=64, log_level="error") as server:
        slow = dribblers(server.port, 200)
        with ThreadPoolExecutor(1) as pool:
            asking = pool.submit(asyncio.run, Crowd(server.port, mix, 8, 50).ask_for(10))
            for at in range(10):
                for each in slow:
                    each.send(REQUEST[at : at + 1])
                time.sleep(1)
            tally = asking.result()
        assert tally.wrong == []
        assert tally.broken == []
        assert tally.refused == 0, "a caller who has not finished asking takes no place"
        assert server.stop() == 0
    happened = "others were answered as if they were not there: only a whole request takes a place"
    chronicle.tell(faults.DRIBBLE, happened, tally)
