"""The whole pipeline on data of a few hundred lines: files, splits, teacher, model, card."""

from __future__ import annotations

import gzip
import io
import json
import pickle
import random
import tarfile

import numpy as np
import pytest
from encoders import write_encoder

from model_export.sentiment.export import read_weights
from model_export.sentiment.model import HardmaxTransformer, Shape
from model_export.train import linear, recipes
from model_export.train.encoder import Fitting
from model_export.train.fit import Optimisation, logits
from model_export.train.material import Texts
from model_export.train.recipes import Part, Recipe
from model_export.train.train import epochs_of, even_band, train
from service.errors import NotFound
from service.texts.reader import Reader

GOOD, BAD = "superb lovely charming witty".split(), "vile dull clumsy stale".split()
THINGS = "film plot room phone soup hotel actor story".split()


def sentence(rng, good):
    return f"the {rng.choice(THINGS)} {rng.choice(['is', 'was'])} {rng.choice(GOOD if good else BAD)} ."


def table(path, rows, header=True):
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(f"{text}\t{label}\n" for text, label in ([("text", "label")] if header else []) + rows)
    with gzip.open(path, "wt") if path.suffix == ".gz" else path.open("w") as file:
        file.write(text)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder, rng = tmp_path_factory.mktemp("data"), random.Random(0)

    def rows(number, labels):
        return [
            (f"{sentence(rng, i % 2)} {rng.random():.12f}", labels[i % len(labels)]) for i in range(number)
        ]

    for name in (
        "yelp/sentences.tsv.gz",
        "amazon/reviews.tsv.gz",
        "mpqa/phrases.tsv.gz",
        "sst2/phrases.tsv.gz",
    ):
        table(folder / name, rows(120, "01"))
    table(folder / "amazon/electronics.tsv.gz", rows(120, ("negative", "positive")))
    neutral = [(f"the {thing} opens at {i}", "neutral") for i, thing in enumerate(THINGS * 5)]
    table(folder / "tweets/semeval2017.tsv.gz", rows(200, ("negative", "positive")) + neutral)
    table(folder / "sst2/train.tsv", rows(120, "01"), header=False)
    table(folder / "sst2/dev.tsv", rows(40, "01"), header=False)
    with tarfile.open(folder / "aclImdb_train.tar.gz", "w:gz") as archive:
        for i in range(900):
            part = ("neg", "pos", "unsup")[i % 3]
            text = " ".join(
                sentence(rng, part == "pos" or (part == "unsup" and i % 2)) for _ in range(6)
            ).encode()
            member = tarfile.TarInfo(f"aclImdb/train/{part}/{i // 3}_5.txt")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text))
    (folder / "glove").mkdir()
    known = [*GOOD, *BAD, *THINGS, "the", "is", "was", "."]
    (folder / "glove/words.txt").write_text("\n".join(known))
    np.save(
        folder / "glove/vectors.npy",
        np.random.default_rng(0).normal(size=(len(known), 12)).astype(np.float16),
    )
    return folder


def the_prepared(runs):
    with (runs / "prepared.pkl").open("rb") as file:
        return pickle.load(file)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """What is prepared is shared, as by the recipes of a real run."""
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    return write_encoder(tmp_path_factory.mktemp("encoder"), [*GOOD, *BAD, *THINGS, "the", "is", "was", "."])


QUICK = Optimisation(epochs=1, texts=32, warm_up=5, rate=0.02, vectors_rate=0.02)
SMALL = Shape(hidden=4, bits=10)
TINY = Recipe(
    name="tiny", description="Tests.", parts=dict.fromkeys(recipes.SENTIMENT.parts, Part(300)), words=9_000,
    shape=SMALL, learning=QUICK, unlabelled=200, sentences=150,
    encoder_parts=dict.fromkeys(("sst", "yelp", "tweets"), Part(200)),
    encoding=Fitting(epochs=8, rate=5e-3, warm_up=10, pieces=400),
    opinions={"sst": 0.6, "sentences": 1.0},
)  # fmt: skip


def test_the_pipeline_goes_from_the_data_to_weights_that_can_be_exported(data, encoder, runs):
    train(TINY, data, encoder, runs / "tiny")
    weights, lists, card = read_weights(runs / "tiny")
    assert card["labels"] == ["negative", "positive"]
    assert card["figures"]["sst"]["balanced_accuracy"] > 0.9
    assert 0.02 <= card["even"] <= 0.3
    assert (
        card["data"]["sst"] == {"train": 101, "choose": 19, "report": 40}
        or sum(card["data"]["sst"].values()) <= 160
    )
    texts = Texts.read(Reader(lists), ["the phone was superb", "the phone was vile"], [1, 0], 100)
    found = logits(HardmaxTransformer.of(weights), texts)[:, 0]
    assert found[0] > 0 > found[1]
    assert (runs / "encoder.pt").exists()
    said = the_prepared(runs).train["sentences"]  # nobody labelled them: the encoder did
    good = [bool({lists.words.index(x) for x in GOOD} & set(said.text(i))) for i in range(len(said))]
    assert ((said.targets > 0.5) == np.array(good)).mean() > 0.8
    before = (runs / "tiny" / "weights.npz").stat().st_size
    (runs / "tiny" / "weights.npz").unlink()
    train(TINY, data, encoder, runs / "tiny")  # goes on from what is there: nothing is fitted again
    assert (runs / "tiny" / "weights.npz").stat().st_size == before
    assert json.loads((runs / "tiny" / "meta.json").read_text())["figures"] == card["figures"]


def test_an_epoch_reads_what_the_recipe_says():
    texts = {"sst": Texts.of([[7]] * 10, [1] * 10, 9), "yelp": Texts.of([[8]] * 50, [0] * 50, 9)}
    recipe = Recipe("r", "d", {"sst": Part(times=3), "yelp": Part(20), "tweets": Part()})
    whole, epochs = epochs_of(recipe, texts, 2)
    assert len(whole) == 60
    for rows in epochs:
        assert np.bincount(rows[rows < 10]).tolist() == [3] * 10
        assert len(set(rows[rows >= 10].tolist())) == 20
    assert set(epochs[0].tolist()) != set(epochs[1].tolist())


def test_the_even_band_is_where_three_labels_are_told_best():
    tweets = Texts.of([[7]] * 6, [0, 0, 0.5, 0.5, 1, 1], 9)
    answers = {"tweets": np.array([-3.0, -1.0, -0.3, 0.3, 1.0, 3.0])}
    assert 0.07 <= even_band({"tweets": tweets}, answers, np.ones(1, np.float32)) <= 0.23


def test_the_linear_teacher_reads_runs_of_words():
    rng = np.random.default_rng(0)
    rows, targets = [], []
    for i in range(200):  # "7 8" is praise, "8 7" blame: single words say nothing
        rows.append([*rng.integers(10, 30, 3), *((7, 8) if i % 2 else (8, 7)), *rng.integers(10, 30, 3)])
        targets.append(i % 2)
    texts = Texts.of(rows, targets, 20)
    learn, ask = texts.take(np.arange(160)), texts.take(np.arange(160, 200))
    assert ((linear.label(learn, ask) > 0) == (ask.targets > 0.5)).mean() > 0.95


def test_an_unknown_recipe_names_those_there_are():
    with pytest.raises(NotFound, match="sentiment, twin"):
        recipes.recipe("paper-2")
