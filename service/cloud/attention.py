"""Hard attention: the argmax sets of the tokens of a cloud, and which of them are final.

    tokens = Tokens(cloud, alpha)
    attention = Attention(session, tokens)
    attention.attend()
    tokens.step()

The tie rule: candidates are pairs (query, key), among them every member (candidates.py). Floating point
scores, with their error bounds, exclude most other pairs, and exact arithmetic decides the rest.

A set is final once it is proved never to change again (theory.md, section 3), and is then not searched
for again. The cloud is certified when the sets of all tokens are final.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from service.cloud.candidates import find_candidates
from service.cloud.coordinates import Vectors, slack_of
from service.cloud.points import UNIT, Bools, Floats, Ints
from service.cloud.rational import History
from service.cloud.sets import NUMBERS_AT_ONCE, ArgmaxSetBuilder, Pairs, Ragged, Sets, Ties, range_starts
from service.cloud.tokens import Tokens
from service.runtime.session import Session

ExactDecision = Callable[[int, Ints], Ints]  # (query, keys in doubt) -> the members


class Attention:
    """Finds the argmax sets of the tokens of each layer, the leaders, and which sets are final."""

    def __init__(self, session: Session, tokens: Tokens) -> None:
        self.session = session
        self.tokens = tokens
        self._frame = tokens.frame
        self._history = History(tokens.cloud, tokens.alpha, tokens.settled_set)

    def attend(self) -> None:
        """Find the argmax sets of this layer, the leaders, and which sets are final."""
        tokens = self.tokens
        rows = np.flatnonzero(tokens.settled < 0)
        keys = tokens.keys()
        sets = self._sets_of_tokens(rows, keys)
        tokens.first[rows] = sets.first
        leaders = rows[(sets.size == 1) & (sets.first == rows)]
        tokens.leader_since[leaders], tokens.fixed[leaders] = tokens.layer, True
        ties = tokens.mean_of_ties(rows, sets)
        final = self._find_final(sets, ties, keys)
        tokens.ties = tokens.ties.take(tokens.settled[tokens.ties.row] >= 0).join(ties)
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
        if self._frame.middle.any():
            own_key = None
        decision = Decision(queries, keys, decide)
        builder = ArgmaxSetBuilder(len(queries.x))
        for rows, pairs in find_candidates(self.session, queries, keys, slack_of(queries, keys), own_key):
            builder.add(rows, decision.sets(rows, pairs))
        return builder.build()

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
        if len(ties.row):
            self._fix_stationary(ties)
        final: Bools = (sets.size == 1) & self.tokens.fixed[sets.first]
        if len(ties.row):
            final[sets.size > 1] = self._find_stable(ties, keys)
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

    def _find_stable(self, ties: Ties, keys: Vectors) -> Bools:
        """Return which tied tokens keep their sets for ever: the members are fixed, and tie for the mean."""
        stable: Bools = np.logical_and.reduceat(self.tokens.fixed[ties.member], range_starts(ties.size))
        if not stable.any():
            return stable
        fixed = ties.take(stable)
        distinct, group = fixed.sets.unique()  # many tokens may have the same set
        of_means = self._find_sets_of_means(fixed, distinct, keys).ragged()
        mean_ties = [np.isin(*pair).all() for pair in zip(fixed.sets.take(distinct), of_means, strict=True)]
        stable[stable] = np.array(mean_ties)[group]
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


@dataclass(frozen=True)
class Decision:
    """The queries and keys of a layer, and the rule that decides which pairs are in an argmax set."""

    queries: Vectors
    keys: Vectors
    decide_exactly: ExactDecision

    def sets(self, rows: Ints, pairs: Pairs) -> Sets:
        """Return the argmax sets of the queries `rows`, from their candidates."""
        if len(pairs.key) == len(rows):
            size = np.ones(len(rows), np.int64)
            return Sets(pairs.key, size, size[:0], size[:0])
        start = np.searchsorted(pairs.query, np.arange(len(rows)))
        score = scores(self.queries, self.keys, rows[pairs.query], pairs.key)
        member = self._members(rows, pairs, start, score)
        size = np.add.reduceat(member.astype(np.int64), start)
        row, key = pairs.query[member], pairs.key[member]
        first = np.minimum.reduceat(key, range_starts(size))
        tied = size[row] > 1
        return Sets(first, size, row[tied], key[tied])

    def _members(self, rows: Ints, pairs: Pairs, start: Ints, score: Floats) -> Bools:
        """Return which pairs hold a member; those in doubt are computed exactly."""
        query = rows[pairs.query]
        error = self.queries.error[query] * self.keys.size[pairs.key]
        error += self.queries.size[query] * self.keys.error[pairs.key]
        member: Bools = score + error >= np.maximum.reduceat(score - error, start)[pairs.query]
        size = np.add.reduceat(member.astype(np.int64), start)
        end = np.append(start[1:], len(member))
        for i in np.flatnonzero(size > 1).tolist():
            part = slice(start[i], end[i])
            exact = self.decide_exactly(int(rows[i]), pairs.key[part][member[part]])
            member[part] = np.isin(pairs.key[part], exact)
        return member


def scores(queries: Vectors, keys: Vectors, query: Ints, key: Ints) -> Floats:
    """Return the inner products of pairs, block by block."""
    products, size = np.empty(len(key)), max(1, NUMBERS_AT_ONCE // keys.x.shape[1])
    for start in range(0, len(key), size):
        part = slice(start, start + size)
        products[part] = np.einsum("ij,ij->i", queries.x[query[part]], keys.x[key[part]])
    return products
