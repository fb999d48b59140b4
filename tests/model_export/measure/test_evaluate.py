"""Evaluation of a run on a plane whose answers are known by hand (bundles.plane_weights)."""

from __future__ import annotations

import json

import pytest
from bundles import plane_weights

from model_export.measure.evaluate import Trained, evaluate
from model_export.sentiment.export import words_of
from service.texts.reader import Lists

TEXTS = {
    "superb film": 1.0,
    "good good good": 1.0,
    "awful film": 0.0,
    "the bad film": 0.0,
    "superb superb superb awful": 0.0,  # answered wrongly
}


@pytest.fixture
def run(tmp_path):
    weights = plane_weights(bias=plane_weights().bias * 0)
    weights.save(tmp_path / "weights.npz")
    lists = Lists(weights.words, frozenset(), frozenset(), frozenset())
    (tmp_path / "words.json").write_text(json.dumps(words_of(lists)))
    (tmp_path / "meta.json").write_text(json.dumps({"even": 0.1}))
    return Trained(tmp_path)


def test_evaluate_counts_what_is_right(run):
    sets = {"reviews": run.read(list(TEXTS), list(TEXTS.values()))}
    found = evaluate(run, sets)
    assert found["sets"]["reviews"]["texts"] == 5
    assert found["sets"]["reviews"]["accuracy"] == pytest.approx(0.8)
    assert found["sets"]["reviews"]["balanced_accuracy"] == pytest.approx((1 + 2 / 3) / 2)
    leaders = found["leaders"]
    assert leaders["reviews"] == 5
    assert leaders["sign_agrees"] == 1.0
    assert leaders["leaders_alone_agree"] == 1.0
    assert leaders["function_words"] < 0.2


def test_evaluate_measures_three_labels_and_the_twin(run):
    texts = {**TEXTS, "of": 0.5}
    sets = {
        "reviews": run.read(list(TEXTS), list(TEXTS.values())),
        "tweets": run.read(list(texts), list(texts.values())),
    }
    tweets = evaluate(run, sets, twin=run)["sets"]["tweets"]
    assert tweets["texts"] == 5
    assert tweets["twin_without_layers"] == tweets["balanced_accuracy"]
    assert 0.5 < tweets["three_way_balanced_accuracy"] <= 1.0
