"""Who belongs to an argmax set: the one tie rule of the dynamics.

Candidates come as pairs (query, key), among them every member (candidates.py). Scores in floating point,
with their error bounds, leave out what cannot be a member. What they leave in doubt is decided in exact
arithmetic; with a positive tie tolerance the scores within it are ties, whatever the rational numbers say.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from service.clouds.coordinates import Vectors, lengths_of
from service.clouds.points import Bools, Floats, Ints

Exactly = Callable[[int, Ints], Ints | None]  # (query, keys in doubt) -> the members; None: too much to ask


@dataclass(frozen=True)
class Pairs:
    """Candidates: pairs (query, key) by query, every query at least once."""

    query: Ints  # [p] ascending positions among the queries
    key: Ints  # [p]

    def of(self, keys: Ints) -> Pairs:
        """The same pairs where key k was called keys[k]."""
        return Pairs(self.query, keys[self.key])


@dataclass(frozen=True)
class Sets:
    """The argmax set of every query."""

    first: Ints  # [q] the first member
    size: Ints  # [q]
    row: Ints  # [m] the pairs (query, member) of all sets with several members
    member: Ints  # [m]
    sure: Bools  # [q] whether the set is proved
    gap: Floats  # [q] with a tie tolerance: best score of a unit query to best outside; inf: not seen


def decide(
    rows: Ints,
    pairs: Pairs,
    queries: Vectors,
    keys: Vectors,
    slack: Floats,
    allowed: Floats | None,
    exactly: Exactly,
) -> Sets:
    """The argmax sets of the queries `rows`.

    slack [q] is twice a bound on the error of each one's scores, whatever the key; `allowed` [q] the tie
    tolerance at its scale, if there is one.
    """
    if len(pairs.key) == len(rows):
        one = np.ones(len(rows), np.int64)
        return Sets(pairs.key, one, one[:0], one[:0], one > 0, np.full(len(rows), np.inf))
    start = np.searchsorted(pairs.query, np.arange(len(rows)))
    if allowed is None:
        return _compare(rows, pairs, start, queries, keys, slack, exactly)
    score = _scores(rows, pairs, queries, keys)
    best = np.maximum.reduceat(score, start)
    behind = score - (best - allowed)[pairs.query]
    member = behind >= 0
    sure = np.ones(len(rows), np.bool_)
    sure[pairs.query[np.abs(behind) <= slack[pairs.query]]] = False
    gap = best - np.maximum.reduceat(np.where(member, -np.inf, score), start)
    return _sets(pairs, start, member, sure, gap / lengths_of(queries.x[rows]))


def _compare(
    rows: Ints,
    pairs: Pairs,
    start: Ints,
    queries: Vectors,
    keys: Vectors,
    slack: Floats,
    exactly: Exactly,
) -> Sets:
    """Without a tolerance: the members are those with the largest rational scores."""
    member, sure = np.ones(len(pairs.key), np.bool_), np.ones(len(rows), np.bool_)
    several = np.diff(start, append=len(member)) > 1
    if several.any():
        open_ = several[pairs.query]
        some = Pairs(pairs.query[open_], pairs.key[open_])
        score = _scores(rows, some, queries, keys)
        best = np.maximum.reduceat(score, np.searchsorted(some.query, np.flatnonzero(several)))
        floor = best - slack[several]
        member[open_] = score >= np.repeat(floor, np.diff(start, append=len(member))[several])
        _settle_doubts(rows, pairs, start, queries, keys, member, sure, exactly)
    return _sets(pairs, start, member, sure, np.full(len(rows), np.inf))


def _settle_doubts(
    rows: Ints,
    pairs: Pairs,
    start: Ints,
    queries: Vectors,
    keys: Vectors,
    member: Bools,
    sure: Bools,
    exactly: Exactly,
) -> None:
    """Take out of `member`, in place, what is none: by each score's own error, then in exact arithmetic."""
    size = np.add.reduceat(member.astype(np.int64), start)
    end = np.append(start[1:], len(member))
    for i in np.flatnonzero(size > 1).tolist():
        part, row = slice(start[i], end[i]), int(rows[i])
        near = pairs.key[part][member[part]]
        score = keys.x[near] @ queries.x[row]
        error = queries.error[row] * keys.size[near] + queries.size[row] * keys.error[near]
        near = near[score + error >= (score - error).max()]
        found = near if len(near) == 1 else exactly(row, near)
        if found is None:
            sure[i] = False
        else:
            member[part] = np.isin(pairs.key[part], found)


def _scores(rows: Ints, pairs: Pairs, queries: Vectors, keys: Vectors) -> Floats:
    scores: Floats = np.einsum("ij,ij->i", queries.x[rows[pairs.query]], keys.x[pairs.key])
    return scores


def _sets(pairs: Pairs, start: Ints, member: Bools, sure: Bools, gap: Floats) -> Sets:
    size = np.add.reduceat(member.astype(np.int64), start)
    row, key = pairs.query[member], pairs.key[member]
    first = np.minimum.reduceat(key, np.cumsum(size) - size)
    several = size[row] > 1
    return Sets(first, size, row[several], key[several], sure, gap)


def spans(start: Ints, size: Ints) -> Ints:
    """start, start + 1, .. of every span, one span after the other."""
    ends = np.cumsum(size)
    whole: Ints = np.arange(int(ends[-1]) if len(ends) else 0)
    whole += np.repeat(start - (ends - size), size)
    return whole
