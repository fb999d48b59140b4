"""Packages of the peers: installed on first use from requirements-NAME.txt, under the user's cache folder.

    install_error = install_packages("clouds")

They are installed again when their pins change.
"""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "hardmax-benchmarks"
PIP = (sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")


def install_packages(name: str) -> str:
    """Install packages for this process; return the reason if that fails, else an empty string.

    subtle: they come without their dependencies. The requirements list those that our environment lacks, so
    that no second numpy or torch is ever downloaded.
    """
    pins = Path(__file__).with_name(f"requirements-{name}.txt")
    folder = CACHE / f"{name}-{hashlib.sha256(pins.read_bytes()).hexdigest()[:12]}"
    if not (folder / "complete").exists():
        install = (*PIP, "--no-deps", "--upgrade", "--target", str(folder), "--requirement", str(pins))
        if reason := why_it_failed(*install):
            return reason
        (folder / "complete").touch()
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
        # KeOps starts another Python to find the headers of its compiler
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), str(folder))))
    return ""


def why_it_failed(*command: str) -> str:
    """Run a command; return the last error that it printed, in one line, or an empty string."""
    result = subprocess.run(command, capture_output=True, text=True)
    if not result.returncode:
        return ""
    lines = [line.strip() for line in result.stderr.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    return [f"it ended with {result.returncode}", *lines, *errors][-1]
