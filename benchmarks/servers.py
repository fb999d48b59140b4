"""The servers that are compared: how to start each of them, and what to send.

Every peer has its own virtual environment (environments.py), so that no peer's pins affect another peer.
"""

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil

from benchmarks.environments import ROOT, environment
from benchmarks.load import post, send_request

START_S = 90
SERVER_ENVIRONMENT = {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"}

Start = Callable[[str, int, Path], tuple[list[str], dict[str, str]]]


@dataclass(frozen=True)
class Server:
    """A subject: `start(python, port, folder)` returns its command line and environment variables."""

    name: str
    requirements: str | None  # None: our own environment
    start: Start
    path: str
    body: Callable[[str], dict[str, Any]]  # the request for a text
    item: Callable[[Any], dict[str, Any]]  # the classification in the response

    def request(self, text: str) -> bytes:
        return post(self.path, json.dumps(self.body(text)).encode())


def _hardmax(python: str, port: int, folder: Path) -> tuple[list[str], dict[str, str]]:
    flags = ["--port", str(port), "--log-level", "warning"]
    return [python, "-m", "service.cli.main", "serve", *flags], {}


def _tei(python: str, port: int, folder: Path) -> tuple[list[str], dict[str, str]]:
    flags = ["--no-access-log", "--log-level", "warning", "--loop", "uvloop", "--http", "httptools"]
    return [python, "-m", "uvicorn", "benchmarks.peers.tei:app", "--port", str(port), *flags], {}


def _litserve(python: str, port: int, folder: Path) -> tuple[list[str], dict[str, str]]:
    return [python, "-m", "benchmarks.peers.lit", str(port)], {}


def _bentoml(python: str, port: int, folder: Path) -> tuple[list[str], dict[str, str]]:
    flags = ["--host", "127.0.0.1", "--port", str(port), "--working-dir", str(ROOT)]
    variables = {"BENTOML_HOME": str(folder), "BENTOML_DO_NOT_TRACK": "True"}
    return [python, "-m", "bentoml", "serve", "benchmarks.peers.bento:Reviews", *flags], variables


def _mlserver(python: str, port: int, folder: Path) -> tuple[list[str], dict[str, str]]:
    server = {"host": "127.0.0.1", "http_port": port, "grpc_port": free_port(), "metrics_port": free_port()}
    (folder / "settings.json").write_text(json.dumps({**server, "parallel_workers": 0, "debug": False}))
    batching = {"max_batch_size": 32, "max_batch_time": 0.001}
    model = {"name": "reviews", "implementation": "benchmarks.peers.mls.Reviews", **batching}
    (folder / "model-settings.json").write_text(json.dumps(model))
    return [str(Path(python).parent / "mlserver"), "start", str(folder)], {}


def _tensor(text: str) -> dict[str, Any]:
    return {"inputs": [{"name": "text", "datatype": "BYTES", "shape": [1], "data": [text]}]}


HARDMAX = Server(
    "ours", None, _hardmax, "/classify", lambda text: {"input": text}, lambda answer: answer["data"][0]
)
PEERS = (
    Server("TEI's way", None, _tei, "/predict", lambda text: {"inputs": text}, lambda items: items[0]),
    Server("LitServe", "litserve", _litserve, "/predict", lambda text: {"input": text}, HARDMAX.item),
    Server(
        "BentoML", "bentoml", _bentoml, "/predict", lambda text: {"input": [text]}, lambda items: items[0]
    ),
    Server(
        "MLServer",
        "mlserver",
        _mlserver,
        "/v2/models/reviews/infer",
        _tensor,
        lambda answer: json.loads(answer["outputs"][0]["data"][0]),
    ),
)


def versions(python: str, packages: tuple[str, ...]) -> dict[str, str]:
    """Return the versions of packages that another interpreter imports."""
    program = "import sys, json, importlib.metadata as m; "
    program += "print(json.dumps({name: m.version(name) for name in sys.argv[1:]}))"
    printed = subprocess.run([python, "-c", program, *packages], check=True, capture_output=True).stdout
    return json.loads(printed)


@contextmanager
def running(server: Server, probe: str, cpus: set[int]) -> Iterator[tuple[int, int]]:
    """Run a server on `cpus` until the end of the block; yield its port and process id once it answers."""
    python, port = environment(server.requirements), free_port()
    with TemporaryDirectory() as folder:
        command, variables = server.start(python, port, Path(folder))
        with pinned(cpus), open(Path(folder) / "log", "wb") as log:
            process = subprocess.Popen(
                command, cwd=ROOT, env=_environment(variables), stdout=log, stderr=log, start_new_session=True
            )
        try:
            _wait(server, port, process, probe, Path(folder) / "log")
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


def _environment(variables: Mapping[str, str]) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("HARDMAX_")}
    return {**inherited, **SERVER_ENVIRONMENT, **variables}


def _wait(server: Server, port: int, process: subprocess.Popen[bytes], probe: str, log: Path) -> None:
    """Wait until the server classifies the text `probe`."""
    deadline = time.monotonic() + START_S
    request = server.request(probe)
    while time.monotonic() < deadline and process.poll() is None:
        try:
            if send_request(port, request)[0] == 200:
                return
        except OSError:
            pass
        time.sleep(0.1)
    raise RuntimeError(f"{server.name} does not answer:\n{log.read_text(errors='replace')[-3000:]}")


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


def process_tree(pid: int) -> list[psutil.Process]:
    """Return a process and all that it started."""
    process = psutil.Process(pid)
    return [process, *process.children(recursive=True)]


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
