"""The servers that are compared: how each is started and asked.

Every peer lives in an environment of its own (environments.py), so that no peer's pins can bend another's.
"""

from __future__ import annotations

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

from benchmarks.environments import ROOT, environment
from benchmarks.load import ask, post

START_S = 90
QUIET = {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"}

Body = Callable[[str, str], dict[str, Any]]


@dataclass(frozen=True)
class Server:
    """One subject: `start(python, port, workers, folder)` is its command line and environment."""

    name: str
    requirements: str | None  # None: our own environment
    start: Callable[[str, int, int, Path], tuple[list[str], dict[str, str]]]
    path: Callable[[str], str]  # the route for a kind of answer
    body: Body  # what is sent for (text, kind of answer)
    item: Callable[[Any], dict[str, Any]]  # the classification in the answer
    several: bool = True  # whether it has worker processes

    def request(self, text: str, explain: str) -> bytes:
        return post(self.path(explain), json.dumps(self.body(text, explain)).encode())


def _plain_body(text: str, explain: str) -> dict[str, Any]:
    return {"input": text, "explain": explain}


def _first_item(answer: Any) -> dict[str, Any]:
    return answer["data"][0]  # type: ignore[no-any-return]


def _uvicorn(app: str) -> Callable[[str, int, int, Path], tuple[list[str], dict[str, str]]]:
    def start(python: str, port: int, workers: int, folder: Path) -> tuple[list[str], dict[str, str]]:
        flags = ["--no-access-log", "--log-level", "warning", "--loop", "uvloop", "--http", "httptools"]
        address = ["--host", "127.0.0.1", "--port", str(port), "--workers", str(workers)]
        return [python, "-m", "uvicorn", app, *address, *flags], {}

    return start


def _ours(python: str, port: int, workers: int, folder: Path) -> tuple[list[str], dict[str, str]]:
    flags = ["--port", str(port), "--workers", str(workers), "--max-concurrent-requests", "1024"]
    return [python, "-m", "service.cli.main", "serve", *flags, "--log-level", "warning"], {}


def _without_lane(python: str, port: int, workers: int, folder: Path) -> tuple[list[str], dict[str, str]]:
    return _ours(python, port, workers, folder)[0], {"HARDMAX_EXPRESS_LANE": "false"}


def _litserve(python: str, port: int, workers: int, folder: Path) -> tuple[list[str], dict[str, str]]:
    flags = ["--port", str(port), "--workers", str(workers)]
    return [python, "-m", "benchmarks.peers.lit", *flags], {}


def _bentoml(python: str, port: int, workers: int, folder: Path) -> tuple[list[str], dict[str, str]]:
    flags = ["--host", "127.0.0.1", "--port", str(port), "--working-dir", str(ROOT)]
    own = {"BENTO_WORKERS": str(workers), "BENTOML_HOME": str(folder), "BENTOML_DO_NOT_TRACK": "True"}
    return [python, "-m", "bentoml", "serve", "benchmarks.peers.bento:Reviews", *flags], own


def _mlserver(python: str, port: int, workers: int, folder: Path) -> tuple[list[str], dict[str, str]]:
    server = {"host": "127.0.0.1", "http_port": port, "grpc_port": free_port(), "metrics_port": free_port()}
    processes = 0 if workers == 1 else workers
    (folder / "settings.json").write_text(
        json.dumps({**server, "parallel_workers": processes, "debug": False})
    )
    for name in ("leaders", "none"):
        (folder / name).mkdir()
        batching = {"max_batch_size": 32, "max_batch_time": 0.001}
        model = {"name": name, "implementation": "benchmarks.peers.mls.Reviews", **batching}
        (folder / name / "model-settings.json").write_text(json.dumps(model))
    return [str(Path(python).parent / "mlserver"), "start", str(folder)], {}


def _tensor(text: str, explain: str) -> dict[str, Any]:
    return {"inputs": [{"name": "text", "datatype": "BYTES", "shape": [1], "data": [text]}]}


OURS = Server("ours", None, _ours, lambda kind: "/classify", _plain_body, _first_item)
ORDINARY = Server(
    "ours without the lane", None, _without_lane, lambda kind: "/classify", _plain_body, _first_item
)
FLOOR = Server(
    "floor", None, _uvicorn("benchmarks.peers.floor:app"), lambda kind: f"/{kind}", _plain_body, _first_item
)
_PLAIN = _uvicorn("benchmarks.peers.plain:app")
_BATCHED = _uvicorn("benchmarks.peers.batched:app")
PEERS = (
    Server("FastAPI, our batcher", None, _BATCHED, lambda kind: "/plain", _plain_body, _first_item),
    Server("FastAPI's hook, our batcher", None, _BATCHED, lambda kind: "/hook", _plain_body, _first_item),
    Server("FastAPI, in the loop", "fastapi", _PLAIN, lambda kind: "/loop", _plain_body, _first_item),
    Server("FastAPI, in threads", "fastapi", _PLAIN, lambda kind: "/threads", _plain_body, _first_item),
    Server("LitServe", "litserve", _litserve, lambda kind: "/predict", _plain_body, _first_item),
    Server(
        "BentoML",
        "bentoml",
        _bentoml,
        lambda kind: f"/{kind}",
        lambda text, kind: {"input": [text]},
        lambda answer: answer[0],
    ),
    Server(
        "MLServer",
        "mlserver",
        _mlserver,
        lambda kind: f"/v2/models/{kind}/infer",
        _tensor,
        lambda answer: json.loads(answer["outputs"][0]["data"][0]),
    ),
)


def versions(python: str, packages: tuple[str, ...]) -> dict[str, str]:
    """Versions of installed packages as another interpreter sees them."""
    program = "import sys, json, importlib.metadata as m; "
    program += "print(json.dumps({name: m.version(name) for name in sys.argv[1:]}))"
    printed = subprocess.run([python, "-c", program, *packages], check=True, capture_output=True).stdout
    return json.loads(printed)  # type: ignore[no-any-return]


@contextmanager
def running(server: Server, workers: int, probe: str, cpus: set[int]) -> Iterator[int]:
    """The server on a free port, up to its first right answer; its processes stay on `cpus`."""
    python, port = environment(server.requirements), free_port()
    with TemporaryDirectory() as folder:
        command, own = server.start(python, port, workers, Path(folder))
        with pinned(cpus), open(Path(folder) / "log", "wb") as log:
            process = subprocess.Popen(
                command, cwd=ROOT, env=_environment(own), stdout=log, stderr=log, start_new_session=True
            )
        try:
            _await(server, port, process, probe, Path(folder) / "log")
            yield port
        finally:
            _stop(process)


@contextmanager
def pinned(cpus: set[int]) -> Iterator[None]:
    """This process, and what it starts, run on `cpus` until the end of the block."""
    mine = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cpus)
    try:
        yield
    finally:
        os.sched_setaffinity(0, mine)


def _environment(own: Mapping[str, str]) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HARDMAX_")}
    return {**kept, **QUIET, **own}


def _await(server: Server, port: int, process: subprocess.Popen[bytes], probe: str, log: Path) -> None:
    deadline = time.monotonic() + START_S
    request = server.request(probe, "leaders")
    while time.monotonic() < deadline and process.poll() is None:
        try:
            if ask(port, request)[0] == 200:
                return
        except OSError:
            pass
        time.sleep(0.1)
    raise RuntimeError(f"{server.name} does not answer:\n{log.read_text(errors='replace')[-3000:]}")


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Ends the whole session of the process: servers leave workers behind when only their head is told."""
    for ending in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, ending)
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
