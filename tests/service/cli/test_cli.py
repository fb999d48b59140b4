"""The command line as a person or a script meets it: what is printed, where, and the exit code."""

import csv
import io
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bundles import write_head

from hardmax import Answer
from hardmax.display import HUES
from model_export.exact.construct import make, write
from model_export.exact.data import make_examples
from service.cli.described import describe_answer, describe_control
from service.cli.main import main
from service.settings import BUNDLED_MODELS

TRIANGLE = "1,1\n.5,-.5\n-1,-1\n.3,-.2\n.1,-.2\n"


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A models folder with the hand-made plane model and the bundled dynamics."""
    folder = tmp_path / "models"
    folder.mkdir()
    write_head(folder, name="sentiment")
    (folder / "dynamics").symlink_to(BUNDLED_MODELS / "dynamics")
    monkeypatch.setenv("HARDMAX_MODELS_DIR", str(folder))
    monkeypatch.setenv("HARDMAX_BUNDLED_MODELS", "false")
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


def answer(text: str, **fields: Any) -> Answer:
    whole = {"probs": {}, "tokens": 3, "truncated": False, "logit": 0.0, "bias": 0.0}
    return Answer.of(whole | fields, text, 0, "m")


def cluster(number: int, word: str, amount: object, *others: str) -> dict[str, object]:
    return {
        "id": number, "kind": "leader", "leaders": [word], "words": [*others, word], "size": 1 + len(others),
        "share": 0.1, "contribution": amount,
    }  # fmt: skip


def leader(number: int, word: str, since_layer: int = 0, followers: int = 0) -> dict[str, object]:
    return {"cluster": number, "word": word, "since_layer": since_layer, "followers": followers,
            "contribution": 0.0, "spans": []}  # fmt: skip


def test_cli_verdict_leaves_out_what_three_decimals_cannot_show() -> None:
    told = answer(
        "a waste of", label="negative", score=0.88, logit=-2.0001,
        clusters=[cluster(0, "of", -0.0001), cluster(1, "waste", -2.0), cluster(2, "a", 0.0)],
        leaders=[leader(i, word) for i, word in enumerate(("of", "waste", "a"))],
    )  # fmt: skip
    assert [line.split() for line in describe_answer(told)][1:] == [
        ["-2.000", "waste", "leads", "since", "layer", "0,", "alone"],
        ["+0.000", "2", "smaller", "clusters"],
        ["+0.000", "bias"],
        ["-2.000", "=", "logit"],
    ]


def test_cli_verdict_of_several_labels_is_the_sum_of_the_one_that_won() -> None:
    amounts = {"sport": 1.5, "food": -0.25, "money": 0.0}
    told = answer(
        "a match", label="sport", score=0.8, bias=dict.fromkeys(amounts, 0.5), logit=amounts | {"sport": 2.0},
        clusters=[cluster(0, "goal", amounts, "match")], leaders=[leader(0, "goal", 1, 1)],
    )  # fmt: skip
    assert [" ".join(line.split()) for line in describe_answer(told)] == [
        "sport 80.0% a match",
        "+1.500 match, goal led by goal since layer 1",
        "+0.500 bias",
        "+2.000 = logit of sport",
    ]


def test_cli_verdict_says_that_nothing_is_known() -> None:
    told = answer("qwertz", label="positive", score=0.5, undecided="nothing known")
    assert list(describe_answer(told)) == ["undecided: nothing known  qwertz"]


@pytest.mark.usefixtures("models")
def test_cli_classify_json_is_the_answer_of_the_api(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["classify", "superb film", "awful", "--json", "--explain", "none"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer.keys() == {"id", "model", "usage", "data"}
    assert (answer["model"], answer["usage"]) == ("sentiment", {"texts": 2, "tokens": 3})
    assert [(each["index"], each["label"]) for each in answer["data"]] == [(0, "positive"), (1, "negative")]
    assert "leaders" not in answer["data"][0]


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
def test_cli_draws_clouds_in_space(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cloud, picture = tmp_path / "cloud.npy", tmp_path / "cloud.svg"
    np.save(cloud, np.random.default_rng(0).normal(size=(20, 3)))
    assert main(["dynamics", str(cloud), "--plot", str(picture)]) == 0
    assert HUES[0] in picture.read_text()
    np.save(cloud, np.ones((2, 4)))
    assert main(["dynamics", str(cloud), "--plot", str(picture)]) != 0
    assert "two or three numbers; these have 4" in capsys.readouterr().err


def test_cli_plot_has_a_hue_for_each_cluster(cloud: str, tmp_path: Path) -> None:
    picture = tmp_path / "way.svg"
    assert main(["dynamics", cloud, "--alpha", "0.5", "--plot", str(picture)]) == 0
    assert [hue in picture.read_text() for hue in HUES[:4]] == [True, True, True, False]
    assert main(["control", cloud, "--leaders", "0,2", "--plot", str(picture)]) == 0
    assert "wanted leader" in picture.read_text()


@pytest.mark.usefixtures("models")
def test_cli_dynamics_draws_the_way(cloud: str, tmp_path: Path) -> None:
    picture = tmp_path / "way.png"
    assert main(["dynamics", cloud, "--plot", str(picture)]) == 0
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.usefixtures("models")
def test_cli_control_names_the_pair_in_the_way_and_exits_1(
    cloud: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["control", cloud, "--leaders", "3"]) == 1
    out = capsys.readouterr().out
    assert out.startswith("infeasible")
    assert "token 3 cannot prefer 3 to" in out


def test_cli_control_says_that_neither_could_be_proved() -> None:
    answer = {
        "feasible": None,
        "A": None,
        "margin": None,
        "note": "too flat",
    }
    assert list(describe_control(answer)) == [
        "undecided: neither a matrix nor a proof that there is none was found",
        "  too flat",
    ]


@pytest.mark.usefixtures("models")
def test_cli_control_finds_a_matrix(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "cloud.csv").write_text("3,0\n0,1\n2,0.5\n")
    assert main(["control", str(tmp_path / "cloud.csv"), "--leaders", "0,1", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["feasible"] is True
    assert answer["dynamics"]["status"] == "certified"
    assert {leader["index"] for leader in answer["dynamics"]["leaders"]} >= {0, 1}


def test_cli_sequences_labels_a_file_and_tells_what_is_otherwise_there(
    models: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scenes = [{"sequence": [[0, 0]], "label": "wine"}, {"sequence": [[0, 0], [1, 0]], "label": "garden"}]
    write(make(make_examples(scenes)), models / "scenes", description="a test", licence="none")
    lines = [json.dumps({"sequence": [[0, 0]], "label": label}) for label in ("wine", "sea")]
    (tmp_path / "s.jsonl").write_text("\n".join(lines))
    assert main(["sequences", str(tmp_path / "s.jsonl"), "--model", "scenes"]) == 0
    shown = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert shown[0] == ["sequence", "label", "margin", "leader", "in", "the", "file"]
    assert [(line[0], line[1], line[4:]) for line in shown[1:3]] == [
        ("0", "wine", []),
        ("1", "wine", ["sea"]),
    ]
    assert shown[3] == ["1", "of", "2", "labels", "are", "those", "in", "the", "file"]
    assert main(["sequences", str(tmp_path / "s.jsonl"), "--model", "scenes", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer.keys() == {"id", "model", "data"}
    assert [(each["index"], each["label"]) for each in answer["data"]] == [(0, "wine"), (1, "wine")]


@pytest.mark.usefixtures("models")
def test_cli_models_lists_the_cards(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "--json"]) == 0
    cards = {card["name"]: card for card in json.loads(capsys.readouterr().out)["models"]}
    assert cards.keys() == {"dynamics", "reader", "sentiment"}
    assert (cards["sentiment"]["kind"], cards["sentiment"]["default"]) == ("sentiment", True)


@pytest.mark.usefixtures("models")
def test_cli_classify_reads_lines_of_a_pipe_where_the_text_is_a_hyphen(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"superb film\nawful\n")))
    assert main(["classify", "-", "--explain", "none"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["positive", "negative"]


@pytest.mark.usefixtures("models")
def test_cli_never_prints_what_steers_a_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "rows.jsonl").write_text('"superb \\u001b[2J film \\u009b1m"\n"half \\ud83d"\n')
    for extra in ([], ["--json"], ["--explain", "full", "--json"]):
        assert main(["classify", "--file", str(tmp_path / "rows.jsonl"), *extra]) == 0
    assert main(["classify", "--model", "\x1b]0;owned\x07", "good"]) == 2
    printed = capsys.readouterr()
    assert not set(printed.out + printed.err) & set("\x1b\x07\x9b\ud83d")
    assert printed.out.count("the text holds half a character") == 3
    assert "owned" in printed.err


@pytest.mark.usefixtures("models")
def test_cli_out_says_what_is_undecided_and_what_was_cut(tmp_path: Path) -> None:
    rows = ["superb film", "qwertz", "good " * 3000, "good " * 50_000]
    (tmp_path / "in.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert main(["classify", "--file", str(tmp_path / "in.jsonl"), "--out", str(tmp_path / "out.csv")]) == 0
    with open(tmp_path / "out.csv", newline="") as file:
        out = list(csv.DictReader(file))
    assert list(out[0])[1:] == ["label", "score", "undecided", "truncated", "leaders", "hardmax_error"]
    assert [row["label"] != "" for row in out] == [True, False, True, False]
    assert [row["score"] != "" for row in out] == [True, False, True, False]
    assert [row["undecided"] for row in out] == ["", "nothing known", "", ""]
    assert [row["truncated"] for row in out] == ["false", "false", "true", ""]
    assert out[3]["hardmax_error"] == "the text has 250000 characters, more than 200000 (MAX_TEXT_CHARS)"


def test_cli_says_what_is_missing_without_a_runtime(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [
        name for name in sys.modules if name.startswith(("service.engine.runtime", "service.local"))
    ]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    assert main(["classify", "good"]) == 2
    told = (
        "hardmax: to compute here needs onnxruntime: pip install '.[cpu]' in the checkout, or --server URL\n"
    )
    assert capsys.readouterr().err == told


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["classify", "--file", "none.csv"], "hardmax: none.csv cannot be read: No such file or directory"),
        (["classify", "good", "--file", "a.csv"], "hardmax: give texts or --file, not both"),
        (["classify", "good", ""], "hardmax: input[1]: the text is empty"),
        (["classify", "good", "--out", "a.xlsx"], "hardmax: a.xlsx: --out writes .csv, .tsv, "),
        (
            ["classify", "good", "--out", "none/a.csv"],
            "hardmax: none/a.csv cannot be written: ",
        ),
        (["classify", ""], "hardmax: the text is empty"),
        (
            ["classify", "--model", "nobody", "good"],
            "hardmax: no model 'nobody' here; there are dynamics, reader, sentiment",
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
