"""Answers of /control, checked by their definition in rational arithmetic."""

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from model_export.attention.reference import Array, to_fractions
from service.cloud.dynamics import Parameters, Result
from service.control.search import ControlResult, find_form
from tests.support.clouds import Floats, bundled


def find(
    points: Any,
    assignment: Mapping[int, int] | None = None,
    leaders: Sequence[int] | None = None,
    deadline_s: float = 60.0,
    **options: Any,
) -> ControlResult:
    """Find a form, with the bundled dynamics to confirm it."""

    def run(points: Floats, A: Floats) -> Result:
        return bundled().run(points, Parameters(A=A, tie_tolerance=0))

    return find_form(np.asarray(points, float), assignment, leaders, run, deadline_s, **options)


def gaps(points: Any, A: Any, token: int, leader: int) -> list[Fraction]:
    """<A z_token, z_leader - z_j> for all j."""
    z = to_fractions(points)
    score = z @ to_fractions(A) @ z[token]
    return list(score[leader] - score)


def pivots(M: Array) -> Iterator[Fraction]:
    """The pivots of a symmetric matrix; a zero pivot whose row is not zero counts as -1."""
    M = M.copy()
    for k, row in enumerate(M):
        yield row[k] if row[k] or not row[k:].any() else Fraction(-1)
        if row[k]:
            M[k + 1 :] -= np.outer(M[k + 1 :, k] / row[k], row)


def squared_margin(points: Any, A: Any, wanted: Mapping[int, int]) -> Fraction | None:
    """The smallest <A z_i, z_l(i) - z_j>^2 / (|z_i|_A max |z|_A)^2 over all j that are no twins of l(i)."""
    z, form = to_fractions(points), to_fractions(A)
    squares = np.einsum("ij,ij->i", z @ form, z)
    margins = [
        gap**2 / (squares[token] * squares.max())
        for token, leader in wanted.items()
        for j, gap in enumerate(gaps(points, A, token, leader))
        if (z[j] != z[leader]).any()
    ]
    return min(margins, default=None)


def assert_feasible(points: Any, wanted: Mapping[int, int], found: ControlResult) -> None:
    """A is positive definite, all gaps are positive, and the margin is that of A, rounded down."""
    assert found.feasible is True
    assert all(pivot > 0 for pivot in pivots(to_fractions(found.A)))
    z = to_fractions(points)
    for token, leader in wanted.items():
        for j, gap in enumerate(gaps(points, found.A, token, leader)):
            assert gap > 0 or not (z[j] != z[leader]).any()
    square = squared_margin(points, found.A, wanted)
    assert (found.margin is None) == (square is None)
    if square is not None:
        assert Fraction(found.margin) ** 2 <= square < Fraction(found.margin * (1 + 1e-9)) ** 2


def assert_refuted(points: Any, found: ControlResult) -> None:
    """The weighted sum of the certificate's matrices has no positive eigenvalue."""
    assert found.feasible is False
    z, total = to_fractions(points), to_fractions(np.zeros(2 * np.shape(points)[1:]))
    for token, leader, rival, weight in found.certificate:
        assert weight > 0
        product = np.outer(z[token], z[leader] - z[rival])
        total = total - weight * (product + product.T)
    assert found.certificate
    assert all(pivot >= 0 for pivot in pivots(total))
