"""Proofs in exact arithmetic about leader constraints: control.md has both arguments.

`verify_feasible` decides whether a form A satisfies them, `verify_infeasible` whether weights prove that no
form does. Forms and weights are found in floating point, and are answered only if they are proved here.
"""

import math
from fractions import Fraction
from math import gcd, isqrt, lcm

import numpy as np

from service.cloud.points import UNIT, Floats, Ints, scale_to_one
from service.cloud.rational import dot, max_bits
from service.control.constraints import GapConstraints, LeaderConstraints, normalize
from service.control.elimination import (
    NO_DEADLINE,
    Deadline,
    Row,
    independent_rows,
    is_definite,
    is_semidefinite,
    solve,
    solve_near,
    subtract,
    to_integers,
)

MAX_DOUBTFUL_GAPS = 10_000  # gaps that are computed in integers
MAX_EXACT_MARGINS = 256  # pairs whose margins are computed in integers
MAX_EQUATIONS = 256  # that weights of dependent tokens satisfy together
MAX_DENOMINATOR = 64  # of simple weights
WEIGHT_FLOORS = (1e-9, 1e-5, 1e-2)  # relative to the largest: smaller weights count as rounding errors


def verify_feasible(constraints: LeaderConstraints, A: Floats) -> bool:
    """Return whether A is positive definite and all gaps are positive.

    A gap larger than the bound of its rounding error is positive; the others are computed in integers.
    """
    if not np.isfinite(A).all() or not is_definite(A):
        return False
    points, form, n_doubtful = constraints.points, to_integers(A), 0
    for leader, tokens in constraints.groups():
        gap, error = _gaps(points, tokens, leader, A)
        row, rival = np.nonzero((gap <= error) & ~constraints.is_twin(leader))
        n_doubtful += len(row)
        if n_doubtful > MAX_DOUBTFUL_GAPS or (gap[row, rival] < -error[row, rival]).any():
            return False
        for token, j in zip(tokens[row].tolist(), rival.tolist(), strict=True):
            exact_gap, _ = _exact_gap(to_integers(points[[token, leader, j]]), form)
            if exact_gap <= 0:
                return False
    return True


def _gaps(points: Floats, tokens: Ints, leader: int, A: Floats) -> tuple[Floats, Floats]:
    """Return <A z_i, z_leader - z_j> for some tokens i and all j, and bounds of their rounding errors.

    Points and A are scaled by powers of two, their largest entries to about 1.
    """
    z, A = scale_to_one(points), scale_to_one(A)
    z_tokens = z[tokens]
    gap = (z_tokens @ A) @ (z[leader] - z).T
    sizes = (np.abs(z_tokens) @ np.abs(A)) @ (np.abs(z[leader]) + np.abs(z)).T
    return gap, 4 * (z.shape[1] + 4) * UNIT * sizes + 1e-290


def _exact_gap(rows: list[Row], form: list[Row]) -> tuple[int, int]:
    """Return <A z, z_leader - z_rival> and <A z, z> of the rows z, z_leader, z_rival, in integers."""
    z, z_leader, z_rival = rows
    image = [dot(row, z) for row in form]
    return dot(image, subtract(z_leader, z_rival)), dot(image, z)


def compute_margin(constraints: LeaderConstraints, A: Floats) -> float | None:
    """Return the smallest gap relative to |z_i|_A max |z|_A, rounded down; None where there are no rivals.

    The pairs with the smallest bounds, MAX_EXACT_MARGINS at most, are computed in integers. If there are more
    pairs, the smallest lower bound of the others is the answer where it is less.
    """
    squares, errors = _squares(constraints.points, A)
    bounds, pairs = _smallest_bounds(constraints, A, np.sqrt(squares + errors))
    if not len(pairs):
        return None
    candidates = np.flatnonzero(squares + errors >= (squares - errors).max())
    candidates = candidates[np.unique(constraints.point_id[candidates], return_index=True)[1]]
    smallest = _smallest_exact(constraints.points, candidates, bounds, pairs, A)
    if len(pairs) > MAX_EXACT_MARGINS:
        smallest = max(0.0, min(smallest, float(bounds[MAX_EXACT_MARGINS])))
    return smallest


def _squares(points: Floats, A: Floats) -> tuple[Floats, Floats]:
    """Return <A z_i, z_i> of all points, scaled as in `_gaps`, and bounds of their rounding errors."""
    z, A = scale_to_one(points), scale_to_one(A)
    sizes = ((np.abs(z) @ np.abs(A)) * np.abs(z)).sum(axis=1)
    return ((z @ A) * z).sum(axis=1), 4 * (z.shape[1] + 4) * UNIT * sizes + 1e-290


