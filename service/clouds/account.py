"""The account of exact work: what it costs is paid piece by piece, and there is a bound to it.

A product or quotient of two integers costs what Python takes for it, by their lengths in digits, and every
number a little more. Whoever pays yields now and then, so that a caller may stop. Past the bound `Exhausted`
is raised.
"""

from __future__ import annotations

from collections.abc import Iterable

from service.engine.cloud_queue import Steps

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
        self.excess: str | None = None  # what was too much

    def pay(self, numbers: int, bits: int, other_bits: int) -> Steps[None]:
        """For so many products or quotients of integers of these lengths, before they are computed."""
        short, long = sorted((bits, other_bits))
        self._spent += numbers * (NUMBER + 3 * (long / DIGIT) * (short / DIGIT) ** KARATSUBA)
        if self._spent > self._bound:
            self.close(f"the exact decision would need more than {self._bound:,} products of digits")
        if self.excess:
            raise Exhausted(self.excess)
        if self._spent > self._yielded + PIECE:
            self._yielded = self._spent
            yield

    def close(self, excess: str) -> None:
        """Nothing more is decided exactly, because of this."""
        self.excess = excess


def longest(numbers: Iterable[int]) -> int:
    """The bits of the longest."""
    return max((number.bit_length() for number in numbers), default=0)
