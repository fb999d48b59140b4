"""Hardmax attention twice more, in the plainest words: numpy for what graphs must match, fractions for truth.

Nothing here is fast, and nothing here shares a line with what it checks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Sets = list[frozenset[int]]


def argmax_sets(Z: Floats, A: Floats | None = None, tau: float = 0.0, queries: Floats | None = None) -> Bools:
    """C [q,n]: whether j is in C_i."""
    A = np.eye(Z.shape[1]) if A is None else A
    Q = Z if queries is None else queries
    scores = Q @ A @ Z.T
    slack = tau * norms(Q, A)[:, None] * norms(Z, A).max()
    return scores >= scores.max(axis=1, keepdims=True) - slack


def norms(Z: Floats, A: Floats | None = None) -> Floats:
    return np.sqrt(np.einsum("ij,jk,ik->i", Z, np.eye(Z.shape[1]) if A is None else A, Z))


def means(C: Bools, Z: Floats, weights: Floats | None = None) -> Floats:
    """c_i, the weighted mean over C_i, in shares so that one member gives itself to the bit."""
    shares = C * (np.ones(len(Z)) if weights is None else weights)
    return (shares / shares.sum(axis=1, keepdims=True)) @ Z


def layer(
    Z: Floats, alpha: float, A: Floats | None = None, tau: float = 0.0, weights: Floats | None = None
) -> Floats:
    return Z + alpha / (1 + alpha) * (means(argmax_sets(Z, A, tau), Z, weights) - Z)


def margin(Z: Floats, C: Bools, A: Floats | None = None) -> float:
    """The smallest relative distance from a best score to the best outside the set."""
    A = np.eye(Z.shape[1]) if A is None else A
    scores = Z @ A @ Z.T
    gap = scores.max(axis=1) - np.where(C, -np.inf, scores).max(axis=1)
    return float((gap / (norms(Z, A) * norms(Z, A).max())).min())


@dataclass(frozen=True)
class Exact:
    """What exact arithmetic says of a cloud."""

    certified_layer: int | None
    sets: Sets  # at the last layer
    targets: list[tuple[Fraction, ...]]
    since: list[int]  # first layer with C_i = {i}, or -1


def run_exactly(points: Sequence[Sequence[int]], alpha: Fraction, layers: int) -> Exact:
    """Distinct integer points under A = I, in fractions, until the certificate holds or `layers` are over."""
    Z = [tuple(map(Fraction, point)) for point in points]
    since = [-1] * len(Z)
    gamma = alpha / (1 + alpha)
    for k in range(layers + 1):
        sets = [_best(z, Z) for z in Z]
        for i, members in enumerate(sets):
            if members == {i} and since[i] < 0:
                since[i] = k
        targets = [_mean([Z[j] for j in members]) for members in sets]
        settled = all(sets[j] == {j} for members in sets for j in members)
        if settled and all(_best(c, Z) == members for c, members in zip(targets, sets, strict=True)):
            return Exact(k, sets, targets, since)
        Z = [
            tuple(a + gamma * (b - a) for a, b in zip(z, c, strict=True))
            for z, c in zip(Z, targets, strict=True)
        ]
    return Exact(None, sets, targets, since)


def _best(query: tuple[Fraction, ...], Z: list[tuple[Fraction, ...]]) -> frozenset[int]:
    scores = [sum(a * b for a, b in zip(query, z, strict=True)) for z in Z]
    return frozenset(j for j, score in enumerate(scores) if score == max(scores))


def _mean(points: list[tuple[Fraction, ...]]) -> tuple[Fraction, ...]:
    return tuple(sum(column, Fraction(0)) / len(points) for column in zip(*points, strict=True))
