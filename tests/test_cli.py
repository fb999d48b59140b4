"""The command line as a person or a script meets it: what is printed, where, and the exit code."""

import json
from pathlib import Path

import pytest
from bundles import write_sentiment

from service.cli import main
from service.settings import BUNDLED_MODELS

TRIANGLE = "1,1\n.5,-.5\n-1,-1\n.3,-.2\n.1,-.2\n"


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A models folder with the hand-made plane model and the bundled dynamics."""
    folder = tmp_path / "models"
    folder.mkdir()
    write_sentiment(folder, name="sentiment")
    (folder / "dynamics").symlink_to(BUNDLED_MODELS / "dynamics")
    monkeypatch.setenv("HARDMAX_MODELS_DIR", str(folder))
    return folder


@pytest.fixture
def cloud(tmp_path: Path) -> str:
    (tmp_path / "cloud.csv").write_text(TRIANGLE)
    return str(tmp_path / "cloud.csv")


@pytest.mark.usefixtures("models")
def test_cli_classify_prints_a_sum_that_adds_up(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["classify", "superb film"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("positive ")
    amounts = [float(line.split()[0]) for line in lines[1:]]
    assert sum(amounts[:-1]) == pytest.approx(amounts[-1], abs=0.002)
    assert lines[-1].endswith("= logit")


@pytest.mark.usefixtures("models")
def test_cli_classify_json_is_one_answer_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "texts").write_text("superb\n\nawful\n")
    assert main(["classify", "--file", str(tmp_path / "texts"), "--json", "--explain", "none"]) == 0
    answers = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(answer["index"], answer["label"]) for answer in answers] == [(0, "positive"), (1, "negative")]
    assert "leaders" not in answers[0]


@pytest.mark.usefixtures("models")
def test_cli_dynamics_tells_the_certificate_and_the_leaders(
    cloud: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["dynamics", cloud, "--alpha", "0.5"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("5 points in dimension 2, alpha 0.5: certified at layer ")
    assert "3 leaders, 3 clusters" in out


@pytest.mark.usefixtures("models")
def test_cli_dynamics_json_is_the_answer_of_the_api(cloud: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dynamics", cloud, "--alpha", "0.5", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["n"], answer["d"], answer["status"]) == (5, 2, "certified")
    assert [leader["index"] for leader in answer["leaders"]] == [0, 1, 2]
    assert len(answer["assignment"]) == 5


@pytest.mark.usefixtures("models")
def test_cli_dynamics_draws_the_way(cloud: str, tmp_path: Path) -> None:
    picture = tmp_path / "way.png"
    assert main(["dynamics", cloud, "--plot", str(picture)]) == 0
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.usefixtures("models")
def test_cli_control_names_the_pair_in_the_way(cloud: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["control", cloud, "--leaders", "3"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("infeasible")
    assert "token 3 cannot prefer 3 to" in out


@pytest.mark.usefixtures("models")
def test_cli_control_finds_a_matrix(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "cloud.csv").write_text("3,0\n0,1\n2,0.5\n")
    assert main(["control", str(tmp_path / "cloud.csv"), "--leaders", "0,1", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["feasible"] is True
    assert answer["dynamics"]["status"] == "certified"
    assert {leader["index"] for leader in answer["dynamics"]["leaders"]} >= {0, 1}


@pytest.mark.usefixtures("models")
def test_cli_models_lists_the_cards(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "--json"]) == 0
    cards = {card["name"]: card for card in json.loads(capsys.readouterr().out)}
    assert cards.keys() == {"dynamics", "sentiment"}
    assert (cards["sentiment"]["kind"], cards["sentiment"]["default"]) == ("sentiment", True)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["classify"], "hardmax: nothing to classify: give texts, or --file"),
        (["classify", ""], "hardmax: the text is empty"),
        (
            ["classify", "--model", "nobody", "good"],
            "hardmax: no model 'nobody' here; there are dynamics, sentiment",
        ),
        (["dynamics", "none.csv"], "hardmax: none.csv cannot be read: No such file or directory"),
        (["control", "none.csv", "--leaders", "x"], "hardmax: none.csv cannot be read"),
        (["serve", "--port", "x"], "hardmax: --port: "),
        (["models", "--server", "http://127.0.0.1:1"], "hardmax: no answer: "),
    ],
)
@pytest.mark.usefixtures("models")
def test_cli_refusal_is_one_line_and_exit_code_2(
    arguments: list[str], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith(line)
    assert printed.err.count("\n") == 1


def test_cli_unknown_variable_stops_the_start(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HARDMAX_PROT", "1")
    assert main(["serve"]) == 2
    assert capsys.readouterr().err == "hardmax: HARDMAX_PROT is not a setting of hardmax\n"
