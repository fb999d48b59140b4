"""The margin of an answer: how far the nearest point outside an argmax set is from entering it. And the
largest temperature at which softmax attention provably stays near hardmax (docs/theory.md, 6).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from service.cloud.candidates import candidates
from service.cloud.coordinates import Vectors, slack_of
from service.cloud.decision import scores
from service.cloud.points import Bools, Floats, Ints
from service.cloud.sets import Ties, members_of, spans, starts
from service.engine.cloud_queue import Steps
from service.runtime.session import Session

SAMPLE, FEWEST = 64, 8  # queries that give a first bound: at most, at least
SAMPLED = 2**23  # scores that are computed for this bound
NEAR = 0.01  # how far apart the two runs may be, relative to the longest token
SAFE = 1 - 1e-9  # room for the rounding of the bound itself
HALVINGS = 100
COLDEST = 2000  # gap / least temperature that is tried: what is outside weighs nothing there


@dataclass(frozen=True)
class Gaps:
    """Gaps between a query's best score and the best outside its argmax set, divided by `lengths`."""

    session: Session
    queries: Vectors
    keys: Vectors
    token: Ints  # [q] whose argmax set a query has
    lengths: Floats  # [q]
    first: Ints  # [n] the first member of every token's set
    ties: Ties

    def smallest(self) -> Steps[float | None]:
        """The smallest of all; None where nothing is outside."""
        bound = yield from self._smallest_of_some()
        smallest = min(bound, (yield from self._smallest_below(bound)))
        return max(smallest, 0.0) if math.isfinite(smallest) else None

    def _smallest_of_some(self) -> Steps[float]:
        """The smallest gap among a few queries: no smaller than the smallest of all."""
        count = len(self.token)
        few = min(count, max(FEWEST, min(SAMPLE, SAMPLED // len(self.keys.x))))
        rows = np.random.default_rng(0).choice(count, few, replace=False) if few < count else range(count)
        smallest = math.inf
        for i in rows:
            score = self.keys.x @ self.queries.x[i]
            members = members_of(int(self.token[i]), self.first, self.ties)
            best = score[members].max()
            score[members] = -np.inf
            smallest = min(smallest, float((best - score.max()) / self.lengths[i]))
            yield
        return max(0.0, smallest)

    def _smallest_below(self, bound: float) -> Steps[float]:
        """The smallest gap, if it is less than `bound`."""
        smallest = math.inf
        slack = slack_of(self.queries, self.keys)
        for piece in candidates(self.session, self.queries, self.keys, slack + bound * self.lengths):
            if piece is None:
                yield
                continue
            rows, pairs = piece
            if len(pairs.key) == len(rows):  # each query's best key alone
                continue
            start = np.searchsorted(pairs.query, np.arange(len(rows) + 1))
            several = np.flatnonzero(np.diff(start) > 1)
            size = np.diff(start)[several]
            query, key = np.repeat(rows[several], size), pairs.key[spans(start[several], size)]
            score = yield from scores(self.queries, self.keys, query, key)
            inside = self._inside(self.token[query], key)
            best = np.maximum.reduceat(np.where(inside, score, -np.inf), starts(size))
            rest = np.maximum.reduceat(np.where(inside, -np.inf, score), starts(size))
            smallest = min(smallest, float(((best - rest) / self.lengths[rows[several]]).min()))
        return smallest

    def _inside(self, token: Ints, key: Ints) -> Bools:
        """Whether each key belongs to each token's argmax set."""
        inside: Bools = key == self.first[token]
        if len(self.ties.row):
            n = len(self.first)
            codes = np.sort(np.repeat(self.ties.row, self.ties.size) * n + self.ties.member)
            code = token * n + key
            inside = inside | (codes[np.minimum(np.searchsorted(codes, code), len(codes) - 1)] == code)
        return inside


@dataclass(frozen=True)
class Temperature:
    """At `t` and below, every token stays within `distance` of its hardmax run for so many layers."""

    t: float | None  # None: at any temperature
    distance: float  # in the A-norm
    layers: int


@dataclass(frozen=True)
class Gap:
    """A layer: the smallest gap of a token's best score to the best outside its set, and whether sets tie."""

    least: float  # relative to the square of the longest token; inf: nothing is outside
    tied: bool


def largest(gaps: Sequence[Gap], alpha: float, n: int) -> float | None:
    """The largest temperature for which the bound keeps n points near, relative to the longest squared.

    inf: any; None: the gaps are too small to say.
    """
    least = min(gap.least for gap in gaps)
    if math.isinf(least) or least <= 0:
        return math.inf if least > 0 else None
    high = least / (1 + sum(gap.tied for gap in gaps))
    low = least / COLDEST
    if apart(high, gaps, alpha, n) <= NEAR * SAFE:
        return high * SAFE
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        if apart(middle, gaps, alpha, n) <= NEAR * SAFE:
            low = middle
        else:
            high = middle
    return low * SAFE if apart(low, gaps, alpha, n) <= NEAR * SAFE else None


def apart(T: float, gaps: Sequence[Gap], alpha: float, n: int) -> float:
    """How far the runs may be apart after these layers, relative to the longest token."""
    distance, gamma = 0.0, alpha / (1 + alpha)
    for gap in gaps:
        left = gap.least - 4 * distance
        if left <= 0:
            return math.inf
        distance += 2 * gamma * ((n - 1) * math.exp(-left / T) + gap.tied * 4 * distance / T)
    return distance
