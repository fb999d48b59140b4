"""The margin of an answer, the smallest gap between a best score and the best outside the argmax set, and the
largest temperature at which softmax attention provably stays near hardmax (theory.md, 6).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np

from service.cloud.attention import scores
from service.cloud.candidates import find_candidates
from service.cloud.coordinates import Vectors, lengths_of, slack_of
from service.cloud.points import UNIT, Bools, Floats, Ints
from service.cloud.sets import Ragged, concatenated_ranges, members_of, range_starts
from service.cloud.tokens import Tokens
from service.runtime.session import Session

MAX_SAMPLE, MIN_SAMPLE = 64, 8  # queries that give a first bound
SAMPLE_SCORES = 2**23  # that are computed for this bound
MAX_SOFTMAX_DISTANCE = 0.01  # between the two runs, relative to the longest token
ROUNDING_FACTOR = 1 - 1e-9  # for the rounding of the bound itself
LAYER_ROUNDING = 1e-12  # of the logarithm of the bound, for each layer
N_BISECTIONS = 100
MAX_GAP_RATIO = 2000  # of the gap to the lowest temperature that is tried
MAX_LOG = 700.0  # whose exponential is finite


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


def smallest_margin(session: Session, tokens: Tokens, of_means: Ragged) -> float | None:
    """Return a lower bound on the smallest gap between a best score and the best outside its set.

    It is relative to |z_i| max |z|, over all tokens and all means of ties, whose argmax sets are `of_means`;
    None: nothing is outside.
    """
    frame, ties = tokens.frame, tokens.ties
    n, means = len(tokens.first), np.arange(len(ties.row))
    members = Ragged(
        np.concatenate([ties.member, of_means.flat]), np.concatenate([ties.size, of_means.lengths])
    )
    x = np.concatenate([tokens.now.x, ties.mean])
    queries = frame.queries(x, np.concatenate([tokens.now.error_bound, ties.error_bound]))
    lengths = frame.length_bounds(lengths_of(queries.x), queries.size) + queries.error
    lengths *= tokens.longest_bound
    first = np.concatenate([tokens.first, of_means.flat[range_starts(of_means.lengths)]])
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
        lengths = tokens.frame.scales(tokens.now.x) * tokens.longest_bound**2
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


def find_temperature(gaps: Sequence[LayerGap], tokens: Tokens) -> Temperature | None:
    """Return the temperature below which softmax stays near, by the gaps of these layers, in given units.

    None: no temperature is proved, or no double holds it.
    """
    cloud, alpha = tokens.cloud, tokens.alpha
    n, d = len(cloud.inverse), cloud.points.shape[1]
    relative = largest_temperature(gaps, alpha, n)
    unit = tokens.longest_bound * 2.0 ** (cloud.form_exponent / 2)
    with np.errstate(over="ignore", under="ignore"):
        distance = float(np.ldexp(MAX_SOFTMAX_DISTANCE * unit, cloud.exponent))
        t = float(np.ldexp((relative or 0.0) * unit * unit, 2 * cloud.exponent))
    if relative is None or not 0 < distance < math.inf:
        return None
    if math.isinf(relative):
        return Temperature(None, distance, len(gaps), float64=not any(gap.tied for gap in gaps))
    if not np.finfo(np.float64).tiny <= t < math.inf:
        return None
    condition = tokens.largest_size / tokens.longest  # about 1 without a form
    rounding = (n + d + 8) * UNIT * max(1.0, condition**2)
    float64 = max_drift(relative, gaps, alpha, n, rounding) <= _max_distance(gaps)
    return Temperature(t, distance, len(gaps), float64=float64)


def largest_temperature(gaps: Sequence[LayerGap], alpha: float, n: int) -> float | None:
    """Return the largest temperature at which the bound holds for n points, over the longest squared.

    inf: any; None: the gaps are too small for a proof.
    """

    def is_near(T: float) -> bool:
        return max_drift(T, gaps, alpha, n) <= _max_distance(gaps)

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


def _max_distance(gaps: Sequence[LayerGap]) -> float:
    """Return the largest bound that proves the distance, whatever the rounding of the bound."""
    return MAX_SOFTMAX_DISTANCE * (ROUNDING_FACTOR - LAYER_ROUNDING * len(gaps))


def max_drift(T: float, gaps: Sequence[LayerGap], alpha: float, n: int, rounding: float = 0.0) -> float:
    """Return a bound on the distance between both runs after these layers, relative to the longest token.

    `rounding` bounds how far rounding moves a token at each layer, its effect on scores included. The
    recursion is one of logarithms: exp(-gap / T) may be below the smallest double, and ties amplify it.
    """
    log_distance, log_gamma = -math.inf, math.log(alpha) - math.log1p(alpha)
    log_rounding, log_others = (math.log(x) if x > 0 else -math.inf for x in (rounding, n - 1))
    for gap in gaps:
        log_error = _log_of_sum(log_distance, log_rounding)
        proved_gap = gap.smallest - 4 * math.exp(min(log_error, MAX_LOG))
        if proved_gap <= 0:
            return math.inf
        outside = log_others - proved_gap / T
        inside = math.log(4 / T) + log_error if gap.tied else -math.inf
        log_distance = _log_of_sum(log_error, math.log(2) + log_gamma + _log_of_sum(outside, inside))
    return math.exp(min(log_distance, MAX_LOG))


def _log_of_sum(a: float, b: float) -> float:
    """Return log(exp(a) + exp(b))."""
    low, high = min(a, b), max(a, b)
    return high if low == -math.inf else high + math.log1p(math.exp(low - high))
