"""The Makefile asks the index of torch once, and does not wait for one that cannot be reached."""

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest
from paths import ROOT

RULE = 'show: ; @echo "[$(CPU_BUILD)]" "[$(CPU_BUILD)]"'


def show(*variables: str) -> subprocess.CompletedProcess[str]:
    """Print the options that pip would get, twice."""
    tools = f"BIN={Path(sys.executable).parent}"
    command = ["make", "--silent", "--eval", RULE, "show", tools, *variables]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)


@pytest.fixture
def index() -> Iterator[str]:
    class Index(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()

        def log_message(self, *message: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Index) as server:
        Thread(target=server.serve_forever, args=[0.01], daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_torch_comes_from_its_own_index_if_that_answers(index: str) -> None:
    option = f"[--extra-index-url {index}]"
    shown = show("TORCH=cpu", f"TORCH_INDEX={index}")
    assert (shown.stdout, shown.stderr) == (f"{option} {option}\n", "")
    assert show().stdout == "[] []\n"


def test_torch_comes_from_the_ordinary_index_if_its_own_does_not_answer() -> None:
    """A server that accepts a connection and never answers, and a name that nobody knows."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        for address in (f"127.0.0.1:{silent.getsockname()[1]}", "index.invalid"):
            start_s = time.monotonic()
            shown = show("TORCH=cpu", f"TORCH_INDEX=http://{address}", "TORCH_INDEX_S=2")
            assert time.monotonic() - start_s < 30
            assert shown.stdout == "[] []\n"
            message = f"http://{address} cannot be reached: torch comes from the ordinary index, with CUDA"
            assert shown.stderr == f"{message} (1.7 GB)\n"
