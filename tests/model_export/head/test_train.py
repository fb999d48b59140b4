"""Custom heads: trained on rows with a frozen encoder, measured, written and served."""

import json
import random
import re
import shutil
from argparse import Namespace

import numpy as np
import pytest
import torch
from bundles import WORD_LISTS, write_head
from encoders import random_encoder

from model_export.bundle import write_bundle
from model_export.cli import main
from model_export.encoder import graph, quantization
from model_export.head import cross_validation
from model_export.head.command import reserve_name
from model_export.head.encoded import encode_texts
from model_export.head.train import open_encoder
from service.cli.main import main as hardmax_command
from service.local import Local
from service.settings import load_settings

pytestmark = pytest.mark.timeout(600)  # some seconds on an idle machine

FILLING = """the a film movie food soup was is very it but and or i we you of in on to my time slow story cold
service lamp car hotel they""".split()
WORDLESS = "text,label\na b,x\nc d,x\n_,y\n___,y\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with an encoder whose states determine their word."""
    folder = tmp_path_factory.mktemp("own")
    encoder = random_encoder()
    with torch.no_grad():
        encoder.positions.weight *= 0.1
        for layer in encoder.layers:
            layer.out.weight *= 0.2
            layer.down.weight *= 0.2
    card = {"name": "random-encoder", "description": "A random encoder."}
    model = graph.to_onnx(quantization.quantize(encoder))
    write_bundle(folder / "models", "encoder", card, model, json.dumps(WORD_LISTS))
    return folder


@pytest.fixture
def readout_only(monkeypatch):
    """Fit the read-out on the directions of the probe, without steps of training: a tenth of the time."""
    monkeypatch.setattr(cross_validation, "CHECKPOINTS", (0,))


def write_rows(path, labels, count=100):
    """Write rows whose label is determined by one word: `labels` has the word of each label."""
    rng = random.Random(0)
    lines = ["text,label"]
    for i in range(count):
        label, word = list(labels.items())[i % len(labels)]
        words = rng.choices(FILLING, k=rng.randint(3, 9))
        lines.append(f"{' '.join([*words, *word.split('|'), *words[:2]])},{label}")
    path.write_text("\n".join(lines) + "\n")
    return path


def train(folder, file, name, *flags):
    encoder = str(folder / "models" / "random-encoder")
    folders = ("--models-dir", str(folder / "models"), "--encoder", encoder)
    return main(["train", str(file), "--name", name, *folders, *flags])


def read_report(capsys):
    return json.loads(capsys.readouterr().out.splitlines()[-1])["models"]


def local(folder):
    return Local(load_settings(models_dir=folder / "models", pretrained_models=False, default_model="mine"))


def test_head_learns_a_word_that_determines_the_label_and_knows_texts_of_other_words(folder, capsys):
    """Few held-out rows are out of distribution, many such texts are, even with a random encoder."""
    file = write_rows(folder / "three.csv", {"a": "awful", "b": "superb", "c": "hated"})
    flags = ("--json", "--license", "MIT", "--html", str(folder / "r.html"))
    assert train(folder, file, "three", *flags) == 0
    report = read_report(capsys)["three@1"]
    assert report["accuracy"] >= 0.95
    assert report["abstained"].get("out_of_distribution", {"rows": 0})["rows"] <= 0.05 * 100
    card = json.loads((folder / "models" / "three@1" / "card.json").read_text())
    assert (card["labels"], card["license"], card["data"]["rows"]) == (["a", "b", "c"], "MIT", 100)
    assert (card["alpha"], card["layers"], card["dimension"]) == (1.0, 8, 2)
    assert (folder / "r.html").read_text().count("<script") == 0
    assert not list((folder / "models").glob(".states*"))
    rng = random.Random(1)
    texts = [" ".join(rng.choices([*"abcdefghijklmnopqrstuvwxyz"], k=8)) for _ in range(30)]
    with local(folder) as hardmax:
        answers = hardmax.classify(texts, model="three")
    assert sum(answer.abstain_reason is not None for answer in answers) >= 10


