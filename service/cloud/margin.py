"""The margin of an answer, the smallest gap between a best score and the best outside the argmax set, and the
largest temperature at which softmax attention provably stays near hardmax (docs/theory.md, 6).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np

from service.cloud.candidates import find_candidates
from service.cloud.coordinates import Vectors, lengths_of, slack_of
from service.cloud.decision import scores
from service.cloud.points import UNIT, Bools, Cloud, Floats, Ints
from service.cloud.sets import Ragged, concatenated_ranges, members_of, range_starts
from service.cloud.tokens import Tokens
from service.runtime.session import Session

MAX_SAMPLE, MIN_SAMPLE = 64, 8  # queries that give a first bound
SAMPLE_SCORES = 2**23  # that are computed for this bound
MAX_SOFTMAX_DISTANCE = 0.01  # between the two runs, relative to the longest token
ROUNDING_FACTOR = 1 - 1e-9  # for the rounding of the bound itself
N_BISECTIONS = 100
MAX_GAP_RATIO = 2000  # of the gap to the lowest temperature, where other weights underflow


@dataclass(frozen=True)
class Gaps:
    """Gaps between a query's best score and the best outside its set, divided by `lengths`.

    The rounding error is subtracted from every gap, so each result is a lower bound.
    """

    session: Session
    queries: Vectors
    keys: Vectors
    lengths: Floats  # [q]
    first: Ints  # [q] the first member of every query's set
    row: Ints  # queries whose sets have several members, ascending
    members: Ragged  # these sets

    def smallest(self) -> float:
        """Return the smallest gap; inf: nothing is outside."""
        bound = self._smallest_of_sample()
        return min(bound, self._smallest_below(max(0.0, bound)))

    def _smallest_of_sample(self) -> float:
        """Return the smallest gap among a sample of queries: an upper bound of the smallest of all."""
        count = len(self.first)
        n = min(count, max(MIN_SAMPLE, min(MAX_SAMPLE, SAMPLE_SCORES // len(self.keys.x))))
        rows = np.random.default_rng(0).choice(count, n, replace=False) if n < count else np.arange(count)
        slack = slack_of(self.queries.take(rows), self.keys)
        smallest = math.inf
        for i, error in zip(rows.tolist(), slack.tolist(), strict=True):
            score = self.keys.x @ self.queries.x[i]
            members = members_of(i, self.first, self.row, self.members)
            best = score[members].max()
            score[members] = -np.inf
            smallest = min(smallest, float((best - score.max() - error) / self.lengths[i]))
        return smallest

    def _smallest_below(self, bound: float) -> float:
        """Return the smallest gap, if it is less than `bound`."""
        smallest = math.inf
        slack = slack_of(self.queries, self.keys)
        max_gap = 2 * slack + (bound * self.lengths if bound < math.inf else 0)
        for rows, pairs in find_candidates(self.session, self.queries, self.keys, max_gap):
            if len(pairs.key) == len(rows):  # only each query's best key
                continue
            start = np.searchsorted(pairs.query, np.arange(len(rows) + 1))
            index = np.flatnonzero(np.diff(start) > 1)  # of queries with several candidates
            size = np.diff(start)[index]
            query, key = np.repeat(rows[index], size), pairs.key[concatenated_ranges(start[index], size)]
            score = scores(self.queries, self.keys, query, key)
            inside = self._inside(query, key)
            best = np.maximum.reduceat(np.where(inside, score, -np.inf), range_starts(size))
            outside = np.maximum.reduceat(np.where(inside, -np.inf, score), range_starts(size))
            rows = rows[index]
            smallest = min(smallest, float(((best - outside - slack[rows]) / self.lengths[rows]).min()))
        return smallest

    def _inside(self, query: Ints, key: Ints) -> Bools:
        """Return whether each key belongs to each query's set."""
        inside: Bools = key == self.first[query]
        if len(self.row):
            n = max(len(self.first), len(self.keys.x))
            codes = np.sort(np.repeat(self.row, self.members.lengths) * n + self.members.flat)
            code = query * n + key
            inside = inside | (codes[np.minimum(np.searchsorted(codes, code), len(codes) - 1)] == code)
        return inside


