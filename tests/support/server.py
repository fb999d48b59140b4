"""`hardmax serve` in a process of its own, on a free port: what tests talk to over sockets."""

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import psutil
from fastapi.testclient import TestClient

from service.app import create_app
from service.loaders import Loaders
from service.settings import load_settings

PATIENCE_S = 100.0  # for a start, an answer or an end on a slow and busy machine; pytest gives a test 120
SERVE = ("-m", "service.cli.main", "serve")


@dataclass
class Server:
    """A running server: its address, process, and everything that it wrote."""

    process: subprocess.Popen[str]
    port: int = 0
    lines: list[str] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def workers(self) -> list[psutil.Process]:
        """The living processes of a server that has several."""
        found = []
        for child in psutil.Process(self.process.pid).children():
            with suppress(psutil.NoSuchProcess):  # ZombieProcess is one: dead, and nobody has buried it yet
                found += [child] if "spawn_main" in " ".join(child.cmdline()) else []
        return found

    @property
    def cpu_s(self) -> float:
        """What a server of one process has worked: a busy machine changes it little, the clock much."""
        return sum(psutil.Process(self.process.pid).cpu_times()[:2])

    @property
    def memory(self) -> int:
        """The bytes that a server of one process holds."""
        return int(psutil.Process(self.process.pid).memory_info().rss)

    @property
    def output(self) -> str:
        return "".join(self.lines)

    def client(self, **options: object) -> httpx.Client:
        """Over plain HTTP. Without `verify=False` each client reads all certificates: 40 ms of CPU time."""
        common = {"base_url": self.url, "timeout": PATIENCE_S, "trust_env": False, "verify": False}
        return httpx.Client(**common, **options)  # type: ignore[arg-type]

    def stop(self, number: int = signal.SIGTERM, timeout_s: float = PATIENCE_S) -> int:
        """Send a signal and wait for the end; the exit code."""
        self.process.send_signal(number)
        return self.process.wait(timeout_s)


def environ(**settings: object) -> dict[str, str]:
    """Our own environment with these settings, and no others of the service."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("HARDMAX_")}
    return ours | {f"HARDMAX_{name.upper()}": str(value) for name, value in settings.items()}


@contextmanager
def serving(
    models_dir: Path | None = None,
    *,
    command: Sequence[str] = SERVE,
    folder: Path | None = None,
    stderr: int = subprocess.STDOUT,
    **settings: object,
) -> Iterator[Server]:
    """A ready server with the given settings (`max_points=5` is HARDMAX_MAX_POINTS), ended at exit.

    It runs in `folder`. `models_dir` is served alone: a test that wants the bundled models too says
    pretrained_models=True. A log that goes elsewhere (`stderr`) is not in its output.
    """
    alone = {"models_dir": models_dir, "pretrained_models": False} if models_dir else {}
    given = {"port": 0, **alone, **settings}
    process = subprocess.Popen(
        [sys.executable, *command],
        cwd=folder, env=environ(**given), text=True,
        stdout=subprocess.PIPE, stderr=stderr,
    )  # fmt: skip
    server = Server(process)
    reader = threading.Thread(target=_read, args=(server,), daemon=True)
    reader.start()
    try:
        _await_port(server)
        yield server
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        reader.join(5)
        for stream in filter(None, (process.stdout, process.stderr)):
            stream.close()


@contextmanager
def in_process(models_dir: Path, loaders: Loaders | None = None, **settings: object) -> Iterator[TestClient]:
    """The same application without a socket, for what no socket changes: ready in a tenth of the time."""
    given = {"models_dir": models_dir, "pretrained_models": False, "default_model": "tiny", **settings}
    app = create_app(load_settings({}, log_level="error", **given), loaders=loaders)
    with TestClient(app, base_url="http://127.0.0.1") as client:
        yield client


def python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A program in an interpreter of its own."""
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], text=True, capture_output=True, timeout=60
    )


def eventually(holds: Callable[[], bool], timeout_s: float = PATIENCE_S) -> None:
    """Wait until it holds; fail when it does not within the time. Who waits long asks less often."""
    began = time.monotonic()
    while not holds():
        waited_s = time.monotonic() - began
        assert waited_s < timeout_s, "this did not come about in time"
        time.sleep(min(0.02 + waited_s / 20, 0.5))


def listens(port: int) -> bool:
    """Whether somebody listens there."""
    with socket.socket() as attempt:
        return attempt.connect_ex(("127.0.0.1", port)) == 0


def _read(server: Server) -> None:
    assert server.process.stdout is not None
    for line in server.process.stdout:
        server.lines.append(line)
        if not server.port and (found := re.search(r" on http://\S+:(\d+)", line)):
            server.port = int(found[1])


def _await_port(server: Server) -> None:
    """The greeting names the port; it comes when models are loaded and warm."""
    deadline = time.monotonic() + PATIENCE_S
    while not server.port:
        if server.process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"the server did not start:\n{server.output}")
        time.sleep(0.01)
