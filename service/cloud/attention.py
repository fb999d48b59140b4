"""Hard attention: the argmax sets of the tokens of a cloud, and which of them are final.

    tokens = Tokens(cloud, alpha)
    attention = Attention(session, tokens, tie_tolerance)
    attention.attend()
    tokens.step()

A set is final once it is proved never to change again (docs/theory.md, section 3): it is not searched for
again. The cloud is certified when the sets of all tokens are final.
"""

import numpy as np

from service.cloud.candidates import candidates
from service.cloud.coordinates import Vectors, lengths_of, slack_of
from service.cloud.decision import Decision, Exactly
from service.cloud.history import History
from service.cloud.points import UNIT, Bools, Floats, Ints
from service.cloud.sets import ArgmaxSetBuilder, Ragged, Sets, Ties, range_starts
from service.cloud.tokens import Tokens
from service.runtime.session import Session


class Attention:
    """Finds the argmax sets of tokens layer by layer, its leaders, and whose sets are final."""

    def __init__(self, session: Session, tokens: Tokens, tie_tolerance: float) -> None:
        self.session = session
        self.tokens = tokens
        self.mean_sets: dict[bytes, Ints] = {}  # of means whose argmax set is larger than the set they are of
        self._frame = tokens.frame
        self._tie_tolerance = tie_tolerance
        self._history = History(tokens.cloud, tokens.alpha, tokens.settled_set)

    def attend(self) -> None:
        """Find the argmax sets of this layer, its leaders, and whose sets are final."""
        tokens = self.tokens
        rows = np.flatnonzero(tokens.settled < 0)
        keys = tokens.keys()
        sets = self._sets_of_tokens(rows, keys)
        tokens.first[rows] = sets.first
        leading = rows[sets.sure & (sets.size == 1) & (sets.first == rows)]
        tokens.since[leading], tokens.fixed[leading] = tokens.layer, True
        ties = tokens.mean_of_ties(rows, sets)
        final = self._final(sets, ties, keys)
        tokens.ties = tokens.ties.take(tokens.settled[tokens.ties.row] >= 0).join(ties)
        if not self._tie_tolerance:
            self._history.add(rows, tokens.first, ties, tokens.ties)
        tokens.measure(rows, final)
        tokens.settled[rows[final]] = tokens.layer

    # --- argmax sets

    def _sets_of_tokens(self, rows: Ints, keys: Vectors) -> Sets:
        def exactly(i: int, near: Ints) -> Ints:
            token = int(rows[i])
            return self._history.rational.best(token, near[~self._behind(token, near)])

        return self._find(self.tokens.queries(rows), keys, rows, exactly)

    def _find(self, queries: Vectors, keys: Vectors, own: Ints | None, exactly: Exactly) -> Sets:
        """The argmax sets of queries. own [q]: the key that each is itself, where queries are tokens."""
        tie = self._tie_tolerance * self.tokens.longest * lengths_of(queries.x)
        slack = slack_of(queries, keys)
        live = self._live()
        if live is not None or self._frame.middle.any():
            own = None
        seen = keys if live is None else keys.take(live)
        decision = Decision(queries, keys, slack, tie if self._tie_tolerance else None, exactly)
        found = ArgmaxSetBuilder(len(queries.x))
        for rows, pairs in candidates(self.session, queries, seen, slack + 2 * tie, own):
            found.add(rows, decision.sets(rows, pairs if live is None else pairs.of(live)))
        return found.build()

    def _live(self) -> Ints | None:
        """With a tie tolerance: the tokens that are keys. A follower this near to its limit is none."""
        if not self._tie_tolerance:
            return None
        followers = np.flatnonzero((self.tokens.settled >= 0) & ~self.tokens.fixed)
        left = self._frame.lengths(self.tokens.targets(followers).x - self.tokens.now.x[followers])
        live = np.ones(len(self.tokens.first), np.bool_)
        live[followers[left <= self._tie_tolerance * self.tokens.longest]] = False
        return np.flatnonzero(live)

    def _behind(self, token: int, keys: Ints) -> Bools:
        """Settled followers that cannot be in a token's set, however near their limits they are.

        The way from its limit to a follower keeps its direction. Where the direction points away from the
        query, the follower scores less than its limit, which scores at most what the best token does.
        """
        behind = (self.tokens.settled[keys] >= 0) & ~self.tokens.fixed[keys]
        if not behind.any():
            return behind
        followers = keys[behind]
        limit, start = self.tokens.targets(followers), self.tokens.start.take(followers)
        sizes = self._frame.sizes(np.abs(limit.x) + np.abs(start.x))
        error_bound = limit.error_bound + start.error_bound + UNIT * sizes
        offset = self._frame.keys(start.x - limit.x, error_bound)
        query = self.tokens.queries(np.array([token]))
        error = query.error * offset.size + query.size * offset.error
        behind[behind] = offset.x @ query.x[0] < -error
        return behind

    # --- which sets are final

    def _final(self, sets: Sets, ties: Ties, keys: Vectors) -> Bools:
        """Return which of these sets never change again: their members are fixed, and tie for their mean."""
        if len(ties.row) and not self._tie_tolerance:
            self._fix_resting(ties)
        final: Bools = (sets.size == 1) & self.tokens.fixed[sets.first] & sets.sure
        if len(ties.row):
            several = sets.size > 1
            final[several] = sets.sure[several] & self._stable(ties, keys, sets)
        return final

    def _fix_resting(self, ties: Ties) -> None:
        """Mark the tokens that are at the mean of their sets, where all members of these are fixed too."""
        rests = np.zeros(len(self.tokens.fixed), np.bool_)
        for t in self._maybe_resting(ties).tolist():
            rests[ties.row[t]] = self._history.rational.rests(int(ties.row[t]), ties.sets[t])
        while True:
            inside = np.logical_and.reduceat(
                (self.tokens.fixed | rests)[ties.member], range_starts(ties.size)
            )
            leaves = ties.row[~inside]
            if not rests[leaves].any():
                break
            rests[leaves] = False
        self.tokens.fixed |= rests

    def _maybe_resting(self, ties: Ties) -> Ints:
        """Return the sets that hold their own token, with a mean as near to it as rounding can tell."""
        own = np.logical_or.reduceat(ties.member == np.repeat(ties.row, ties.size), range_starts(ties.size))
        apart = self._frame.lengths(ties.mean - self.tokens.now.x[ties.row])
        return np.flatnonzero(own & (apart <= 2 * (ties.error_bound + self.tokens.now.error_bound[ties.row])))

    def _stable(self, ties: Ties, keys: Vectors, sets: Sets) -> Bools:
        """Which tied tokens keep their sets for ever: all members are fixed, and tie for their mean too."""
        stable: Bools = np.logical_and.reduceat(self.tokens.fixed[ties.member], range_starts(ties.size))
        if not stable.any():
            return stable
        fixed = ties.take(stable)
        one, group = fixed.sets.unique()  # many tokens may have one set

        def exactly(i: int, near: Ints) -> Ints:
            return self._history.rational.best_of_mean(fixed.sets[one[i]], near)

        of_means = self._find(
            self._frame.queries(fixed.mean[one], fixed.error_bound[one]), keys, None, exactly
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
                self.mean_sets[sets[i].tobytes()] = found[index[i]]
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
        image, ends = self._frame.image, (self.tokens.now.x[ties.row], ties.mean)
        tolerance = self._tie_tolerance * self.tokens.longest
        members = image(self.tokens.now.x[ties.member])
        ways = [image(end + self._frame.middle) for end in ends]
        shortest = _distance_to_way(*ways)
        for way, gap in zip(ways, gaps, strict=True):
            score = np.einsum("ij,ij->i", np.repeat(way, ties.size, axis=0), members)
            spread = np.maximum.reduceat(score, start) - np.minimum.reduceat(score, start)
            stays &= spread <= tolerance * shortest * (1 - 1e-9)
            stays &= gap - spread / lengths_of(way) > tolerance * (1 + 1e-9)
        return stays


def _distance_to_way(start: Floats, end: Floats) -> Floats:
    """Return the distance of the origin from each way between two points."""
    way = end - start
    square = np.maximum(np.einsum("ij,ij->i", way, way), np.finfo(np.float64).tiny)
    at = np.clip(-np.einsum("ij,ij->i", start, way) / square, 0, 1)
    return lengths_of(start + at[:, None] * way)