def test_versions_of_a_head_are_kept(folder, capsys, readout_only):
    file = write_rows(folder / "two.csv", {"bad": "awful", "good": "superb"})
    assert train(folder, file, "mine", "--json") == 0
    assert read_report(capsys)["mine@1"]["accuracy"] >= 0.9
    assert main(["verify", str(folder / "models" / "mine@1"), "--file", str(file), "--texts", "20"]) == 0
    assert "'texts': 20" in capsys.readouterr().out
    assert main(["verify", str(folder / "models" / "random-encoder"), "--file", str(file)]) == 2
    assert "kind encoder; verify needs a head" in capsys.readouterr().err
    write_rows(folder / "two.csv", {"bad": "superb", "good": "awful"})
    assert train(folder, file, "mine", "--html", "/dev/full") == 2  # the model is there nevertheless
    printed = capsys.readouterr()
    assert printed.err.endswith("hardmax-export: /dev/full cannot be written: No space left on device\n")
    folds = [line for line in printed.out.splitlines() if line.startswith("fold ")]
    assert [line.partition(":")[0] for line in folds] == [f"fold {i} of 5" for i in range(1, 6)]
    texts = ["the film was awful and slow", "a superb film of my time"]
    with local(folder) as hardmax:
        names = ("mine@1", "mine@2", "mine")
        labels = [[answer.label for answer in hardmax.classify(texts, model=name)] for name in names]
    assert labels == [["bad", "good"], ["good", "bad"], ["good", "bad"]]
    options = ("--json", "--models-dir", str(folder / "models"))
    command = ["evaluate", "--model", "mine", "--against", "mine@1", "--file", str(file), *options]
    assert hardmax_command(command) == 0
    report = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert report["models"]["mine"]["accuracy"] >= 0.95
    assert report["models"]["mine@1"]["accuracy"] <= 0.05  # trained with the labels swapped
    assert [warning.partition(" was trained on")[0] for warning in report["warnings"]] == ["mine@2"]
    assert hardmax_command(["models", "rollback", "mine", *options]) == 0
    assert json.loads(capsys.readouterr().out) == {"model": "mine@3", "again": "mine@1"}
    with local(folder) as hardmax:
        assert [answer.label for answer in hardmax.classify(texts, model="mine")] == labels[0]


def test_verify_finds_the_encoder_of_a_head_in_another_folder(tmp_path, capsys):
    """The pretrained encoder is not that of the head."""
    write_head(tmp_path / "models", name="mine")
    shutil.move(tmp_path / "models" / "mine", tmp_path / "mine")
    (tmp_path / "rows.csv").write_text("text\na superb film\nthe soup was cold\n")
    command = ["verify", str(tmp_path / "mine"), "--file", str(tmp_path / "rows.csv")]
    assert main(command) == 2
    assert "name its folder with --encoders" in capsys.readouterr().err
    assert main([*command, "--encoders", str(tmp_path / "models")]) == 0
    assert "'texts': 2" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("content", "flags", "message"),
    [
        ("text\n<p>\n</p>\n", (), "nothing was compared: of 2 texts none has a word"),
        ("text\n\n", (), "nothing was compared: there is no text"),
        ("text\na superb film\n", ("--provider", "cuda"), "has no graph for GPUs"),
    ],
)
def test_verify_that_cannot_compare_is_an_error(tmp_path, capsys, content, flags, message):
    write_head(tmp_path, name="mine")
    (tmp_path / "rows.csv").write_text(content)
    command = ["verify", str(tmp_path / "mine"), "--file", str(tmp_path / "rows.csv")]
    assert main([*command, "--encoders", str(tmp_path), *flags]) == 2
    assert message in capsys.readouterr().err


def test_report_that_cannot_be_written_is_refused_before_training(folder, capsys):
    file = write_rows(folder / "late.csv", {"bad": "awful", "good": "superb"})
    assert train(folder, file, "late", "--html", str(folder / "nowhere" / "r.html")) == 2
    assert "r.html cannot be written: there is no such folder" in capsys.readouterr().err
    assert not (folder / "models" / "late@1").exists()


