"""A server process of this project with its own settings, for as long as a test needs it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
from playwright.sync_api import Page

START_S = 60

Visit = Callable[..., Page]


@contextmanager
def serving(**settings: str) -> Iterator[str]:
    """The address of a server process with these settings, ready."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environ = {**os.environ, "HARDMAX_PORT": str(port), "HARDMAX_LOG_LEVEL": "warning", **settings}
    process = subprocess.Popen([str(Path(sys.executable).with_name("hardmax")), "serve"], env=environ)
    url = f"http://127.0.0.1:{port}"
    try:
        wait_until_ready(url, process)
        yield url
    finally:
        process.terminate()
        process.wait(30)


def wait_until_ready(url: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        assert process.poll() is None, "the server ended before it was ready"
        try:
            if httpx.get(f"{url}/ready").status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.1)
    raise AssertionError(f"the server was not ready after {START_S} s")
