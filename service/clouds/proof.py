"""Exact verdicts about forms A: each number that was sent is an integer times a power of two.

Whether a form grants a wish, and whether weights prove that none does: docs/control.md has both arguments.
Forms and weights are found elsewhere, in floating point, and answered only if they are proved here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import gcd, lcm
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.clouds.coordinates import UNIT
from service.clouds.points import Floats, Ints
from service.engine.lane import Steps

Exact = NDArray[np.object_]  # of Python integers

PAIRS = 1 << 21  # gaps in memory at once
DOUBTFUL = 10_000  # pairs that are decided one by one, at most
EQUATIONS = 256  # that weights may have to fulfil exactly


@dataclass(frozen=True)
class Pairs:
    """Conditions <A z_token, z_leader - z_rival> > 0, by index."""

    token: Ints
    leader: Ints
    rival: Ints

    def __len__(self) -> int:
        return len(self.token)

    def __getitem__(self, rows: Any) -> Pairs:
        return Pairs(self.token[rows], self.leader[rows], self.rival[rows])

    @classmethod
    def joined(cls, several: Sequence[Pairs]) -> Pairs:
        names = ("token", "leader", "rival")
        return cls(*(np.concatenate([getattr(pairs, name) for pairs in several]) for name in names))


def grants(points: Floats, kind: Ints, token: Ints, leader: Ints, A: Floats) -> Steps[bool]:
    """Whether A > 0, and <A z_i, z_l(i) - z_j> > 0 for all j that are no twins of l(i) (of another `kind`).

    A gap larger than its rounding error is positive; the others are computed in integers.
    """
    if not np.isfinite(A).all():
        return False
    form, z, left, A = integers(A), _to_one(points), DOUBTFUL, _to_one(A)
    if not (yield from is_semidefinite(form, definite=True)):
        return False
    for each, rows in groups(leader, len(points)):
        own = z[token[rows]]
        gap = (own @ A) @ (z[each] - z).T
        sizes = (np.abs(own) @ np.abs(A)) @ (np.abs(z[each]) + np.abs(z)).T
        error = 4 * (z.shape[1] + 4) * UNIT * sizes + 1e-290
        row, rival = np.nonzero((gap <= error) & (kind != kind[each]))
        left -= len(row)
        if left < 0 or (gap[row, rival] < -error[row, rival]).any():
            return False
        yield
        for pair in zip(token[rows][row], rival, strict=True):
            exact = integers(points[[*pair, each]])
            if exact[0] @ form @ (exact[2] - exact[1]) <= 0:
                return False
            yield
    return True


def refutes(points: Floats, pairs: Pairs, weights: Floats) -> Steps[list[int] | None]:
    """Whole numbers w_k >= 0, near these weights, which prove that no A > 0 makes all gaps positive.

    They do if the symmetric part of sum w_k z_token (z_leader - z_rival)' is negative semidefinite.
    """
    used, place = np.unique([pairs.token, pairs.leader, pairs.rival], return_inverse=True)
    points, pairs = points[used], Pairs(*place.reshape(3, -1))
    z = _to_one(points)
    size = np.linalg.norm(z[pairs.token], axis=1) * np.linalg.norm(z[pairs.leader] - z[pairs.rival], axis=1)
    for attempt, small in ((_balance, 1e-9), (_balance, 1e-5), (_balance, 1e-2), (_simple, 1e-2)):
        heavy = np.flatnonzero(weights * size > small * (weights * size).max())  # the rest is rounding
        some = yield from attempt(points, pairs[heavy], weights[heavy])
        if some is None or min(some) < 0 or not any(some):
            continue
        if (yield from is_semidefinite(-_combine(points, pairs[heavy], some))):
            whole, common = np.zeros(len(pairs), object), gcd(*some)
            whole[heavy] = [w // common for w in some]
            return list(whole)
    return None


def _combine(points: Floats, pairs: Pairs, weights: list[int]) -> Exact:
    """sum of weights_k (q_k w_k' + w_k q_k') with q = z_token and w = z_leader - z_rival, in integers."""
    z = integers(points)
    half = (z[pairs.token] * np.array(weights, object)[:, None]).T @ (z[pairs.leader] - z[pairs.rival])
    total: Exact = half + half.T
    return total


def _simple(points: Floats, pairs: Pairs, weights: Floats) -> Steps[list[int] | None]:
    """Fractions with small denominators, which is what clouds of round numbers need."""
    near = [Fraction(float(w)).limit_denominator(64) for w in weights / weights.max()]
    whole = lcm(*(w.denominator for w in near))
    yield
    return [int(w * whole) for w in near]


def _balance(points: Floats, pairs: Pairs, weights: Floats) -> Steps[list[int] | None]:
    """The weights, changed a little so that the sum is exactly 0 on all v orthogonal to every token.

    <v, sum v> = 0 there, so a semidefinite sum must be 0 on v. Such v exist when the tokens do not span the
    space, for a single token always. With P coordinates in which the tokens are independent, each other
    coordinate c has one v = e_c - sum_p X_pc e_p, and as many equations as tokens are independent.
    """
    z, exact = _to_one(points), integers(points)
    whole = [int(w) for w in integers(weights)]
    tokens = np.unique(pairs.token)
    basis = tokens[_independent(z[tokens])]
    P = np.sort(_independent(z[basis].T))
    rest = np.setdiff1d(np.arange(z.shape[1]), P)
    if not len(rest):
        return whole
    if len(P) * len(rest) > EQUATIONS or len(P) < len(basis):
        return None
    X, det = yield from solve(exact[np.ix_(basis, P)], exact[np.ix_(basis, rest)])
    apart = exact[pairs.leader] - exact[pairs.rival]
    across = det * apart[:, rest] - apart[:, P] @ X
    equations = (exact[pairs.token][:, P, None] * across[:, None, :]).reshape(len(pairs), -1).T
    yield
    scaled = _as_floats(equations * np.array(whole, object))
    columns = _independent(scaled.T)
    rows = _independent(scaled[:, columns])
    if len(rows) < len(columns):
        return None
    others = np.setdiff1d(np.arange(len(whole)), columns)
    right = -(equations[np.ix_(rows, others)] @ np.array([[whole[k]] for k in others], object).reshape(-1, 1))
    found, scale = yield from solve(equations[np.ix_(rows, columns)], right)
    sign = 1 if scale > 0 else -1
    whole = [abs(scale) * w for w in whole]
    for k, w in zip(columns.tolist(), found[:, 0].tolist(), strict=True):
        whole[k] = sign * w
    return whole


def is_semidefinite(M: Exact, *, definite: bool = False) -> Steps[bool]:
    """Whether an integer matrix is positive (semi)definite: Bareiss's elimination, without fractions."""
    M, last = M.copy(), 1
    for k in range(len(M)):
        pivot = M[k, k]
        if pivot < 0 or (pivot == 0 and (definite or M[k, k:].any())):
            return False
        if pivot > 0:
            M[k + 1 :, k + 1 :] = (
                M[k + 1 :, k + 1 :] * pivot - np.outer(M[k + 1 :, k], M[k, k + 1 :])
            ) // last
            last = pivot
        yield
    return True


