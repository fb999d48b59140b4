"""Metrics of predictions with two or three labels: accuracy, F1, log-loss, calibration. Plain numpy."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evaluation.metrics import calibration_bins, calibration_error


@dataclass(frozen=True)
class Scores:
    """Metrics of the predictions for some texts."""

    texts: int
    accuracy: float
    f1: float  # of the class "positive"
    log_loss: float
    calibration_error: float  # ECE, by tenths of confidence
    confusion: tuple[tuple[int, int], tuple[int, int]]  # [truth][prediction], negative first


def sigmoid(logit: ArrayLike) -> NDArray[np.float64]:
    """Return 1 / (1 + exp(-logit)) without overflow."""
    return np.exp(-np.logaddexp(0.0, -np.asarray(logit, dtype=np.float64)))


def score(logit: ArrayLike, truth: ArrayLike) -> Scores:
    """Return the metrics of logits; `truth` is 1 for positive, 0 for negative. A logit of 0 is negative."""
    x = np.asarray(logit, dtype=np.float64)
    y = np.asarray(truth).astype(np.int64)
    predicted = (x > 0).astype(np.int64)
    table = np.bincount(2 * y + predicted, minlength=4).reshape(2, 2)
    true_positives, errors = int(table[1, 1]), int(table[0, 1] + table[1, 0])
    return Scores(
        texts=len(x),
        accuracy=float((predicted == y).mean()),
        f1=2 * true_positives / (2 * true_positives + errors) if true_positives + errors else 0.0,
        log_loss=_log_loss(x, y),
        calibration_error=calibration_error(calibration_bins(sigmoid(np.abs(x)), predicted == y)),
        confusion=((int(table[0, 0]), int(table[0, 1])), (int(table[1, 0]), int(table[1, 1]))),
    )


def balanced_accuracy(predicted: ArrayLike, truth: ArrayLike) -> float:
    """Return the mean recall over the labels."""
    prediction, y = np.asarray(predicted), np.asarray(truth)
    return float(np.mean([(prediction[y == label] == label).mean() for label in np.unique(y)]))


def three_labels(p: ArrayLike, neutral_margin: float) -> NDArray[np.float64]:
    """Return 1 for positive, 0 for negative, 0.5 for neutral: within `neutral_margin` of one half."""
    q = np.asarray(p)
    return np.where(q > 0.5 + neutral_margin, 1.0, np.where(q < 0.5 - neutral_margin, 0.0, 0.5))


def neutral_band(threshold: float) -> float:
    """Return the half band around one half in which neutral is the most probable of three labels.

    By proportional odds, P(positive) = s(x - t) and P(negative) = s(-x - t), it is where |x| is below
    log(exp(t) - 2 exp(-t)).
    """
    edge = np.exp(threshold) - 2 * np.exp(-threshold)
    return float(edge / (1 + edge) - 0.5) if edge > 1 else 0.0


def fit_logit_scale(logit: ArrayLike, truth: ArrayLike) -> float:
    """Return the factor on the logits that minimizes the log-loss (Guo et al. 2017)."""
    return float(min(np.geomspace(0.2, 5.0, 201), key=lambda factor: _log_loss(logit, truth, factor)))


def _log_loss(logit: ArrayLike, truth: ArrayLike, factor: float = 1.0) -> float:
    x = factor * np.asarray(logit, dtype=np.float64)
    return float(np.logaddexp(0.0, np.where(np.asarray(truth) == 1, -x, x)).mean())
