"""Certificates, sets and leaders against rational arithmetic, on clouds made to be hard."""

import math
from collections import Counter
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from clouds import EMERGING, TRIANGLE, run, sets, since

from model_export.attention import reference
from service.clouds.dynamics import Dynamics
from tests.fuzz.clouds import KINDS, Case, check, compare, draw


def test_dynamics_equals_rational_arithmetic_on_hard_clouds(dynamics: Dynamics) -> None:
    """The first of the clouds that `python -m tests.fuzz.clouds` draws by the hundred thousand."""
    cases = [draw(np.random.default_rng([0, number])) for number in range(500)]
    seen = Counter(check(dynamics, case) for case in cases)
    assert {case.kind for case in cases} == set(KINDS)
    assert seen["certified"] > 430
    assert seen["converged"] > 0


@pytest.mark.parametrize("number", range(6))
def test_dynamics_equals_rational_arithmetic_on_grids_full_of_ties(dynamics: Dynamics, number: int) -> None:
    rng = np.random.default_rng(number)
    d = 2 + number % 2
    side = np.arange(-2.0, 3.0)
    grid = np.stack(np.meshgrid(*[side] * d), axis=-1).reshape(-1, d)
    points = rng.permutation(grid[grid.any(axis=1)])[:40] / 3
    assert check(dynamics, Case("grid", points, [1.0, 0.3, 1e9][number % 3], None)) != "refused"


R = math.sqrt(11)
NEARLY_TIED = [(1 + 0.95e-12 * R, 1, 3), (1, -1, 3 - 0.685e-12 * R), (0.9, 0, 0)]


@pytest.mark.parametrize("tie_tolerance", [0.0, 1e-12, 1e-11])
def test_dynamics_near_ties_are_not_contradicted_by_running_on(
    dynamics: Dynamics, tie_tolerance: float
) -> None:
    """The third token and the mean of the others tie within 1e-12; what is between them does not."""
    first = run(dynamics, NEARLY_TIED, tie_tolerance=tie_tolerance)
    assert first.status == "certified"
    layers = first.certified_layer + 60
    on = run(dynamics, NEARLY_TIED, tie_tolerance=tie_tolerance, stop="never", max_layers=layers)
    np.testing.assert_allclose(on.points, first.limits, atol=1e-12)
    walked = np.array(NEARLY_TIED)
    for _ in range(60):
        walked = reference.layer(walked, 1.0, tau=tie_tolerance)
    np.testing.assert_allclose(walked, first.limits, atol=1e-9)


@pytest.mark.parametrize("alpha", [1e8, 1e12, 1e14])
def test_dynamics_with_large_alpha_is_certified_where_fractions_are(dynamics: Dynamics, alpha: float) -> None:
    """Followers jump to within rounding of their leaders; nobody takes them for ties."""
    compare(Case("triangle", TRIANGLE, alpha, None), run(dynamics, TRIANGLE, alpha=alpha, max_layers=8))
    for seed in range(40):
        points = np.random.default_rng(seed).standard_normal((12, 2))
        result = run(dynamics, points, alpha=alpha, max_layers=20)
        assert result.status == "certified"
        compare(Case("gaussian", points, alpha, None), result)


@pytest.mark.parametrize("alpha", [1e-12, 1e-9])
def test_dynamics_with_tiny_alpha_has_not_converged_because_it_hardly_moves(
    dynamics: Dynamics, alpha: float
) -> None:
    result = run(dynamics, EMERGING, alpha=alpha, max_layers=5)
    truth = reference.run(reference.exactly(EMERGING), Fraction(alpha), 5)
    assert truth.certified_layer is None
    assert (result.status, result.layers) == ("max_layers", 5)
    assert sets(result) == truth.sets


def test_dynamics_of_ill_conditioned_forms_loses_no_winner_in_large_clouds(dynamics: Dynamics) -> None:
    """Above the size at which all pairs are looked at, under a form of condition 1e8."""
    for seed in range(8):
        rng = np.random.default_rng(seed)
        d = 2 + seed % 4
        Q, _ = np.linalg.qr(rng.standard_normal((d, d)))
        A = (Q * np.geomspace(1, 1e-8, d)) @ Q.T
        A = (A + A.T) / 2
        Z = rng.standard_normal((3000, d))
        result = run(dynamics, Z, A=A, stop="never", max_layers=1)
        longs = Z.astype(np.longdouble)
        best = (longs @ A.astype(np.longdouble) @ longs.T).argmax(axis=1)
        np.testing.assert_allclose(result.points, Z + (Z[best] - Z) / 2, atol=1e-12)


def test_dynamics_two_points_of_a_circle_both_lead_however_near(dynamics: Dynamics) -> None:
    turn = np.array([0.3, 0.3 + 1.3e-6])
    result = run(dynamics, np.stack([np.cos(turn), np.sin(turn)], axis=1))
    assert result.certified_layer == 0
    assert since(result).tolist() == [0, 0]


def test_dynamics_small_alpha_is_proved_over_many_layers(dynamics: Dynamics) -> None:
    """Rounding of many small steps is counted: what is certified is what fractions say."""
    points = np.array([[3, 1], [2, 3], [-2, 1], [-1, -3], [1, 2.5], [0.5, -1], [-0.3, 0.2]])
    result = run(dynamics, points, alpha=0.01, max_layers=200)
    truth = reference.run(reference.exactly(points), Fraction(0.01), 60)
    if result.certified_layer is not None and result.certified_layer <= 60:
        assert truth.certified_layer == result.certified_layer
    assert result.status == "certified"


@pytest.mark.parametrize("tie_tolerance", [0.0, 1e-12])
def test_dynamics_ties_that_rounding_would_break_are_ties(dynamics: Dynamics, tie_tolerance: float) -> None:
    """At layer 2 the first token ties exactly, and alpha = 2 makes float64 miss it by one rounding."""
    Z: Any = [[1, 2], [-1, 1], [0, 2], [2, 2], [1, -1], [0, 1], [0, -1]]
    truth = reference.run(reference.exactly(Z), Fraction(2), 8)
    result = run(dynamics, Z, alpha=2.0, tie_tolerance=tie_tolerance)
    assert truth.certified_layer == result.certified_layer == 3
    assert sets(result) == truth.sets


def test_dynamics_ties_of_points_whose_squares_underflow_are_ties(dynamics: Dynamics) -> None:
    """Found by fuzzing: the error bound of points near 1e-200 was 0, because it was made of squares."""
    points = np.array([[-1e-200, -1e-200], [-3e-200, 1e-200], [1e-6, 3e-6]])
    form = np.array([[5.0, 4.0], [4.0, 5.0]])
    assert check(dynamics, Case("spans", points, 1.0, form)) != "refused"
