"""The argmax sets of past layers, from which exact positions follow.

A position is exact because all sets that it depends on are proved.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from service.cloud.points import Cloud, Ints
from service.cloud.rational import Rational
from service.cloud.sets import Ties, range_starts

Settled = Callable[[int, int], Ints | None]  # (token, layer) -> its set, if that was final


@dataclass(frozen=True)
class PastLayer:
    """The argmax sets of a past layer, of the tokens that were not settled before it."""

    row: Ints
    first: Ints  # -1: the set is among the ties
    ties: Ties

    def equals(self, other: "PastLayer") -> bool:
        """Return whether another layer has the same argmax sets."""
        left, right = ((p.row, p.first, p.ties.row, p.ties.size, p.ties.member) for p in (self, other))
        return all(map(np.array_equal, left, right))

    def members(self, token: int) -> Ints:
        """Return the argmax set of a token."""
        first = self.first[[int(np.searchsorted(self.row, token))]]
        return first if first[0] >= 0 else self.ties.sets[int(np.searchsorted(self.ties.row, token))]


class History:
    """The sets of all past layers, and the exact arithmetic that uses them."""

    def __init__(self, cloud: Cloud, alpha: float, settled: Settled) -> None:
        self._cloud = cloud
        self._alpha = alpha
        self._settled = settled
        self._layers: list[PastLayer] = []
        self._weights: list[list[int]] = []  # of each layer's sets with several members

    @cached_property
    def rational(self) -> Rational:
        """Exact positions and argmax sets at the present layer."""
        return Rational(self._cloud, self._alpha, self._members, self._weights)

    def add(self, rows: Ints, first: Ints, ties: Ties, all_ties: Ties) -> None:
        """Add a layer, with the sets of the tokens `rows`, which were not settled before it."""
        first = first[rows]
        first[np.searchsorted(rows, ties.row)] = -1
        layer = PastLayer(rows, first, ties)
        if self._layers and self._layers[-1].equals(layer):
            layer = self._layers[-1]
        self._layers.append(layer)
        counts = self._cloud.counts[all_ties.member]
        weights = np.add.reduceat(counts, range_starts(all_ties.size)) if len(counts) else counts
        self._weights.append(np.unique(weights).tolist())

    def _members(self, token: int, layer: int) -> Ints:
        """Return the argmax set of a token at a past layer."""
        settled = self._settled(token, layer)
        return self._layers[layer].members(token) if settled is None else settled
