"""Rows that look mislabelled, by cross-validated confidence (confident learning, Northcutt et al. 2021).

A row is listed if a model that was not trained on it predicts another label, at least as confidently as for
the rows that have that label, and finds the row's own label improbable. The probabilities come from
cross-validation, so only training data can be examined.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

MAX_SELF_CONFIDENCE = 0.1  # probability of the row's own label


def find_label_errors(probs: NDArray[np.float64], labels: Sequence[int]) -> list[int]:
    """Return the rows that look mislabelled, the most suspicious first.

    Args:
        probs: [n, C] held-out probabilities.
        labels: [n] the label of each row.
    """
    rows, y = np.arange(len(probs)), np.asarray(labels)
    # the mean confidence of a label among the rows that have it
    thresholds = np.array(
        [probs[y == c, c].mean() if (y == c).any() else np.inf for c in range(probs.shape[1])]
    )
    predicted = probs.argmax(1)
    confident = probs[rows, predicted] >= thresholds[predicted]
    self_confidence = probs[rows, y]
    errors = np.flatnonzero(confident & (predicted != y) & (self_confidence <= MAX_SELF_CONFIDENCE))
    return [int(i) for i in errors[np.argsort(self_confidence[errors], kind="stable")]]