def smallest_margin(session: Session, tokens: Tokens, mean_sets: Mapping[bytes, Ints]) -> float | None:
    """Return a lower bound on the smallest gap between a best score and the best outside its set.

    It is relative to |z_i| max |z|, over all tokens and all means of ties; None: nothing is outside.
    `mean_sets` has the argmax sets of means that are larger than the set of the mean.
    """
    frame, ties = tokens.frame, tokens.ties
    n, means = len(tokens.first), np.arange(len(ties.row))
    of_means = ties.sets
    if mean_sets:
        of_means = Ragged.of([mean_sets.get(members.tobytes(), members) for members in of_means])
    members = Ragged(
        np.concatenate([ties.member, of_means.flat]), np.concatenate([ties.size, of_means.lengths])
    )
    x = np.concatenate([tokens.now.x, ties.mean])
    queries = frame.queries(x, np.concatenate([tokens.now.error_bound, ties.error_bound]))
    longest = tokens.longest + frame.rounding * float(frame.sizes(tokens.cloud.points).max())
    lengths = (lengths_of(queries.x) + frame.rounding * queries.size) * longest
    first = np.concatenate([tokens.first, np.zeros_like(means)])
    row = np.concatenate([ties.row, n + means])
    smallest = Gaps(session, queries, tokens.keys(), lengths, first, row, members).smallest()
    return None if math.isinf(smallest) else max(smallest, 0.0)


class LayerGap(NamedTuple):
    """The smallest gap of a layer's tokens, and whether sets tie."""

    smallest: float  # relative to the square of the longest token; inf: nothing is outside
    tied: bool

    @classmethod
    def of(cls, session: Session, tokens: Tokens) -> Self:
        """Return a lower bound on the gap of the present layer."""
        queries = tokens.frame.queries(*tokens.now)
        lengths = tokens.frame.scales(tokens.now.x) * tokens.longest**2
        ties = tokens.ties
        gaps = Gaps(session, queries, tokens.keys(), lengths, tokens.first, ties.row, ties.sets)
        return cls(gaps.smallest(), len(ties.row) > 0)


@dataclass(frozen=True)
class Temperature:
    """At `t` and below, every token stays within `distance` of its hardmax run for `layers` layers."""

    t: float | None  # None: at any temperature
    distance: float  # in the A-norm
    layers: int
    float64: bool  # whether the same is proved for softmax in double precision at `t`


def find_temperature(
    gaps: Sequence[LayerGap], alpha: float, cloud: Cloud, longest: float
) -> Temperature | None:
    """Return the temperature below which softmax stays near, by the gaps of these layers, in given units.

    None: no temperature is proved, or no double holds it.
    """
    n, d = len(cloud.inverse), cloud.points.shape[1]
    relative = largest_temperature(gaps, alpha, n)
    unit = longest * 2.0 ** (cloud.form_exponent / 2)
    with np.errstate(over="ignore", under="ignore"):
        distance = float(np.ldexp(MAX_SOFTMAX_DISTANCE * unit, cloud.exponent))
        t = float(np.ldexp((relative or 0.0) * unit * unit, 2 * cloud.exponent))
    if relative is None or not 0 < distance < math.inf:
        return None
    if math.isinf(relative):
        return Temperature(None, distance, len(gaps), float64=not any(gap.tied for gap in gaps))
    if not np.finfo(np.float64).tiny <= t < math.inf:
        return None
    rounding = (n + d + 8) * UNIT
    float64 = max_drift(relative, gaps, alpha, n, rounding) <= MAX_SOFTMAX_DISTANCE * ROUNDING_FACTOR
    return Temperature(t, distance, len(gaps), float64=float64)


def largest_temperature(gaps: Sequence[LayerGap], alpha: float, n: int) -> float | None:
    """Return the largest temperature at which the bound holds for n points, over the longest squared.

    inf: any; None: the gaps are too small for a proof.
    """

    def is_near(T: float) -> bool:
        return max_drift(T, gaps, alpha, n) <= MAX_SOFTMAX_DISTANCE * ROUNDING_FACTOR

    smallest = min(gap.smallest for gap in gaps)
    if math.isinf(smallest) or not smallest > 0:
        return math.inf if smallest > 0 else None
    high, low = smallest / (1 + sum(gap.tied for gap in gaps)), smallest / MAX_GAP_RATIO
    if is_near(high):
        return high * ROUNDING_FACTOR
    for _ in range(N_BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if is_near(middle) else (low, middle)
    return low * ROUNDING_FACTOR if is_near(low) else None


def max_drift(T: float, gaps: Sequence[LayerGap], alpha: float, n: int, rounding: float = 0.0) -> float:
    """Return a bound on the distance between both runs after these layers, relative to the longest token.

    `rounding` bounds how far rounding moves a token at each layer, its effect on scores included.
    """
    distance, gamma = 0.0, alpha / (1 + alpha)
    for gap in gaps:
        error = distance + rounding
        proved_gap = gap.smallest - 4 * error
        if proved_gap <= 0:
            return math.inf
        distance = error + 2 * gamma * ((n - 1) * math.exp(-proved_gap / T) + gap.tied * 4 * error / T)
    return distance
