"""The definition of the dynamics, in the symbols of the paper. Graphs, tests and figures must agree with it.

Arrays hold floats, or fractions (`to_fractions`), for which every line below is exact. Rows of Z are distinct
tokens, w is the multiplicity of each, A is the form (None: the identity), tau the tie tolerance. The code is
written to be read, not to be fast.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = Any  # of floats or of fractions


def to_fractions(numbers: Any) -> Array:
    """Return the same numbers as fractions."""
    array = np.asarray(numbers)
    return np.array([Fraction(x) for x in array.ravel().tolist()], object).reshape(array.shape)


def scores(Q: Array, Z: Array, A: Array | None = None) -> Array:
    """Return <A q_i, z_j>."""
    return Q @ Z.T if A is None else Q @ A @ Z.T


def norms(Z: Array, A: Array | None = None) -> Array:
    """Return |z_i|_A, in floats."""
    Z, A = Z.astype(float), None if A is None else A.astype(float)
    return np.sqrt(np.einsum("ij,ij->i", Z if A is None else Z @ A, Z))


def argmax_sets(Z: Array, A: Array | None = None, tau: float = 0, queries: Array | None = None) -> Array:
    """Return C_i = {j : <A z_i, z_j> >= max_l <A z_i, z_l> - tau |z_i|_A max_l |z_l|_A}  ->  bool [q,n]"""
    Q = Z if queries is None else queries
    S = scores(Q, Z, A)
    slack = tau * norms(Q, A)[:, None] * norms(Z, A).max() if tau else 0
    return (S.max(axis=1, keepdims=True) - slack <= S).astype(bool)


def means(C: Array, Z: Array, w: Array | None = None) -> Array:
    """Return c_i, the weighted mean over C_i. The mean of a single token is that token, to the bit."""
    shares = np.where(C, 1 if w is None else w, 0 * Z[0, 0])
    return (shares / shares.sum(axis=1, keepdims=True)) @ Z


def step(Z: Array, c: Array, alpha: Any) -> Array:
    """Return z + gamma (c - z), gamma = alpha / (1 + alpha)."""
    return Z + alpha / (1 + alpha) * (c - Z)


def layer(Z: Array, alpha: Any, A: Array | None = None, tau: float = 0, w: Array | None = None) -> Array:
    """Return the points after one layer."""
    return step(Z, means(argmax_sets(Z, A, tau), Z, w), alpha)


def resting_tokens(Z: Array, C: Array, w: Array | None = None) -> Array:
    """Return the largest set F of tokens with c_i = z_i and C_i within F.  ->  bool [n]"""
    F = (means(C, Z, w) == Z).all(axis=1)
    while True:
        within = F & ~(C & ~F).any(axis=1)
        if (within == F).all():
            return F
        F = within


def is_certified(Z: Array, C: Array, A: Array | None = None, w: Array | None = None) -> bool:
    """Return whether all members of all C_i rest, and all tie for the mean c_i (theory.md, 3)."""
    tied = C.sum(axis=1) > 1
    mean_sets = argmax_sets(Z, A, queries=means(C, Z, w)[tied]) if tied.any() else C[tied]
    return bool(resting_tokens(Z, C, w)[C.any(axis=0)].all() and (mean_sets | ~C[tied]).all())


def margin(Z: Array, C: Array, A: Array | None = None, tau: float = 0) -> float:
    """Return the smallest gap from a best score to the next one, relative to |z_i|_A max_l |z_l|_A.

    It is over all tokens and over the means c_i of ties, whose argmax sets are found with `tau`.
    """
    return math.sqrt(squared_margin(Z, C, A, tau))


def squared_margin(Z: Array, C: Array, A: Array | None = None, tau: float = 0, w: Array | None = None) -> Any:
    """Return the square of the margin, which is a fraction for fractions."""
    c = means(C, Z, w)[C.sum(axis=1) > 1]
    Q, C = np.concatenate([Z, c]), np.concatenate([C, argmax_sets(Z, A, tau, queries=c)])
    S = scores(Q, Z, A)
    gap = S.max(axis=1) - np.where(C, -np.inf, S).max(axis=1)
    squares = ((Q if A is None else Q @ A) * Q).sum(axis=1)
    return (gap**2 / (squares * squares[: len(Z)].max())).min()


@dataclass(frozen=True)
class Run:
    """A cloud after its last layer."""

    certified_layer: int | None
    C: Array  # argmax sets of the last layer
    points: Array
    targets: Array
    since_layer: list[int]  # first layer with C_i = {i}, or -1

    @property
    def sets(self) -> list[frozenset[int]]:
        return [frozenset(np.flatnonzero(row).tolist()) for row in self.C]


def run(Z: Array, alpha: Any, layers: int, A: Array | None = None, w: Array | None = None) -> Run:
    """Run at most `layers` layers, and stop at the first that is certified."""
    since_layer = np.full(len(Z), -1)
    for k in range(layers + 1):
        C = argmax_sets(Z, A)
        c = means(C, Z, w)
        since_layer[(since_layer < 0) & C.diagonal() & (C.sum(axis=1) == 1)] = k
        if (certified := is_certified(Z, C, A, w)) or k == layers:
            break
        Z = step(Z, c, alpha)
    return Run(k if certified else None, C, Z, c, since_layer.tolist())
