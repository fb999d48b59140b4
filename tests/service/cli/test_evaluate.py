"""`hardmax evaluate`: models are evaluated on labelled rows, locally or on a server."""

import csv
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from bundles import write_head
from server import Server

from evaluation.labels import read_rows
from service.cli.main import main

Run = Callable[..., str]
ROWS = "text,label\na superb film,positive\nan awful film,negative\n,positive\nthe film soup,negative\n"


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    (tmp_path / "rows.csv").write_text(ROWS)
    return tmp_path / "rows.csv"


def test_evaluation_on_a_server_is_the_same_as_of_local_models(
    heads: Path, server: Server, rows: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["evaluate", "--model", "one", "--against", "other", "--file", str(rows), "--json"]
    assert main([*command, "--server", server.url]) == 0
    report = json.loads(capsys.readouterr().out)
    assert main([*command, "--models-dir", str(heads)]) == 0
    assert json.loads(capsys.readouterr().out) == report
    assert report["models"].keys() == {"one", "other"}
    assert report["models"]["one"]["rows"] == 3  # the row without a text is left out
    assert report["warnings"] == []
    assert main(["evaluate", "--model", "nobody", "--file", str(rows), "--server", server.url]) == 2
    assert "there are: one, other" in capsys.readouterr().err


def test_baseline_is_trained_on_the_training_rows_only(
    heads: Path, rows: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["evaluate", "--model", "one", "--file", str(rows), "--models-dir", str(heads), "--json"]
    assert main(command) == 0
    assert json.loads(capsys.readouterr().out)["baseline"] is None
    train = tmp_path / "train.csv"
    for labels, accuracy in ((("positive", "negative"), 1.0), (("negative", "positive"), 0.0)):
        train.write_text("text,label\n" + f"superb,{labels[0]}\nawful soup,{labels[1]}\n" * 3)
        assert main([*command, "--train", str(train)]) == 0
        baseline = json.loads(capsys.readouterr().out)["baseline"]
        assert (baseline["accuracy"], baseline["source"]) == (accuracy, "trained on train.csv")


def test_warning_about_training_rows_is_of_the_evaluated_version_only(
    tmp_path: Path, rows: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = {"rows": 3, "sha256": read_rows(str(rows), min_rows=1).digest}
    for version in (1, 2):
        write_head(tmp_path, name=f"mine@{version}", data=data)
    command = ["evaluate", "--file", str(rows), "--models-dir", str(tmp_path), "--json", "--model"]
    for name, evaluated in (("mine", "mine@2"), ("mine@1", "mine@1")):
        assert main([*command, name]) == 0
        (warning,) = json.loads(capsys.readouterr().out)["warnings"]
        assert warning.startswith(f"{evaluated} was trained on these rows")


def test_label_that_the_model_does_not_have_is_named(heads: Path, rows: Path, hardmax: Run) -> None:
    rows.write_text("text,label\na film,late\nan awful film,rude\n")
    message = hardmax("evaluate", "--model", "one", "--file", rows, "--models-dir", heads, code=2)
    assert "one has no label 'late'; it has negative, positive. Say --label: another" in message


def test_page_that_cannot_be_written_is_refused_before_the_work(rows: Path, hardmax: Run) -> None:
    message = hardmax("evaluate", "--file", rows, "--html", "nowhere/r.html", code=2)
    assert message == "hardmax: nowhere/r.html cannot be written: there is no such folder\n"
    message = hardmax("evaluate", "--file", rows, "--html", rows.parent, code=2)
    assert message == f"hardmax: {rows.parent} cannot be written: it is a folder\n"


def test_rows_without_an_answer_are_left_out_and_counted(
    heads: Path, rows: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HARDMAX_MAX_TEXT_CHARS", "100")
    rows.write_text(f"{ROWS}{'a film ' * 20},positive\n")
    options = ["--file", str(rows), "--models-dir", str(heads), "--json"]
    assert main(["evaluate", "--model", "one", *options]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["models"]["one"]["rows"] == 3
    assert "left out: 1 that one did not answer" in captured.err


def test_errors_are_written_drawn_and_compared_with_a_column(
    heads: Path, rows: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every error has its row as a spreadsheet counts it, and its id; `neg` and NEGATIVE mean negative."""
    lines = ["a superb film;positive;A;POSITIVE", "an awful film;positive;B;neg", ";positive;C;neg"]
    lines += ["a superb evening;negative;D;negative", "awful;positive;E;", "superb;positive;F;mixed"]
    rows.write_text("\n".join(["text;label;ticket;other", *lines]))
    errors, picture = tmp_path / "errors.csv", tmp_path / "report.svg"
    command = [
        "evaluate",
        "--model",
        "one",
        "--file",
        str(rows),
        "--models-dir",
        str(heads),
        "--label",
        "label",
    ]
    extra = ["--id", "ticket", "--errors", str(errors), "--plot", str(picture), "--against-column", "other"]
    assert main([*command, *extra, "--json"]) == 0
    captured = capsys.readouterr()
    report = json.loads(captured.out)
    listed = {(row["row"], row["id"]) for row in report["models"]["one"]["errors"]}
    assert listed == {(3, "B"), (5, "D"), (6, "E")}
    with open(errors, newline="") as file:
        written = list(csv.DictReader(file))
    assert {(row["row"], row["id"], row["text"]) for row in written} == {
        ("3", "B", "an awful film"), ("5", "D", "a superb evening"), ("6", "E", "awful"),
    }  # fmt: skip
    scores = [float(row["score"]) for row in written]
    assert scores == sorted(scores, reverse=True)
    assert picture.read_text().startswith("<?xml")
    comparison = report["comparison"]
    assert (comparison["rows"], comparison["other_accuracy"], comparison["accuracy"]) == (4, 0.5, 0.5)
    assert {(row["id"], *row["other"]) for row in comparison["differing"]} == {
        ("D", "negative"),
        ("F", "mixed"),
    }
    assert "other: 'mixed' is no label of one, and counts as an error" in captured.err
    assert main([*command, "--id", "nobody"]) == 2
    assert "--id: no column 'nobody'; there are text, label, ticket, other" in capsys.readouterr().err
