"""The wheel is all that a user needs: built, installed where nothing else is, asked from another folder."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from paths import ROOT
from server import environ

from service import __version__


@pytest.mark.fresh
@pytest.mark.timeout(1800)
def test_wheel_classifies_from_an_empty_environment(tmp_path: Path) -> None:
    def run(*command: str | Path) -> str:
        done = subprocess.run(
            command, cwd=tmp_path, env=environ() | {"PYTHONPATH": ""}, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run(sys.executable, "-m", "venv", "empty")
    python, hardmax = (tmp_path / "empty/bin" / name for name in ("python", "hardmax"))
    run(python, "-m", "pip", "wheel", "--quiet", "--no-deps", ROOT)
    (wheel,) = tmp_path.glob("hardmax-*.whl")
    run(python, "-m", "pip", "install", "--quiet", "--constraint", ROOT / "constraints.txt", f"{wheel}[cpu]")

    assert run(hardmax, "--version") == f"hardmax {__version__}\n"
    assert run(hardmax, "classify", "A superb film.").startswith("positive")