def _smallest_bounds(
    constraints: LeaderConstraints, A: Floats, lengths: Floats
) -> tuple[Floats, GapConstraints]:
    """Return the MAX_EXACT_MARGINS + 1 smallest lower bounds of margins, ascending, and their pairs."""
    bounds, pairs = np.empty(0), GapConstraints.empty()
    for leader, tokens in constraints.groups():
        gap, error = _gaps(constraints.points, tokens, leader, A)
        bound = (gap - error) / (lengths[tokens, None] * lengths.max() * (1 + 16 * UNIT))
        row, rival = np.nonzero(np.broadcast_to(~constraints.is_twin(leader), bound.shape))
        group = GapConstraints(tokens[row], np.full(len(row), leader), rival)
        bounds = np.concatenate([bounds, bound[row, rival]])
        pairs = GapConstraints.concatenate([pairs, group])
        order = np.argsort(bounds, kind="stable")[: MAX_EXACT_MARGINS + 1]
        bounds, pairs = bounds[order], pairs[order]
    return bounds, pairs


def _smallest_exact(
    points: Floats, longest_tokens: Ints, bounds: Floats, pairs: GapConstraints, A: Floats
) -> float:
    """Return the smallest margin of MAX_EXACT_MARGINS pairs. The longest token is in `longest_tokens`."""
    columns = [longest_tokens, pairs.token, pairs.leader, pairs.rival]
    used, inverse = np.unique(np.concatenate(columns), return_inverse=True)
    exact, form = to_integers(points[used]), to_integers(A)
    triples = inverse[len(longest_tokens) :].reshape(3, -1).T.tolist()
    largest, smallest = 0, math.inf
    for i in inverse[: len(longest_tokens)].tolist():
        largest = max(largest, _exact_gap([exact[i]] * 3, form)[1])
    for bound, triple in zip(bounds.tolist(), triples[:MAX_EXACT_MARGINS], strict=False):
        if bound >= smallest:
            break
        gap, square = _exact_gap([exact[i] for i in triple], form)
        smallest = min(smallest, _root_below(gap * gap, square * largest))
    return smallest


