"""Training end to end on reviews written for it: small enough for seconds, real enough to be learnt."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from model_export import recipes, train
from model_export.cli import main
from model_export.corpus import UNLABELLED, Corpus
from model_export.fit import Fit, Lesson, cluster_share, fit, log_ratio, logits
from model_export.model import Weights
from model_export.tokens import Vocabulary
from service.errors import InvalidInput, NotFound

GOOD = ["superb", "moving", "not bad", "well worth it", "funny"]
BAD = ["dreadful", "boring", "not good", "waste of time", "clumsy"]
PLAIN = ["the film", "a story", "we saw", "two hours", "in town", "the cast", "last night", "its music"]


def _reviews(labelled: int, unlabelled: int = 0) -> Corpus:
    rng = np.random.default_rng(0)
    labels = np.arange(labelled + unlabelled) % 2
    texts = [
        " ".join(rng.permutation([*rng.choice(GOOD if y else BAD, 3), *rng.choice(PLAIN, 6)])) for y in labels
    ]
    labels[labelled:] = UNLABELLED
    return Corpus(tuple(texts), labels.astype(np.int8), np.arange(len(texts)), "written")


def _recipe(**changes: object) -> recipes.Recipe:
    small = {
        "dimension": 4,
        "vocabulary": 200,
        "least": 2,
        "teacher": False,
        "rate": 0.02,
        "epochs": 3,
        "batch": 16,
        "lessons": 0,
        "pseudo_weight": 0.0,
    }
    return recipes.recipe("sentiment", **{**small, **changes})


@pytest.fixture
def lesson() -> tuple[Lesson, Vocabulary]:
    material = train.prepare(_recipe(), _reviews(200), None)
    return material.lesson, material.vocabulary


def test_training_learns_and_leaves_what_export_needs(tmp_path):
    measured = train.train(_recipe(), _reviews(200), tmp_path, unseen=_reviews(40))
    assert measured.figures["validation"]["accuracy"] > 0.95
    assert measured.figures["validation"]["texts"] == 40
    assert measured.figures["sentences"]["accuracy"] > 0.95
    meta = json.loads((tmp_path / "meta.json").read_text())
    weights, vocabulary = Weights.load(tmp_path / "weights.npz"), Vocabulary.load(tmp_path / "tokenizer.json")
    assert weights.embedding.shape == (len(vocabulary), 4) == (meta["vocabulary"], meta["dimension"])
    assert meta["readout"]["vector"] == pytest.approx(weights.readout.tolist())
    assert "waste of time" in vocabulary.names
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert not (tmp_path / "checkpoint.pt").exists()


def test_the_same_seed_gives_the_same_weights(tmp_path):
    for name in ("a", "b"):
        train.train(_recipe(epochs=1), _reviews(60), tmp_path / name)
    a, b = (Weights.load(tmp_path / name / "weights.npz") for name in ("a", "b"))
    np.testing.assert_array_equal(a.embedding, b.embedding)


def test_a_stopped_run_goes_on_to_the_same_end(tmp_path, lesson):
    (tmp_path / "whole").mkdir()
    (tmp_path / "parts").mkdir()
    lesson, vocabulary = lesson
    whole = fit(_recipe(), lesson, len(vocabulary), tmp_path / "whole")
    part = Fit(_recipe(), lesson, len(vocabulary))
    part.epoch(lambda texts, loss: None)
    torch.save(part.state(), tmp_path / "parts" / "checkpoint.pt")
    resumed = fit(_recipe(), lesson, len(vocabulary), tmp_path / "parts")
    np.testing.assert_array_equal(whole.model.weights().embedding, resumed.model.weights().embedding)


def test_a_checkpoint_of_another_recipe_is_refused(tmp_path, lesson):
    lesson, vocabulary = lesson
    torch.save(Fit(_recipe(), lesson, len(vocabulary)).state(), tmp_path / "checkpoint.pt")
    with pytest.raises(InvalidInput, match="another recipe"):
        fit(_recipe(seed=1), lesson, len(vocabulary), tmp_path)


def test_fitting_stops_when_nothing_improves(lesson):
    lesson, vocabulary = lesson
    work = Fit(_recipe(epochs=50), lesson, len(vocabulary))
    work.history = [{"validation_loss": x} for x in (0.5, 0.3, 0.31, 0.32)]
    assert not work.done
    work.history.append({"validation_loss": 0.33})
    assert work.done


def test_everything_trains_on_the_held_out_texts_too_and_keeps_the_figures(tmp_path):
    train.train(_recipe(epochs=1), _reviews(100), tmp_path, everything=True)
    first = json.loads((tmp_path / "validation" / "meta.json").read_text())
    final = json.loads((tmp_path / "meta.json").read_text())
    assert (first["data"]["labelled"], final["data"]["labelled"]) == (80, 100)
    assert final["figures"] == first["figures"]
    assert final["temperature"] == first["temperature"]


def test_the_teachers_labels_are_used_and_kept(tmp_path):
    reviews = _reviews(40, 20)
    kept = tmp_path / "labels.npz"
    np.savez(kept, key="written/60", probability=np.linspace(0, 1, 20, dtype=np.float32))
    material = train.prepare(_recipe(teacher=True), reviews, None, labels=kept)
    assert material.lesson.target[40:60] == pytest.approx(np.linspace(0, 1, 20))
    assert len(material.lesson.train) == 32 + 20
    np.savez(kept, key="other/60", probability=np.zeros(20))
    with pytest.raises(InvalidInput, match="other data"):
        train.prepare(_recipe(teacher=True), reviews, None, labels=kept)


def test_log_ratio_is_smoothed_and_counts_only_what_is_learnt():
    vocabulary = Vocabulary.of(["up", "down", "both"])
    bags = vocabulary.bags(["up both", "up both", "down both", "down"])
    target = np.array([1, 1, 0, 0], dtype=np.float32)
    ratio = log_ratio(Lesson(bags, target, np.array([0, 1, 2]), np.array([3])), len(vocabulary))
    assert ratio[2:] == pytest.approx(np.log([5 / 3, 3 / 4, 5 / 4]))


def test_trained_models_cluster(lesson):
    lesson, vocabulary = lesson
    work = Fit(_recipe(), lesson, len(vocabulary))
    work.epoch(lambda texts, loss: None)
    share = cluster_share(work.model, lesson.bags, lesson.validation)
    assert 1 <= share["clusters"] < 0.5 * share["tokens"]
    assert share["share"] == pytest.approx(share["clusters"] / share["tokens"])
    assert len(logits(work.model, lesson.bags, lesson.validation[:7])) == 7


def test_recipes_are_found_by_name_and_by_group():
    assert recipes.expand(["bundled", "paper-2"]) == ["sentiment-2d", "sentiment-16d", "sentiment", "paper-2"]
    assert recipes.recipe("paper-4", seed=3).seed == 3
    with pytest.raises(NotFound, match="no recipe 'paper-3'"):
        recipes.recipe("paper-3")


def test_the_command_trains_from_a_file_and_names_a_missing_one(tmp_path, capsys):
    reviews = _reviews(60)
    rows = [
        json.dumps({"text": t, "label": int(y)}) for t, y in zip(reviews.texts, reviews.labels, strict=True)
    ]
    (tmp_path / "reviews.jsonl").write_text("\n".join(rows))
    flags = ["train", "--recipe", "paper-2", "--epochs", "1", "--out", str(tmp_path / "runs"), "--data"]
    assert main([*flags, str(tmp_path / "reviews.jsonl")]) == 0
    assert (tmp_path / "runs" / "paper-2" / "weights.npz").exists()
    assert main([*flags, str(tmp_path / "missing.jsonl")]) == 2
    assert "missing.jsonl: there is no such file" in capsys.readouterr().err
