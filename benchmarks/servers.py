"""The servers that are measured: how to start each of them, and what to send."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.record import ROOT

START_S = 90
JSON, NPY = "application/json", "application/x-npy"
QUIET = ("--log-level", "warning")


@dataclass(frozen=True)
class Request:
    """A POST request."""

    path: str
    body: bytes
    content_type: str = JSON

    def send(self, connection: HTTPConnection) -> tuple[int, bytes]:
        """Send it on a connection; return the status and the body of the response."""
        connection.request("POST", self.path, self.body, {"content-type": self.content_type})
        response = connection.getresponse()
        return response.status, response.read()


@dataclass(frozen=True)
class Server:
    """A subject: the arguments of Python that start it, without its port, and its requests and answers."""

    name: str
    arguments: tuple[str, ...]
    path: str
    field: str  # of a request: the text
    item: Callable[[Any], dict[str, Any]]  # the classification in the response

    def request(self, text: str) -> Request:
        return Request(self.path, json.dumps({self.field: text}).encode())


HARDMAX = Server(
    "ours", ("-m", "service.cli.main", "serve", *QUIET), "/classify", "input", lambda body: body["data"][0]
)
TEI = Server(
    "TEI's way", ("-m", "uvicorn", "benchmarks.tei:app", "--no-access-log", *QUIET), "/predict",
    "inputs", lambda items: items[0],
)  # fmt: skip


@contextmanager
def running(server: Server, probe: str, cpus: set[int], *flags: str) -> Iterator[tuple[int, int]]:
    """Run a server on `cpus` until the end of the block; yield its port and process id once it answers."""
    port = free_port()
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("HARDMAX_")}
    env = {**inherited, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, *server.arguments, "--port", str(port), *flags]
    with TemporaryDirectory() as folder, open(Path(folder) / "log", "w+b") as log:
        with pinned(cpus):
            process = subprocess.Popen(
                command, cwd=ROOT, env=env, stdout=log, stderr=log, start_new_session=True
            )
        try:
            if not _answers(server, port, process, probe):
                log.seek(0)
                raise RuntimeError(f"{server.name} does not answer:\n{log.read()[-3000:].decode()}")
            yield port, process.pid
        finally:
            _stop(process)


@contextmanager
def pinned(cpus: set[int]) -> Iterator[None]:
    """Pin this process, and those that it starts, to `cpus` until the end of the block."""
    previous = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cpus)
    try:
        yield
    finally:
        os.sched_setaffinity(0, previous)


def _answers(server: Server, port: int, process: subprocess.Popen[bytes], probe: str) -> bool:
    """Wait until the server classifies the text `probe`."""
    deadline, request = time.monotonic() + START_S, server.request(probe)
    while time.monotonic() < deadline and process.poll() is None:
        with suppress(OSError), closing(HTTPConnection("127.0.0.1", port, timeout=10)) as connection:
            if request.send(connection)[0] == 200:
                return True
        time.sleep(0.005)
    return False


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End all processes of the session: servers leave workers behind if only their parent gets the signal."""
    for signum in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, signum)
            process.wait(10)
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            continue
        time.sleep(0.3)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
