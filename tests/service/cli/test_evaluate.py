"""`hardmax evaluate`: a model measured on labelled rows, here or by a server."""

import json
from pathlib import Path

import pytest
from bundles import write_head
from server import serving

from service.cli.main import main

ROWS = "text,label\na superb film,positive\nan awful film,negative\n,positive\nthe film soup,negative\n"


@pytest.fixture
def rows(tmp_path: Path) -> str:
    (tmp_path / "rows.csv").write_text(ROWS)
    return str(tmp_path / "rows.csv")


def test_server_is_measured_as_the_same_models_here(
    tmp_path: Path, rows: str, capsys: pytest.CaptureFixture[str]
) -> None:
    models = tmp_path / "models"
    write_head(models, name="one")
    write_head(models, name="other", seed=1)
    asked = ["evaluate", "--model", "one", "--against", "other", "--file", rows, "--json"]
    with serving(models, default_model="one") as server:
        assert main([*asked, "--server", server.url]) == 0
        there = json.loads(capsys.readouterr().out)
        assert main([*asked, "--models-dir", str(models)]) == 0
        assert json.loads(capsys.readouterr().out) == there
        assert there["models"].keys() == {"one", "other"}
        assert there["models"]["one"]["rows"] == 3  # the row without a text is left out
        assert main(["evaluate", "--model", "nobody", "--file", rows, "--server", server.url]) == 2
        assert "there are: one, other" in capsys.readouterr().err


def test_label_that_the_model_does_not_have_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_head(tmp_path / "models", name="one")
    file = tmp_path / "rows.csv"
    file.write_text("text,label\na film,late\nan awful film,rude\n")
    where = ["--models-dir", str(tmp_path / "models")]
    assert main(["evaluate", "--model", "one", "--file", str(file), *where]) == 2
    assert "one has no label 'late'; it has negative, positive. Say --label" in capsys.readouterr().err


def test_rows_without_an_answer_are_left_out_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_head(tmp_path / "models", name="one")
    monkeypatch.setenv("HARDMAX_MAX_TEXT_CHARS", "100")
    file = tmp_path / "rows.csv"
    file.write_text(f"{ROWS}{'a film ' * 20},positive\n")
    where = ["--models-dir", str(tmp_path / "models"), "--json"]
    assert main(["evaluate", "--model", "one", "--file", str(file), *where]) == 0
    found = capsys.readouterr()
    assert json.loads(found.out)["models"]["one"]["rows"] == 3
    assert "left out: 1 that one did not answer" in found.err
