"""Checks of the results of control, by their definition in rational arithmetic."""

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from model_export.attention.reference import Array, to_fractions
from service.cloud.dynamics import Parameters, Result
from service.control.search import ControlResult, find_form
from tests.support.clouds import Floats, load_dynamics


def solve_control(
    points: Any,
    assignment: Mapping[int, int] | None = None,
    leaders: Sequence[int] | None = None,
    deadline_s: float = 60.0,
    **options: Any,
) -> ControlResult:
    """Find a form, and confirm it with the pretrained dynamics."""

    def run(points: Floats, A: Floats) -> Result:
        return load_dynamics().run(points, Parameters(A=A))

    return find_form(np.asarray(points, float), assignment, leaders, run, deadline_s, **options)


def score_gaps(points: Any, A: Any, token: int, leader: int) -> list[Fraction]:
    """Return <A z_token, z_leader - z_j> for all j."""
    z = to_fractions(points)
    score = z @ to_fractions(A) @ z[token]
    return list(score[leader] - score)


def pivots(M: Array) -> Iterator[Fraction]:
    """Yield the pivots of a symmetric matrix; a zero pivot whose row is not zero counts as -1."""
    M = M.copy()
    for k, row in enumerate(M):
        yield row[k] if row[k] or not row[k:].any() else Fraction(-1)
        if row[k]:
            M[k + 1 :] -= np.outer(M[k + 1 :, k] / row[k], row)


def squared_margin(points: Any, A: Any, assignment: Mapping[int, int]) -> Fraction | None:
    """Return the least <A z_i, z_l(i) - z_j>^2 / (|z_i|_A max |z|_A)^2 over all j with z_j != z_l(i)."""
    z, form = to_fractions(points), to_fractions(A)
    squared_norms = np.einsum("ij,ij->i", z @ form, z)
    margins = [
        gap**2 / (squared_norms[token] * squared_norms.max())
        for token, leader in assignment.items()
        for j, gap in enumerate(score_gaps(points, A, token, leader))
        if (z[j] != z[leader]).any()
    ]
    return min(margins, default=None)


def assert_feasible(points: Any, assignment: Mapping[int, int], result: ControlResult) -> None:
    """Assert that A is positive definite, all gaps are positive, and the margin of A is rounded down."""
    assert result.feasible is True
    assert all(pivot > 0 for pivot in pivots(to_fractions(result.A)))
    z = to_fractions(points)
    for token, leader in assignment.items():
        for j, gap in enumerate(score_gaps(points, result.A, token, leader)):
            assert gap > 0 or not (z[j] != z[leader]).any()
    squared = squared_margin(points, result.A, assignment)
    assert (result.margin is None) == (squared is None)
    if squared is not None:
        assert Fraction(result.margin) ** 2 <= squared < Fraction(result.margin * (1 + 1e-9)) ** 2


def assert_refuted(points: Any, result: ControlResult) -> None:
    """Assert that the weighted sum of the certificate's matrices has no positive eigenvalue."""
    assert result.feasible is False
    z, total = to_fractions(points), to_fractions(np.zeros(2 * np.shape(points)[1:]))
    for token, leader, rival, weight in result.certificate:
        assert weight > 0
        product = np.outer(z[token], z[leader] - z[rival])
        total = total - weight * (product + product.T)
    assert result.certificate
    assert all(pivot >= 0 for pivot in pivots(total))
