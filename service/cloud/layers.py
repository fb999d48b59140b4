"""The layers of one cloud: argmax sets, leaders, whose sets are final, and the step to the next layer.

A token is settled once its argmax set is proved never to change again (docs/theory.md, section 3). Its set is
not searched for again, and where it will be at any later layer is known. The cloud is certified when all its
tokens are settled.
"""

import math
from typing import NamedTuple

import numpy as np

from service.cloud.candidates import candidates
from service.cloud.coordinates import Frame, Vectors, lengths_of, slack_of
from service.cloud.decision import NUMBERS_AT_ONCE, Decision, Exactly
from service.cloud.history import History
from service.cloud.margin import Gaps, LayerGap
from service.cloud.points import UNIT, Bools, Cloud, Floats, Ints
from service.cloud.sets import ArgmaxSetBuilder, Ragged, Sets, Ties, members_of, range_starts, split_by_size
from service.runtime.session import Session


class Located(NamedTuple):
    """Positions, and a bound on how far rounding may have moved each."""

    x: Floats  # [n,d] relative to the middle of the cloud
    error_bound: Floats  # [n]

    def take(self, rows: Ints | Bools) -> "Located":
        """Return some of the positions."""
        return Located(self.x[rows], self.error_bound[rows])


class Layers:
    """A cloud at layer `layer`. `attend` finds its argmax sets; `step` goes on to the next layer."""

    def __init__(self, session: Session, cloud: Cloud, alpha: float, tie_tolerance: float) -> None:
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
        self._session = session
        self._alpha = alpha
        self._tie_tolerance = tie_tolerance
        self._history = History(cloud, alpha, self._settled_set)
        self._start = Located(*self.frame.centred(cloud.points))  # of settled ones: where they settled
        self._now = self._start  # the same, with settled ones on their way
        self._aim = self._now  # the means that tokens which are not settled move to
        self._far = 0.0  # the greatest distance of a settled token from its limit
        self._mean_sets: dict[
            bytes, Ints
        ] = {}  # of means whose argmax set is larger than the set they are of

    @property
    def certified(self) -> bool:
        """Whether it is proved that no argmax set will change again."""
        return bool((self.settled >= 0).all())

    def attend(self) -> None:
        """Find the argmax sets of this layer, its leaders, and whose sets are final."""
        rows = np.flatnonzero(self.settled < 0)
        keys = self.frame.keys(*self._now)
        sets = self._sets_of_tokens(rows, keys)
        self.first[rows] = sets.first
        leading = rows[sets.sure & (sets.size == 1) & (sets.first == rows)]
        self.since[leading], self.fixed[leading] = self.layer, True
        ties = self._mean_of_ties(rows, sets)
        final = self._final(sets, ties, keys)
        self.ties = self.ties.take(self.settled[self.ties.row] >= 0).join(ties)
        if not self._tie_tolerance:
            self._history.add(rows, self.first, ties, self.ties)
        self._measure(rows, final)
        self.settled[rows[final]] = self.layer

    def step(self) -> None:
        """Move every token that is not settled by one layer."""
        rows = np.flatnonzero(self.settled < 0)
        gamma = self._alpha / (1 + self._alpha)
        x, error_bound = self._start
        before = x[rows]
        sizes = self.frame.sizes(np.abs(before) + np.abs(self._aim.x))
        x[rows] = before + gamma * (self._aim.x - before)
        moved = (1 - gamma) * error_bound[rows] + gamma * self._aim.error_bound
        error_bound[rows] = moved + 8 * UNIT * sizes
        self._far /= 1 + self._alpha
        self.layer += 1
        self._now = self._at(self.layer)

    def points(self, layer: int) -> Floats:
        """Return all tokens at this layer, or at any later one once certified."""
        if layer == 0:
            return self.cloud.points
        now = self._now if layer == self.layer else self._at(layer)
        return self._original(now.x, np.arange(len(now.x)))

    def targets(self, rows: Ints) -> Floats:
        """Return the mean over the argmax set of each of these tokens."""
        single = ~np.isin(rows, self.ties.row)
        return self._original(self._targets(rows).x, np.where(single, self.first[rows], -1))

    def sets(self) -> Ragged:
        """Return the argmax set of every token."""
        size = np.ones(len(self.first), np.int64)
        size[self.ties.row] = self.ties.size
        tied = np.repeat(np.isin(np.arange(len(size)), self.ties.row), size)
        flat = np.repeat(self.first, size)
        flat[tied] = self.ties.member
        return Ragged(flat, size)

    def _original(self, centred: Floats, token: Ints) -> Floats:
        """Points of the cloud from centred ones; leaders of the first layer to the bit as they were given."""
        points = centred + self.frame.middle
        still = (token >= 0) & (self.since[token] == 0)
        points[still] = self.cloud.points[token[still]]
        return points

    # --- where tokens are

    def _at(self, layer: int) -> Located:
        """Positions at this layer: settled tokens are on their way."""
        followers = np.flatnonzero((self.settled >= 0) & (self.settled < layer) & ~self.fixed)
        if not len(followers):
            return self._start
        target = self._targets(followers)
        left = np.exp((self.settled[followers] - layer) * math.log1p(self._alpha))
        x, error_bound = self._start.x.copy(), self._start.error_bound.copy()
        sizes = self.frame.sizes(np.abs(target.x) + np.abs(x[followers]))
        x[followers] = target.x + left[:, None] * (x[followers] - target.x)
        error_bound[followers] = left * error_bound[followers] + target.error_bound + 20 * UNIT * sizes
        return Located(x, error_bound)

    def _targets(self, rows: Ints) -> Located:
        """Return the mean over each one's argmax set."""
        target, error_bound = self._now.take(self.first[rows])
        if len(self.ties.row):
            index = np.minimum(np.searchsorted(self.ties.row, rows), len(self.ties.row) - 1)
            tied = self.ties.row[index] == rows
            target[tied] = self.ties.mean[index[tied]]
            error_bound[tied] = self.ties.error_bound[index[tied]]
        return Located(target, error_bound)

    def _mean_of_ties(self, rows: Ints, sets: Sets) -> Ties:
        several = np.flatnonzero(sets.size > 1)
        all_sizes, first = sets.size[several], range_starts(sets.size[several])
        mean, error_bound = np.empty((len(several), self._now.x.shape[1])), np.empty(len(several))
        for part in split_by_size(all_sizes, NUMBERS_AT_ONCE // self._now.x.shape[1]):
            size = all_sizes[part]
            start, begin = range_starts(size), int(first[part.start])
            member = sets.member[begin : begin + int(size.sum())]
            weight = self.cloud.counts[member].astype(np.float64)
            share = weight / np.repeat(np.add.reduceat(weight, start), size)
            members = self._now.take(member)
            mean[part] = np.add.reduceat(share[:, None] * members.x, start)
            sizes = np.add.reduceat(share * self.frame.sizes(members.x), start)
            farthest = np.maximum.reduceat(members.error_bound, start)
            error_bound[part] = farthest + (size + 4) * UNIT * sizes
        return Ties(rows[several], all_sizes, sets.member, mean, error_bound)

    def _measure(self, rows: Ints, settled: Bools) -> None:
        """Note where tokens move to, and how far the farthest is from the mean over its set."""
        target = self._targets(rows)
        self._aim = target.take(~settled)
        distance = self.frame.lengths(target.x - self._now.x[rows])
        self._far = max(self._far, float(distance[settled].max(initial=0.0)))
        self.distance = max(self._far, float(distance.max(initial=0.0))) / self.longest

    # --- argmax sets

    def _sets_of_tokens(self, rows: Ints, keys: Vectors) -> Sets:
        def exactly(i: int, near: Ints) -> Ints:
            token = int(rows[i])
            return self._history.rational.best(token, near[~self._behind(token, near)])

        return self._find(self.frame.queries(*self._now.take(rows)), keys, rows, exactly)

    def _find(self, queries: Vectors, keys: Vectors, own: Ints | None, exactly: Exactly) -> Sets:
        """The argmax sets of queries. own [q]: the key that each is itself, where queries are tokens."""
        tie = self._tie_tolerance * self.longest * lengths_of(queries.x)
        slack = slack_of(queries, keys)
        live = self._live()
        if live is not None or self.frame.middle.any():
            own = None
        seen = keys if live is None else keys.take(live)
        decision = Decision(queries, keys, slack, tie if self._tie_tolerance else None, exactly)
        found = ArgmaxSetBuilder(len(queries.x))
        for rows, pairs in candidates(self._session, queries, seen, slack + 2 * tie, own):
            found.add(rows, decision.sets(rows, pairs if live is None else pairs.of(live)))
        return found.build()

    def _live(self) -> Ints | None:
        """With a tie tolerance: the tokens that are keys. A follower this near to its limit is none."""
        if not self._tie_tolerance:
            return None
        followers = np.flatnonzero((self.settled >= 0) & ~self.fixed)
        left = self.frame.lengths(self._targets(followers).x - self._now.x[followers])
        live = np.ones(len(self.first), np.bool_)
        live[followers[left <= self._tie_tolerance * self.longest]] = False
        return np.flatnonzero(live)

    def _behind(self, token: int, keys: Ints) -> Bools:
        """Settled followers that cannot be in a token's set, however near their limits they are.

        The way from its limit to a follower keeps its direction. Where the direction points away from the
        query, the follower scores less than its limit, which scores at most what the best token does.
        """
        behind = (self.settled[keys] >= 0) & ~self.fixed[keys]
        if not behind.any():
            return behind
        followers = keys[behind]
        limit, start = self._targets(followers), self._start.take(followers)
        sizes = self.frame.sizes(np.abs(limit.x) + np.abs(start.x))
        error_bound = limit.error_bound + start.error_bound + UNIT * sizes
        offset = self.frame.keys(start.x - limit.x, error_bound)
        query = self.frame.queries(*self._now.take(np.array([token])))
        error = query.error * offset.size + query.size * offset.error
        behind[behind] = offset.x @ query.x[0] < -error
        return behind

    def _settled_set(self, token: int, layer: int) -> Ints | None:
        """Return the argmax set of a token that was settled by this layer."""
        settled = 0 <= self.settled[token] <= layer
        return members_of(token, self.first, self.ties.row, self.ties.sets) if settled else None

    # --- which sets are final

    def _final(self, sets: Sets, ties: Ties, keys: Vectors) -> Bools:
        """Return which of these sets never change again: their members are fixed, and tie for their mean."""
        if len(ties.row) and not self._tie_tolerance:
            self._fix_resting(ties)
        final: Bools = (sets.size == 1) & self.fixed[sets.first] & sets.sure
        if len(ties.row):
            several = sets.size > 1
            final[several] = sets.sure[several] & self._stable(ties, keys, sets)
        return final

    def _fix_resting(self, ties: Ties) -> None:
        """Mark the tokens that are at the mean of their sets, where all members of these are fixed too."""
        rests = np.zeros(len(self.fixed), np.bool_)
        for t in self._maybe_resting(ties).tolist():
            rests[ties.row[t]] = self._history.rational.rests(int(ties.row[t]), ties.sets[t])
        while True:
            inside = np.logical_and.reduceat((self.fixed | rests)[ties.member], range_starts(ties.size))
            leaves = ties.row[~inside]
            if not rests[leaves].any():
                break
            rests[leaves] = False
        self.fixed |= rests

    def _maybe_resting(self, ties: Ties) -> Ints:
        """Return the sets that hold their own token, with a mean as near to it as rounding can tell."""
        own = np.logical_or.reduceat(ties.member == np.repeat(ties.row, ties.size), range_starts(ties.size))
        apart = self.frame.lengths(ties.mean - self._now.x[ties.row])
        return np.flatnonzero(own & (apart <= 2 * (ties.error_bound + self._now.error_bound[ties.row])))

    def _stable(self, ties: Ties, keys: Vectors, sets: Sets) -> Bools:
        """Which tied tokens keep their sets for ever: all members are fixed, and tie for their mean too."""
        stable: Bools = np.logical_and.reduceat(self.fixed[ties.member], range_starts(ties.size))
        if not stable.any():
            return stable
        fixed = ties.take(stable)
        one, group = fixed.sets.unique()  # many tokens may have one set

        def exactly(i: int, near: Ints) -> Ints:
            return self._history.rational.best_of_mean(fixed.sets[one[i]], near)

        of_means = self._find(
            self.frame.queries(fixed.mean[one], fixed.error_bound[one]), keys, None, exactly
        )
        ties_too = self._tie_for_means(fixed.sets.take(one), of_means)
        gaps = sets.gap[sets.size > 1][stable], of_means.gap[group]
        stable[stable] = ties_too[group] & self._stays_tied(fixed, gaps)
        return stable

    def _tie_for_means(self, sets: Ragged, of_means: Sets) -> Bools:
        """Return whether all members of a set tie for its mean; with a tie tolerance, they and no others."""
        found = Ragged(of_means.member, of_means.size[of_means.size > 1])
        index = np.cumsum(of_means.size > 1) - 1  # of a set in `found`
        tie: Bools = of_means.sure & (of_means.size >= sets.lengths)
        for i in np.flatnonzero(tie).tolist():
            larger = of_means.size[i] > sets.lengths[i]
            tie[i] = np.isin(sets[i], found[index[i]]).all() and not (larger and self._tie_tolerance)
            if tie[i] and larger:
                self._mean_sets[sets[i].tobytes()] = found[index[i]]
        return tie

    def _stays_tied(self, ties: Ties, gaps: tuple[Floats, Floats]) -> Bools:
        """With a tie tolerance: whether scores tie on the whole way from each token to the mean of its set.

        Scores are linear on the way. So members tie on all of it if at both ends they differ by no more than
        the tolerance allows at its shortest point, and others stay out if at both ends they are behind the
        last member. `gaps` are those of the tokens and of the means.
        """
        stays = np.ones(len(ties.row), np.bool_)
        if not self._tie_tolerance:
            return stays
        start = range_starts(ties.size)
        image, ends = self.frame.image, (self._now.x[ties.row], ties.mean)
        tolerance = self._tie_tolerance * self.longest
        members = image(self._now.x[ties.member])
        ways = [image(end + self.frame.middle) for end in ends]
        shortest = _distance_to_way(*ways)
        for way, gap in zip(ways, gaps, strict=True):
            score = np.einsum("ij,ij->i", np.repeat(way, ties.size, axis=0), members)
            spread = np.maximum.reduceat(score, start) - np.minimum.reduceat(score, start)
            stays &= spread <= tolerance * shortest * (1 - 1e-9)
            stays &= gap - spread / lengths_of(way) > tolerance * (1 + 1e-9)
        return stays

    # --- how far apart scores are

    def margin(self) -> float | None:
        """Return a lower bound on the smallest gap between a best score and the best outside its set.

        Relative to |z_i| max |z|, over all tokens and all means of several; None: nothing is outside.
        """
        n, means = len(self.first), np.arange(len(self.ties.row))
        of_means = self.ties.sets
        if self._mean_sets:
            of_means = Ragged.of([self._mean_sets.get(each.tobytes(), each) for each in of_means])
        members = Ragged(
            np.concatenate([self.ties.member, of_means.flat]),
            np.concatenate([self.ties.size, of_means.lengths]),
        )
        x = np.concatenate([self._now.x, self.ties.mean])
        queries = self.frame.queries(x, np.concatenate([self._now.error_bound, self.ties.error_bound]))
        rounding = self.frame.rounding
        longest = self.longest + rounding * float(self.frame.sizes(self.cloud.points).max())
        lengths = (lengths_of(queries.x) + rounding * queries.size) * longest
        first = np.concatenate([self.first, np.zeros_like(means)])
        row = np.concatenate([self.ties.row, n + means])
        gaps = Gaps(self._session, queries, self._keys(), lengths, first, row, members)
        smallest = gaps.smallest()
        return None if math.isinf(smallest) else max(smallest, 0.0)

    def gap(self) -> LayerGap:
        """Return a lower bound on the smallest gap, relative to max |z|^2, and whether sets tie."""
        queries = self.frame.queries(*self._now)
        lengths = self.frame.scales(self._now.x) * self.longest**2
        gaps = Gaps(self._session, queries, self._keys(), lengths, self.first, self.ties.row, self.ties.sets)
        return LayerGap(gaps.smallest(), len(self.ties.row) > 0)

    def _keys(self) -> Vectors:
        return self.frame.keys(*self._now)


def _distance_to_way(start: Floats, end: Floats) -> Floats:
    """Return the distance of the origin from each way between two points."""
    way = end - start
    square = np.maximum(np.einsum("ij,ij->i", way, way), np.finfo(np.float64).tiny)
    at = np.clip(-np.einsum("ij,ij->i", start, way) / square, 0, 1)
    return lengths_of(start + at[:, None] * way)
