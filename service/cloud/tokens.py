"""The tokens of a cloud at a layer: their argmax sets, as far as they are known, and where they are.

A token is settled once its argmax set is proved never to change again (docs/theory.md, section 3). Where it
will be at any later layer is known then.
"""

import math
from typing import NamedTuple

import numpy as np

from service.cloud.coordinates import Frame, Vectors
from service.cloud.decision import NUMBERS_AT_ONCE
from service.cloud.points import UNIT, Bools, Cloud, Floats, Ints
from service.cloud.sets import Ragged, Sets, Ties, members_of, range_starts, split_by_size


class Located(NamedTuple):
    """Positions, and a bound on how far rounding may have moved each."""

    x: Floats  # [n,d] relative to the middle of the cloud
    error_bound: Floats  # [n]

    def take(self, rows: Ints | Bools) -> "Located":
        """Return some of the positions."""
        return Located(self.x[rows], self.error_bound[rows])


class Tokens:
    """The distinct points of a cloud at layer `layer`; `step` moves them to the next one."""

    def __init__(self, cloud: Cloud, alpha: float) -> None:
        n, d = cloud.points.shape
        self.cloud = cloud
        self.layer = 0
        self.since: Ints = np.full(n, -1)  # the layer at which a token began to lead, or -1
        self.settled: Ints = np.full(n, -1)  # the layer at which its set became final, or -1
        self.fixed: Bools = np.zeros(n, np.bool_)  # leaders, and tokens that rest between fixed ones for ever
        self.first: Ints = np.arange(n)  # the first member of every set
        self.ties = Ties.empty(d)  # the sets with several members
        self.distance = math.inf  # of the farthest token from the mean over its set, relative to the longest
        self.frame = Frame(cloud.points, cloud.form)
        self.longest = float(self.frame.lengths(cloud.points).max())
        self.alpha = alpha
        self.start = Located(*self.frame.centred(cloud.points))  # of settled ones: where they settled
        self.now = self.start  # the same, with settled ones on their way
        self._aim = self.now  # the means that tokens which are not settled move to
        self._far = 0.0  # the greatest distance of a settled token from its limit

    @property
    def certified(self) -> bool:
        """Whether it is proved that no argmax set will change again."""
        return bool((self.settled >= 0).all())

    # --- argmax sets

    def sets(self) -> Ragged:
        """Return the argmax set of every token."""
        size = np.ones(len(self.first), np.int64)
        size[self.ties.row] = self.ties.size
        tied = np.repeat(np.isin(np.arange(len(size)), self.ties.row), size)
        flat = np.repeat(self.first, size)
        flat[tied] = self.ties.member
        return Ragged(flat, size)

    def settled_set(self, token: int, layer: int) -> Ints | None:
        """Return the argmax set of a token that was settled by this layer."""
        settled = 0 <= self.settled[token] <= layer
        return members_of(token, self.first, self.ties.row, self.ties.sets) if settled else None

    def mean_of_ties(self, rows: Ints, sets: Sets) -> Ties:
        """Return those of the sets of `rows` that have several members, with the means over them."""
        several = np.flatnonzero(sets.size > 1)
        all_sizes, first = sets.size[several], range_starts(sets.size[several])
        mean, error_bound = np.empty((len(several), self.now.x.shape[1])), np.empty(len(several))
        for part in split_by_size(all_sizes, NUMBERS_AT_ONCE // self.now.x.shape[1]):
            size = all_sizes[part]
            start, begin = range_starts(size), int(first[part.start])
            member = sets.member[begin : begin + int(size.sum())]
            weight = self.cloud.counts[member].astype(np.float64)
            share = weight / np.repeat(np.add.reduceat(weight, start), size)
            members = self.now.take(member)
            mean[part] = np.add.reduceat(share[:, None] * members.x, start)
            sizes = np.add.reduceat(share * self.frame.sizes(members.x), start)
            farthest = np.maximum.reduceat(members.error_bound, start)
            error_bound[part] = farthest + (size + 4) * UNIT * sizes
        return Ties(rows[several], all_sizes, sets.member, mean, error_bound)

    # --- positions

    def points(self, layer: int) -> Floats:
        """Return all tokens at this layer, or at any later one once certified."""
        if layer == 0:
            return self.cloud.points
        now = self.now if layer == self.layer else self._at(layer)
        return self._original(now.x, np.arange(len(now.x)))

    def target_points(self, rows: Ints) -> Floats:
        """Return the mean over the argmax set of each of these tokens, in the coordinates of the cloud."""
        single = ~np.isin(rows, self.ties.row)
        return self._original(self.targets(rows).x, np.where(single, self.first[rows], -1))

    def _original(self, centred: Floats, token: Ints) -> Floats:
        """Points of the cloud from centred ones; leaders of the first layer to the bit as they were given."""
        points = centred + self.frame.middle
        still = (token >= 0) & (self.since[token] == 0)
        points[still] = self.cloud.points[token[still]]
        return points

    def targets(self, rows: Ints) -> Located:
        """Return the mean over the argmax set of each of these tokens."""
        target, error_bound = self.now.take(self.first[rows])
        if len(self.ties.row):
            index = np.minimum(np.searchsorted(self.ties.row, rows), len(self.ties.row) - 1)
            tied = self.ties.row[index] == rows
            target[tied] = self.ties.mean[index[tied]]
            error_bound[tied] = self.ties.error_bound[index[tied]]
        return Located(target, error_bound)

    def keys(self) -> Vectors:
        """Return all tokens as keys."""
        return self.frame.keys(*self.now)

    def queries(self, rows: Ints) -> Vectors:
        """Return these tokens as queries."""
        return self.frame.queries(*self.now.take(rows))

    # --- motion

    def measure(self, rows: Ints, settled: Bools) -> None:
        """Note where the tokens `rows` move to, and how far the farthest is from the mean over its set."""
        target = self.targets(rows)
        self._aim = target.take(~settled)
        distance = self.frame.lengths(target.x - self.now.x[rows])
        self._far = max(self._far, float(distance[settled].max(initial=0.0)))
        self.distance = max(self._far, float(distance.max(initial=0.0))) / self.longest

    def step(self) -> None:
        """Move every token that is not settled by one layer."""
        rows = np.flatnonzero(self.settled < 0)
        gamma = self.alpha / (1 + self.alpha)
        x, error_bound = self.start
        before = x[rows]
        sizes = self.frame.sizes(np.abs(before) + np.abs(self._aim.x))
        x[rows] = before + gamma * (self._aim.x - before)
        moved = (1 - gamma) * error_bound[rows] + gamma * self._aim.error_bound
        error_bound[rows] = moved + 8 * UNIT * sizes
        self._far /= 1 + self.alpha
        self.layer += 1
        self.now = self._at(self.layer)

    def _at(self, layer: int) -> Located:
        """Positions at this layer: settled tokens are on their way."""
        followers = np.flatnonzero((self.settled >= 0) & (self.settled < layer) & ~self.fixed)
        if not len(followers):
            return self.start
        target = self.targets(followers)
        left = np.exp((self.settled[followers] - layer) * math.log1p(self.alpha))
        x, error_bound = self.start.x.copy(), self.start.error_bound.copy()
        sizes = self.frame.sizes(np.abs(target.x) + np.abs(x[followers]))
        x[followers] = target.x + left[:, None] * (x[followers] - target.x)
        error_bound[followers] = left * error_bound[followers] + target.error_bound + 20 * UNIT * sizes
        return Located(x, error_bound)
