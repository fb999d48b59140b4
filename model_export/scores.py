"""How good probabilities are: accuracy, F1, log-loss, calibration. Plain numpy on arrays; knows no model."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

_BINS = 15


@dataclass(frozen=True)
class Scores:
    texts: int
    accuracy: float
    f1: float  # of the class "positive"
    log_loss: float
    calibration_error: float  # ECE, 15 equal bins of confidence
    confusion: tuple[tuple[int, int], tuple[int, int]]  # [truth][answer], negative first

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


def sigmoid(logit: ArrayLike) -> NDArray[np.float64]:
    """1 / (1 + exp(-logit)) without overflow on either side."""
    return np.exp(-np.logaddexp(0.0, -np.asarray(logit, dtype=np.float64)))


def score(logit: ArrayLike, truth: ArrayLike) -> Scores:
    """`truth` is 1 for positive, 0 for negative. A logit of exactly 0 is answered "negative"."""
    x = np.asarray(logit, dtype=np.float64)
    y = np.asarray(truth).astype(np.int64)
    answer = (x > 0).astype(np.int64)
    table = np.bincount(2 * y + answer, minlength=4).reshape(2, 2)
    right, wrong = int(table[1, 1]), int(table[0, 1] + table[1, 0])
    return Scores(
        texts=len(x),
        accuracy=float((answer == y).mean()),
        f1=2 * right / (2 * right + wrong) if right + wrong else 0.0,
        log_loss=float(np.logaddexp(0.0, np.where(y == 1, -x, x)).mean()),
        calibration_error=_calibration_error(sigmoid(np.abs(x)), answer == y),
        confusion=((int(table[0, 0]), int(table[0, 1])), (int(table[1, 0]), int(table[1, 1]))),
    )


def temperature(logit: ArrayLike, truth: ArrayLike) -> float:
    """The factor on the logits that makes the log-loss least (Guo et al. 2017); answers stay as they are."""
    x = np.asarray(logit, dtype=np.float64)
    sign = np.where(np.asarray(truth) == 1, -1.0, 1.0)
    factors = np.geomspace(0.25, 4.0, 201)
    losses = [np.logaddexp(0.0, sign * x * factor).mean() for factor in factors]
    return float(factors[int(np.argmin(losses))])


def _calibration_error(confidence: NDArray[np.float64], correct: NDArray[np.bool_]) -> float:
    """Mean over texts of |accuracy - confidence| of their bin (Guo et al. 2017)."""
    place = np.minimum((confidence * _BINS).astype(np.int64), _BINS - 1)
    hits = np.bincount(place, weights=correct.astype(np.float64), minlength=_BINS)
    trust = np.bincount(place, weights=confidence, minlength=_BINS)
    return float(np.abs(hits - trust).sum() / len(confidence))
