"""Requests of /control, and their comparison with rational arithmetic.

The clouds are flat with unequal scales, of integers with ties, with equal points, or general. Half of the
requests are derived from a form, so that a solution exists; the others are random. A form must satisfy the
request, its margin must be that of the form as printed, and infeasibility must be proved by the certificate.
`missed` is an integer cloud with a known solution of which none was found.
"""

from typing import Any, NamedTuple

import numpy as np

from model_export.attention.reference import scores, to_fractions
from tests.support.control_checks import assert_feasible, assert_refuted, solve_control

SCALES = np.array([1.0, 1.0, 3.0, 24.0, 100.0, 2.0**20])


class Case(NamedTuple):
    """A cloud and the leaders requested for some points. `known`: a solution exists."""

    kind: str
    points: Any
    assignment: dict[int, int]
    known: bool


def draw(rng: np.random.Generator) -> Case:
    kind = str(rng.choice(list(KINDS)))
    points, scale = KINDS[kind](rng, int(rng.integers(2, 9)), int(rng.integers(2, 5)))
    points = points[points.any(axis=1)] + 0.0
    if not len(points):
        points = np.ones((1, len(scale)))
    known = bool(rng.random() < 0.5)
    assignment = _draw_feasible(rng, points, scale) if known else {}
    if not assignment:
        known, assignment = False, _draw_random(rng, len(points))
    return Case(kind, points, assignment, known)


def _flat(rng: np.random.Generator, n: int, d: int) -> tuple[Any, Any]:
    """Draw fewer directions than coordinates, and coordinates of unequal scales."""
    basis = rng.integers(-2, 3, (int(rng.integers(1, d)), d))
    scale = rng.choice(SCALES, d)
    return rng.integers(-3, 4, (n, len(basis))) @ basis * scale, scale


def _ties(rng: np.random.Generator, n: int, d: int) -> tuple[Any, Any]:
    return rng.integers(-2, 3, (n, d)).astype(float), np.ones(d)


def _duplicates(rng: np.random.Generator, n: int, d: int) -> tuple[Any, Any]:
    points = rng.integers(-3, 4, (n, d)).astype(float)
    return points[rng.integers(0, n, n + 3)], np.ones(d)


def _general(rng: np.random.Generator, n: int, d: int) -> tuple[Any, Any]:
    scale = 10.0 ** rng.uniform(-6, 6, d)
    return rng.standard_normal((n, d)) * scale, scale


KINDS = {"flat": _flat, "ties": _ties, "twins": _duplicates, "general": _general}


def _draw_feasible(rng: np.random.Generator, points: Any, scale: Any) -> dict[int, int]:
    """Return the leaders at layer 0 of a random form, of tokens that follow one point (or equal points)."""
    B = to_fractions(rng.integers(-2, 3, (len(scale), len(scale))).astype(float)) / to_fractions(scale)
    A = B.T @ B + np.diag(1 / to_fractions(scale) ** 2)
    z = to_fractions(points)
    top = scores(z, z, A)
    top = top == top.max(axis=1, keepdims=True)
    duplicates = (z[:, None] == z).all(axis=2)
    leaders = {i: int(row.argmax()) for i, row in enumerate(top) if (row == duplicates[row.argmax()]).all()}
    return {i: leader for i, leader in leaders.items() if leaders.get(leader) == leader}


def _draw_random(rng: np.random.Generator, n: int) -> dict[int, int]:
    leaders = rng.integers(0, n, int(rng.integers(1, 4)))
    followers = rng.integers(0, n, int(rng.integers(0, 6)))
    return {int(i): int(rng.choice(leaders)) for i in followers} | {int(i): int(i) for i in leaders}


def check(case: Case) -> str:
    """Return the outcome of the request; raise an AssertionError if rational arithmetic contradicts it."""
    result = solve_control(case.points, case.assignment)
    assignment = case.assignment | {leader: leader for leader in case.assignment.values()}
    if result.feasible:
        assert_feasible(case.points, assignment, result)
        return "feasible"
    if result.feasible is False:
        assert not case.known
        assert_refuted(case.points, result)
        return "infeasible"
    return "missed" if case.known and case.kind != "general" else "undecided"