def solve(M: Exact, right: Exact) -> Steps[tuple[Exact, int]]:
    """X and d with M X = d right, in integers; d = 0 where M is singular. Gauss-Jordan without fractions."""
    n, last = len(M), 1
    work = np.concatenate([M, right], axis=1)
    for k in range(n):
        pivot = next((row for row in range(k, n) if work[row, k]), None)
        if pivot is None:
            return right * 0, 0
        work[[k, pivot]] = work[[pivot, k]]
        others = np.arange(n) != k
        work[others] = (work[others] * work[k, k] - np.outer(work[others, k], work[k])) // last
        last = work[k, k]
        yield
    return work[:, n:], int(last)


def integers(x: Floats) -> Exact:
    """The numbers exactly, times one power of two."""
    mantissa, exponent = np.frexp(x)
    whole = np.ldexp(mantissa, 53).astype(np.int64).astype(object)
    shift = np.where(mantissa == 0, 0, exponent - exponent[mantissa != 0].min(initial=2000)).astype(object)
    exact: Exact = whole * 2**shift
    return exact


def groups(leader: Ints, n: int) -> Iterator[tuple[int, Ints]]:
    """(leader, rows that want it), so few rows at once that their gaps to n rivals fit."""
    order = np.argsort(leader, kind="stable")
    first = np.flatnonzero(np.diff(leader[order], prepend=-1))
    size = max(1, PAIRS // n)
    for rows in np.split(order, first[1:]):
        for start in range(0, len(rows), size):
            yield int(leader[rows[0]]), rows[start : start + size]


def _independent(rows: Floats) -> Ints:
    """Rows that span the others, largest first: Gram-Schmidt with pivots. No proof rests on it."""
    left, chosen = rows.copy(), []
    least = 1e-9 * max(1e-300, float(np.linalg.norm(left, axis=1).max(initial=0)))
    for _ in range(min(rows.shape)):
        lengths = np.linalg.norm(left, axis=1)
        best = int(lengths.argmax())
        if lengths[best] <= least:
            break
        chosen.append(best)
        direction = left[best] / lengths[best]
        left -= np.outer(left @ direction, direction)
    return np.array(chosen, np.int64)


def _as_floats(x: Exact) -> Floats:
    """Relative to the largest."""
    largest = max(1, max(abs(int(value)) for value in x.flat))
    shift = max(0, largest.bit_length() - 900)
    floats = np.array([[float(int(value) >> shift) for value in row] for row in x])
    return floats / max(1.0, float(np.abs(floats).max()))


def _to_one(x: Floats) -> Floats:
    """Times the power of two that brings the largest to about 1."""
    scaled: Floats = np.ldexp(x, -int(np.frexp(np.abs(x).max())[1]))
    return scaled
