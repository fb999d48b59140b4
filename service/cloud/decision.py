"""The members of argmax sets: the one tie rule of the dynamics.

Candidates come as pairs (query, key), among them every member (candidates.py). Scores in floating point,
with their error bounds, leave out what cannot be a member. What they leave in doubt is decided in exact
arithmetic; with a positive tie tolerance the scores within it are ties, whatever the rational numbers say.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from service.cloud.coordinates import Vectors, lengths_of
from service.cloud.points import Bools, Floats, Ints
from service.cloud.sets import Sets, range_starts

Exactly = Callable[[int, Ints], Ints]  # (query, keys in doubt) -> the members
NUMBERS_AT_ONCE = 2**20  # coordinates of pairs that are gathered at once


@dataclass(frozen=True)
class Pairs:
    """Candidates: pairs (query, key) by query, every query at least once."""

    query: Ints  # [p] ascending positions among the queries
    key: Ints  # [p]

    def of(self, keys: Ints) -> "Pairs":
        """Return the same pairs where key k was called keys[k]."""
        return Pairs(self.query, keys[self.key])


@dataclass(frozen=True)
class Decision:
    """The queries and keys of a layer, and what decides which pairs are in an argmax set."""

    queries: Vectors
    keys: Vectors
    slack: Floats  # [q] twice a bound on the error of each one's scores, whatever the key
    allowed: Floats | None  # [q] the tie tolerance at each one's scale, if there is one
    exactly: Exactly

    def sets(self, rows: Ints, pairs: Pairs) -> Sets:
        """Return the argmax sets of the queries `rows`, from their candidates."""
        sure, gap = np.ones(len(rows), np.bool_), np.full(len(rows), np.inf)
        if len(pairs.key) == len(rows):
            one = np.ones(len(rows), np.int64)
            return Sets(pairs.key, one, one[:0], one[:0], sure, gap)
        start = np.searchsorted(pairs.query, np.arange(len(rows)))
        score = scores(self.queries, self.keys, rows[pairs.query], pairs.key)
        if self.allowed is None:
            member = self._members(rows, pairs, start, score)
        else:
            best = np.maximum.reduceat(score, start)
            behind = score - (best - self.allowed[rows])[pairs.query]
            member = behind >= 0
            sure[pairs.query[np.abs(behind) <= self.slack[rows][pairs.query]]] = False
            gap = best - np.maximum.reduceat(np.where(member, -np.inf, score), start)
            gap /= lengths_of(self.queries.x[rows])
        size = np.add.reduceat(member.astype(np.int64), start)
        row, key = pairs.query[member], pairs.key[member]
        first = np.minimum.reduceat(key, range_starts(size))
        several = size[row] > 1
        return Sets(first, size, row[several], key[several], sure, gap)

    def _members(self, rows: Ints, pairs: Pairs, start: Ints, score: Floats) -> Bools:
        """Which pairs hold a member of an exact set: what the error bounds leave in doubt is computed."""
        query = rows[pairs.query]
        error = self.queries.error[query] * self.keys.size[pairs.key]
        error += self.queries.size[query] * self.keys.error[pairs.key]
        member: Bools = score + error >= np.maximum.reduceat(score - error, start)[pairs.query]
        size = np.add.reduceat(member.astype(np.int64), start)
        end = np.append(start[1:], len(member))
        for i in np.flatnonzero(size > 1).tolist():
            part = slice(start[i], end[i])
            found = self.exactly(int(rows[i]), pairs.key[part][member[part]])
            member[part] = np.isin(pairs.key[part], found)
        return member


def scores(queries: Vectors, keys: Vectors, query: Ints, key: Ints) -> Floats:
    """Return the inner products of pairs, block by block."""
    found, many = np.empty(len(key)), max(1, NUMBERS_AT_ONCE // keys.x.shape[1])
    for start in range(0, len(key), many):
        part = slice(start, start + many)
        found[part] = np.einsum("ij,ij->i", queries.x[query[part]], keys.x[key[part]])
    return found
