"""The cloud in exact arithmetic, for the few scores that floating point cannot separate.

A layer moves a token by a rational step towards a rational mean, so a position is an integer vector over one
denominator per layer. Only tokens in doubt, and the tokens that they followed, are computed, from the argmax
sets of past layers: a position is exact because all sets that it depends on are proved.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from service.cloud.points import Cloud, Floats, Ints
from service.cloud.sets import Ties, range_starts

MAX_CACHED_BITS = 2**28  # of positions: beyond it, those of earlier layers are dropped
NUMBER_BITS = 500  # overhead of a stored number

Vector = list[int]
Members = Callable[[int, int], Ints]  # (token, layer) -> its argmax set
Settled = Callable[[int, int], Ints | None]  # (token, layer) -> its set, if that was final


class Rational:
    """Positions and argmax sets of a cloud.

    `weights` holds, for every past layer, the weights of its sets with several members; it may grow.
    """

    def __init__(self, cloud: Cloud, alpha: float, members: Members, weights: list[list[int]]) -> None:
        form = cloud.form
        self._cloud = cloud
        self._members = members
        self._form = None if form is None else [to_multiples(row, finest_exponent(form)) for row in form]
        self._finest = finest_exponent(cloud.points)
        gamma = Fraction(alpha) / (1 + Fraction(alpha))
        self._numerator, self._denominator = gamma.numerator, gamma.denominator
        self._weights = weights
        self.positions: list[dict[int, Vector]] = [{}]  # of every layer, the computed ones
        self._bits = 0  # of all these positions
        self._common: list[int] = []  # for every layer a common multiple of the weights of its sets

    def best_keys(self, query: int, keys: Ints) -> Ints:
        """Return the keys with the largest score for a token, at the present layer."""
        return self._best(self._at_present([query])[0], keys)

    def best_keys_of_mean(self, members: Ints, keys: Ints) -> Ints:
        """Return the keys with the largest score for the mean of some tokens."""
        return self._best(self._sum(members), keys)

    def is_at_mean(self, token: int, members: Ints) -> bool:
        """Return whether a token is at the mean of some tokens."""
        weight = int(self._cloud.counts[members].sum())
        return [weight * x for x in self._at_present([token])[0]] == self._sum(members)

    def _sum(self, members: Ints) -> Vector:
        """Return the weighted sum of tokens."""
        return _combine(self._cloud.counts[members].tolist(), self._at_present(members.tolist()))

    def _best(self, query: Vector, keys: Ints) -> Ints:
        image = query if self._form is None else [dot(row, query) for row in self._form]
        scores = [dot(image, key) for key in self._at_present(keys.tolist())]
        largest = max(scores)
        return keys[[score == largest for score in scores]]

    def _at_present(self, tokens: list[int]) -> list[Vector]:
        """Return the positions of tokens at the present layer, over that layer's denominator."""
        for weights in self._weights[len(self._common) :]:
            self._common.append(math.lcm(*weights))
            self.positions.append({})
        present = len(self._common)
        for layer, missing in self._missing(tokens, present):
            for i in missing:
                position = self.positions[layer][i] = self._position(i, layer)
                self._bits += sum(NUMBER_BITS + number.bit_length() for number in position)
            if self._bits > MAX_CACHED_BITS:
                self._drop(layer - 1)
        return [self.positions[present][i] for i in tokens]

    def _missing(self, tokens: list[int], present: int) -> list[tuple[int, set[int]]]:
        """Return (layer, tokens) whose positions are needed to compute these, earliest layer first."""
        missing = {i for i in tokens if i not in self.positions[present]}
        layers = [(present, missing)]
        for layer in range(present - 1, -1, -1):
            if not missing:
                break
            needed = {j for i in missing for j in self._members(i, layer).tolist()} | missing
            missing = {i for i in needed if i not in self.positions[layer]}
            layers.append((layer, missing))
        return layers[::-1]

    def _drop(self, end: int) -> None:
        for positions in self.positions[: max(0, end)]:
            positions.clear()
        numbers = (number for layer in self.positions for vector in layer.values() for number in vector)
        self._bits = sum(NUMBER_BITS + number.bit_length() for number in numbers)

    def _position(self, i: int, layer: int) -> Vector:
        """Return z + gamma (c - z) of the previous layer, times the growth of the denominator."""
        if layer == 0:
            return to_multiples(self._cloud.points[i], self._finest)
        members = self._members(i, layer - 1)
        weights = [1] if len(members) == 1 else self._cloud.counts[members].tolist()
        previous, common = self.positions[layer - 1], self._common[layer - 1]
        total = _combine(weights, [previous[j] for j in members.tolist()])
        own_weight = (self._denominator - self._numerator) * common
        return _combine([own_weight, self._numerator * (common // sum(weights))], [previous[i], total])


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


def _combine(weights: list[int], vectors: list[Vector]) -> Vector:
    return [dot(weights, column) for column in zip(*vectors, strict=True)]


def dot(x: Iterable[int], y: Iterable[int]) -> int:
    """Return the inner product of two integer vectors."""
    return sum(a * b for a, b in zip(x, y, strict=True))


def max_bits(numbers: Iterable[int]) -> int:
    """Return the number of bits of the longest number."""
    return max((number.bit_length() for number in numbers), default=0)


def finest_exponent(numbers: Floats) -> int:
    """Return an exponent e such that every number is an integer multiple of 2^-e."""
    return 53 - int(np.frexp(numbers[numbers != 0])[1].min(initial=2000))


def to_multiples(numbers: Floats, finest: int) -> Vector:
    """Return the numbers as multiples of 2^-finest, exactly."""
    mantissa, exponent = np.frexp(numbers)
    integers = np.ldexp(mantissa, 53).astype(np.int64)
    shift = np.where(mantissa == 0, 0, exponent + (finest - 53))
    return [n << s for n, s in zip(integers.tolist(), shift.tolist(), strict=True)]
