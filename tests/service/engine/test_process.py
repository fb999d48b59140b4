"""Memory goes back to the system when the work is over, whatever it was that took it."""

import json
import platform
import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from server import Server, eventually, python, serving
from wire import NPY, connect, npy, read_answer, whole

BOUND = 20_000_000  # bytes
LONG = whole(json.dumps({"input": "superb " * 28_000, "explain": "full"}).encode())


def keep_every_layer(n: int) -> bytes:
    body = npy(np.random.default_rng(0).normal(size=(n, 8)))
    return whole(body, "/dynamics?stop=never&max_layers=200&include=trajectory", NPY)


@contextmanager
def served(*first: bytes) -> Iterator[Server]:
    """A server that has answered these."""
    with serving(log_level="error") as server:
        with connect(server.port) as caller:
            for request in (whole(b'{"input": "superb"}'), *first):
                caller.sendall(request)
                read_answer(caller)
        yield server


@pytest.mark.system
def test_long_texts_and_answers_that_nobody_waits_for_leave_nothing_in_memory() -> None:
    """Their bodies are small. The last caller leaves while the work runs, and nobody comes after."""
    with served(keep_every_layer(20)) as server:
        before = server.memory
        callers = [connect(server.port) for _ in range(3)]
        for caller in callers:
            caller.sendall(LONG)
        for caller in callers:
            read_answer(caller)
        for caller in callers:
            caller.sendall(keep_every_layer(2_000))
        eventually(lambda: server.memory > before + 2 * BOUND)
        for caller in callers:
            caller.close()
        eventually(lambda: server.memory < before + BOUND, 20)


ONE_HEAP = """
import threading
from pathlib import Path

from service.engine import process

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

process.prepare()
before = resident()
kept = []
thread = threading.Thread(target=lambda: kept.extend(b"a" * 24_000 for _ in range(1000)))
thread.start()
thread.join()
kept.clear()
left = resident()
process.release_memory()
print(left - before > 20e6, resident() - before > 5e6)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other libraries have no heaps to share")
def test_memory_that_a_thread_left_free_goes_back() -> None:
    assert python(ONE_HEAP).stdout.split() == ["True", "False"]


@pytest.mark.system
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other libraries have no heaps to share")
def test_memory_of_connections_that_are_closed_goes_back() -> None:
    """Row 23: it is taken while nothing else happens, and freed later."""
    half = b"GET /" + b"a" * 50_000
    with served() as server:
        time.sleep(3)  # memory of the start goes back
        before = server.memory
        callers = [connect(server.port) for _ in range(600)]
        for caller in callers:
            caller.sendall(half)
        eventually(lambda: server.memory > before + BOUND, 20)
        time.sleep(3)
        for caller in callers:
            caller.close()
        eventually(lambda: server.memory < before + BOUND / 2, 20)


@pytest.mark.system
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other libraries have no heaps to share")
def test_connections_that_are_reset_are_forgotten_at_once() -> None:
    """Each was kept, with its request, until its keep-alive was over."""
    with served() as server:
        time.sleep(3)
        before = server.memory
        for _ in range(2_000):
            with connect(server.port) as caller:
                caller.sendall(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n")
                assert caller.recv(1) == b"H"  # what is left unread resets the connection
        eventually(lambda: server.memory < before + BOUND / 2, 20)
