"""Hard attention: the argmax sets of the tokens of a cloud, and which of them are final.

    tokens = Tokens(cloud, alpha)
    attention = Attention(session, tokens, tie_tolerance)
    attention.attend()
    tokens.step()

A set is final once it is proved never to change again (theory.md, section 3), and is then not searched
for again. The cloud is certified when the sets of all tokens are final.
"""

import numpy as np

from service.cloud.candidates import find_candidates
from service.cloud.coordinates import Vectors, lengths_of, slack_of
from service.cloud.decision import Decision, ExactDecision
from service.cloud.history import History
from service.cloud.points import UNIT, Bools, Floats, Ints
from service.cloud.sets import ArgmaxSetBuilder, Ragged, Sets, Ties, range_starts
from service.cloud.tokens import Tokens
from service.runtime.session import Session


class Attention:
    """Finds the argmax sets of the tokens of each layer, the leaders, and which sets are final."""

    def __init__(self, session: Session, tokens: Tokens, tie_tolerance: float) -> None:
        self.session = session
        self.tokens = tokens
        self._frame = tokens.frame
        self._tie_tolerance = tie_tolerance
        self._history = History(tokens.cloud, tokens.alpha, tokens.settled_set)

    def attend(self) -> None:
        """Find the argmax sets of this layer, the leaders, and which sets are final."""
        tokens = self.tokens
        rows = np.flatnonzero(tokens.settled < 0)
        keys = tokens.keys()
        sets = self._sets_of_tokens(rows, keys)
        tokens.first[rows] = sets.first
        leaders = rows[sets.proved & (sets.size == 1) & (sets.first == rows)]
        tokens.leader_since[leaders], tokens.fixed[leaders] = tokens.layer, True
        ties = tokens.mean_of_ties(rows, sets)
        final = self._find_final(sets, ties, keys)
        tokens.ties = tokens.ties.take(tokens.settled[tokens.ties.row] >= 0).join(ties)
        if not self._tie_tolerance:
            self._history.add(rows, tokens.first, ties, tokens.ties)
        tokens.measure(rows, final)
        tokens.settled[rows[final]] = tokens.layer

    # --- argmax sets

    def _sets_of_tokens(self, rows: Ints, keys: Vectors) -> Sets:
        def decide(i: int, candidates: Ints) -> Ints:
            token = int(rows[i])
            return self._history.rational.best_keys(token, candidates[~self._behind(token, candidates)])

        return self._find(self.tokens.queries(rows), keys, rows, decide)

    def _find(self, queries: Vectors, keys: Vectors, own_key: Ints | None, decide: ExactDecision) -> Sets:
        """Return the argmax sets of queries. own_key [q]: the index of a query among the keys, if any."""
        tie = self._tie_tolerance * self.tokens.longest * lengths_of(queries.x)
        slack = slack_of(queries, keys)
        live = self._live_tokens()
        if live is not None or self._frame.middle.any():
            own_key = None
        live_keys = keys if live is None else keys.take(live)
        decision = Decision(queries, keys, slack, tie if self._tie_tolerance else None, decide)
        builder = ArgmaxSetBuilder(len(queries.x))
        for rows, pairs in find_candidates(self.session, queries, live_keys, slack + 2 * tie, own_key):
            builder.add(rows, decision.sets(rows, pairs if live is None else pairs.relabel(live)))
        return builder.build()

    def _live_tokens(self) -> Ints | None:
        """Return the tokens that are keys: with a tie tolerance, without followers near to their limits."""
        if not self._tie_tolerance:
            return None
        followers = np.flatnonzero((self.tokens.settled >= 0) & ~self.tokens.fixed)
        distance = self._frame.lengths(self.tokens.targets(followers).x - self.tokens.now.x[followers])
        live = np.ones(len(self.tokens.first), np.bool_)
        live[followers[distance <= self._tie_tolerance * self.tokens.longest]] = False
        return np.flatnonzero(live)

    def _behind(self, token: int, keys: Ints) -> Bools:
        """Return the settled followers that cannot be in a token's set, however near their limits they are.

        The direction from its limit to a follower does not change. Where it points away from the query, the
        follower scores less than its limit, which scores no more than the best token.
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

    def _find_final(self, sets: Sets, ties: Ties, keys: Vectors) -> Bools:
        """Return which of these sets never change again: their members are fixed, and tie for their mean."""
        if len(ties.row) and not self._tie_tolerance:
            self._fix_stationary(ties)
        final: Bools = (sets.size == 1) & self.tokens.fixed[sets.first] & sets.proved
        if len(ties.row):
            tied = sets.size > 1
            final[tied] = sets.proved[tied] & self._find_stable(ties, keys, sets)
        return final

    def _fix_stationary(self, ties: Ties) -> None:
        """Mark the tokens that are at the mean of their sets, if all members of these are fixed too."""
        stationary = np.zeros(len(self.tokens.fixed), np.bool_)
        for t in self._find_near_mean(ties).tolist():
            stationary[ties.row[t]] = self._history.rational.is_at_mean(int(ties.row[t]), ties.sets[t])
        while True:
            inside = np.logical_and.reduceat(
                (self.tokens.fixed | stationary)[ties.member], range_starts(ties.size)
            )
            moving = ties.row[~inside]
            if not stationary[moving].any():
                break
            stationary[moving] = False
        self.tokens.fixed |= stationary

    def _find_near_mean(self, ties: Ties) -> Ints:
        """Return the sets that hold their own token, which rounding cannot tell from their mean."""
        tokens, starts = self.tokens.now.take(ties.row), range_starts(ties.size)
        holds_token = np.logical_or.reduceat(ties.member == np.repeat(ties.row, ties.size), starts)
        distance = self._frame.lengths(ties.mean - tokens.x)
        return np.flatnonzero(holds_token & (distance <= 2 * (ties.error_bound + tokens.error_bound)))

    def _find_stable(self, ties: Ties, keys: Vectors, sets: Sets) -> Bools:
        """Return which tied tokens keep their sets for ever: the members are fixed, and tie for the mean."""
        stable: Bools = np.logical_and.reduceat(self.tokens.fixed[ties.member], range_starts(ties.size))
        if not stable.any():
            return stable
        fixed = ties.take(stable)
        distinct, group = fixed.sets.unique()  # many tokens may have the same set
        of_means = self._find_sets_of_means(fixed, distinct, keys)
        mean_ties = self._tie_for_means(fixed.sets.take(distinct), of_means)
        gaps = sets.gap[sets.size > 1][stable], of_means.gap[group]
        stable[stable] = mean_ties[group] & self._stays_tied(fixed, gaps)
        return stable

    def sets_of_means(self) -> Ragged:
        """Return the argmax set, at this layer, of the mean of every tie."""
        ties = self.tokens.ties
        if not len(ties.row):
            return ties.sets
        distinct, group = ties.sets.unique()
        return self._find_sets_of_means(ties, distinct, self.tokens.keys()).ragged().take(group)

    def _find_sets_of_means(self, ties: Ties, distinct: Ints, keys: Vectors) -> Sets:
        """Find the argmax sets of the means of these ties."""

        def decide(i: int, candidates: Ints) -> Ints:
            return self._history.rational.best_keys_of_mean(ties.sets[distinct[i]], candidates)

        means = self._frame.queries(ties.mean[distinct], ties.error_bound[distinct])
        return self._find(means, keys, None, decide)

    def _tie_for_means(self, sets: Ragged, of_means: Sets) -> Bools:
        """Return whether all members of a set tie for its mean; with a tie tolerance, and no others."""
        tied_sets = Ragged(of_means.member, of_means.size[of_means.size > 1])
        index = np.cumsum(of_means.size > 1) - 1  # of a set in `tied_sets`
        tie: Bools = of_means.proved & (of_means.size >= sets.lengths)
        for i in np.flatnonzero(tie).tolist():
            larger = of_means.size[i] > sets.lengths[i]
            tie[i] = np.isin(sets[i], tied_sets[index[i]]).all() and not (larger and self._tie_tolerance)
        return tie

    def _stays_tied(self, ties: Ties, gaps: tuple[Floats, Floats]) -> Bools:
        """Return whether scores tie on the whole segment from each token to the mean of its set.

        Scores are linear on the segment. So members tie on all of it if at both ends they differ by no more
        than the tolerance allows at its shortest point, and other tokens stay outside if at both ends they
        score less than every member. `gaps` are those of the tokens and of the means.
        """
        stays = np.ones(len(ties.row), np.bool_)
        if not self._tie_tolerance:
            return stays
        start = range_starts(ties.size)
        image, segment = self._frame.image, (self.tokens.now.x[ties.row], ties.mean)
        tolerance = self._tie_tolerance * self.tokens.longest
        members = image(self.tokens.now.x[ties.member])
        ends = [image(end + self._frame.middle) for end in segment]
        min_length = _distance_to_segment(*ends)
        for end, gap in zip(ends, gaps, strict=True):
            score = np.einsum("ij,ij->i", np.repeat(end, ties.size, axis=0), members)
            spread = np.maximum.reduceat(score, start) - np.minimum.reduceat(score, start)
            stays &= spread <= tolerance * min_length * (1 - 1e-9)
            stays &= gap - spread / lengths_of(end) > tolerance * (1 + 1e-9)
        return stays


def _distance_to_segment(start: Floats, end: Floats) -> Floats:
    """Return the distance of the origin from each segment between two points."""
    segment = end - start
    square = np.maximum(np.einsum("ij,ij->i", segment, segment), np.finfo(np.float64).tiny)
    share = np.clip(-np.einsum("ij,ij->i", start, segment) / square, 0, 1)
    return lengths_of(start + share[:, None] * segment)