def test_second_run_of_one_name_is_refused_while_the_first_runs(folder, capsys):
    """Both once trained, and the second to end failed to write its version."""
    file = write_rows(folder / "twice.csv", {"bad": "awful", "good": "superb"})
    with reserve_name(folder / "models", "twice"):
        assert train(folder, file, "twice") == 2
        assert f"another run trains twice in {folder / 'models'}: wait for it" in capsys.readouterr().err
        with reserve_name(folder / "models", "other"):
            pass
    with reserve_name(folder / "models", "twice"):
        pass
    assert not list((folder / "models").glob(".*.lock"))


def test_multi_label_head_is_trained(folder, capsys, readout_only):
    words = {"late": "awful", "rude": "hated", "late|rude": "awful|hated"}
    assert train(folder, write_rows(folder / "several.csv", words), "several", "--json") == 0
    assert read_report(capsys)["several@1"]["accuracy"] >= 0.7  # a constant answer has a third
    with local(folder) as hardmax:
        assert hardmax._find("several", "text-classification").model.rule.thresholds is not None


def test_rows_of_equal_texts_are_in_the_same_fold_and_no_control_character_is_printed(
    folder, capsys, readout_only
):
    """Random labels cannot be predicted, except from another row of the same text."""
    rng = random.Random(0)
    texts = [f"{' '.join(rng.choices(FILLING, k=6))} \x1b[31m\u202e" for _ in range(40)]
    texts[0] += "z" * 3_000
    lines = [f"{text},{rng.choice('xy')}\x1b" for text in texts]
    (folder / "twice.csv").write_text("\n".join(["text,label", *lines, *lines]) + "\n")
    assert train(folder, folder / "twice.csv", "twice", "--html", str(folder / "twice.html")) == 0
    printed = capsys.readouterr().out
    assert "cut: 2 to their first 2,000 characters" in printed
    assert "warning: 40 of 80 rows are near-duplicates of others" in printed
    for figure in (r"twice@1: ([\d.]+)% of 80 rows correct", r"([\d.]+)% by TF-IDF"):
        assert float(re.search(figure, printed)[1]) < 70
    assert "errors, the most confident first" in printed
    for text in (printed, (folder / "twice.html").read_text()):
        assert "\x1b" not in text
        assert "\u202e" not in text


def test_states_are_kept_when_a_run_stops_at_later_texts(folder):
    _, encoder = open_encoder(folder / "models" / "random-encoder")
    progress: list[tuple[int, int]] = []

    def tokenize(text: str, *, fold_names: bool):
        if text == "stop":
            raise KeyboardInterrupt
        return encoder.tokenize(text, fold_names=fold_names)

    texts, cache = ["", *["superb"] * 1_023, "stop"], folder / "stopped"
    stopping = Namespace(tokenize=tokenize, encode=encoder.encode)
    with pytest.raises(KeyboardInterrupt):
        encode_texts(stopping, texts, cache=cache, progress=lambda *counts: progress.append(counts))
    assert progress[0] == (0, 1_025)
    assert any(0 < n < 1_024 for n, _ in progress), "no progress among many texts"
    assert progress[-1] == (1_024, 1_025)
    cached, indices = encode_texts(Namespace(tokenize=encoder.tokenize), texts[:1_024], cache=cache)
    assert (len(cached), indices[0]) == (1_023, 1)
    output = encoder.encode(encoder.tokenize("superb").chunks(), output_attentions=False)[0]
    assert np.array_equal(cached.states[0][:, 0], output.hidden_states)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("text,label\na,x\nb,x\n", "have the label 'x'; a model learns two or more. Add rows of another, or"),
        ("text,stars\na,5\nb,5\n", "have the label 'positive'; a model learns two or more. Add rows"),
        ("text,label\na,x\nb,y\nc,y\n", "a single row has the label 'x'; each needs 2 or more. Add rows"),
        ("text,rating\na b,1\nc d,2\ne f,3\n", "--keep-labels"),
        ("text,label\n,\n,\n", "no row has a text and a label. Say --column and --label"),
        ("", "is empty"),
        ("text,label\na b,x\nA B!,x\na b,y\na  b,y\n", "too few different texts"),
        (WORDLESS, "no text of the label 'y' has a word"),
    ],
)
def test_rows_that_cannot_be_trained_on_have_a_message_with_a_remedy(folder, capsys, content, message):
    file = folder / "refused.csv"
    file.write_text(content)
    assert train(folder, file, "refused") == 2
    assert message in "".join(capsys.readouterr())
