"""Measure a model on labelled texts. The result is a JSON value; report.py, html.py and plot.py present it.

It needs numpy only, because `hardmax evaluate` runs without scikit-learn.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from evaluation.near_duplicates import group_near_duplicates

N_ERRORS = 20  # errors that a report lists
N_BINS = 10  # of the calibration curve
Z_95 = 1.96  # standard deviations of an interval of 95 %
NEARLY_EQUAL = 0.8  # the share of words that two texts have in common


@dataclass(frozen=True)
class Prediction:
    """A labelled text and what a model predicted. With several labels per text a set may be empty."""

    text: str
    truth: frozenset[str]
    predicted: frozenset[str]
    probs: dict[str, float]
    abstain_reason: str | None = None
    leaders: tuple[str, ...] = ()
    row: int = 0  # its number in the file
    id: str = ""

    @property
    def correct(self) -> bool:
        """Whether the predicted labels are the true ones."""
        return self.truth == self.predicted

    @property
    def score(self) -> float:
        """The probability of the predicted labels; if there is none, that no label applies."""
        return max((self.probs[label] for label in self.predicted), default=1 - max(self.probs.values()))


def evaluate(
    predictions: Sequence[Prediction], labels: Sequence[str], *, multi_label: bool = False
) -> dict[str, Any]:
    """Return the metrics of one model.

    Args:
        predictions: one for each labelled text.
        labels: all labels, in the order of the report.
        multi_label: whether a text may have several labels; then there is no confusion matrix.

    Returns:
        A JSON value; shares are from 0 to 1.
    """
    n_correct = sum(row.correct for row in predictions)
    by_label = [_label_metrics(predictions, label) for label in labels]
    errors = sort_errors(predictions)
    metrics = {
        "rows": len(predictions),
        "accuracy": n_correct / len(predictions),
        "interval": wilson_interval(n_correct, len(predictions)),
        "balanced_accuracy": fmean([label["recall"] for label in by_label if label["rows"]] or [0.0]),
        "majority_class": max(Counter(row.truth for row in predictions).values()) / len(predictions),
        "labels": by_label,
        "calibration": measure_calibration(predictions, multi_label),
        "abstained": _count_abstentions(predictions),
        "answered_accuracy": _share([row.correct for row in predictions if not row.abstain_reason]),
        "error_count": len(errors),
        "errors": fold_errors(errors)[:N_ERRORS],
    }
    if not multi_label:
        pairs = Counter((*row.truth, *row.predicted) for row in predictions)
        metrics["confusion"] = [[pairs[true, predicted] for predicted in labels] for true in labels]
    return metrics


def wilson_interval(n_correct: int, n: int) -> tuple[float, float]:
    """Return the 95 % confidence interval of a share (Wilson 1927)."""
    if not n:
        return 0.0, 1.0
    p, z = n_correct / n, Z_95
    center = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return max(0.0, center - half), min(1.0, center + half)


def measure_calibration(predictions: Sequence[Prediction], multi_label: bool) -> dict[str, Any]:
    """Return the expected calibration error and, by tenths of confidence, mean confidence and accuracy."""
    pairs = (
        [(p, label in row.truth) for row in predictions for label, p in row.probs.items()]
        if multi_label
        else [(max(row.probs.values()), row.correct) for row in predictions]
    )
    bins = calibration_bins(*zip(*pairs, strict=True))
    return {"error": calibration_error(bins), "bins": bins}


def calibration_bins(confidence: ArrayLike, correct: ArrayLike) -> list[dict[str, Any]]:
    """Return rows, mean confidence and accuracy for each tenth of confidence that has rows."""
    p, hits = np.asarray(confidence, np.float64), np.asarray(correct, bool)
    tenth = np.minimum((p * N_BINS).astype(int), N_BINS - 1)
    bins = []
    for number in np.unique(tenth):
        inside = tenth == number
        shares = {"confidence": float(p[inside].mean()), "accuracy": float(hits[inside].mean())}
        bins.append({"rows": int(inside.sum()), **shares})
    return bins


def calibration_error(bins: Sequence[dict[str, Any]]) -> float:
    """Return the expected calibration error: the mean distance of confidence and accuracy."""
    total = sum(b["rows"] for b in bins)
    return float(sum(b["rows"] * abs(b["confidence"] - b["accuracy"]) for b in bins) / total)


def sort_errors(predictions: Sequence[Prediction]) -> list[Prediction]:
    """Return the errors, the most confident first."""
    return sorted((row for row in predictions if not row.correct), key=lambda row: -row.score)


def fold_errors(errors: Sequence[Prediction]) -> list[dict[str, Any]]:
    """Return errors as JSON values; those with nearly the same text and the same labels are one.

    `similar` is the number of further ones.
    """
    groups = group_near_duplicates([row.text for row in errors], NEARLY_EQUAL)
    keys = [(group, row.truth, row.predicted) for group, row in zip(groups.tolist(), errors, strict=True)]
    count, first = Counter(keys), dict(zip(reversed(keys), reversed(errors), strict=True))
    return [describe_prediction(first[key]) | {"similar": count[key] - 1} for key in dict.fromkeys(keys)]


def describe_prediction(prediction: Prediction) -> dict[str, Any]:
    """Return a prediction as a JSON value."""
    return {
        "row": prediction.row,
        **({"id": prediction.id} if prediction.id else {}),
        "text": prediction.text,
        "truth": sorted(prediction.truth),
        "predicted": sorted(prediction.predicted),
        "score": prediction.score,
        "abstain_reason": prediction.abstain_reason,
        "leaders": list(prediction.leaders),
    }


def compare(
    predictions: Sequence[Prediction], others: Sequence[frozenset[str] | None], name: str
) -> dict[str, Any]:
    """Compare the predictions of a model with those of another one for the same rows.

    Args:
        predictions: one for each labelled text.
        others: the labels that the other model predicted, None for a row without a prediction.
        name: the name of the other model.

    Returns:
        A JSON value: the accuracy of both, how many rows only one of them has right, the p-value of McNemar's
        exact test, and the rows where they differ.
    """
    pairs = [(row, other) for row, other in zip(predictions, others, strict=True) if other is not None]
    other_correct = [row.truth == other for row, other in pairs]
    only_model = sum(row.correct and not hit for (row, _), hit in zip(pairs, other_correct, strict=True))
    only_other = sum(hit and not row.correct for (row, _), hit in zip(pairs, other_correct, strict=True))
    differing = [(row, other) for row, other in pairs if other != row.predicted]
    return {
        "name": name,
        "rows": len(pairs),
        "accuracy": _share([row.correct for row, _ in pairs]),
        "other_accuracy": _share(other_correct),
        "only_model_correct": only_model,
        "only_other_correct": only_other,
        "p_value": mcnemar_test(only_model, only_other),
        "differing": [describe_prediction(row) | {"other": sorted(other)} for row, other in differing],
    }


def mcnemar_test(only_first: int, only_second: int) -> float:
    """Return the two-sided p-value of McNemar's exact test: that both are right equally often.

    The arguments are the numbers of rows that only one of two models has right (McNemar 1947).
    """
    n: int = only_first + only_second
    term, total = 1, 0
    for k in range(min(only_first, only_second) + 1):
        total += term
        term = term * (n - k) // (k + 1)
    share: float = 2 * total / 2**n
    return min(1.0, share)


def _label_metrics(predictions: Sequence[Prediction], label: str) -> dict[str, Any]:
    return {
        "label": label,
        "rows": sum(label in row.truth for row in predictions),
        "predicted": sum(label in row.predicted for row in predictions),
        "precision": _share([label in row.truth for row in predictions if label in row.predicted]),
        "recall": _share([label in row.predicted for row in predictions if label in row.truth]),
    }


def _count_abstentions(predictions: Sequence[Prediction]) -> dict[str, Any]:
    """Return, by reason, the number of texts on which the model abstained, and its accuracy on them."""
    correct: dict[str, list[bool]] = {}
    for row in predictions:
        if row.abstain_reason:
            correct.setdefault(row.abstain_reason, []).append(row.correct)
    return {reason: {"rows": len(hits), "accuracy": fmean(hits)} for reason, hits in correct.items()}


def _share(hits: Sequence[bool]) -> float | None:
    return sum(hits) / len(hits) if hits else None
