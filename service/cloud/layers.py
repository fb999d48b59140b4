"""The layers of one cloud: argmax sets, leaders, who is settled, and the step to the next layer.

A token is settled once its argmax set is proved never to change again: its members lead, and the set is also
that of their mean (docs/theory.md, section 3). A settled token is not asked again; where it will be at any
later layer is known. The cloud is certified when all its tokens are settled.
"""

import math
from collections.abc import Iterator

import numpy as np

from service.cloud.candidates import candidates
from service.cloud.coordinates import Frame, Vectors, lengths_of, slack_of
from service.cloud.decision import NUMBERS, Decision, Exactly
from service.cloud.history import History
from service.cloud.margin import NEAR, Gap, Gaps, Temperature, largest
from service.cloud.points import UNIT, Bools, Cloud, Floats, Ints
from service.cloud.sets import ArgmaxSetBuilder, Ragged, Sets, Ties, members_of, pieces, starts
from service.engine.cloud_queue import Steps
from service.runtime.session import Session


class Layers:
    """A cloud at layer `layer`. `attend` finds its argmax sets; `step` goes on to the next layer."""

    def __init__(self, session: Session, cloud: Cloud, alpha: float, tie_tolerance: float) -> None:
        n, d = cloud.points.shape
        self.cloud = cloud
        self.layer = 0
        self.exact = True  # whether every argmax set so far is proved
        self.since: Ints = np.full(n, -1)  # the layer at which a token began to lead, or -1
        self.settled: Ints = np.full(n, -1)  # the layer at which its set became final, or -1
        self.first: Ints = np.arange(n)  # the first member of every set
        self.ties = Ties.none(d)  # the sets with several members
        self.distance = math.inf  # of the farthest token from the mean over its set, relative to the longest
        self._session = session
        self._alpha = alpha
        self._tie_tolerance = tie_tolerance
        self._frame = Frame(cloud.points, cloud.form)
        self._longest = float(self._frame.lengths(cloud.points).max())
        # Where tokens are, or were when they settled, and how far off rounding may have moved them.
        self._position, self._moved = self._frame.centred(cloud.points)
        self._now, self._now_moved = self._position, self._moved  # the same, with settled ones on their way
        self.history = History(cloud, alpha, self._settled_set)
        self._aim = self._now, self._now_moved  # the means that tokens which are not settled move to
        self._far = 0.0  # the greatest distance of a settled token from its limit

    @property
    def certified(self) -> bool:
        """Whether it is proved that no argmax set will change again."""
        return self.exact and bool((self.settled >= 0).all())

    def attend(self) -> Iterator[None]:
        """Find the argmax sets of this layer, its leaders, and who is settled."""
        rows = np.flatnonzero(self.settled < 0)
        keys = self._frame.keys(self._now, self._now_moved)
        yield
        queries = self._frame.queries(self._now[rows], self._now_moved[rows])
        yield

        def exactly(i: int, near: Ints) -> Steps[Ints | None]:
            token = int(rows[i])
            near = near[~self._behind(token, near)]
            return self.history.ask(lambda rational: rational.best(token, near))

        sets = yield from self._find(queries, keys, rows, exactly)
        self.exact &= self._tie_tolerance > 0 or bool(sets.sure.all())
        self.first[rows] = sets.first
        self.since[rows[sets.sure & (sets.size == 1) & (sets.first == rows)]] = self.layer
        ties = yield from self._mean_of_ties(rows, sets)
        settled = (sets.size == 1) & (self.since[sets.first] >= 0) & sets.sure
        if len(ties.row):
            settled[sets.size > 1] = sets.sure[sets.size > 1]
            settled[sets.size > 1] &= yield from self._stable(ties, keys, sets)
        self.ties = self.ties.take(self.settled[self.ties.row] >= 0).join(ties)
        if not self._tie_tolerance:
            self.history.add(rows, self.first, ties, self.ties)
        yield
        yield from self._measure(rows, settled)
        self.settled[rows[settled]] = self.layer

    def step(self) -> None:
        """Move every token that is not settled by one layer."""
        rows = np.flatnonzero(self.settled < 0)
        gamma = self._alpha / (1 + self._alpha)
        target, moved = self._aim
        before = self._position[rows]
        sizes = self._frame.sizes(np.abs(before) + np.abs(target))
        self._position[rows] = before + gamma * (target - before)
        self._moved[rows] = (1 - gamma) * self._moved[rows] + gamma * moved + 8 * UNIT * sizes
        self._far /= 1 + self._alpha
        self.layer += 1
        self._now, self._now_moved = self._at(self.layer)

    def points(self, layer: int) -> Floats:
        """All tokens at this layer, or at any later one once certified."""
        if layer == 0:
            return self.cloud.points
        now = self._now if layer == self.layer else self._at(layer)[0]
        return self._given(now, np.arange(len(now)))

    def targets(self, rows: Ints) -> Floats:
        """The mean over the argmax set of each of these tokens."""
        single = ~np.isin(rows, self.ties.row)
        return self._given(self._targets(rows)[0], np.where(single, self.first[rows], -1))

    def _given(self, centred: Floats, token: Ints) -> Floats:
        """Points of the cloud from centred ones; leaders of the first layer to the bit as they were given."""
        points = centred + self._frame.middle
        still = (token >= 0) & (self.since[token] == 0)
        points[still] = self.cloud.points[token[still]]
        return points

    # --- where tokens are

    def _at(self, layer: int) -> tuple[Floats, Floats]:
        """Positions at this layer, and how far off they may be: settled tokens are on their way."""
        followers = np.flatnonzero((self.settled >= 0) & (self.settled < layer) & (self.since < 0))
        if not len(followers):
            return self._position, self._moved
        target, target_moved = self._targets(followers)
        left = np.exp((self.settled[followers] - layer) * math.log1p(self._alpha))
        position, moved = self._position.copy(), self._moved.copy()
        sizes = self._frame.sizes(np.abs(target) + np.abs(position[followers]))
        position[followers] = target + left[:, None] * (position[followers] - target)
        moved[followers] = left * moved[followers] + target_moved + 20 * UNIT * sizes
        return position, moved

    def _targets(self, rows: Ints) -> tuple[Floats, Floats]:
        """The mean over each one's argmax set, and how far off it may be."""
        target, moved = self._now[self.first[rows]], self._now_moved[self.first[rows]]
        if len(self.ties.row):
            place = np.minimum(np.searchsorted(self.ties.row, rows), len(self.ties.row) - 1)
            tied = self.ties.row[place] == rows
            target[tied], moved[tied] = self.ties.mean[place[tied]], self.ties.moved[place[tied]]
        return target, moved

    def _mean_of_ties(self, rows: Ints, sets: Sets) -> Steps[Ties]:
        several = np.flatnonzero(sets.size > 1)
        all_sizes, first = sets.size[several], starts(sets.size[several])
        mean, moved = np.empty((len(several), self._now.shape[1])), np.empty(len(several))
        for part in pieces(all_sizes, NUMBERS // self._now.shape[1]):
            size = all_sizes[part]
            start, begin = starts(size), int(first[part.start])
            member = sets.member[begin : begin + int(size.sum())]
            weight = self.cloud.counts[member].astype(np.float64)
            share = weight / np.repeat(np.add.reduceat(weight, start), size)
            members = self._now[member]
            mean[part] = np.add.reduceat(share[:, None] * members, start)
            sizes = np.add.reduceat(share * self._frame.sizes(members), start)
            moved[part] = np.maximum.reduceat(self._now_moved[member], start) + (size + 4) * UNIT * sizes
            yield
        return Ties(rows[several], all_sizes, sets.member, mean, moved)

    def _measure(self, rows: Ints, settled: Bools) -> Steps[None]:
        """How far the farthest token is from the mean over its set."""
        target, moved = self._targets(rows)
        yield
        self._aim = target[~settled], moved[~settled]
        yield
        distance = self._frame.lengths(target - self._now[rows])
        self._far = max(self._far, float(distance[settled].max(initial=0.0)))
        self.distance = max(self._far, float(distance.max(initial=0.0))) / self._longest

    # --- argmax sets

    def _find(self, queries: Vectors, keys: Vectors, own: Ints | None, exactly: Exactly) -> Steps[Sets]:
        """The argmax sets of queries. own [q]: the key that each is itself, where queries are tokens."""
        tie = self._tie_tolerance * self._longest * lengths_of(queries.x)
        slack = slack_of(queries, keys)
        live = self._live()
        found = ArgmaxSetBuilder(len(queries.x))
        if live is not None or self._frame.middle.any():
            own = None
        seen = keys if live is None else keys.take(live)
        decision = Decision(queries, keys, slack, tie if self._tie_tolerance else None, exactly)
        for piece in candidates(self._session, queries, seen, slack + 2 * tie, own):
            if piece is None:
                yield
                continue
            rows, pairs = piece
            sets = yield from decision.sets(rows, pairs if live is None else pairs.of(live))
            found.put(rows, sets)
        return found.sets()

    def _live(self) -> Ints | None:
        """With a tie tolerance: the tokens that are keys. A follower this near to its limit is none."""
        if not self._tie_tolerance:
            return None
        followers = np.flatnonzero((self.settled >= 0) & (self.since < 0))
        left = self._frame.lengths(self._targets(followers)[0] - self._now[followers])
        live = np.ones(len(self.first), np.bool_)
        live[followers[left <= self._tie_tolerance * self._longest]] = False
        return np.flatnonzero(live)

    def _stable(self, ties: Ties, keys: Vectors, sets: Sets) -> Steps[Bools]:
        """Which tied tokens keep their sets for ever: all members lead, and the mean has the same set."""
        leads = np.logical_and.reduceat(self.since[ties.member] >= 0, starts(ties.size))
        leading = ties.take(leads)
        if not leads.any():
            return leads
        one, group = leading.sets.alike()  # many tokens may have one set
        queries = self._frame.queries(leading.mean[one], leading.moved[one])

        def exactly(i: int, near: Ints) -> Steps[Ints | None]:
            return self.history.ask(lambda rational: rational.best_of_mean(leading.sets[one[i]], near))

        of_means = yield from self._find(queries, keys, None, exactly)
        same = of_means.sure & (of_means.size == leading.size[one])
        found = Ragged(of_means.member, of_means.size[of_means.size > 1])
        place = np.cumsum(of_means.size > 1) - 1  # of a set in `found`
        for i in np.flatnonzero(same):
            same[i] = np.array_equal(found[place[i]], leading.sets[one[i]])
        stable = leads.copy()
        stable[leads] = same[group]
        if self._tie_tolerance:
            gaps = sets.gap[sets.size > 1][leads], of_means.gap[group]
            stable[leads] &= self._stays_tied(leading, gaps)
        return stable

    def _stays_tied(self, ties: Ties, gaps: tuple[Floats, Floats]) -> Bools:
        """With a tie tolerance: whether scores tie on the whole way from each token to the mean of its set.

        Scores are linear on the way. So members tie on all of it if at both ends they differ by no more than
        the tolerance allows at its shortest point, and others stay out if at both ends they are behind the
        last member. `gaps` are those of the tokens and of the means.
        """
        start = starts(ties.size)
        image, ends = self._frame.image, (self._now[ties.row], ties.mean)
        tolerance = self._tie_tolerance * self._longest
        members = image(self._now[ties.member])
        ways = [image(end + self._frame.middle) for end in ends]
        shortest = _distance_to_way(*ways)
        stays = np.ones(len(ties.row), np.bool_)
        for way, gap in zip(ways, gaps, strict=True):
            score = np.einsum("ij,ij->i", np.repeat(way, ties.size, axis=0), members)
            spread = np.maximum.reduceat(score, start) - np.minimum.reduceat(score, start)
            stays &= spread <= tolerance * shortest * (1 - 1e-9)
            stays &= gap - spread / lengths_of(way) > tolerance * (1 + 1e-9)
        return stays

    # --- exact arithmetic

    def _behind(self, token: int, keys: Ints) -> Bools:
        """Settled followers that cannot be in a token's set, however near their limits they are.

        The way from its limit to a follower keeps its direction. Where the direction points away from the
        query, the follower scores less than its limit, which scores at most what the best token does.
        """
        behind = (self.settled[keys] >= 0) & (self.since[keys] < 0)
        if not behind.any():
            return behind
        followers = keys[behind]
        limit, moved = self._targets(followers)
        sizes = self._frame.sizes(np.abs(limit) + np.abs(self._position[followers]))
        moved = moved + self._moved[followers] + UNIT * sizes
        offset = self._frame.keys(self._position[followers] - limit, moved)
        query = self._frame.queries(self._now[[token]], self._now_moved[[token]])
        error = query.error * offset.size + query.size * offset.error
        behind[behind] = offset.x @ query.x[0] < -error
        return behind

    def _settled_set(self, token: int, layer: int) -> Ints | None:
        """The argmax set of a token that was settled by this layer."""
        settled = 0 <= self.settled[token] <= layer
        return members_of(token, self.first, self.ties) if settled else None

    # --- how far apart scores are

    def margin(self) -> Steps[float | None]:
        """The smallest gap between a best score and the best outside its set, relative to |z_i| max |z|."""
        centred = np.concatenate([self._now, self.ties.mean])
        moved = np.concatenate([self._now_moved, self.ties.moved])
        queries = self._frame.queries(centred, moved)
        yield
        token = np.concatenate([np.arange(len(self._now)), self.ties.row])
        return (yield from self._gaps(queries, token, lengths_of(queries.x) * self._longest).smallest())

    def gap(self) -> Steps[Gap]:
        """A lower bound on the smallest gap of a token, relative to max |z|^2; and whether sets tie."""
        queries = self._frame.queries(self._now, self._now_moved)
        lengths = self._frame.lengths(self._now + self._frame.middle)
        lengths = lengths_of(queries.x) / lengths * self._longest**2  # queries are scaled by powers of two
        gaps = self._gaps(queries, np.arange(len(self._now)), lengths)
        smallest = yield from gaps.smallest()
        rounding = float((slack_of(queries, gaps.keys) / lengths).max())
        return Gap(math.inf if smallest is None else smallest - rounding, len(self.ties.row) > 0)

    def _gaps(self, queries: Vectors, token: Ints, lengths: Floats) -> Gaps:
        keys = self._frame.keys(self._now, self._now_moved)
        return Gaps(self._session, queries, keys, token, lengths, self.first, self.ties)

    def temperature(self, gaps: list[Gap]) -> Temperature | None:
        """What these first layers say of softmax, in the units that points and A were given in."""
        relative = largest(gaps, self._alpha, len(self.cloud.place))
        if relative is None:
            return None
        unit = self._longest * 2.0 ** (self.cloud.form_exponent / 2)
        with np.errstate(over="ignore", under="ignore"):
            distance = float(np.ldexp(NEAR * unit, self.cloud.exponent))
            t = float(np.ldexp(relative * unit * unit, 2 * self.cloud.exponent))
        if math.isinf(relative):
            return Temperature(None, distance, len(gaps))
        return Temperature(t, distance, len(gaps)) if 0 < t < math.inf else None


def _distance_to_way(start: Floats, end: Floats) -> Floats:
    """The distance of the origin from each way between two points."""
    way = end - start
    square = np.maximum(np.einsum("ij,ij->i", way, way), np.finfo(np.float64).tiny)
    at = np.clip(-np.einsum("ij,ij->i", start, way) / square, 0, 1)
    return lengths_of(start + at[:, None] * way)
