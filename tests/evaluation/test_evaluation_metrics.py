"""The numbers of a report, checked by hand."""

import pytest

from evaluation.metrics import Prediction, evaluate, wilson_interval

LABELS = ("bad", "good")


def predict(truth, p, text="a text", abstain_reason=None):
    """`p`: the probability of good."""
    predicted = "good" if p > 0.5 else "bad"
    probs = {"bad": 1 - p, "good": p}
    return Prediction(text, frozenset([truth]), frozenset([predicted]), probs, abstain_reason, ("text",))


PREDICTIONS = [
    predict("good", 0.9),
    predict("good", 0.7),
    predict("good", 0.05, "<b>surely bad</b>"),
    predict("bad", 0.1),
    predict("bad", 0.6, abstain_reason="low_confidence"),
]


def test_evaluate_counts_what_is_correct():
    metrics = evaluate(PREDICTIONS, LABELS)
    assert metrics["accuracy"] == pytest.approx(3 / 5)
    assert metrics["balanced_accuracy"] == pytest.approx((1 / 2 + 2 / 3) / 2)
    assert metrics["majority_class"] == pytest.approx(3 / 5)
    assert metrics["confusion"] == [[1, 1], [1, 2]]
    bad, good = metrics["labels"]
    assert (bad["rows"], bad["predicted"], bad["precision"], bad["recall"]) == (2, 2, 1 / 2, 1 / 2)
    assert (good["rows"], good["predicted"], good["precision"], good["recall"]) == (3, 3, 2 / 3, 2 / 3)
    assert metrics["abstained"] == {"low_confidence": {"rows": 1, "accuracy": 0.0}}
    assert metrics["answered_accuracy"] == pytest.approx(3 / 4)
    assert [row["text"] for row in metrics["errors"]] == ["<b>surely bad</b>", "a text"]
    bins = 3 * abs((0.9 + 0.9 + 0.95) / 3 - 2 / 3), abs(0.7 - 1), abs(0.6 - 0)
    assert metrics["calibration"]["error"] == pytest.approx(sum(bins) / 5)


def test_several_labels_are_correct_only_together():
    probs = {"a": 0.9, "b": 0.8, "c": 0.1}
    predictions = [Prediction("t", frozenset(truth), frozenset("ab"), probs) for truth in ("ab", "a", "")]
    metrics = evaluate(predictions, "abc", multi_label=True)
    assert metrics["accuracy"] == pytest.approx(1 / 3)
    assert [label["precision"] for label in metrics["labels"]] == [2 / 3, 1 / 3, None]
    assert "confusion" not in metrics


def test_wilson_interval_is_the_published_one():
    """Newcombe 1998, table I: 81 of 263."""
    assert wilson_interval(81, 263) == pytest.approx((0.2553, 0.3662), abs=1e-4)
    assert wilson_interval(0, 20) == pytest.approx((0.0, 0.1611), abs=1e-4)
