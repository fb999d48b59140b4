"""`hardmax serve` in a separate process on a free port, for tests over sockets."""

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
from service.loaders import Loaders, domain_loaders
from service.settings import load_settings

TIMEOUT_S = 100.0  # for a start, a response or an end on a slow and busy machine; pytest stops a test at 120
SERVE = ("-m", "service.cli.main", "serve")


@dataclass
class Server:
    """A running server: its process, port and output."""

    process: subprocess.Popen[str]
    port: int = 0
    lines: list[str] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def workers(self) -> list[psutil.Process]:
        """The living worker processes of a server that has several."""
        workers = []
        for child in psutil.Process(self.process.pid).children():
            with suppress(psutil.NoSuchProcess):  # also raised for zombies, as ZombieProcess
                workers += [child] if "spawn_main" in " ".join(child.cmdline()) else []
        return workers

    @property
    def cpu_s(self) -> float:
        """The CPU time of a server with one process, which depends little on the load of the machine."""
        return sum(psutil.Process(self.process.pid).cpu_times()[:2])

    @property
    def memory(self) -> int:
        """The memory of a server with one process, in bytes."""
        return int(psutil.Process(self.process.pid).memory_info().rss)

    @property
    def output(self) -> str:
        return "".join(self.lines)

    def client(self, **options: object) -> httpx.Client:
        """Create a client. Without `verify=False` each client reads all certificates: 40 ms of CPU time."""
        common = {"base_url": self.url, "timeout": TIMEOUT_S, "trust_env": False, "verify": False}
        return httpx.Client(**common, **options)  # type: ignore[arg-type]

    def stop(self, signal_number: int = signal.SIGTERM, timeout_s: float = TIMEOUT_S) -> int:
        """Send a signal, wait for the end, and return the exit code."""
        self.process.send_signal(signal_number)
        return self.process.wait(timeout_s)


def environ(**settings: object) -> dict[str, str]:
    """Return the environment of this process with these settings of the service, and no others."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("HARDMAX_")}
    return variables | {f"HARDMAX_{name.upper()}": str(value) for name, value in settings.items()}


@contextmanager
def serving(
    models_dir: Path | None = None,
    *,
    command: Sequence[str] = SERVE,
    folder: Path | None = None,
    stderr: int = subprocess.STDOUT,
    **settings: object,
) -> Iterator[Server]:
    """Run a server with these settings (`max_points=5` is HARDMAX_MAX_POINTS) until the block is left.

    It runs in `folder`. It serves `models_dir` only; the pretrained models too with pretrained_models=True.
    Its output contains no log that is redirected with `stderr`.
    """
    only_models = {"models_dir": models_dir, "pretrained_models": False} if models_dir else {}
    options = {"port": 0, **only_models, **settings}
    process = subprocess.Popen(
        [sys.executable, *command],
        cwd=folder, env=environ(**options), text=True,
        stdout=subprocess.PIPE, stderr=stderr,
    )  # fmt: skip
    server = Server(process)
    reader = threading.Thread(target=_read_lines, args=(server,), daemon=True)
    reader.start()
    try:
        _await_port(server)
        yield server
    finally:
        if process.poll() is None:
            process.terminate()
            process.send_signal(signal.SIGINT)  # the second signal: without the wait for last requests
            try:
                process.wait(TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        reader.join(5)
        for stream in filter(None, (process.stdout, process.stderr)):
            stream.close()


@contextmanager
def in_process(
    models_dir: Path, loaders: Loaders | None = domain_loaders, **settings: object
) -> Iterator[TestClient]:
    """Run the same application without a socket or proofs, which takes a tenth of the time to start."""
    options = {"models_dir": models_dir, "pretrained_models": False, "default_model": "tiny", **settings}
    app = create_app(load_settings({}, log_level="error", **options), loaders=loaders)
    with TestClient(app, base_url="http://127.0.0.1") as client:
        yield client


def run_python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a new interpreter."""
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], text=True, capture_output=True, timeout=60
    )


def eventually(condition: Callable[[], bool], timeout_s: float = TIMEOUT_S) -> None:
    """Wait until the condition holds, and fail after `timeout_s`. It is checked less and less often."""
    start_s = time.monotonic()
    while not condition():
        waited_s = time.monotonic() - start_s
        assert waited_s < timeout_s, "the condition did not hold in time"
        time.sleep(min(0.02 + waited_s / 20, 0.5))


def is_listening(port: int) -> bool:
    """Whether a server listens on this port."""
    with socket.socket() as client_socket:
        return client_socket.connect_ex(("127.0.0.1", port)) == 0


def _read_lines(server: Server) -> None:
    assert server.process.stdout is not None
    for line in server.process.stdout:
        server.lines.append(line)
        if not server.port and (match := re.search(r" on http://\S+:(\d+)", line)):
            server.port = int(match[1])


def _await_port(server: Server) -> None:
    """Wait for the line with the port, which the server prints when its models are loaded and warm."""
    deadline_s = time.monotonic() + TIMEOUT_S
    while not server.port:
        if server.process.poll() is not None or time.monotonic() > deadline_s:
            raise RuntimeError(f"the server did not start:\n{server.output}")
        time.sleep(0.01)
