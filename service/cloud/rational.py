"""The cloud in exact arithmetic, for the few scores that floating point cannot tell apart.

A layer moves a token by a rational step towards a rational mean, so a position is an integer vector over one
denominator a layer. Only tokens that are asked for, and those that they have followed, are computed.

What it costs is paid piece by piece, and there is a bound to it. A product or quotient of two integers costs
what Python takes for it, by their lengths in digits, and every number a little more. Whoever pays yields now
and then, so that a caller may stop. Past the bound `Exhausted` is raised.
"""

import math
from collections.abc import Callable, Iterable
from fractions import Fraction

import numpy as np

from service.cloud.points import Cloud, Floats, Ints
from service.engine.cloud_queue import Steps

KEPT = 2**28  # bits of positions: past this, those of earlier layers are computed again if asked for
TOGETHER = 64  # scores that are paid for together
OVERHEAD = 500  # bits that keeping a number takes beside its own

Vector = list[int]
Members = Callable[[int, int], Ints]  # (token, layer) -> its argmax set
DIGIT = 30  # bits of what Python counts as a digit
KARATSUBA = 0.585  # a product of long integers takes less than the product of their lengths
NUMBER = 1000  # products of digits that a number costs, whatever its length
PIECE = 2**21  # products of digits between two yields: some milliseconds
BOUND = 2**33  # products of digits that one request may take: some ten seconds


class Exhausted(Exception):
    """The exact decision would need more than its bound; the message is for people."""


class Account:
    """What one request may still spend."""

    def __init__(self, bound: int = BOUND) -> None:
        self._bound = bound
        self._spent = self._yielded = 0.0
        self.excess: str | None = None  # what was too much: nothing more is decided exactly

    def pay(self, numbers: int, bits: int, other_bits: int) -> Steps[None]:
        """For so many products or quotients of integers of these lengths, before they are computed."""
        short, long = sorted((bits, other_bits))
        self._spent += numbers * (NUMBER + 3 * (long / DIGIT) * (short / DIGIT) ** KARATSUBA)
        if self._spent > self._bound:
            self.excess = f"the exact decision would need more than {self._bound:,} products of digits"
        if self.excess:
            raise Exhausted(self.excess)
        if self._spent > self._yielded + PIECE:
            self._yielded = self._spent
            yield


def longest(numbers: Iterable[int]) -> int:
    """The bits of the longest."""
    return max((number.bit_length() for number in numbers), default=0)


class Rational:
    """Positions and argmax sets of a cloud."""

    def __init__(
        self, cloud: Cloud, alpha: float, members: Members, weights: list[list[int]], account: Account
    ) -> None:
        form = cloud.form
        self._cloud = cloud
        self._members = members
        self._form = None if form is None else [integers(row, finest(form)) for row in form]
        self._finest = finest(cloud.points)
        step = Fraction(alpha) / (1 + Fraction(alpha))
        self._step, self._whole = step.numerator, step.denominator
        self.known: list[dict[int, Vector]] = [{}]
        self._weights = weights  # of the sets with several members, at every layer that is over
        self._account = account
        self._bits = [0]  # that the known positions of each layer take
        self._total: list[int] = []  # for each such layer a multiple of them

    def best(self, query: int, keys: Ints) -> Steps[Ints]:
        """Those of the keys with the largest score for a token, at the present layer."""
        (position,) = yield from self._positions([query])
        return (yield from self._best(position, keys))

    def best_of_mean(self, members: Ints, keys: Ints) -> Steps[Ints]:
        """Those of the keys with the largest score for the mean of some tokens."""
        positions = yield from self._positions(members.tolist())
        yield from self._account.pay(len(positions) * len(positions[0]), longest(positions[0]), 64)
        return (yield from self._best(_combine(self._cloud.counts[members].tolist(), positions), keys))

    def _best(self, query: Vector, keys: Ints) -> Steps[Ints]:
        image = query if self._form is None else [dot(row, query) for row in self._form]
        bits, scores = longest(image), []
        positions = yield from self._positions(keys.tolist())
        for start in range(0, len(positions), TOGETHER):
            some = positions[start : start + TOGETHER]
            yield from self._account.pay(len(some) * len(image), bits, bits)
            scores += [dot(image, key) for key in some]
        largest = max(scores)
        return keys[[score == largest for score in scores]]

    def _positions(self, tokens: list[int]) -> Steps[list[Vector]]:
        """Where tokens are at the present layer, over that layer's denominator."""
        for weights in self._weights[len(self._total) :]:
            self._total.append(math.lcm(*weights))
            self.known.append({})
            self._bits.append(0)
        now = len(self._total)
        wanted = [{i for i in tokens if i not in self.known[now]}]
        for layer in range(now - 1, -1, -1):  # whom those followed, down to the start
            if not wanted[-1]:
                break
            before = {j for i in wanted[-1] for j in self._members(i, layer).tolist()} | wanted[-1]
            wanted.append({i for i in before if i not in self.known[layer]})
            yield from self._account.pay(len(before), 0, 0)
        for layer, missing in enumerate(reversed(wanted), now + 1 - len(wanted)):
            for i in missing:
                if layer == 0:
                    found = integers(self._cloud.points[i], self._finest)
                else:
                    found = yield from self._moved(i, layer - 1)
                self.known[layer][i] = found
                self._bits[layer] += len(found) * (OVERHEAD + longest(found))
            if sum(self._bits) > KEPT:
                for earlier in range(layer - 1):
                    self.known[earlier], self._bits[earlier] = {}, 0
        return [self.known[now][i] for i in tokens]

    def _moved(self, i: int, layer: int) -> Steps[Vector]:
        """z + gamma (c - z), times the growth of the denominator."""
        members = self._members(i, layer)
        weights = self._cloud.counts[members].tolist()
        positions = self.known[layer]
        if len(weights) == 1:
            weights = [1]
        share = self._total[layer] // sum(weights)
        stay = (self._whole - self._step) * self._total[layer]
        bits = longest(positions[i])
        yield from self._account.pay((len(weights) + 2) * len(positions[i]), bits, stay.bit_length())
        total = _combine(weights, [positions[j] for j in members.tolist()])
        return _combine([stay, self._step * share], [positions[i], total])


def _combine(weights: list[int], vectors: list[Vector]) -> Vector:
    return [dot(weights, column) for column in zip(*vectors, strict=True)]


def dot(x: Iterable[int], y: Iterable[int]) -> int:
    return sum(a * b for a, b in zip(x, y, strict=True))


def finest(numbers: Floats) -> int:
    """An exponent e such that every number is a whole multiple of 2^-e."""
    return 53 - int(np.frexp(numbers[numbers != 0])[1].min(initial=2000))


def integers(numbers: Floats, finest: int) -> Vector:
    """Numbers as multiples of 2^-finest, exactly."""
    mantissa, exponent = np.frexp(numbers)
    whole = np.ldexp(mantissa, 53).astype(np.int64)
    shift = np.where(mantissa == 0, 0, exponent + (finest - 53))
    return [w << s for w, s in zip(whole.tolist(), shift.tolist(), strict=True)]
