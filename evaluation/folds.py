"""Folds for cross-validation that keep near-duplicates together. It needs scikit-learn.

A model that was trained on one of two near-duplicates knows the other too. The similarity of two texts is the
share of their words and word pairs that both have (Jaccard), with all numbers equal; candidates come from
MinHash (Broder 1997).
"""

import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

N_FOLDS = 5
SIMILARITIES = (0.5, 0.65, 0.8, 1.0)  # tried in this order
MAX_GROUP_SHARE = 1 / N_FOLDS
BANDS, ROWS_PER_BAND = 24, 3  # texts of similarity s are candidates with probability 1 - (1 - s^3)^24
PRIME = 2**31 - 1
WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class NearDuplicates:
    """Groups of similar texts: connected components of pairs."""

    groups: Ints  # [n] the group of each text
    similarity: float  # of near-duplicates, at least

    @property
    def n_duplicates(self) -> int:
        """The number of texts that are near-duplicates of an earlier one."""
        return len(self.groups) - len(np.unique(self.groups))


def find_near_duplicates(texts: Sequence[str]) -> NearDuplicates:
    """Group near-duplicates, at the lowest similarity at which no group has more than a fifth of the texts.

    Texts from one template are all similar; a higher similarity then leaves enough groups for folds.
    """
    shingles = [_shingles(text) for text in texts]
    pairs = _similar_pairs(shingles)
    for similarity in SIMILARITIES:
        groups = _group_connected(
            len(texts), [(i, j) for (i, j), value in pairs.items() if value >= similarity]
        )
        if np.bincount(groups).max() <= max(1, MAX_GROUP_SHARE * len(texts)):
            break
    return NearDuplicates(groups, similarity)


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


def _shingles(text: str) -> frozenset[int]:
    """Return hashes of the words and word pairs of a text. A text of punctuation is one word."""
    words = [re.sub(r"\d+", "0", word) for word in WORD.findall(text.casefold())] or [text]
    pairs = map(" ".join, pairwise(words))
    return frozenset(crc32(part.encode("utf-8", "surrogatepass")) % PRIME for part in (*words, *pairs))


def _similar_pairs(shingles: Sequence[frozenset[int]]) -> dict[tuple[int, int], float]:
    """Return pairs of texts with their similarity; in each band a text is compared only with the first."""
    pairs: dict[tuple[int, int], float] = {}
    for band in np.split(_minhash(shingles), BANDS, axis=1):
        first: dict[bytes, int] = {}
        for i, key in enumerate(band):
            j = first.setdefault(key.tobytes(), i)
            if j != i and (j, i) not in pairs:
                common = len(shingles[i] & shingles[j])
                pairs[j, i] = common / (len(shingles[i]) + len(shingles[j]) - common)
    return pairs


def _minhash(shingles: Sequence[frozenset[int]]) -> Ints:
    """Return [n, BANDS * ROWS_PER_BAND]: the smallest value of each of many hash functions."""
    a, b = np.random.default_rng(0).integers(1, PRIME, (2, BANDS * ROWS_PER_BAND))
    return np.array([((np.array([*s])[:, None] * a + b) % PRIME).min(0) for s in shingles], np.int64)


def _group_connected(n: int, pairs: Sequence[tuple[int, int]]) -> Ints:
    """Return the connected component of each of n texts."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    rows, columns = np.array(pairs, np.int64).reshape(-1, 2).T
    graph = coo_array((np.ones(len(rows)), (rows, columns)), shape=(n, n))
    groups: Ints = connected_components(graph, directed=False)[1].astype(np.int64)
    return groups
