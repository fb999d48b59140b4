"""Out-of-distribution score of a text: how far its mean word features are from the training data.

    u = max over contrast sets of <w, x> - threshold,  w = (S + ridge)^-1 (mean of the set - mean of the rows)

The contrast sets are ordinary English sentences of many subjects (ood_english.txt) and sentences of other
languages (ood_languages.txt). Each set has its own direction (Fisher 1936), where S is the mean of the
covariances of rows and set. The thresholds are at the same quantile, so that a given share of held-out rows
exceeds one of them. In the graph u is the largest of these linear maps (functions.OodScore).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files

import numpy as np
from numpy.typing import NDArray

from model_export.data.training_set import Ints
from model_export.encoder.quantization import Array
from model_export.head.encoded import EncodedTexts

Floats = NDArray[np.float64]
Features = NDArray[np.float32]

RIDGE = 0.3  # share of the mean variance of a feature
FLAG_RATES = (0.05, 0.02, 0.01, 0.0)  # of held-out rows that may be flagged
MAX_FITTED_ROWS = 4_000  # rows to which a direction is fitted


def english_sentences() -> list[str]:
    """Return ordinary English sentences of many subjects."""
    return _read_lines("ood_english.txt")


def foreign_sentences() -> list[str]:
    """Return sentences that are not English."""
    return _read_lines("ood_languages.txt")


def _read_lines(name: str) -> list[str]:
    return files("model_export.head").joinpath(name).read_text(encoding="utf-8").split("\n")[:-1]


@dataclass(frozen=True)
class CalibratedScore:
    """The weights of the score, the scores of held-out rows and the rates that were reached."""

    weights: dict[str, Array]
    held_out: Floats  # [n] the score of each row by directions fitted without it
    rate: float  # the largest share of rows that the thresholds may flag
    detected: float  # the share of the contrast texts that is flagged


def calibrate(
    rows: EncodedTexts,
    contrasts: Sequence[EncodedTexts],
    folds: Sequence[Ints],
    correct: Floats,
    rates: Sequence[float] = FLAG_RATES,
) -> CalibratedScore:
    """Fit the score to all rows.

    Args:
        rows: the training data.
        contrasts: texts that are not like it, one set for each direction.
        folds: a partition of the rows, for held-out scores.
        correct: 1 for a row whose held-out prediction is correct, 0 for an error, NaN where there is none.
        rates: shares of the rows that may be flagged. The first is used at which the flagged rows are
            less often correct than all rows, or none is flagged.

    Returns:
        The weights of the graph, and the held-out scores of the rows.
    """
    features, contrast_features = rows.mean_features(), [texts.mean_features() for texts in contrasts]
    held_out = np.zeros((len(rows), len(contrasts)))
    for fold in folds:
        train_rows = np.setdiff1d(np.arange(len(rows)), fold)
        weight, bias = fit_directions(features[train_rows], contrast_features)
        held_out[fold] = features[fold] @ weight + bias
    for rate in rates:
        thresholds = conformal_thresholds(held_out, rate)
        flagged = (held_out > thresholds).any(1)
        predicted = ~np.isnan(correct)
        checked = flagged & predicted
        if not checked.any() or correct[checked].mean() < correct[predicted].mean():
            break
    weight, bias = fit_directions(features, contrast_features)
    weights = _quantize(weight, bias - thresholds)
    detected = float(np.concatenate([ood_scores(weights, texts) > 0 for texts in contrasts]).mean())
    return CalibratedScore(weights, (held_out - thresholds).max(1), rate, detected)


def fit_directions(rows: Features, contrasts: Sequence[Features]) -> tuple[Floats, Floats]:
    """Return weights [2W, k] and biases [k]: 0 at the mean of the rows, 1 at the mean of the contrast set."""
    rows = rows[:: -(-len(rows) // MAX_FITTED_ROWS)]
    center = rows.mean(0)
    columns = []
    for contrast in contrasts:
        difference = contrast.mean(0) - center
        covariance = (np.cov(rows.T, bias=True) + np.cov(contrast.T, bias=True)) / 2
        covariance[np.diag_indices_from(covariance)] += RIDGE * covariance.trace() / len(covariance)
        weight = np.linalg.solve(covariance, difference)
        columns.append(weight / (weight @ difference))
    weights = np.stack(columns, 1)
    return weights, -center @ weights


def ood_scores(weights: dict[str, Array], texts: EncodedTexts) -> Floats:
    """Return the score of each text, which the graph computes on a grid."""
    maps = texts.mean_features() @ (weights["near"] * weights["near_unit"]) + weights["near_bias"]
    return np.asarray(maps.max(1), np.float64)


def conformal_thresholds(held_out: Floats, rate: float) -> Floats:
    """Return thresholds [k]; a new row exceeds one of them with a probability of at most `rate`.

    The rank of a row is that of its most unusual score [n, k]. A new row has every rank with the same
    probability, so ceil((n + 1) (1 - rate)) of n rows must not exceed the threshold (Vovk 2005); too few rows
    flag none.
    """
    n = len(held_out)
    ranks = held_out.argsort(0).argsort(0).max(1)
    below = int(np.ceil((n + 1) * (1 - rate)))
    rank = int(np.sort(ranks)[below - 1]) if below <= n else n - 1
    thresholds: Floats = np.sort(held_out, axis=0)[rank]
    return thresholds


def _quantize(weight: Floats, bias: Floats) -> dict[str, Array]:
    unit = np.abs(weight).max(0) / 127
    return {
        "near": np.round(weight / unit).astype(np.int8),
        "near_unit": unit.astype(np.float32),
        "near_bias": bias.astype(np.float32),
    }
