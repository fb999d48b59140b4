"""A model of one's own: two labels and three, few rows, what is measured and what is said."""

from __future__ import annotations

import random

import numpy as np
import pytest

from model_export.sentiment.model import HardmaxTransformer
from model_export.train import own
from model_export.train.fit import logits
from model_export.train.material import Texts
from service.errors import InvalidInput
from service.texts.reader import Reader

SAID = {
    "good": "lovely tasty friendly quick warm".split(),
    "bad": "cold rude slow dirty stale".split(),
    "info": "opens closes moved listed".split(),
}


def rows(labels, number):
    rng = random.Random(0)
    return [
        (f"the {rng.choice(['room', 'soup', 'staff'])} was {rng.choice(SAID[label])} today", label)
        for label in (labels[i % len(labels)] for i in range(number))
    ]


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(own, "STEPS", 80)


def answers(trained, texts):
    model = HardmaxTransformer.of(trained.weights)
    return logits(model, Texts.read(Reader(trained.lists), texts, np.zeros(len(texts)), 100))


def test_two_labels_give_one_logit_that_tells_them_apart():
    done = []
    trained = own.train(rows(["good", "bad"], 40), progress=lambda *at: done.append(at))
    assert trained.labels == ("bad", "good")
    assert trained.weights.readout.shape == (1, 2)
    found = answers(trained, ["the soup was lovely", "the soup was rude"])[:, 0]
    assert found[0] > 0 > found[1]
    assert trained.figures["accuracy"] >= 0.9
    assert (trained.figures["folds"], trained.figures["measured"]) == (5, 40)
    assert trained.warnings == ()
    assert done[-1] == (200, 200)  # five folds of 32 rows, then all 40


def test_three_labels_give_three_logits():
    trained = own.train(rows(["good", "bad", "info"], 60))
    assert trained.labels == ("bad", "good", "info")
    found = answers(trained, ["the soup was stale", "the room was warm", "the room was listed"])
    assert found.argmax(1).tolist() == [0, 1, 2]


def test_a_label_that_is_never_answered_is_named_and_a_better_linear_model_told():
    truth = np.array([0] * 20 + [1] * 20 + [2] * 2)
    answers = np.eye(3)[np.array([0] * 20 + [1] * 10 + [0] * 12)]
    figures, warnings = own._figures(answers, truth, truth, ("bad", "good", "odd"), 5)
    assert figures["labels"]["odd"] == {"rows": 2, "answered": 0}
    assert figures["accuracy"] == pytest.approx(30 / 42)
    assert figures["balanced_accuracy"] == pytest.approx((1 + 0.5 + 0) / 3)
    assert ["'odd' is never answered" in warnings[0], "100.0 % against 71.4 %" in warnings[1]] == [True, True]
    assert len(warnings) == 2


@pytest.mark.parametrize(
    ("some", "reason"),
    [
        ([("a", "x"), ("b", "x")], "1 label"),
        ([("a", "x"), ("b", "x"), ("c", "y")], "'y' has a single row"),
        ([], "0 label"),
    ],
)
def test_rows_that_teach_nothing_are_refused(some, reason):
    with pytest.raises(InvalidInput, match=reason):
        own.train(some)


def test_folds_spread_each_label_evenly():
    truth = np.array([0] * 50 + [1] * 5)
    parts = own.folds(truth, 0)
    assert sorted(np.concatenate(parts).tolist()) == list(range(55))
    assert [int(truth[part].sum()) for part in parts] == [1] * 5
    assert len(own.folds(np.zeros(own.MANY, int), 0)) == 1
