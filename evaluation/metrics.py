"""Measure a model on labelled texts. The result is a JSON value; report.py and html.py present it.

It needs only the standard library, because `hardmax evaluate` runs without scikit-learn.
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
        likelihoods = (p if label in self.truth else 1 - p for label, p in self.probs.items())
        return -sum(math.log(max(p, MIN_PROBABILITY)) for p in likelihoods)


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
    errors = sorted((row for row in predictions if not row.correct), key=lambda row: -row.log_loss)
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
        "errors": [describe_prediction(row) for row in errors[:N_ERRORS]],
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
    bins = []
    for number in range(N_BINS):
        inside = [(p, hit) for p, hit in pairs if min(int(p * N_BINS), N_BINS - 1) == number]
        if inside:
            confidence, accuracy = fmean(p for p, _ in inside), fmean(hit for _, hit in inside)
            bins.append({"rows": len(inside), "confidence": confidence, "accuracy": accuracy})
    error = sum(b["rows"] * abs(b["confidence"] - b["accuracy"]) for b in bins) / len(pairs)
    return {"error": error, "bins": bins}


def describe_prediction(prediction: Prediction) -> dict[str, Any]:
    """Return a prediction as a JSON value; `score` is the probability of the predicted labels."""
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
