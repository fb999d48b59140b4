"""Workers under uvicorn's supervisor: signs of life, rolling restarts, and one that hangs."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest
from bundles import write_head
from server import Server, eventually, serving

from service.app import create_app
from service.serving.server import Config, descriptors
from service.serving.start import listen
from service.serving.workers import Worker
from service.settings import Settings


@pytest.fixture
def models(tmp_path: Path) -> Path:
    write_head(tmp_path)
    return tmp_path


def test_worker_that_gives_no_sign_of_life_counts_as_dead_and_asking_never_waits() -> None:
    worker = Worker(Config(Settings(), create_app), [])
    worker.process = SimpleNamespace(is_alive=lambda: True)  # type: ignore[assignment]
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


def test_worker_that_still_starts_has_more_time_for_its_first_sign_of_life() -> None:
    """One that took over 30 s to start, on a busy machine, was killed and begun again, for ever."""
    worker = Worker(Config(Settings(), create_app), [])
    worker.process = SimpleNamespace(is_alive=lambda: True)  # type: ignore[assignment]
    assert worker.is_alive(timeout=0.1)
    time.sleep(0.1)
    assert worker.is_alive(timeout=0.1)
    assert not worker.is_alive(timeout=0.1, start_s=0.1)


def two_ready(server: Server, client: httpx.Client) -> bool:
    return len(server.workers) == 2 and "hardmax_ready 2.0" in client.get("/metrics").text


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
def test_rolling_restart_replaces_every_worker_and_refuses_nobody(models: Path) -> None:
    statuses: list[int] = []
    over = threading.Event()

    def ask(server: Server) -> None:
        while not over.is_set():
            with server.client() as client:
                statuses.append(client.post("/classify", json={"input": "superb"}).status_code)

    with serving(models, default_model="tiny", workers=2) as server:
        with server.client() as client:
            eventually(lambda: two_ready(server, client))
        before = {worker.pid for worker in server.workers}
        caller = threading.Thread(target=ask, args=(server,))
        caller.start()
        server.process.send_signal(signal.SIGUSR2)
        eventually(lambda: len(server.workers) == 2 and not before & {each.pid for each in server.workers})
        over.set()
        caller.join()
        assert server.stop() == 0
    assert set(statuses) == {200}


@pytest.mark.system
def test_worker_that_was_stopped_for_good_cannot_hold_up_the_end(models: Path) -> None:
    with serving(models, default_model="tiny", workers=2, shutdown_grace_s=1) as server:
        with server.client() as client:
            eventually(lambda: two_ready(server, client))
        family = server.workers
        family[0].suspend()
        assert server.stop() == 1, "a worker had to be killed, and the exit code says so"
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
        "from service.serving import workers\n"
        "def fail(pid): raise RuntimeError('a fault of the supervisor')\n"
        "workers.forget_process = fail\n"
        "sys.argv = ['hardmax', 'serve']\n"
        "if __name__ == '__main__': runpy.run_module('service.cli.main', run_name='__main__')\n"
    )
    with serving(models, command=(str(script),), default_model="tiny", workers=2) as server:
        with server.client() as client:
            eventually(lambda: two_ready(server, client), 100)
        family = server.workers
        family[0].kill()
        assert server.process.wait(60) != 0
        eventually(lambda: not any(each.is_running() for each in family))
    assert "a fault of the supervisor" in server.output
