"""The command line with pipes, files and terminals, and its exit codes."""

import csv
import io
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from server import Server

from hardmax import Local
from service.cli.main import main

Run = Callable[..., str]
REVIEWS = 'id,review,stars\n1,"superb, good film",5\n2,,3\n3,awful film,1\n'
LONG = "good " * 60 + "film"
CLASSIFY = ["classify", "--explain", "none", "good"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "in.csv").write_text(REVIEWS)
    return tmp_path


@pytest.fixture(autouse=True)
def settings(heads: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"MODELS_DIR": heads, "PRETRAINED_MODELS": "false", "DEFAULT_MODEL": "one"}.items():
        monkeypatch.setenv(f"HARDMAX_{name}", str(value))


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


def test_text_is_cut_on_a_terminal_alone(hardmax: Run) -> None:
    assert LONG in hardmax("classify", "--explain", "none", LONG)
    terminal, child_terminal = pty.openpty()
    program = [sys.executable, "-m", "service.cli.main", "classify", "--explain", "none", LONG]
    environment = os.environ | {"COLUMNS": "80"}
    with subprocess.Popen(
        program, stdout=child_terminal, env=environment, stdin=subprocess.DEVNULL
    ) as process:
        os.close(child_terminal)
        shown = os.read(terminal, 10_000).decode()
    os.close(terminal)
    assert process.returncode == 0
    assert len(shown.rstrip()) == 80
    assert shown.rstrip().endswith("…")


def test_output_to_a_full_disk_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr(sys, "stdout", os.fdopen(os.open("/dev/full", os.O_WRONLY), "w"))
    assert main([*CLASSIFY, "--json"]) == 2
    sys.stdout.close()
    assert capsys.readouterr().err == "hardmax: No space left on device\n"


def test_output_escapes_letters_that_its_encoding_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(shown, "ascii"))
    assert main([*CLASSIFY[:-1], "good caf\u00e9 \U0001f600"]) == 0
    assert b"good caf\\xe9 \\U0001f600" in shown.getvalue()


def test_reader_that_closes_the_pipe_ends_the_command_quietly(
    monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    read, write = os.pipe()
    os.close(read)
    monkeypatch.setattr(sys, "stdout", os.fdopen(write, "w"))
    assert main(CLASSIFY) == 0
    sys.stdout.close()
    assert capsys.readouterr().err == ""


def test_command_without_standard_input_or_error_is_one_line_or_none(
    monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    assert main(["classify"]) == 2
    assert capsys.readouterr().err == "hardmax: nothing to classify: give texts, --file, or a pipe\n"
    monkeypatch.setattr(sys, "stderr", None)
    assert main(CLASSIFY) == 0
