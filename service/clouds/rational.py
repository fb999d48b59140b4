"""The cloud in exact arithmetic, for the few scores that floating point cannot tell apart.

A layer moves a token by a rational step towards a rational mean, so a position is an integer vector over one
denominator a layer. Only tokens that are asked for, and those that they have followed, are computed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from fractions import Fraction

import numpy as np

from service.clouds.points import Floats, Ints

Vector = list[int]
Members = Callable[[int, int], Ints]  # (token, layer) -> its argmax set


class Rational:
    """Positions and argmax sets of the cloud that starts at `points`."""

    def __init__(
        self,
        points: Floats,
        form: Floats | None,
        alpha: float,
        counts: Ints,
        members: Members,
        weights: list[list[int]],
    ) -> None:
        self._points = points
        self._counts = counts
        self._members = members
        self._form = None if form is None else [_integers(row, _finest(form)) for row in form]
        self._finest = _finest(points)
        step = Fraction(alpha) / (1 + Fraction(alpha))
        self._step, self._whole = step.numerator, step.denominator
        self._known: list[dict[int, Vector]] = [{}]
        self._weights = weights  # of the sets with several members, at every layer that is over
        self._total: list[int] = []  # for each such layer a multiple of them

    def best(self, query: int, keys: Ints) -> Ints:
        """Those of the keys with the largest score for a token, at the present layer."""
        return self._best(self._positions([query])[0], keys)

    def best_of_mean(self, members: Ints, keys: Ints) -> Ints:
        """Those of the keys with the largest score for the mean of some tokens."""
        positions = self._positions(members.tolist())
        weights = self._counts[members].tolist()
        return self._best(_combine(weights, positions), keys)

    def _best(self, query: Vector, keys: Ints) -> Ints:
        image = query if self._form is None else [_dot(row, query) for row in self._form]
        scores = [_dot(image, key) for key in self._positions(keys.tolist())]
        largest = max(scores)
        return keys[[score == largest for score in scores]]

    def _positions(self, tokens: list[int]) -> list[Vector]:
        """Where tokens are at the present layer, over that layer's denominator."""
        for weights in self._weights[len(self._total) :]:
            self._total.append(math.lcm(*weights))
            self._known.append({})
        now = len(self._total)
        wanted = [set(tokens) - self._known[now].keys()]
        for layer in range(now - 1, -1, -1):  # whom those followed, down to the start
            before = {j for i in wanted[-1] for j in self._members(i, layer).tolist()} | wanted[-1]
            wanted.append(before - self._known[layer].keys())
        for layer, missing in enumerate(reversed(wanted)):
            for i in missing:
                self._known[layer][i] = self._start(i) if layer == 0 else self._moved(i, layer - 1)
        return [self._known[now][i] for i in tokens]

    def _start(self, i: int) -> Vector:
        return _integers(self._points[i], self._finest)

    def _moved(self, i: int, layer: int) -> Vector:
        """z + gamma (c - z), times the growth of the denominator."""
        members = self._members(i, layer)
        weights = self._counts[members].tolist()
        positions = self._known[layer]
        if len(weights) == 1:
            weights = [1]
        share = self._total[layer] // sum(weights)
        total = _combine(weights, [positions[j] for j in members.tolist()])
        stay = (self._whole - self._step) * self._total[layer]
        return _combine([stay, self._step * share], [positions[i], total])


def _combine(weights: list[int], vectors: list[Vector]) -> Vector:
    return [_dot(weights, column) for column in zip(*vectors, strict=True)]


def _dot(x: Iterable[int], y: Iterable[int]) -> int:
    return sum(a * b for a, b in zip(x, y, strict=True))


def _finest(numbers: Floats) -> int:
    """An exponent e such that every number is a whole multiple of 2^-e."""
    return 53 - int(np.frexp(numbers[numbers != 0])[1].min())


def _integers(numbers: Floats, finest: int) -> Vector:
    """Numbers as multiples of 2^-finest, exactly."""
    return [int(Fraction(number) * (Fraction(2) ** finest)) for number in numbers.tolist()]
