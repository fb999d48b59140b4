"""Out-of-distribution score: whether a text is unlike the training data, by its mean word features.

    u = max over contrast sets of <w, x> - threshold,  w = (S + ridge)^-1 (mean of the set - mean of the rows)

The contrast sets are ordinary English sentences of many subjects (ood_english.txt) and sentences of other
languages (ood_languages.txt). Each has a direction of its own (Fisher 1936), in which S is the mean of the
covariances of rows and set. The thresholds, at the same quantile, let a given share of held-out rows exceed
one of them. In the graph u is the largest of these linear maps (quantized.ood_score).
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files

import numpy as np
from numpy.typing import NDArray

from model_export.data.training_set import Ints
from model_export.encoder.quantized import Array
from model_export.head.encoded import EncodedTexts
from model_export.head.quantized import ood_score

Floats = NDArray[np.float64]
Features = NDArray[np.float32]

RIDGE = 0.3  # share of the mean variance of a feature
MAX_ROWS = 4_000  # rows that a direction is estimated from


def english_sentences() -> list[str]:
    """Return ordinary English sentences of many subjects."""
    return _lines("ood_english.txt")


def foreign_sentences() -> list[str]:
    """Return sentences that are not English."""
    return _lines("ood_languages.txt")


def _lines(name: str) -> list[str]:
    return files("model_export.head").joinpath(name).read_text(encoding="utf-8").split("\n")[:-1]


def calibrate(
    rows: EncodedTexts, contrasts: Sequence[EncodedTexts], folds: Sequence[Ints], false_positive_rate: float
) -> tuple[dict[str, Array], Floats, float]:
    """Fit the score to all rows.

    Args:
        rows: the training data.
        contrasts: texts that are not like it, one set for each direction.
        folds: a partition of the rows, for held-out scores.
        false_positive_rate: the share of held-out rows that may be flagged.

    Returns:
        The stored numbers, the held-out score of each row, and the share of the contrast texts flagged.
    """
    features, others = rows.mean_features(), [each.mean_features() for each in contrasts]
    held_out = np.zeros((len(rows), len(others)))
    for fold in folds:
        fitted = np.setdiff1d(np.arange(len(rows)), fold)
        weight, bias = directions(features[fitted], others)
        held_out[fold] = features[fold] @ weight + bias
    weight, bias = directions(features, others)
    threshold = _thresholds(held_out[np.concatenate([*folds])], false_positive_rate)
    weights = _quantize(weight, bias - threshold)
    flagged = [scores(weights, each) > 0 for each in contrasts]
    return weights, (held_out - threshold).max(1), float(np.concatenate(flagged).mean())


def directions(rows: Features, contrasts: Sequence[Features]) -> tuple[Floats, Floats]:
    """Return weights [2W, k] and biases [k]: 0 at the mean of the rows, 1 at the mean of the contrast set."""
    rows = rows[:: -(-len(rows) // MAX_ROWS)]
    center = rows.mean(0)
    found = []
    for contrast in contrasts:
        difference = contrast.mean(0) - center
        covariance = (np.cov(rows.T, bias=True) + np.cov(contrast.T, bias=True)) / 2
        covariance[np.diag_indices_from(covariance)] += RIDGE * covariance.trace() / len(covariance)
        weight = np.linalg.solve(covariance, difference)
        found.append(weight / (weight @ difference))
    weights = np.stack(found, 1)
    return weights, -center @ weights


def scores(weights: dict[str, Array], texts: EncodedTexts) -> Floats:
    """Return the score of each text, computed as in the graph."""
    return np.array(
        [ood_score(weights, x[:, 0], x[:, 1], texts.members(i)) for i, x in enumerate(texts.states)]
    )


def _thresholds(held_out: Floats, share: float) -> Floats:
    """Return [k], the same quantile of each score: this share of the rows [n, k] exceeds one of them."""
    ranks = held_out.argsort(0).argsort(0).max(1)  # of each row, its highest rank
    rank = int(np.quantile(ranks, 1 - share, method="higher"))
    thresholds: Floats = np.sort(held_out, axis=0)[rank]
    return thresholds


def _quantize(weight: Floats, bias: Floats) -> dict[str, Array]:
    unit = np.abs(weight).max(0) / 127
    return {
        "near": np.round(weight / unit).astype(np.int8),
        "near_unit": unit.astype(np.float32),
        "near_bias": bias.astype(np.float32),
    }
