"""The numbers of a report, checked by hand."""

import pytest

from evaluation.metrics import Prediction, compare, evaluate, mcnemar_test, wilson_interval

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


def error(text, score, predicted="b", row=0):
    """Return a wrong prediction among three labels, whose true label may be improbable or not."""
    probs = {"a": 0.4, "b": 0.0, "c": 0.0} | {predicted: score}
    return Prediction(text, frozenset("a"), frozenset(predicted), probs, row=row)


def test_errors_are_sorted_by_confidence_with_several_labels():
    """The log loss of the true label would order them otherwise."""
    unlikely = Prediction("u", frozenset("a"), frozenset("b"), {"a": 0.01, "b": 0.5, "c": 0.49})
    errors = evaluate([error("x", 0.45), unlikely, error("z", 0.6)], "abc")["errors"]
    assert [row["score"] for row in errors] == [0.6, 0.5, 0.45]


def test_nearly_equal_errors_are_one_line_with_a_count():
    rows = [
        error("Where is order 4711?", 0.9, row=7),
        error("where is order 12", 0.8),
        error("I want it", 0.7),
    ]
    rows += [error("Where is order 5?", 0.6, "c", row=9)]  # another error: it has another label
    metrics = evaluate(rows, "abc")
    listed = [(row["row"], row["score"], row["similar"]) for row in metrics["errors"]]
    assert listed == [(7, 0.9, 1), (0, 0.7, 0), (9, 0.6, 0)]
    assert metrics["error_count"] == 4


def test_mcnemar_test_is_the_binomial_one():
    """Of 6 rows where one is right, 1 or 5 is as likely as 2 * (1 + 6) / 64."""
    assert mcnemar_test(1, 5) == mcnemar_test(5, 1) == 14 / 64
    assert mcnemar_test(0, 0) == mcnemar_test(3, 3) == 1.0
    assert mcnemar_test(5_000, 5_300) == pytest.approx(0.0032, abs=2e-4)


def test_comparison_counts_rows_that_one_of_two_models_has_right():
    others = [frozenset([label]) if label else None for label in ("good", "bad", "good", "bad", None)]
    comparison = compare(PREDICTIONS, others, "distilbert")
    assert (comparison["rows"], comparison["accuracy"], comparison["other_accuracy"]) == (4, 3 / 4, 3 / 4)
    assert (comparison["only_model_correct"], comparison["only_other_correct"]) == (1, 1)
    assert comparison["p_value"] == 1.0
    assert [(row["predicted"], row["other"]) for row in comparison["differing"]] == [
        (["good"], ["bad"]),
        (["bad"], ["good"]),
    ]
