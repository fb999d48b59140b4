"""Exact verdicts about forms A: each number that was sent is an integer times a power of two.

Whether a form grants a wish, and whether weights prove that none does: docs/control.md has both arguments.
Forms and weights are found elsewhere, in floating point, and answered only if they are proved here. What is
exact is paid for (clouds/rational.py).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import chain
from math import gcd, isqrt, lcm
from typing import Any

import numpy as np

from service.cloud import rational
from service.cloud.points import UNIT, Floats, Ints, to_one
from service.cloud.rational import Account, Exhausted, dot, longest
from service.engine.cloud_queue import Steps

Row = list[int]

PIECE = 1 << 20  # gaps in memory at once
DOUBTFUL = 10_000  # pairs that are decided one by one, at most
EXACT = 256  # pairs whose margins are computed one by one, at most
EQUATIONS = 256  # that weights of tokens which depend on each other may have to fulfil together


@dataclass(frozen=True)
class Conditions:
    """<A z_token, z_leader - z_rival> > 0, by index."""

    token: Ints
    leader: Ints
    rival: Ints

    def __len__(self) -> int:
        return len(self.token)

    def __getitem__(self, rows: Any) -> Conditions:
        return Conditions(self.token[rows], self.leader[rows], self.rival[rows])

    @classmethod
    def joined(cls, several: Sequence[Conditions]) -> Conditions:
        columns = zip(*((each.token, each.leader, each.rival) for each in several), strict=True)
        return cls(*map(np.concatenate, columns))


def grants(points: Floats, kind: Ints, token: Ints, leader: Ints, A: Floats, account: Account) -> Steps[bool]:
    """Whether A > 0, and <A z_i, z_l(i) - z_j> > 0 for all j that are no twins of l(i) (of another `kind`).

    A gap larger than its rounding error is positive; the others are computed in integers.
    """
    if not np.isfinite(A).all() or not (yield from _is_definite(A, account)):
        return False
    form, left = integers(A), DOUBTFUL
    for each, rows in groups(leader, len(points)):
        gap, error = _gaps(points, token[rows], each, A)
        row, rival = np.nonzero((gap <= error) & (kind != kind[each]))
        left -= len(row)
        if left < 0 or (gap[row, rival] < -error[row, rival]).any():
            return False
        yield
        for pair in zip(token[rows][row].tolist(), rival.tolist(), strict=True):
            if (yield from _exact_gap(integers(points[[pair[0], each, pair[1]]]), form, account))[0] <= 0:
                return False
    return True


def _gaps(points: Floats, tokens: Ints, leader: int, A: Floats) -> tuple[Floats, Floats]:
    """<A z_i, z_leader - z_j> for some tokens i and all j, and bounds of their rounding errors.

    Points and A are scaled by powers of two, their largest entries to about 1.
    """
    z, A = to_one(points), to_one(A)
    own = z[tokens]
    gap = (own @ A) @ (z[leader] - z).T
    sizes = (np.abs(own) @ np.abs(A)) @ (np.abs(z[leader]) + np.abs(z)).T
    return gap, 4 * (z.shape[1] + 4) * UNIT * sizes + 1e-290


def _exact_gap(rows: list[Row], form: list[Row], account: Account) -> Steps[tuple[int, int]]:
    """<A z, z_leader - z_rival> and <A z, z> of the rows z, z_leader, z_rival, in integers."""
    own, best, other = rows
    yield from account.pay(len(form) ** 2, longest((*own, *best, *other)), longest(chain(*form)))
    image = [dot(line, own) for line in form]
    return dot(image, _minus(best, other)), dot(image, own)


def smallest_margin(
    points: Floats, kind: Ints, token: Ints, leader: Ints, A: Floats, account: Account
) -> Steps[float | None]:
    """The smallest gap relative to |z_i|_A max |z|_A, rounded down; None where there are no rivals.

    Floating point leaves few pairs that may have it. They are computed in integers, EXACT of them at most:
    if more are left, the smallest bound of the others is the answer where it is less.
    """
    squares, errors = _squares(points, A)
    bounds, pairs = yield from _smallest_bounds(points, kind, token, leader, A, squares + errors)
    if not len(pairs):
        return None
    form, least = integers(A), math.inf
    longest_ones = np.flatnonzero(squares + errors >= (squares - errors).max())
    longest_ones = longest_ones[np.unique(kind[longest_ones], return_index=True)[1]]
    used, place = np.unique(np.concatenate([longest_ones, *vars(pairs).values()]), return_inverse=True)
    exact = integers(points[used])
    tops, triples = place[: len(longest_ones)].tolist(), place[len(longest_ones) :].reshape(3, -1).T.tolist()
    try:
        top = 0
        for i in tops:
            top = max(top, (yield from _exact_gap([exact[i]] * 3, form, account))[1])
        for bound, triple in zip(bounds.tolist(), triples[:EXACT], strict=False):
            if bound >= least:
                return least
            gap, square = yield from _exact_gap([exact[i] for i in triple], form, account)
            least = min(least, _root_below(gap * gap, square * top))
    except Exhausted:
        return max(0.0, float(bounds[0]))
    return least if len(pairs) <= EXACT else max(0.0, min(least, float(bounds[EXACT])))


def _squares(points: Floats, A: Floats) -> tuple[Floats, Floats]:
    """<A z_i, z_i> of all points, scaled as in `_gaps`, and bounds of their rounding errors."""
    z, A = to_one(points), to_one(A)
    sizes = ((np.abs(z) @ np.abs(A)) * np.abs(z)).sum(axis=1)
    return ((z @ A) * z).sum(axis=1), 4 * (z.shape[1] + 4) * UNIT * sizes + 1e-290


def _smallest_bounds(
    points: Floats, kind: Ints, token: Ints, leader: Ints, A: Floats, squares: Floats
) -> Steps[tuple[Floats, Conditions]]:
    """Lower bounds of margins: the EXACT + 1 smallest, ascending, and their pairs."""
    lengths = np.sqrt(squares)
    least, pairs = np.empty(0), Conditions(*(np.empty(0, np.int64),) * 3)
    for each, rows in groups(leader, len(points)):
        gap, error = _gaps(points, token[rows], each, A)
        bound = (gap - error) / (lengths[token[rows], None] * lengths.max() * (1 + 16 * UNIT))
        row, rival = np.nonzero((kind != kind[each]) & np.isfinite(bound))
        some = Conditions(token[rows][row], np.full(len(row), each), rival)
        least, pairs = np.concatenate([least, bound[row, rival]]), Conditions.joined([pairs, some])
        order = np.argsort(least, kind="stable")[: EXACT + 1]
        least, pairs = least[order], pairs[order]
        yield
    return least, pairs


def _root_below(numerator: int, denominator: int) -> float:
    """The square root of a positive fraction, rounded down to a double."""
    shift = 64 + (denominator.bit_length() - numerator.bit_length()) // 2
    quotient = (
        (numerator << 2 * shift) // denominator if shift > 0 else numerator // (denominator << -2 * shift)
    )
    root = isqrt(quotient)
    excess = root.bit_length() - 53
    return math.ldexp(root >> excess, excess - shift)


def refutes(points: Floats, pairs: Conditions, weights: Floats, account: Account) -> Steps[Row | None]:
    """Whole numbers w_k >= 0, near these weights, which prove that no A > 0 makes all gaps positive.

    They do if the symmetric part of sum w_k z_token (z_leader - z_rival)' is negative semidefinite.
    """
    used, place = np.unique([pairs.token, pairs.leader, pairs.rival], return_inverse=True)
    points, pairs = points[used], Conditions(*place.reshape(3, -1))
    z = to_one(points)
    _, q, q_exponent = units(z[pairs.token])
    _, v, v_exponent = units(z[pairs.leader] - z[pairs.rival])
    exponent = q_exponent + v_exponent
    size = weights * q * v * np.ldexp(1.0, exponent - exponent.max())
    for attempt, small in ((_balance, 1e-9), (_balance, 1e-5), (_balance, 1e-2), (_simple, 1e-2)):
        heavy = np.flatnonzero(size > small * size.max())  # the rest is rounding
        some = yield from attempt(points, pairs[heavy], weights[heavy], account)
        if some is None or min(some) < 0 or not any(some):
            continue
        negative = yield from _combine(points, pairs[heavy], [-w for w in some], account)
        if (yield from is_semidefinite(negative, account)):
            common, whole = gcd(*some), [0] * len(pairs)
            for k, w in zip(heavy.tolist(), some, strict=True):
                whole[k] = w // common
            return whole
    return None


def _combine(points: Floats, pairs: Conditions, weights: Row, account: Account) -> Steps[list[Row]]:
    """sum of weights_k (q_k v_k' + v_k q_k') with q = z_token and v = z_leader - z_rival, in integers."""
    exact, d = integers(points), points.shape[1]
    bits = longest(chain(*exact))
    total = [[0] * d for _ in range(d)]
    columns = (pairs.token.tolist(), pairs.leader.tolist(), pairs.rival.tolist())
    for token, leader, rival, weight in zip(*columns, weights, strict=True):
        yield from account.pay(d * d, bits, bits + weight.bit_length())
        q, v = [weight * x for x in exact[token]], _minus(exact[leader], exact[rival])
        for r in range(d):
            for c in range(r, d):
                total[r][c] += q[r] * v[c] + q[c] * v[r]
    return [[total[min(r, c)][max(r, c)] for c in range(d)] for r in range(d)]


def _simple(points: Floats, pairs: Conditions, weights: Floats, account: Account) -> Steps[Row | None]:
    """Fractions with small denominators, which is what clouds of round numbers need."""
    near = [Fraction(float(w)).limit_denominator(64) for w in weights / weights.max()]
    whole = lcm(*(w.denominator for w in near))
    yield from account.pay(len(near), longest([whole]), 64)
    return [int(w * whole) for w in near]


def _balance(points: Floats, pairs: Conditions, weights: Floats, account: Account) -> Steps[Row | None]:
    """The weights, changed a little so that the sum is exactly 0 on all v orthogonal to every token.

    <v, sum v> = 0 there, so a semidefinite sum must be 0 on v. Such v exist when the tokens do not span the
    space, for a single token always. With P coordinates in which the tokens are independent, each other
    coordinate c has one v = e_c - sum_p X_pc e_p, and <v, sum_k w_k (z_leader - z_rival)> must be 0 over the
    conditions of each token: tokens that are independent have their equations apart.
    """
    exact = integers(points)
    whole = [row[0] for row in integers(weights[:, None])]
    tokens = np.unique(pairs.token)
    z = units(points[tokens])[0]
    rows = yield from _independent(z)
    basis, P = tokens[rows], np.sort((yield from _independent(z[rows].T))).tolist()
    rest = sorted(set(range(points.shape[1])) - set(P))
    if not rest:
        return whole
    if len(P) < len(basis):
        return None
    X, det = yield from solve([[exact[b][c] for c in (*P, *rest)] for b in basis.tolist()], account)
    across = []  # [k][rest]
    for leader, rival in zip(pairs.leader.tolist(), pairs.rival.tolist(), strict=True):
        apart = _minus(exact[leader], exact[rival])
        yield from account.pay(len(rest) * (len(P) + 1), longest(apart), longest((det, *X[0])))
        inside = [apart[p] for p in P]
        columns = zip(rest, zip(*X, strict=True), strict=True)
        across.append([det * apart[c] - dot(inside, column) for c, column in columns])
    alone = len(basis) == len(tokens)
    if not alone and len(P) * len(rest) > EQUATIONS:
        return None
    solved = []
    parts = [np.flatnonzero(pairs.token == t) for t in tokens] if alone else [np.arange(len(pairs))]
    for part in (rows.tolist() for rows in parts):
        equations = []
        for k in part:
            own = [1] if alone else [exact[pairs.token[k]][p] for p in P]
            yield from account.pay(len(own) * len(rest), longest(own), longest(across[k]))
            equations.append([x * a for x in own for a in across[k]])
        kernel = yield from _kernel(equations, [whole[k] for k in part], account)
        if kernel is None:
            return None
        solved.append((part, *kernel))
    # Each part is a multiple of what was given: bring all to one multiple, as near as a double tells apart.
    most = longest(scale for _, _, scale in solved) + 53
    for part, solution, scale in solved:
        factor = (1 << most) // scale if len(solved) > 1 else 1
        for k, w in zip(part, solution, strict=True):
            whole[k] = factor * w
    return whole


def _kernel(equations: list[Row], whole: Row, account: Account) -> Steps[tuple[Row, int] | None]:
    """A solution w of sum_k w_k equations_k = 0 near scale * whole, and the scale; None: not found."""
    bits, scaled = longest(chain(*equations)), []
    for row, w in zip(equations, whole, strict=True):
        yield from account.pay(2 * len(row), bits, w.bit_length())
        scaled.append([e * w for e in row])
    floats = _as_floats(scaled)  # [k, e]
    columns = (yield from _independent(floats)).tolist()
    rows = (yield from _independent(floats[columns].T)).tolist()
    if len(rows) < len(columns):
        return None
    others = sorted(set(range(len(whole))) - set(columns))
    right = []
    for e in rows:
        yield from account.pay(len(others), bits, 1)
        right.append(-sum(scaled[k][e] for k in others))
    system = [[equations[k][e] for k in columns] + [b] for e, b in zip(rows, right, strict=True)]
    found, scale = yield from solve(system, account)
    sign = 1 if scale > 0 else -1
    balanced = [abs(scale) * w for w in whole]
    for k, (w,) in zip(columns, found, strict=True):
        balanced[k] = sign * w
    return balanced, abs(scale)


def _is_definite(A: Floats, account: Account) -> Steps[bool]:
    """Whether A is positive definite: in floating point with room for its rounding, or else in integers.

    Cholesky of a matrix B runs to its end only if B + c I > 0, with c = (d + 2) UNIT trace B (Rump, 2006).
    """
    n = len(A)
    scale = np.ldexp(1.0, -(np.frexp(np.abs(np.diag(A)) + 1e-300)[1] // 2))
    B = A * scale * scale[:, None]  # exact: scales are powers of two; what underflows is far below c
    with np.errstate(all="ignore"):
        try:
            if np.isfinite(np.linalg.cholesky(B - 3 * (n + 3) * UNIT * float(np.trace(B)) * np.eye(n))).all():
                return True
        except np.linalg.LinAlgError:
            pass
    return (yield from is_semidefinite(integers(A), account, definite=True))


def is_semidefinite(M: list[Row], account: Account, *, definite: bool = False) -> Steps[bool]:
    """Whether an integer matrix is positive (semi)definite: Bareiss's elimination, without fractions."""
    M, n, last = [row[:] for row in M], len(M), 1
    for k in range(n):
        pivot = M[k][k]
        if pivot < 0 or (pivot == 0 and (definite or any(M[k][k:]))):
            return False
        for i in range(k + 1, n) if pivot else ():
            M[i][i:] = yield from _eliminate(M[i][i:], M[k][i], M[k][i:], pivot, last, account)
        last = pivot or last
        yield
    return True


