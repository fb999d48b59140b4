"""The tokens of a cloud at a layer: their argmax sets and their positions.

A token is settled once its argmax set is proved never to change again (theory.md, section 3). Its
positions at all later layers then follow from a formula.
"""

import math
from typing import NamedTuple

import numpy as np

from service.cloud.coordinates import Frame, Vectors
from service.cloud.points import UNIT, Bools, Cloud, Floats, Ints
from service.cloud.sets import NUMBERS_AT_ONCE, Ragged, Sets, Ties, members_of, range_starts, split_by_size


class Positions(NamedTuple):
    """Positions, and bounds on their rounding errors."""

    x: Floats  # [n,d] relative to the middle of the cloud
    error_bound: Floats  # [n]

    def take(self, rows: Ints | Bools) -> "Positions":
        """Return some of the positions."""
        return Positions(self.x[rows], self.error_bound[rows])


class Tokens:
    """The distinct points of a cloud at layer `layer`; `step` moves them to the next one."""

    def __init__(self, cloud: Cloud, alpha: float) -> None:
        n, d = cloud.points.shape
        self.cloud = cloud
        self.layer = 0
        self.leader_since: Ints = np.full(n, -1)  # the first layer at which a token is a leader, or -1
        self.settled: Ints = np.full(n, -1)  # the layer at which its set became final, or -1
        self.fixed: Bools = np.zeros(n, np.bool_)  # leaders, and tokens that stay at a mean of fixed ones
        self.first: Ints = np.arange(n)  # the first member of every set
        self.ties = Ties.empty(d)  # the sets with several members
        self.distance = math.inf  # of the farthest token from the mean over its set, relative to the longest
        self.frame = Frame(cloud.points, cloud.form)
        self.longest = float(self.frame.lengths(cloud.points).max())
        self.alpha = alpha
        self.start = Positions(*self.frame.centred(cloud.points))  # of settled tokens: where they settled
        self.now = self.start  # all tokens at this layer
        self._unsettled_targets = self.now
        self._settled_distance = 0.0  # the greatest distance of a settled token from its limit

    @property
    def certified(self) -> bool:
        """Whether it is proved that no argmax set will change again."""
        return bool((self.settled >= 0).all())

    @property
    def longest_bound(self) -> float:
        """An upper bound on the exact length of the longest token."""
        return float(self.frame.length_bounds(np.array([self.longest]), self.largest_size)[0])

    @property
    def largest_size(self) -> float:
        """The largest size of a token, as `Frame.sizes` has it."""
        return float(self.frame.sizes(self.cloud.points).max())

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
        """Return the sets with several members, of the tokens `rows`, with the means over them."""
        tied = np.flatnonzero(sets.size > 1)
        all_sizes, first = sets.size[tied], range_starts(sets.size[tied])
        mean, error_bound = np.empty((len(tied), self.now.x.shape[1])), np.empty(len(tied))
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
        return Ties(rows[tied], all_sizes, sets.member, mean, error_bound)

    # --- positions

    def points(self, layer: int) -> Floats:
        """Return all tokens at this layer, or at any later one once certified."""
        if layer == 0:
            return self.cloud.points
        now = self.now if layer == self.layer else self._positions_at(layer)
        return self._original(now.x, np.arange(len(now.x)))

    def target_points(self, rows: Ints) -> Floats:
        """Return the mean over the argmax set of each of these tokens, in the coordinates of the cloud."""
        single = ~np.isin(rows, self.ties.row)
        return self._original(self.targets(rows).x, np.where(single, self.first[rows], -1))

    def _original(self, centred: Floats, token: Ints) -> Floats:
        """Return points in the cloud's coordinates; leaders of the first layer are exactly as given."""
        points = centred + self.frame.middle
        is_given = (token >= 0) & (self.leader_since[token] == 0)
        points[is_given] = self.cloud.points[token[is_given]]
        return points

    def targets(self, rows: Ints) -> Positions:
        """Return the mean over the argmax set of each of these tokens."""
        target, error_bound = self.now.take(self.first[rows])
        if len(self.ties.row):
            index = np.minimum(np.searchsorted(self.ties.row, rows), len(self.ties.row) - 1)
            tied = self.ties.row[index] == rows
            target[tied] = self.ties.mean[index[tied]]
            error_bound[tied] = self.ties.error_bound[index[tied]]
        return Positions(target, error_bound)

    def keys(self) -> Vectors:
        """Return all tokens as keys."""
        return self.frame.keys(*self.now)

    def queries(self, rows: Ints) -> Vectors:
        """Return these tokens as queries."""
        return self.frame.queries(*self.now.take(rows))

    # --- motion

    def measure(self, rows: Ints, settled: Bools) -> None:
        """Store the targets of the tokens `rows`, and the largest distance of a token from its target."""
        target = self.targets(rows)
        self._unsettled_targets = target.take(~settled)
        distance = self.frame.lengths(target.x - self.now.x[rows])
        self._settled_distance = max(self._settled_distance, float(distance[settled].max(initial=0.0)))
        self.distance = max(self._settled_distance, float(distance.max(initial=0.0))) / self.longest

    def step(self) -> None:
        """Move every token that is not settled by one layer."""
        rows = np.flatnonzero(self.settled < 0)
        gamma = self.alpha / (1 + self.alpha)
        x, error_bound = self.start
        previous = x[rows]
        sizes = self.frame.sizes(np.abs(previous) + np.abs(self._unsettled_targets.x))
        x[rows] = previous + gamma * (self._unsettled_targets.x - previous)
        propagated = (1 - gamma) * error_bound[rows] + gamma * self._unsettled_targets.error_bound
        error_bound[rows] = propagated + 8 * UNIT * sizes
        self._settled_distance /= 1 + self.alpha
        self.layer += 1
        self.now = self._positions_at(self.layer)

    def _positions_at(self, layer: int) -> Positions:
        """Return the positions at this layer, at which settled tokens have moved on."""
        followers = np.flatnonzero((self.settled >= 0) & (self.settled < layer) & ~self.fixed)
        if not len(followers):
            return self.start
        target = self.targets(followers)
        share = np.exp((self.settled[followers] - layer) * math.log1p(self.alpha))
        x, error_bound = self.start.x.copy(), self.start.error_bound.copy()
        sizes = self.frame.sizes(np.abs(target.x) + np.abs(x[followers]))
        x[followers] = target.x + share[:, None] * (x[followers] - target.x)
        error_bound[followers] = share * error_bound[followers] + target.error_bound + 20 * UNIT * sizes
        return Positions(x, error_bound)
