"""Where the peers are installed: apart from us and from each other, from requirements-NAME.txt, on first use.

    python = environment("litserve")   the interpreter of an environment of its own, for peers that run apart
    refused = fetched("clouds")        the packages importable here, after ours, for peers in this process

Both lie under the user's cache folder and are made again when their pins change.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[1]
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "hardmax-benchmarks"
PIP = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check")


class CannotInstall(Exception):
    """A peer that cannot be had on this machine; the message says why, in a line."""


def environment(name: str | None) -> str:
    """The interpreter of the peers' environment of this name; None: our own."""
    if name is None:
        return sys.executable
    return str(_made(name, _make_environment) / "bin" / "python")


def fetched(name: str) -> str:
    """Makes the packages importable in this process, after our own; says why it could not, or nothing.

    subtle: they come without their dependencies. The requirements name those that we have not, so that no
    second numpy or torch is ever downloaded.
    """
    try:
        folder = str(_made(name, _make_folder))
    except CannotInstall as refused:
        return str(refused)
    if folder not in sys.path:
        sys.path.append(folder)
        # KeOps asks a Python of its own where its compiler's headers are
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), folder)))
    return ""


def _made(name: str, make: Callable[[Path, Path], None]) -> Path:
    pins = ROOT / "benchmarks" / f"requirements-{name}.txt"
    folder = CACHE / f"{name}-{hashlib.sha256(pins.read_bytes()).hexdigest()[:12]}"
    if not (folder / "complete").exists():
        make(folder, pins)
        (folder / "complete").touch()
    return folder


def _make_environment(folder: Path, pins: Path) -> None:
    python = str(folder / "bin" / "python")
    _run(sys.executable, "-m", "venv", "--clear", str(folder))
    _run(python, *PIP, "--requirement", str(pins))
    _run(python, *PIP, "--no-deps", "--editable", str(ROOT), "--editable", str(ROOT / "hardmax"))


def _make_folder(folder: Path, pins: Path) -> None:
    _run(sys.executable, *PIP, "--no-deps", "--upgrade", "--target", str(folder), "--requirement", str(pins))


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
        raise CannotInstall([f"it ended with {done.returncode}", *lines, *errors][-1])
