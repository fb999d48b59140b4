"""The command line: what is printed on which stream, files that are written, and exit codes."""

import csv
import io
import json
import pickle
import re
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from server import Server

from hardmax import Answer, Client, Unauthorized
from hardmax.formatting import CLUSTER_COLORS
from service.cli.classify import actors_of
from service.cli.main import build_parser, main
from service.cli.output import (
    describe_answer,
    describe_control,
    describe_models,
    describe_sequences,
)

Run = Callable[..., str]
TRIANGLE = "1,1\n.5,-.5\n-1,-1\n.3,-.2\n.1,-.2\n"


@pytest.fixture(autouse=True)
def settings(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Serve only the models of the tests, with an empty stdin."""
    variables = {"MODELS_DIR": str(models), "PRETRAINED_MODELS": "false", "DEFAULT_MODEL": "tiny"}
    for name, value in variables.items():
        monkeypatch.setenv(f"HARDMAX_{name}", value)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))


@pytest.fixture
def cloud(tmp_path: Path) -> Path:
    (tmp_path / "cloud.csv").write_text(TRIANGLE)
    return tmp_path / "cloud.csv"


def answer(text: str, **fields: Any) -> Answer:
    required = {"probs": {}, "n_words": 3, "truncated": False, "logit": 0.0, "bias": 0.0}
    return Answer.of(required | fields, text, 0, "m")


def cluster(number: int, word: str, amount: object, *others: str) -> dict[str, object]:
    return {
        "id": number, "kind": "leader", "leaders": [word], "words": [*others, word], "size": 1 + len(others),
        "share": 0.1, "contribution": amount,
    }  # fmt: skip


def leader(number: int, word: str, since_layer: int = 0, followers: int = 0) -> dict[str, object]:
    return {"cluster": number, "word": word, "since_layer": since_layer, "followers": followers,
            "contribution": 0.0, "spans": []}  # fmt: skip


def test_cli_verdict_sums_up_clusters_that_three_decimals_cannot_show() -> None:
    verdict = answer(
        "a waste of", label="negative", score=0.88, logit=-2.0001,
        clusters=[cluster(0, "of", -0.0001), cluster(1, "waste", -2.0), cluster(2, "a", 0.0)],
        leaders=[leader(i, word) for i, word in enumerate(("of", "waste", "a"))],
    )  # fmt: skip
    assert [line.split() for line in describe_answer(verdict)][1:] == [
        ["-2.000", "waste", "leads", "since", "layer", "0,", "alone"],
        ["+0.000", "2", "smaller", "clusters"],
        ["+0.000", "bias"],
        ["-2.000", "=", "logit"],
    ]


def test_cli_verdict_of_several_labels_explains_the_predicted_one() -> None:
    amounts = {"sport": 1.5, "food": -0.25, "money": 0.0}
    verdict = answer(
        "a match", label="sport", score=0.8, bias=dict.fromkeys(amounts, 0.5), logit=amounts | {"sport": 2.0},
        clusters=[cluster(0, "goal", amounts, "match")], leaders=[leader(0, "goal", 1, 1)],
    )  # fmt: skip
    assert [" ".join(line.split()) for line in describe_answer(verdict)] == [
        "sport 80.0% a match",
        "+1.500 match, goal led by goal since layer 1",
        "+0.500 bias",
        "+2.000 = logit of sport",
    ]


def test_cli_verdict_names_a_cluster_by_words_and_not_by_punctuation() -> None:
    verdict = answer(
        "Clean, and good.", label="positive", score=0.9, logit=2.0,
        clusters=[cluster(0, "good", 2.0, ",", "clean", "."), cluster(1, "!", 0.0)],
        leaders=[leader(0, "good", 0, 3), leader(1, "!")],
    )  # fmt: skip
    assert "+2.000 clean, good … led by good" in " ".join(list(describe_answer(verdict))[1].split())
    single = answer("!", label="positive", score=0.9, logit=1.0, clusters=[cluster(0, "!", 1.0)],
                   leaders=[leader(0, "!")])  # fmt: skip
    assert "+1.000 ! leads since layer 0, alone" in " ".join(list(describe_answer(single))[1].split())


def test_cli_draws_clouds_in_space(tmp_path: Path, hardmax: Run) -> None:
    cloud, picture = tmp_path / "cloud.npy", tmp_path / "cloud.svg"
    np.save(cloud, np.random.default_rng(0).normal(size=(20, 3)))
    hardmax("dynamics", cloud, "--plot", picture)
    assert CLUSTER_COLORS[0] in picture.read_text()
    np.save(cloud, np.ones((2, 4)))
    assert "two or three numbers; these have 4" in hardmax("dynamics", cloud, "--plot", picture, code=2)


def test_cli_writes_the_trajectory_of_a_cloud(cloud: Path, tmp_path: Path, hardmax: Run) -> None:
    array, table = tmp_path / "path.npy", tmp_path / "path.csv"
    hardmax("dynamics", cloud, "--alpha", 0.5, "--trajectory", array)
    points = np.load(array)
    options = shlex.split("--alpha 0.5 --include limits,trajectory --stop converged --json")
    answer = json.loads(hardmax("dynamics", cloud, *options))
    assert points.tolist() == answer["trajectory"]["points"]
    assert points[0].tolist() == [[1, 1], [0.5, -0.5], [-1, -1], [0.3, -0.2], [0.1, -0.2]]
    assert points[-1] == pytest.approx(np.array(answer["limits"]), abs=1e-6)
    hardmax("dynamics", cloud, "--alpha", 0.5, "--trajectory", table, "--trajectory-every", 2)
    rows = list(csv.DictReader(table.read_text().splitlines()))
    assert rows[0] == {"layer": "0", "point": "0", "x1": "1.0", "x2": "1.0"}
    assert sorted({int(row["layer"]) for row in rows})[:2] == [0, 2]


def test_cli_shows_what_flips_the_label(hardmax: Run) -> None:
    flip = json.loads(hardmax("classify", "superb film", "--flip", "--json"))["data"][0]["flip"]
    words = ", ".join(word["word"] for word in flip["without"])
    last = hardmax("classify", "superb film", "--flip").splitlines()[-1]
    assert last == f"  without {words}: {flip['label']} {flip['score']:.1%}"


def test_cli_shows_which_words_alone_give_the_label(hardmax: Run) -> None:
    texts = "superb film", "a dull and awful evening"
    entries = json.loads(hardmax("classify", *texts, "--sufficient", "--json"))["data"]
    for text, entry in zip(texts, entries, strict=True):
        sufficient = entry["sufficient"]
        words = ", ".join(word["word"] for word in sufficient["words"])
        last = hardmax("classify", text, "--sufficient", "--explain", "none").splitlines()[-1]
        assert last == f"  {words} alone: {entry['label']} {sufficient['score']:.1%}"


def test_cli_softmax_is_shown_and_drawn_next_to_hardmax(cloud: Path, tmp_path: Path, hardmax: Run) -> None:
    picture = tmp_path / "cloud.svg"
    run = ("dynamics", cloud, "--alpha", 0.5, "--softmax", 0.1)
    lines = hardmax(*run, "--plot", picture).splitlines()
    softmax = json.loads(hardmax(*run, "--json"))["softmax"]
    heading = lines.index("softmax at temperature 0.1, farthest point from its hardmax run:")
    shown = [line.split() for line in lines[heading + 2 :]]
    assert shown[0] == ["0", "0"]
    assert shown[-1] == [str(softmax["layers"][-1]), f"{softmax['distance'][-1]:.3g}"]
    assert all(f"{softmax['distance'][int(layer)]:.3g}" == distance for layer, distance in shown)
    drawn = picture.read_text()
    assert "softmax attention, temperature 0.1" in drawn
    assert "distance (A-norm)" in drawn
    assert "temperature" in hardmax("dynamics", cloud, "--softmax", 0, code=2)


def test_cli_names_the_flag_of_a_key_that_the_server_needs(
    monkeypatch: pytest.MonkeyPatch, hardmax: Run
) -> None:
    def refuse(self: Client, request: Any) -> Any:
        raise Unauthorized("send a key in the header authorization")

    monkeypatch.setattr(Client, "send", refuse)
    command = ("classify", "good", "--server", "http://test")
    message = "hardmax: http://test needs an API key: give one with --api-key KEY, or in HARDMAX_API_KEYS\n"
    assert hardmax(*command, code=2) == message
    assert "does not accept this API key: give" in hardmax(*command, "--api-key", "k", code=2)
    monkeypatch.setenv("HARDMAX_API_KEYS", "k")
    assert "does not accept this API key: give" in hardmax(*command, code=2)


def test_cli_every_command_and_flag_has_a_help_text() -> None:
    commands = next(action for action in build_parser()._actions if isinstance(action.choices, dict))
    assert all(action.help for action in commands._choices_actions)  # type: ignore[attr-defined]
    undocumented = [
        f"{name} {action.option_strings or action.dest}"
        for name, parser in commands.choices.items()  # type: ignore[union-attr]
        for action in parser._actions
        if not action.help
    ]
    assert undocumented == []


def test_cli_plot_has_a_hue_for_each_cluster(cloud: Path, tmp_path: Path, hardmax: Run) -> None:
    picture = tmp_path / "cloud.svg"
    hardmax("dynamics", cloud, "--alpha", 0.5, "--plot", picture)
    assert [hue in picture.read_text() for hue in CLUSTER_COLORS[:4]] == [True, True, True, False]
    hardmax("control", cloud, "--leaders", "0,2", "--plot", picture)
    assert "wanted leader" in picture.read_text()
    hardmax("dynamics", cloud, "--plot", picture.with_suffix(".png"))
    assert picture.with_suffix(".png").read_bytes().startswith(b"\x89PNG")


def test_cli_control_says_that_nothing_could_be_proved() -> None:
    answer = {"feasible": None, "A": None, "margin": None, "note": "too flat"}
    assert list(describe_control(answer)) == [
        "undecided: neither a matrix nor a proof that there is none was found",
        "  too flat",
    ]


def test_cli_sequences_labels_a_file_and_compares_labels_in_it(tmp_path: Path, hardmax: Run) -> None:
    file = tmp_path / "s.jsonl"
    lines = [json.dumps({"sequence": [[0, 0], [1, 1]], "label": label}) for label in ("calm", "sea")]
    file.write_text("\n".join(lines))
    shown = [line.split() for line in hardmax("sequences", file, "--model", "scenes").splitlines()]
    assert shown[0] == ["sequence", "label", "margin", "leader", "in", "the", "file"]
    assert [line[:2] + line[4:] for line in shown[1:3]] == [["0", "calm"], ["1", "calm", "sea"]]
    assert shown[3] == ["1", "of", "2", "labels", "are", "those", "in", "the", "file"]
    data = [{"index": 0, "label": "calm"}, {"index": 1, "label": None}]
    (*_, last) = describe_sequences(data, ["calm", None])
    assert last == "1 of 1 labels are those in the file"
    answer = json.loads(hardmax("sequences", file, "--model", "scenes", "--json"))
    assert answer.keys() == {"id", "model", "data"}
    assert [(entry["index"], entry["label"]) for entry in answer["data"]] == [(0, "calm"), (1, "calm")]


def test_cli_models_says_which_version_answers() -> None:
    cards: list[dict[str, str]] = [
        {"name": "a@2", "kind": "text-classification"},
        {"name": "a@10", "kind": "text-classification", "again": "a@1", "description": "Mine."},
    ]
    shown = [" ".join(line.split()) for line in describe_models(cards)]
    assert shown[1:] == ["a@2 text-classification", "a@10 text-classification answers as a a@1 again: Mine."]


def test_cli_never_prints_terminal_control_characters(tmp_path: Path, hardmax: Run) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text('"superb \\u001b[2J film \\u009b1m"\n"half \\ud83d"\n')
    outputs = [
        hardmax("classify", "--file", file, *extra)
        for extra in ((), ["--json"], ["--explain", "full", "--json"])
    ]
    assert "".join(outputs).count("the text contains half a character") == 3
    outputs.append(hardmax("classify", "--model", "\x1b]0;owned\x07", "good", code=2))
    assert "owned" in outputs[-1]
    assert not set("".join(outputs)) & set("\x1b\x07\x9b\ud83d")


def test_cli_out_says_why_the_model_abstains_and_what_was_truncated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = ["superb film", "qwertz", "good " * 3000, "good " * 50_000]
    (tmp_path / "in.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert main(["classify", "--file", str(tmp_path / "in.jsonl"), "--out", str(tmp_path / "out.csv")]) == 0
    with open(tmp_path / "out.csv", newline="") as file:
        out = list(csv.DictReader(file))
    assert list(out[0])[1:] == ["label", "score", "abstain_reason", "truncated", "leaders", "hardmax_error"]
    for column in ("label", "score"):
        assert [row[column] != "" for row in out] == [True, True, True, False]
    assert [row["abstain_reason"] for row in out] == ["", "no_known_words", "", ""]
    leaders = out[0]["leaders"].split("; ")
    assert all(re.fullmatch(r"[a-z]+ [+-]\d+\.\d\d", leader) for leader in leaders)
    summary = capsys.readouterr().err.splitlines()[-1]
    counts = "4 rows, 1 abstained (see abstain_reason), 1 without an answer (see hardmax_error)"
    assert summary == f"hardmax: {tmp_path / 'out.csv'}: {counts}"
    assert [row["truncated"] for row in out] == ["false", "false", "true", ""]
    assert out[3]["hardmax_error"] == "the text has 250000 characters, more than 200000 (MAX_TEXT_CHARS)"


def test_cli_ray_uses_folder_or_server(heads: Path, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """The actors use the models of a folder, or a server with a key."""
    parse = build_parser().parse_args
    ray = ["classify", "--ray", "in.parquet", "out"]
    monkeypatch.setenv("HARDMAX_API_KEYS", "first, second")
    for source in (["--models-dir", str(heads)], ["--server", server.url, "--api-key", "mine"]):
        open_client, _ = actors_of(parse([*ray, *source]))
        with pickle.loads(pickle.dumps(open_client))() as actor:
            assert {card.name for card in actor.models()} >= {"one", "other"}
    assert open_client.keywords == {"api_key": "mine"}  # type: ignore[attr-defined]
    open_client, gpus = actors_of(parse([*ray, "--server", server.url]))
    assert (open_client.keywords, gpus) == ({"api_key": "first"}, 0)  # type: ignore[attr-defined]


def test_cli_version_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["--version"], ["classify", "--help"], ["serve", "--help"]):
        with pytest.raises(SystemExit) as exc_info:
            main(arguments)
        assert exc_info.value.code == 0
    out = capsys.readouterr().out
    assert out.startswith("hardmax ")
    assert "hardmax classify --file reviews.csv --column review --out out.csv" in out
    assert "--log-format text | json" in out


def test_cli_without_onnxruntime_says_what_is_missing(monkeypatch: pytest.MonkeyPatch, hardmax: Run) -> None:
    for name in list(sys.modules):
        if name.startswith(("service.runtime.session", "service.local")):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    assert hardmax("classify", "good", code=2) == (
        "hardmax: to compute here needs onnxruntime: pip install '.[cpu]' in the checkout, or --server URL\n"
    )


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ("classify", "hardmax: nothing to classify: give texts, --file, or a pipe\n"),
        ("dynamics examples/cloud.csv --plot a.foo", "hardmax: a.foo: --plot writes png, svg, "),
        ("classify good --out a.xls", "hardmax: a.xls: --out writes .csv, .tsv, "),
        (
            "classify good --out a.csv --flip",
            "hardmax: --out has no column for --flip and --sufficient: print",
        ),
        ("classify good --out none/a.csv", "hardmax: none/a.csv cannot be written: "),
        (
            "classify --ray in out good --json --explain full",
            "hardmax: --ray takes its rows from IN alone and writes OUT: leave out texts, --json, --explain",
        ),
        (
            "classify --ray in out --file a.csv --out b.csv",
            "hardmax: --ray takes its rows from IN alone and writes OUT: leave out --file, --out",
        ),
        ("dynamics examples/cloud.csv --include path", "hardmax: --include: 'path' is not one of a"),
        ("dynamics examples/cloud.csv --trajectory a.txt", "hardmax: a.txt: --trajectory writes .npy, .csv"),
        ("classify good --server ''", "hardmax: '' is not the address of a server"),
        ("models --server http://127.0.0.1:1", "hardmax: no answer from http://127.0.0.1:1: "),
    ],
)
def test_cli_refusal_is_one_line_and_exit_code_2(arguments: str, line: str, hardmax: Run) -> None:
    message = hardmax(*shlex.split(arguments), code=2)
    assert message.startswith(line)
    assert message.count("\n") == 1
