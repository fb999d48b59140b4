"""Near-duplicates: texts that share most of their words and word pairs (Jaccard), with all numbers equal.

Candidates come from MinHash (Broder 1997).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

SIMILARITIES = (0.5, 0.65, 0.8, 1.0)  # tried in this order
MAX_GROUP_SHARE = 1 / 5  # of all texts: a fold of five
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
        groups = _group_connected(len(texts), pairs, similarity)
        if np.bincount(groups).max() <= max(1, MAX_GROUP_SHARE * len(texts)):
            break
    return NearDuplicates(groups, similarity)


def group_near_duplicates(texts: Sequence[str], similarity: float) -> Ints:
    """Return the group of each text: those of at least this similarity are in one, and what connects them."""
    return _group_connected(len(texts), _similar_pairs([_shingles(text) for text in texts]), similarity)


def _shingles(text: str) -> frozenset[int]:
    """Return hashes of the words and word pairs of a text. A text of punctuation is one word."""
    words = [re.sub(r"\d+", "0", word) for word in WORD.findall(text.casefold())] or [text]
    pairs = map(" ".join, pairwise(words))
    return frozenset(crc32(part.encode("utf-8", "surrogatepass")) % PRIME for part in (*words, *pairs))


def _similar_pairs(shingles: Sequence[frozenset[int]]) -> dict[tuple[int, int], float]:
    """Return pairs of texts with their similarity; in each band a text is compared only with the first."""
    pairs: dict[tuple[int, int], float] = {}
    for band in np.split(_minhash(shingles), BANDS, axis=1) if shingles else ():
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


def _group_connected(n: int, pairs: dict[tuple[int, int], float], similarity: float) -> Ints:
    """Return the connected component of each of n texts."""
    groups = np.arange(n)
    edges = np.array([pair for pair, s in pairs.items() if s >= similarity], np.int64).reshape(-1, 2)
    while (groups[edges[:, 0]] != groups[edges[:, 1]]).any():
        least = groups[edges].min(axis=1)
        np.minimum.at(groups, edges, least[:, None])
    return np.unique(groups, return_inverse=True)[1].astype(np.int64)
