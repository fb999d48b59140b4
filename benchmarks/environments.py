"""Environments of the peers: installed on first use, each from its requirements-NAME.txt.

    python = environment("litserve")            the interpreter of a virtual environment, for other processes
    install_error = install_packages("clouds")  packages for this process, which imports ours before them

Both lie under the user's cache folder and are made again when their pins change.
"""

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
    """A peer cannot be installed on this machine; the message gives the reason in one line."""


def environment(name: str | None) -> str:
    """Return the interpreter of the environment of this name; None: our own."""
    if name is None:
        return sys.executable
    return str(_get_or_make(name, _make_environment) / "bin" / "python")


def install_packages(name: str) -> str:
    """Install packages for this process; return the reason if that fails, else an empty string.

    subtle: they come without their dependencies. The requirements list those that our environment lacks, so
    that no second numpy or torch is ever downloaded.
    """
    try:
        folder = str(_get_or_make(name, _make_folder))
    except CannotInstall as error:
        return str(error)
    if folder not in sys.path:
        sys.path.append(folder)
        # KeOps starts another Python to find the headers of its compiler
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), folder)))
    return ""


def _get_or_make(name: str, make: Callable[[Path, Path], None]) -> Path:
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
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode:
        lines = [line.strip() for line in result.stderr.splitlines() if line.strip()]
        errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
        raise CannotInstall([f"it ended with {result.returncode}", *lines, *errors][-1])
