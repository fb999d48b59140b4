"""The layers that are over: their argmax sets, and what exact arithmetic decides by them.

A position is exact because all sets that led to it are proved. Where proving one would cost too much the
history is closed for good.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from service.cloud.points import Cloud, Ints
from service.cloud.rational import Account, Exhausted, Rational
from service.cloud.sets import Ties, starts
from service.engine.cloud_queue import Steps

KEPT = 2**28  # bytes of sets of earlier layers

Settled = Callable[[int, int], Ints | None]  # (token, layer) -> its set, if that was final by then


@dataclass(frozen=True)
class Passed:
    """The argmax sets of a layer that is over, of the tokens that were not settled before it."""

    row: Ints
    first: Ints  # -1: it is among the ties
    ties: Ties

    def equals(self, other: "Passed") -> bool:
        mine, others = ((p.row, p.first, p.ties.row, p.ties.size, p.ties.member) for p in (self, other))
        return all(map(np.array_equal, mine, others))

    def members(self, token: int) -> Ints:
        first = self.first[[int(np.searchsorted(self.row, token))]]
        return first if first[0] >= 0 else self.ties.sets[int(np.searchsorted(self.ties.row, token))]


class History:
    """What exact arithmetic asks of the layers that are over, and its answers."""

    def __init__(self, cloud: Cloud, alpha: float, settled: Settled) -> None:
        self.account = Account()
        self.rational: Rational | None = None
        self._cloud = cloud
        self._alpha = alpha
        self._settled = settled
        self._open = True
        self._layers: list[Passed] = []
        self._bytes = 0  # that these take
        self._weights: list[list[int]] = []  # of each layer's sets with several members

    def add(self, rows: Ints, first: Ints, ties: Ties, all_ties: Ties) -> None:
        """A layer is over, at which the tokens `rows` were not settled and had these sets."""
        if not self._open:
            return
        first = first[rows]
        first[np.searchsorted(rows, ties.row)] = -1
        layer = Passed(rows, first, ties)
        if self._layers and self._layers[-1].equals(layer):
            layer = self._layers[-1]
        else:
            self._bytes += rows.nbytes + first.nbytes + ties.member.nbytes + ties.mean.nbytes
        self._layers.append(layer)
        counts = self._cloud.counts[all_ties.member]
        weights = np.add.reduceat(counts, starts(all_ties.size)) if len(counts) else counts
        self._weights.append(np.unique(weights).tolist())
        if self._bytes > KEPT:
            self.account.excess = f"the sets of earlier layers would take more than {KEPT >> 20} MiB"
            self._close()

    def ask(self, question: Callable[[Rational], Steps[Ints]]) -> Steps[Ints | None]:
        """What exact arithmetic says of the layer after those that are over; None: it cannot."""
        if not self._open:
            return None
        self.rational = self.rational or Rational(
            self._cloud, self._alpha, self._members, self._weights, self.account
        )
        try:
            return (yield from question(self.rational))
        except Exhausted:
            self._close()
            return None

    def _members(self, token: int, layer: int) -> Ints:
        """The argmax set of a token at a layer that is over."""
        settled = self._settled(token, layer)
        return self._layers[layer].members(token) if settled is None else settled

    def _close(self) -> None:
        self._open, self.rational, self._layers = False, None, []
