"""Figures on the everyday sentences, from answers whose figures are known."""

import pytest

from model_export.data.everyday import NEGATIVE, POSITIVE, Sentence
from model_export.measure.accuracy import describe, label_figures, leader_figures


def answer(label, logit, score=0.95, leaders=(), words=()):
    named = [{"word": word, "contribution": contribution} for word, contribution in words]
    return {
        "label": label, "logit": logit, "score": score, "words": named,
        "leaders": [{"word": word, "contribution": contribution} for word, contribution in leaders],
    }  # fmt: skip


def sentence(target, marks=None):
    return Sentence("text", target, "test", "kind", marks or {})


def test_label_figures_are_mean_recall_and_the_side_of_opinions():
    rows = [sentence(1.0), sentence(1.0), sentence(0.0), sentence(0.5)]
    answers = [
        answer("positive", 2.0), answer("neutral", 0.5), answer("positive", 3.0), answer("neutral", -0.1)
    ]  # fmt: skip
    figures = label_figures(rows, answers)
    assert figures["recall"] == {"negative": 0.0, "neutral": 1.0, "positive": 0.5}
    assert figures["three_labels"] == pytest.approx(0.5)
    assert figures["side"] == pytest.approx(2 / 3)
    assert figures["wrong_and_sure"] == pytest.approx(1 / 4)
    assert figures["kinds"] == {}  # too few texts


def test_leader_figures_compare_leaders_with_the_words_that_decide():
    rows = [
        sentence(1.0, {POSITIVE: ("love",)}),
        sentence(0.0, {NEGATIVE: ("isn't", "good")}),
        sentence(0.5, {POSITIVE: ("cheap",), NEGATIVE: ("loud",)}),
    ]
    answers = [
        answer("positive", 2, leaders=[("Love", 2.0), ("it", -0.1)], words=[("Love", 2.0), ("it", -0.1)]),
        answer("positive", 1, leaders=[("film", 1.0)], words=[("isn't", 0.2), ("good", -0.1), ("film", 1)]),
        answer("neutral", 0, leaders=[("cheap", 1.0), ("loud", -1.0)], words=[("cheap", 1.0), ("loud", 1.0)]),
    ]
    figures = leader_figures(rows, answers)
    assert figures["texts"] == 2
    assert (figures["marked"], figures["sign"]) == (0.5, 0.5)
    assert (figures["two_sided_texts"], figures["both_signs"]) == (1, 1.0)
    assert figures["marked_words_of_their_sign"] == pytest.approx(3 / 5)
    report = {"model": "m", "split": "test", "texts": 3, "leaders": figures, **label_figures(rows, answers)}
    assert any("two-sided texts with leaders of both signs 1.00" in line for line in describe(report))
