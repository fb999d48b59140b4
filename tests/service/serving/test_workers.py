"""Workers under uvicorn's supervisor: signs of life, rolling restarts, and one that hangs."""

import os
import re
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest
from server import Server, eventually, serving
from uvicorn.supervisors.multiprocess import SIGNALS

from service.app import create_app
from service.serving.server import Config, descriptors
from service.serving.start import Worker, Workers, listen
from service.settings import Settings


@pytest.fixture
def worker() -> Worker:
    """One whose process, which is none, lives."""
    worker = Worker(Config(Settings(), create_app), [])
    worker.process = SimpleNamespace(is_alive=lambda: True)  # type: ignore[assignment]
    return worker


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


def test_worker_that_gives_no_sign_of_life_counts_as_dead_and_asking_never_waits(worker: Worker) -> None:
    began = time.monotonic()
    assert worker.is_alive(timeout=60)
    assert worker.child_conn.recv() == b"ping"
    assert worker.is_alive(timeout=60)
    assert time.monotonic() - began < 6
    worker.child_conn.send(True)
    assert worker.is_alive(timeout=60)
    assert worker.started
    time.sleep(0.1)
    assert not worker.is_alive(timeout=0.1)


def test_worker_that_still_starts_has_more_time_for_its_first_sign_of_life(worker: Worker) -> None:
    """One that took over 30 s to start, on a busy machine, was killed and begun again, for ever."""
    assert worker.is_alive(timeout=0.1)
    time.sleep(0.1)
    assert worker.is_alive(timeout=0.1)
    assert not worker.is_alive(timeout=0.1, start_s=0.1)


def test_new_worker_has_as_long_to_serve_as_one_at_the_start(worker: Worker) -> None:
    """In a rolling restart it had half a minute, and a slow machine could not replace its workers."""
    worker.child_conn.send(True)
    assert worker.wait_until_ready(timeout=0)


def test_stop_is_obeyed_while_a_new_worker_starts(worker: Worker) -> None:
    before = {number: signal.getsignal(number) for number in SIGNALS}
    try:
        workers = Workers(worker.config, [])
        assert not workers.should_exit.is_set()
        os.kill(os.getpid(), signal.SIGTERM)
        began = time.monotonic()
        assert not worker.wait_until_ready(60, workers.should_exit)
        assert time.monotonic() - began < 5
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_worker_that_begins_does_not_make_the_shared_listener_block() -> None:
    """The others would wait in accept for the next caller, and leave the last one without an answer."""
    listener = listen(Settings(port=0))
    handed_over = socket.socket(fileno=os.dup(listener.fileno()))  # as a new process has it
    for each in descriptors(handed_over):
        assert not os.get_blocking(listener.fileno())
        each.close()
    handed_over.close()
    listener.close()


@pytest.mark.system
def test_rolling_restart_replaces_every_worker_and_refuses_nobody(pair: Server) -> None:
    statuses: list[int] = []
    over = threading.Event()

    def ask() -> None:
        while not over.is_set():
            with pair.client() as client:
                statuses.append(client.post("/classify", json={"input": "superb"}).status_code)

    before = {worker.pid for worker in pair.workers}
    caller = threading.Thread(target=ask)
    caller.start()
    pair.process.send_signal(signal.SIGUSR2)
    eventually(lambda: len(pair.workers) == 2 and not before & {each.pid for each in pair.workers})
    over.set()
    caller.join()
    assert set(statuses) == {200}


@pytest.mark.system
def test_workers_are_added_and_removed_by_signals(pair: Server) -> None:
    pair.process.send_signal(signal.SIGTTIN)
    eventually(lambda: len(pair.workers) == 3)
    with pair.client() as client:
        eventually(lambda: "hardmax_ready 3.0" in client.get("/metrics").text)
    pair.process.send_signal(signal.SIGTTOU)
    eventually(lambda: len(pair.workers) == 2)


@pytest.mark.system
def test_killed_worker_comes_back_and_the_others_go_on(pair: Server) -> None:
    victim = pair.workers[0]
    victim.kill()
    statuses = set()
    while victim.is_running() or len(pair.workers) < 2:
        with pair.client() as client:
            statuses.add(client.post("/classify", json={"input": "superb"}).status_code)
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
        assert server.stop() == 0, "1 would say that a worker had to be killed"
        assert "Traceback" not in server.output


@pytest.mark.system
def test_worker_that_was_stopped_for_good_cannot_hold_up_the_end(models: Path) -> None:
    with serving(models, default_model="tiny", workers=2, shutdown_grace_s=1) as server:
        with server.client() as client:
            eventually(lambda: are_ready(server, client))
        family = server.workers
        family[0].suspend()
        code = server.stop(timeout_s=1 + 5 + 5)  # the grace, what the supervisor adds to it, and some
        assert code == 1, "a worker had to be killed, and the exit code says so"
        assert not any(each.is_running() for each in family)


@pytest.mark.system
def test_workers_end_when_their_supervisor_is_killed(models: Path) -> None:
    with serving(models, default_model="tiny", workers=2) as server:
        family = server.workers
        server.process.kill()
        eventually(lambda: not any(each.is_running() for each in family))


@pytest.mark.system
def test_workers_end_when_their_supervisor_fails(models: Path, tmp_path: Path) -> None:
    script = tmp_path / "failing.py"
    script.write_text(
        "import runpy, sys\n"
        "from service.serving import start\n"
        "def fail(pid): raise RuntimeError('a fault of the supervisor')\n"
        "start.forget_process = fail\n"
        "sys.argv = ['hardmax', 'serve']\n"
        "if __name__ == '__main__': runpy.run_module('service.cli.main', run_name='__main__')\n"
    )
    with serving(models, command=(str(script),), default_model="tiny", workers=2) as server:
        with server.client() as client:
            eventually(lambda: are_ready(server, client), 100)
        family = server.workers
        family[0].kill()
        assert server.process.wait(60) != 0
        eventually(lambda: not any(each.is_running() for each in family))
    assert "a fault of the supervisor" in server.output