def _root_below(numerator: int, denominator: int) -> float:
    """Return the square root of a positive fraction, rounded down to a double."""
    shift = 64 + (denominator.bit_length() - numerator.bit_length()) // 2
    root = isqrt((numerator << 2 * max(shift, 0)) // (denominator << 2 * max(-shift, 0)))
    excess = max(root.bit_length() - 53, shift - 1074)  # the exponent of the smallest double is -1074
    return math.ldexp(root >> excess, excess - shift)


def verify_infeasible(
    points: Floats, gaps: GapConstraints, weights: Floats, deadline: Deadline = NO_DEADLINE
) -> Row | None:
    """Return integers w_k >= 0, near these weights, which prove that no A > 0 makes all gaps positive.

    They do if the symmetric part of sum w_k z_token (z_leader - z_rival)' is negative semidefinite. None if
    no such integers were found.
    """
    used, inverse = np.unique([gaps.token, gaps.leader, gaps.rival], return_inverse=True)
    points, gaps = points[used], GapConstraints(*inverse.reshape(3, -1))
    size = _sizes(points, gaps, weights)
    attempts = [(floor, True) for floor in WEIGHT_FLOORS] + [(WEIGHT_FLOORS[-1], False)]
    for floor, balance in attempts:
        heavy = np.flatnonzero(size > floor * size.max())
        if balance:
            integers = balance_weights(points, gaps[heavy], weights[heavy], deadline)
        else:
            integers = simplify_weights(weights[heavy])
        if integers is None or min(integers) < 0 or not any(integers):
            continue
        negative = _combine(points, gaps[heavy], [-w for w in integers])
        if is_semidefinite(negative, deadline):
            divisor, proof = gcd(*integers), [0] * len(gaps)
            for k, w in zip(heavy.tolist(), integers, strict=True):
                proof[k] = w // divisor
            return proof
    return None


def _sizes(points: Floats, gaps: GapConstraints, weights: Floats) -> Floats:
    """Return the sizes of the matrices w_k z_token (z_leader - z_rival)', up to a common factor."""
    z = scale_to_one(points)
    _, q, q_exponent = normalize(z[gaps.token])
    _, v, v_exponent = normalize(z[gaps.leader] - z[gaps.rival])
    exponent = q_exponent + v_exponent
    size: Floats = weights * q * v * np.ldexp(1.0, exponent - exponent.max())
    return size


def _combine(points: Floats, gaps: GapConstraints, weights: Row) -> list[Row]:
    """Return sum of weights_k (q_k v_k' + v_k q_k'), q = z_token and v = z_leader - z_rival, in integers."""
    exact, d = to_integers(points), points.shape[1]
    total = [[0] * d for _ in range(d)]
    columns = (gaps.token.tolist(), gaps.leader.tolist(), gaps.rival.tolist())
    for token, leader, rival, weight in zip(*columns, weights, strict=True):
        q, v = [weight * x for x in exact[token]], subtract(exact[leader], exact[rival])
        for r in range(d):
            for c in range(r, d):
                total[r][c] += q[r] * v[c] + q[c] * v[r]
    return [[total[min(r, c)][max(r, c)] for c in range(d)] for r in range(d)]


# Integer weights near those of floating point: proposals, which `verify_infeasible` proves.


def simplify_weights(weights: Floats) -> Row:
    """Return multiples of nearby fractions with small denominators, which clouds of round numbers need."""
    fractions = [Fraction(float(w)).limit_denominator(MAX_DENOMINATOR) for w in weights / weights.max()]
    common = lcm(*(w.denominator for w in fractions))
    return [int(w * common) for w in fractions]


def balance_weights(points: Floats, gaps: GapConstraints, weights: Floats, deadline: Deadline) -> Row | None:
    """Return weights for which the sum of matrices is exactly 0 on all x orthogonal to every token.

    <x, sum x> = 0 there, so a semidefinite sum must be 0 on x. Such x exist if the tokens do not span the
    space, so always for a single token. With P coordinates in which the tokens are independent, each other
    coordinate c has one x = e_c - sum_p X_pc e_p, and sum_k w_k <x, z_leader - z_rival> z_token must be 0.
    The equations of independent tokens are independent.
    """
    exact, start = to_integers(points), [row[0] for row in to_integers(weights[:, None])]
    tokens = np.unique(gaps.token)
    vectors = normalize(points[tokens])[0]
    basis = independent_rows(vectors)
    inner = np.sort(independent_rows(vectors[basis].T)).tolist()
    outer = sorted(set(range(points.shape[1])) - set(inner))
    if not outer:
        return start
    independent = len(basis) == len(tokens)
    if len(inner) < len(basis) or (not independent and len(inner) * len(outer) > MAX_EQUATIONS):
        return None
    normal = _normal_parts(exact, tokens[basis].tolist(), inner, outer, gaps, deadline)
    if independent:
        systems = [[(int(k), normal[k]) for k in np.flatnonzero(gaps.token == token)] for token in tokens]
    else:
        inner_parts = [[exact[token][p] for p in inner] for token in gaps.token.tolist()]
        systems = [[(k, [x * y for x in z for y in normal[k]]) for k, z in enumerate(inner_parts)]]
    return _solve_systems(systems, start, deadline)


def _normal_parts(
    exact: list[Row], basis: list[int], inner: list[int], outer: list[int], gaps: GapConstraints,
    deadline: Deadline,
) -> list[Row]:  # fmt: skip
    """Return <x_c, z_leader - z_rival> for each gap and outer coordinate c, times one integer."""
    X, det = solve([[exact[b][c] for c in (*inner, *outer)] for b in basis], deadline)
    columns = list(zip(outer, zip(*X, strict=True), strict=True))
    parts = []
    for leader, rival in zip(gaps.leader.tolist(), gaps.rival.tolist(), strict=True):
        difference = subtract(exact[leader], exact[rival])
        deadline.check()
        inner_part = [difference[p] for p in inner]
        parts.append([det * difference[c] - dot(inner_part, column) for c, column in columns])
    return parts


def _solve_systems(systems: list[list[tuple[int, Row]]], start: Row, deadline: Deadline) -> Row | None:
    """Solve sum_k w_k equations_k = 0 near multiples of the start, for each system of (k, equations_k).

    The solutions are joined at one scale far finer than doubles resolve.
    """
    solutions = []
    for system in systems:
        solution = solve_near([row for _, row in system], [start[k] for k, _ in system], deadline)
        if solution is None:
            return None
        solutions.append(solution)
    bits = max_bits(scale for _, scale in solutions) + 53
    weights = [0] * len(start)
    for system, (solved, scale) in zip(systems, solutions, strict=True):
        factor = (1 << bits) // scale if len(solutions) > 1 else 1
        for (k, _), w in zip(system, solved, strict=True):
            weights[k] = factor * w
    return weights
