"""The edge: a real nginx with the project's configuration."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from paths import ROOT
from server import eventually, is_listening

from benchmarks.servers import free_port

CONFIGURATION = ROOT / "docker/edge/nginx.conf"
TLS = ROOT / "docker/edge/tls.conf"


@contextmanager
def edge(
    folder: Path, upstream: int, tls: int | None = None, rate: int = 200, **limits: int
) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Run nginx with the project's configuration; only addresses, folders and given limits are replaced."""
    port, health = free_port(), free_port()
    text = CONFIGURATION.read_text()
    replacements = [
        ("/tmp/", f"{folder}/"),
        ("/etc/edge/listen", f"{folder}/listen"),
        ("/dev/stdout", f"{folder}/access.log"),
        ("/dev/stderr error", f"{folder}/error.log warn"),
        ("hardmax:8000", f"127.0.0.1:{upstream}"),
        ("127.0.0.1:8081", f"127.0.0.1:{health}"),
        ("listen 8000", f"listen 127.0.0.1:{port}"),
        ("rate=200r/s", f"rate={rate}r/s"),
        *((rf"limit_conn {name} ", f"limit_conn {name} {limit}; # ") for name, limit in limits.items()),
    ]
    for old, new in replacements:
        assert old in text, old
        text = text.replace(old, new)
    (folder / "listen").mkdir(exist_ok=True)
    if tls is not None:
        tls_text = TLS.read_text().replace("/etc/edge/certificates", str(folder))
        (folder / "listen/tls.conf").write_text(tls_text.replace("listen 8443", f"listen 127.0.0.1:{tls}"))
    with run_nginx(folder, text, health) as process:
        yield process, port


@contextmanager
def run_nginx(folder: Path, configuration: str, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """Run nginx with this configuration, which listens on `port`, until the block is left."""
    # As root, nginx would work as a user who may not enter this test's folder.
    user = "user root;" if os.geteuid() == 0 else ""
    (folder / "nginx.conf").write_text(f"daemon off; {user}\n{configuration}")
    command = ["nginx", "-c", f"{folder}/nginx.conf", "-e", f"{folder}/error.log"]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL) as process:
        try:
            eventually(lambda: is_listening(port))
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
