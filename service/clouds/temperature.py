"""The largest temperature at which softmax attention provably stays near hardmax (docs/theory.md, 6)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

NEAR = 0.01  # of the longest token: how far the two runs may be apart
SAFE = 1 - 1e-9  # room for the rounding of the bound itself
HALVINGS = 100
COLDEST = (
    2000  # gaps are so many temperatures at the least that is tried: what is outside weighs nothing there
)


@dataclass(frozen=True)
class Temperature:
    """At `t` and below, every token stays within `distance` of its hardmax run for so many layers."""

    t: float | None  # None: at any temperature
    distance: float  # in the A-norm
    layers: int


@dataclass(frozen=True)
class Gap:
    """A layer: the smallest gap of a token's best score to the best outside its set, and whether sets tie."""

    least: float  # relative to the square of the longest token; inf: nothing is outside
    tied: bool


def largest(gaps: Sequence[Gap], alpha: float, n: int) -> float | None:
    """The largest temperature for which the bound keeps n points near, relative to the longest squared.

    inf: any; None: the gaps are too small to say.
    """
    least = min(gap.least for gap in gaps)
    if math.isinf(least) or least <= 0:
        return math.inf if least > 0 else None
    high = least / (1 + sum(gap.tied for gap in gaps))
    low = least / COLDEST
    if apart(high, gaps, alpha, n) <= NEAR * SAFE:
        return high * SAFE
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        if apart(middle, gaps, alpha, n) <= NEAR * SAFE:
            low = middle
        else:
            high = middle
    return low * SAFE if apart(low, gaps, alpha, n) <= NEAR * SAFE else None


def apart(T: float, gaps: Sequence[Gap], alpha: float, n: int) -> float:
    """How far the runs may be apart after these layers, relative to the longest token."""
    distance, gamma = 0.0, alpha / (1 + alpha)
    for gap in gaps:
        left = gap.least - 4 * distance
        if left <= 0:
            return math.inf
        distance += 2 * gamma * ((n - 1) * math.exp(-left / T) + gap.tied * 4 * distance / T)
    return distance
