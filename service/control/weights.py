"""Integer weights near those of floating point, for proofs that no form exists (control.md).

Both functions only propose weights; certificate.py proves them.
"""

from fractions import Fraction
from math import lcm

import numpy as np

from service.cloud.points import Floats
from service.cloud.rational import dot, max_bits
from service.control.constraints import GapConstraints, normalize
from service.control.deadline import Deadline
from service.control.elimination import Row, independent_rows, solve, solve_near, subtract, to_integers

MAX_EQUATIONS = 256  # that weights of dependent tokens satisfy together
MAX_DENOMINATOR = 64


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
    parts = [np.flatnonzero(gaps.token == t) for t in tokens] if independent else [np.arange(len(gaps))]
    solutions = []
    for part in (rows.tolist() for rows in parts):
        equations = []
        for k in part:
            z = [1] if independent else [exact[gaps.token[k]][p] for p in inner]
            equations.append([x * y for x in z for y in normal[k]])
        solution = solve_near(equations, [start[k] for k in part], deadline)
        if solution is None:
            return None
        solutions.append((part, *solution))
    return _join_solutions(solutions, len(start))


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


def _join_solutions(solutions: list[tuple[list[int], Row, int]], n: int) -> Row:
    """Join solutions near multiples of the start, at one scale far finer than doubles resolve."""
    bits = max_bits(scale for _, _, scale in solutions) + 53
    weights = [0] * n
    for part, solution, scale in solutions:
        factor = (1 << bits) // scale if len(solutions) > 1 else 1
        for k, w in zip(part, solution, strict=True):
            weights[k] = factor * w
    return weights
