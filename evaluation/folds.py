"""Folds for cross-validation that keep near-duplicates together. It needs scikit-learn.

A model that was trained on one of two near-duplicates knows the other too.
"""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from evaluation.near_duplicates import Ints

N_FOLDS = 5


def stratified_folds(truth: Sequence[frozenset[str]], groups: Ints) -> list[Ints]:
    """Return the rows of each fold: groups stay together, labels are spread evenly.

    There are N_FOLDS, fewer if there are fewer groups or the most frequent set of labels has fewer rows, and
    none if there is a single group. Where no two rows have the same set of labels, any rows make a fold.
    """
    from sklearn.model_selection import StratifiedGroupKFold

    y = np.unique(["|".join(sorted(labels)) for labels in truth], return_inverse=True)[1]
    if np.bincount(y).max() == 1:
        y = np.zeros_like(y)
    n_folds = min(N_FOLDS, len(np.unique(groups)), int(np.bincount(y).max()))
    if n_folds < 2:
        return []
    splitter: Any = StratifiedGroupKFold(n_folds, shuffle=True, random_state=0)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The least populated class")  # a label is absent from some folds
        folds = [np.sort(test) for _, test in splitter.split(y, y, groups)]
    return [fold for fold in folds if len(fold)]