def solve(work: list[Row], account: Account) -> Steps[tuple[list[Row], int]]:
    """X and d with M X = d R for the integers [M R]; d = 0 where M is singular. Gauss-Jordan."""
    n, last = len(work), 1
    work = [row[:] for row in work]
    for k in range(n):
        other = next((row for row in range(k, n) if work[row][k]), None)
        if other is None:
            return [[0 for _ in row[n:]] for row in work], 0
        work[k], work[other] = work[other], work[k]
        pivot = work[k][k]
        for i in range(n):
            if i != k:
                own = work[i][k:]
                work[i][k:] = yield from _eliminate(own, own[0], work[k][k:], pivot, last, account)
        last = pivot
        yield
    return [row[n:] for row in work], last


def _eliminate(row: Row, factor: int, by: Row, pivot: int, last: int, account: Account) -> Steps[Row]:
    """(row * pivot - factor * by) / last, which has no remainder (Bareiss)."""
    bits, left = longest((pivot, factor)), []
    for x, y in zip(row, by, strict=True):
        yield from account.pay(3, bits, x.bit_length() + 1)
        left.append((x * pivot - factor * y) // last)
    return left


def integers(x: Floats) -> list[Row]:
    """The numbers of each row exactly, times one power of two."""
    flat, d = rational.integers(x.ravel(), rational.finest(x)), x.shape[1]
    return [flat[start : start + d] for start in range(0, len(flat), d)]


def groups(leader: Ints, n: int) -> Iterator[tuple[int, Ints]]:
    """(leader, rows that want it), so few rows at once that their gaps to n rivals fit."""
    order = np.argsort(leader, kind="stable")
    first = np.flatnonzero(np.diff(leader[order], prepend=-1))
    size = max(1, PIECE // n)
    for rows in np.split(order, first[1:]):
        for start in range(0, len(rows), size):
            yield int(leader[rows[0]]), rows[start : start + size]


def _independent(rows: Floats) -> Steps[Ints]:
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
        yield
    return np.array(chosen, np.int64)


def _as_floats(x: list[Row]) -> Floats:
    """Relative to the largest."""
    bits = longest(chain(*x))
    shift = max(0, bits - 900)
    return np.array([[float(value >> shift) for value in row] for row in x]) / 2.0 ** (bits - shift)


def _minus(x: Row, y: Row) -> Row:
    return [a - b for a, b in zip(x, y, strict=True)]


def units(vectors: Floats) -> tuple[Floats, Floats, Ints]:
    """Vectors at length 1, and their lengths: times a power of two, and its exponent. Zero stays zero."""
    exponent = np.frexp(np.abs(vectors).max(axis=1))[1]
    scaled = np.ldexp(vectors, -exponent[:, None])
    lengths = np.linalg.norm(scaled, axis=1)
    lengths[lengths == 0] = 1
    return scaled / lengths[:, None], lengths, exponent
