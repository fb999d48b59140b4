"""What breaks in real life, done on purpose: what must then hold (docs/reliability.md: what was seen)."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from benchmarks.load import ask, post
from benchmarks.servers import free_port
from service.settings import BUNDLED_MODELS
from tests.server import Server, serving
from tests.soak.crowd import Crowd, Tally
from tests.soak.mix import Question, prepare

pytestmark = [pytest.mark.soak, pytest.mark.timeout(180)]

REQUEST = post("/classify", b'{"input": "a superb film"}')
FAKETIME = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1")
Mix = list[tuple[float, list[Question]]]


@pytest.fixture(scope="module")
def mix() -> Mix:
    return prepare()


@pytest.fixture
def models(tmp_path: Path) -> Path:
    return Path(shutil.copytree(BUNDLED_MODELS, tmp_path / "models"))


def workers(server: Server) -> list[psutil.Process]:
    children = psutil.Process(server.process.pid).children()
    return [child for child in children if "spawn_main" in " ".join(child.cmdline())]


def eventually(condition: Callable[[], bool], within_s: float = 30) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)


def crowd_during(server: Server, mix: Mix, fault: Callable[[], None], seconds: float = 10) -> Tally:
    """A steady crowd that a fault befalls in the middle."""
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(asyncio.run, Crowd(server.port, mix, 16, 100).ask_for(seconds))
        time.sleep(seconds / 4)
        fault()
        return asking.result()


def test_killed_worker_breaks_only_its_own_connections(mix: Mix) -> None:
    with serving(workers=2, log_level="error") as server:
        eventually(lambda: len(workers(server)) == 2)
        victim = workers(server)[0]
        tally = crowd_during(server, mix, victim.kill)
        eventually(lambda: len(workers(server)) == 2 and not victim.is_running())
        print(f"\nkilled: {tally.asked} asked, {len(tally.broken)} broken: {tally.broken[:3]}")
        assert tally.wrong == []
        assert len(tally.broken) <= 16, "at most what each caller had on the way"
        assert len(tally.accepted_s) > 50
        assert server.stop() == 0


def test_stopped_worker_loses_nothing_and_goes_on_when_continued(mix: Mix) -> None:
    with serving(workers=2, log_level="error") as server:
        eventually(lambda: len(workers(server)) == 2)
        victim = workers(server)[0]

        def fault() -> None:
            victim.suspend()
            time.sleep(3)
            victim.resume()

        tally = crowd_during(server, mix, fault)
        longest = max(tally.accepted_s)
        print(f"\nstopped 3 s: {tally.asked} asked, {len(tally.broken)} broken, longest {longest:.1f} s")
        assert tally.wrong == []
        assert tally.broken == []
        assert server.stop() == 0


def test_full_disk_for_logs_stops_no_request() -> None:
    port = free_port()
    environ = {name: value for name, value in os.environ.items() if not name.startswith("HARDMAX_")}
    with open("/dev/full", "wb") as full:
        command = [sys.executable, "-m", "service.cli", "serve", "--port", str(port), "--log-level", "debug"]
        process = subprocess.Popen(command, env=environ, stdout=full, stderr=full)
    try:
        eventually(lambda: process.poll() is not None or _answers(port))
        assert process.poll() is None, f"it ended with {process.returncode}"
        assert {ask(port, REQUEST)[0] for _ in range(200)} == {200}
        assert ask(port, post("/classify", b"{"))[0] == 400
    finally:
        process.send_signal(signal.SIGTERM)
        code = process.wait(30)
    assert code in (0, 120), "120 is Python's own: it could not flush its log at the end"


def _answers(port: int) -> bool:
    try:
        return ask(port, REQUEST)[0] == 200
    except OSError:
        return False


def test_corrupt_bundle_stops_the_start_and_says_why(models: Path) -> None:
    graph = models / "sentiment" / "model.onnx"
    graph.write_bytes(graph.read_bytes()[:-100])
    with (
        pytest.raises(RuntimeError, match=r"model\.onnx is not the file its card describes"),
        serving(models),
    ):
        pass


def test_corrupt_bundle_at_reload_leaves_the_old_model_serving(models: Path, mix: Mix) -> None:
    with serving(models, log_level="warning") as server:

        def fault() -> None:
            for name in ("sentiment", "dynamics"):
                graph = models / name / "model.onnx"
                graph.write_bytes(graph.read_bytes()[:-100])
            server.process.send_signal(signal.SIGHUP)

        tally = crowd_during(server, mix, fault)
        assert tally.wrong == []
        assert tally.broken == []
        eventually(lambda: "not the file its card describes" in server.output)
        refused = json.loads(ask(server.port, b"GET /info HTTP/1.1\r\nhost: x\r\n\r\n")[1])["refused"]
        assert {each["name"] for each in refused} >= {"sentiment", "dynamics"}
        assert server.stop() == 0


@pytest.mark.skipif(not FAKETIME.exists(), reason="needs libfaketime (apt-get install faketime)")
def test_clock_that_jumps_changes_no_answer_and_no_deadline(
    mix: Mix, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offset = tmp_path / "offset"
    offset.write_text("+0\n")
    monkeypatch.setenv("LD_PRELOAD", str(FAKETIME))
    monkeypatch.setenv("FAKETIME_TIMESTAMP_FILE", str(offset))
    monkeypatch.setenv("FAKETIME_NO_CACHE", "1")
    monkeypatch.setenv("FAKETIME_DONT_FAKE_MONOTONIC", "1")
    with serving(log_level="error") as server:
        monkeypatch.delenv("LD_PRELOAD")

        def fault() -> None:
            for jump in ("+1d", "-2d", "+0"):
                offset.write_text(f"{jump}\n")
                time.sleep(1)

        tally = crowd_during(server, mix, fault)
        assert tally.wrong == []
        assert tally.broken == []
        assert server.stop() == 0


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
    mix: Mix, dribblers: Callable[[int, int], list[socket.socket]]
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
        print(f"\n200 slow callers: {tally.asked} asked, {tally.refused} refused, {len(tally.broken)} broken")
        assert tally.wrong == []
        assert tally.broken == []
        assert tally.refused == 0, "a caller who has not finished asking takes no place"
        assert server.stop() == 0
