"""The command line in a real shell: pipes, files, terminals, exit codes."""

import csv
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from server import Server, environ

from hardmax import Local
from service.cli.main import main

Run = Callable[..., str]
REVIEWS = 'id,review,stars\n1,"superb, good film",5\n2,,3\n3,awful film,1\n'
LONG = "good " * 60 + "film"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "in.csv").write_text(REVIEWS)
    return tmp_path


def environ_of(heads: Path) -> dict[str, str]:
    return environ(models_dir=heads, pretrained_models=False, default_model="one")


def shell(command: str, folder: Path, heads: Path) -> subprocess.CompletedProcess[str]:
    """Run a command in a shell, in which `hardmax` is that of this interpreter."""
    program = f"{sys.executable} -m service.cli.main"
    return subprocess.run(
        ["bash", "-uo", "pipefail", "-c", command.replace("hardmax ", f"{program} ")],
        cwd=folder, env=environ_of(heads) | {"PYTHONPATH": os.getcwd(), "PYTHONUNBUFFERED": ""},
        capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL,
    )  # fmt: skip


def test_file_is_written_with_all_rows_and_their_answers(
    folder: Path, heads: Path, server: Server, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(folder)
    assert main(["classify", "--file", "in.csv", "--out", "out.csv", "--server", server.url]) == 0
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.splitlines() == [
        "hardmax: in.csv: the texts are in column 'review'",
        "hardmax: out.csv: 3 rows, 1 abstained (see abstain_reason)",
    ]
    with open(folder / "out.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["id"], row["review"], row["stars"]) for row in rows] == [
        ("1", "superb, good film", "5"),
        ("2", "", "3"),
        ("3", "awful film", "1"),
    ]
    local = Local(models_dir=heads, pretrained_models=False, default_model="one")
    first, last = (answer.label for answer in local.classify(["superb, good film", "awful film"]))
    assert [row["label"] for row in rows] == [first, "", last]
    assert [row["abstain_reason"] for row in rows] == ["", "empty", ""]


def test_shell_text_is_cut_on_a_terminal_alone(heads: Path, hardmax: Run) -> None:
    options = ("--models-dir", heads, "--model", "one", "--explain", "none")
    assert LONG in hardmax("classify", *options, LONG)
    terminal, child_terminal = pty.openpty()
    program = [sys.executable, "-m", "service.cli.main", "classify", "--explain", "none", LONG]
    env = environ_of(heads) | {"COLUMNS": "80"}
    with subprocess.Popen(program, stdout=child_terminal, env=env, stdin=subprocess.DEVNULL) as process:
        os.close(child_terminal)
        shown = os.read(terminal, 10_000).decode()
    os.close(terminal)
    assert process.returncode == 0
    assert len(shown.rstrip()) == 80
    assert shown.rstrip().endswith("…")


def test_shell_full_disk_is_one_line(folder: Path, heads: Path) -> None:
    process = shell("hardmax classify good --json > /dev/full", folder, heads)
    assert process.returncode == 2
    assert process.stderr == "hardmax: No space left on device\n"


def test_shell_output_escapes_letters_that_its_encoding_lacks(folder: Path, heads: Path) -> None:
    text = "good caf\u00e9 \U0001f600"
    command = f"export PYTHONIOENCODING=ascii; hardmax classify '{text}' --explain none"
    shown = shell(command, folder, heads)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "good caf\\xe9 \\U0001f600" in shown.stdout


def test_shell_reader_that_closes_the_pipe_ends_the_command_quietly(folder: Path, heads: Path) -> None:
    (folder / "many.txt").write_text("good film\n" * 3000)
    for command in ("hardmax classify --file many.txt | head -1", "hardmax classify good --json | true"):
        process = shell(command, folder, heads)
        assert (process.returncode, process.stderr) == (0, "")


def test_shell_without_standard_input_or_error_is_one_line_or_none(folder: Path, heads: Path) -> None:
    process = shell("hardmax classify <&-", folder, heads)
    assert process.stderr == "hardmax: nothing to classify: give texts, --file, or a pipe\n"
    assert shell("echo good | hardmax classify - 2>&-", folder, heads).returncode == 0
