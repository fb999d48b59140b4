"""Decide which candidates are members of argmax sets: the tie rule of the dynamics.

Candidates are pairs (query, key), among them every member (candidates.py). Floating point scores, with their
error bounds, exclude most other pairs, and exact arithmetic decides the rest.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from service.cloud.coordinates import Vectors
from service.cloud.points import Bools, Floats, Ints
from service.cloud.sets import Sets, range_starts

ExactDecision = Callable[[int, Ints], Ints]  # (query, keys in doubt) -> the members
NUMBERS_AT_ONCE = 2**20  # coordinates of pairs in memory


@dataclass(frozen=True)
class Pairs:
    """Candidates: pairs (query, key) sorted by query, every query at least once."""

    query: Ints  # [p] ascending positions among the queries
    key: Ints  # [p]


@dataclass(frozen=True)
class Decision:
    """The queries and keys of a layer, and the rule that decides which pairs are in an argmax set."""

    queries: Vectors
    keys: Vectors
    decide_exactly: ExactDecision

    def sets(self, rows: Ints, pairs: Pairs) -> Sets:
        """Return the argmax sets of the queries `rows`, from their candidates."""
        if len(pairs.key) == len(rows):
            size = np.ones(len(rows), np.int64)
            return Sets(pairs.key, size, size[:0], size[:0])
        start = np.searchsorted(pairs.query, np.arange(len(rows)))
        score = scores(self.queries, self.keys, rows[pairs.query], pairs.key)
        member = self._members(rows, pairs, start, score)
        size = np.add.reduceat(member.astype(np.int64), start)
        row, key = pairs.query[member], pairs.key[member]
        first = np.minimum.reduceat(key, range_starts(size))
        tied = size[row] > 1
        return Sets(first, size, row[tied], key[tied])

    def _members(self, rows: Ints, pairs: Pairs, start: Ints, score: Floats) -> Bools:
        """Return which pairs hold a member; those in doubt are computed exactly."""
        query = rows[pairs.query]
        error = self.queries.error[query] * self.keys.size[pairs.key]
        error += self.queries.size[query] * self.keys.error[pairs.key]
        member: Bools = score + error >= np.maximum.reduceat(score - error, start)[pairs.query]
        size = np.add.reduceat(member.astype(np.int64), start)
        end = np.append(start[1:], len(member))
        for i in np.flatnonzero(size > 1).tolist():
            part = slice(start[i], end[i])
            exact = self.decide_exactly(int(rows[i]), pairs.key[part][member[part]])
            member[part] = np.isin(pairs.key[part], exact)
        return member


def scores(queries: Vectors, keys: Vectors, query: Ints, key: Ints) -> Floats:
    """Return the inner products of pairs, block by block."""
    products, size = np.empty(len(key)), max(1, NUMBERS_AT_ONCE // keys.x.shape[1])
    for start in range(0, len(key), size):
        part = slice(start, start + size)
        products[part] = np.einsum("ij,ij->i", queries.x[query[part]], keys.x[key[part]])
    return products
