"""Measure a model on labelled texts. The result is a JSON value; report.py and html.py present it.

This module needs numpy alone, since `hardmax evaluate` runs where scikit-learn is not installed.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

N_ERRORS = 20  # errors that a report lists
N_BINS = 10  # of the calibration curve
Z_95 = 1.96  # standard deviations of an interval of 95 %
MIN_PROBABILITY = 1e-7


@dataclass(frozen=True)
class Prediction:
    """A labelled text and what a model predicted. With several labels per text a set may be empty."""

    text: str
    truth: frozenset[str]
    predicted: frozenset[str]
    probs: dict[str, float]
    abstain_reason: str | None = None
    leaders: tuple[str, ...] = ()

    @property
    def correct(self) -> bool:
        """Whether the predicted labels are the true ones."""
        return self.truth == self.predicted

    @property
    def log_loss(self) -> float:
        """The negative log-likelihood of the true labels."""
        if len(self.truth) == 1 and abs(sum(self.probs.values()) - 1) < 1e-3:
            return -math.log(max(self.probs.get(next(iter(self.truth)), 0.0), MIN_PROBABILITY))
        each = (p if label in self.truth else 1 - p for label, p in self.probs.items())
        return -sum(math.log(max(p, MIN_PROBABILITY)) for p in each)


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
    n_correct = sum(each.correct for each in predictions)
    by_label = [_label_metrics(predictions, label) for label in labels]
    errors = sorted((each for each in predictions if not each.correct), key=lambda each: -each.log_loss)
    metrics = {
        "rows": len(predictions),
        "accuracy": n_correct / len(predictions),
        "interval": wilson_interval(n_correct, len(predictions)),
        "balanced_accuracy": fmean(each["recall"] for each in by_label if each["rows"]),
        "majority_class": max(Counter(each.truth for each in predictions).values()) / len(predictions),
        "labels": by_label,
        "calibration": calibration(predictions, multi_label),
        "abstained": _abstained(predictions),
        "answered_accuracy": _share([each.correct for each in predictions if not each.abstain_reason]),
        "errors": [describe_prediction(each) for each in errors[:N_ERRORS]],
    }
    if not multi_label:
        pairs = Counter((*each.truth, *each.predicted) for each in predictions)
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


def calibration(predictions: Sequence[Prediction], multi_label: bool) -> dict[str, Any]:
    """Return the expected calibration error and, by tenths of confidence, mean confidence and accuracy."""
    pairs = (
        [(p, label in each.truth) for each in predictions for label, p in each.probs.items()]
        if multi_label
        else [(max(each.probs.values()), each.correct) for each in predictions]
    )
    bins = []
    for number in range(N_BINS):
        inside = [(p, hit) for p, hit in pairs if min(int(p * N_BINS), N_BINS - 1) == number]
        if inside:
            confidence, accuracy = fmean(p for p, _ in inside), fmean(hit for _, hit in inside)
            bins.append({"rows": len(inside), "confidence": confidence, "accuracy": accuracy})
    error = sum(each["rows"] * abs(each["confidence"] - each["accuracy"]) for each in bins) / len(pairs)
    return {"error": error, "bins": bins}


def describe_prediction(prediction: Prediction) -> dict[str, Any]:
    """Return a prediction as a JSON value; `score` is the probability of what was predicted."""
    probs = prediction.probs
    return {
        "text": prediction.text,
        "truth": sorted(prediction.truth),
        "predicted": sorted(prediction.predicted),
        "score": max((probs[label] for label in prediction.predicted), default=1 - max(probs.values())),
        "abstain_reason": prediction.abstain_reason,
        "leaders": list(prediction.leaders),
    }


def _label_metrics(predictions: Sequence[Prediction], label: str) -> dict[str, Any]:
    return {
        "label": label,
        "rows": sum(label in each.truth for each in predictions),
        "predicted": sum(label in each.predicted for each in predictions),
        "precision": _share([label in each.truth for each in predictions if label in each.predicted]),
        "recall": _share([label in each.predicted for each in predictions if label in each.truth]),
    }


def _abstained(predictions: Sequence[Prediction]) -> dict[str, Any]:
    """Return, by reason, how many texts the model abstained on and how right it was on them."""
    correct: dict[str, list[bool]] = {}
    for each in predictions:
        if each.abstain_reason:
            correct.setdefault(each.abstain_reason, []).append(each.correct)
    return {reason: {"rows": len(hits), "accuracy": fmean(hits)} for reason, hits in correct.items()}


def _share(hits: Sequence[bool]) -> float | None:
    return sum(hits) / len(hits) if hits else None
