"""The Makefile asks the index of torch once, and does not wait for one that cannot be reached."""

import socket
import subprocess
import sys
import time
from pathlib import Path

from paths import ROOT

RULE = 'show: ; @echo "[$(CPU_BUILD)]" "[$(CPU_BUILD)]"'


def show(*variables: str) -> subprocess.CompletedProcess[str]:
    """Print the options that pip would get, twice."""
    tools = f"BIN={Path(sys.executable).parent}"
    command = ["make", "--silent", "--eval", RULE, "show", tools, *variables]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)


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
