"""Dynamics: transformed clouds, the clouds of the paper, and the options and limits of a run."""

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from clouds import (
    EMERGING,
    SQUARE,
    TRIANGLE,
    UNCERTIFIED,
    Floats,
    argmax_sets,
    clouds,
    leader_since,
    load_dynamics,
    random_form,
    run,
)
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial import ConvexHull

from model_export.attention import reference
from service.cloud.dynamics import Parameters, Progress
from service.errors import InvalidInput

alphas = st.sampled_from([0.03, 0.3, 1.0, 4.0, 30.0])
seeds = st.integers(0, 2**32 - 1)
TRAJECTORY = frozenset({"trajectory"})


@given(seed=seeds, n=st.integers(1, 60), d=st.integers(1, 5), alpha=alphas)
def test_dynamics_commutes_with_rotation_scaling_permutation_and_a_change_of_form(
    seed: int, n: int, d: int, alpha: float
) -> None:
    rng = np.random.default_rng(seed)
    Z, A = rng.standard_normal((n, d)), random_form(rng, d)
    plain = run(Z, A=A, alpha=alpha)
    Q, _ = np.linalg.qr(rng.standard_normal((d, d)))
    rotated_A = Q.T @ A @ Q
    rotated = run(Z @ Q, A=(rotated_A + rotated_A.T) / 2, alpha=alpha)
    scaled = run(3e7 * Z, A=1e-5 * A, alpha=alpha)
    order = rng.permutation(n)
    permuted = run(Z[order], A=A, alpha=alpha)
    B = np.linalg.cholesky(A).T
    straightened = run(Z @ B.T, alpha=alpha)
    for result in (rotated, scaled, straightened):
        assert argmax_sets(result) == argmax_sets(plain)
        assert leader_since(result).tolist() == leader_since(plain).tolist()
        assert result.certified_layer == plain.certified_layer
    assert leader_since(permuted).tolist() == leader_since(plain)[order].tolist()
    np.testing.assert_allclose(rotated.limits @ Q.T, plain.limits, atol=1e-9)
    np.testing.assert_allclose(scaled.limits, 3e7 * plain.limits, rtol=1e-9, atol=1e-2)
    np.testing.assert_allclose(permuted.limits, plain.limits[order], atol=1e-12)
    np.testing.assert_allclose(straightened.limits, plain.limits @ B.T, atol=1e-9)


# --- the clouds of the paper


@pytest.mark.parametrize(
    ("points", "layers", "second"),
    # The emerging leader has moved before it leads.
    [(TRIANGLE, [0, 0, 0], TRIANGLE[1]), (EMERGING, [0, 1, 0], [-1 / 18, 5 / 36])],
)
def test_dynamics_of_the_clouds_of_the_paper(points: Floats, layers: list[int], second: Floats) -> None:
    result = run(points, alpha=0.5, max_layers=30)
    assert (result.status, result.certified_layer) == ("certified", 1)
    assert result.leaders.index.tolist() == [0, 1, 2]
    assert result.leaders.since_layer.tolist() == layers
    np.testing.assert_allclose(result.leaders.point[1], second, atol=1e-12)
    assert (result.leaders.followers[1] == 0) == (layers[1] > 0)
    assert result.clusters.tie.tolist() == [False] * 3
    assert result.clusters.size.sum() == len(points)


# --- runs


@given(Z=clouds(), alpha=alphas)
def test_dynamics_closed_form_equals_running_the_layers(Z: Floats, alpha: float) -> None:
    result = run(Z, alpha=alpha, stop="never", max_layers=14)
    points = Z
    for _ in range(14):
        points = reference.layer(points, alpha, tau=1e-12)
    assert result.layers == 14
    np.testing.assert_allclose(result.points, points, rtol=0, atol=2e-11 * abs(Z).max())


@pytest.mark.parametrize("seed", range(6))
def test_dynamics_chunks_equal_one_run_to_the_bit(seed: int) -> None:
    rng = np.random.default_rng(seed)
    Z = rng.standard_normal((60, 3)) * [3.0, 1.0, 0.3]
    chunked = run(Z, alpha=0.05)
    stepwise = run(Z, alpha=0.05, include=TRAJECTORY)  # one layer a chunk
    assert chunked.certified_layer == stepwise.certified_layer >= 0
    np.testing.assert_array_equal(chunked.points, stepwise.points)
    np.testing.assert_array_equal(chunked.assignment, stepwise.assignment)
    assert chunked.margin == stepwise.margin


@pytest.mark.parametrize("seed", range(12))
def test_dynamics_certified_limits_are_reached_by_running_on(seed: int) -> None:
    """Plain numpy reaches what is certified for random clouds, hundreds of layers later."""
    rng = np.random.default_rng(seed)
    d, n = 1 + seed % 8, int(np.exp(rng.uniform(0, np.log(300))))
    A, alpha = random_form(rng, d), float(np.exp(rng.uniform(np.log(0.03), np.log(30))))
    Z = [rng.standard_normal((n, d)), rng.uniform(-1, 1, (n, d)) + 1][seed % 2]
    result = run(Z, alpha=alpha, A=A, max_layers=3000)
    assert result.status == "certified"
    expected = argmax_sets(result)
    points, first_layer = Z, np.full(n, -1)
    for k in range(result.certified_layer + 300):
        C = reference.argmax_sets(points, A, 1e-12)
        if k <= result.certified_layer:
            first_layer[(first_layer < 0) & (C.sum(axis=1) == 1) & C.diagonal()] = k
        if k == result.certified_layer:
            assert [frozenset(np.flatnonzero(row).tolist()) for row in C] == expected
            np.testing.assert_allclose(points, result.points, atol=1e-9)
        if k >= result.certified_layer:
            assert all(row[list(leaders)].any() for row, leaders in zip(C, expected, strict=True))
        points = points + alpha / (1 + alpha) * (reference.means(C, points) - points)
    assert leader_since(result).tolist() == first_layer.tolist()
    remaining = np.abs(result.points - result.limits).max() * (1 + alpha) ** -300.0
    np.testing.assert_allclose(points, result.limits, atol=remaining + 1e-7)


NEVER = {"alpha": 0.5, "stop": "never"}
SLOW = np.random.default_rng(0).standard_normal((200, 2)) * [10.0, 1.0]


@pytest.mark.parametrize(
    ("points", "parameters", "expected"),
    [
        (TRIANGLE, {"alpha": 0.5}, ("certified", 1, 1)),
        (TRIANGLE, {"alpha": 0.5, "stop": "converged", "tolerance": 1e-6}, ("certified", 35, 1)),
        (TRIANGLE, NEVER | {"max_layers": 40}, ("certified", 40, 1)),
        (TRIANGLE, NEVER | {"max_layers": 1}, ("certified", 1, 1)),
        (SLOW, {"alpha": 0.01, "max_layers": 2}, ("max_layers", 2, None)),
        # The layers to the end are infinitely many: this once failed with an error.
        ([[1, 2], [3, 4]], {"alpha": 5e-324, "stop": "converged", "max_layers": 40}, ("certified", 40, 0)),
    ],
)
def test_dynamics_ends_where_it_should_and_names_what_it_reached(
    points: Any, parameters: dict[str, Any], expected: tuple[str, int, int | None]
) -> None:
    result = run(points, **parameters)
    assert (result.status, result.layers, result.certified_layer) == expected
    assert (result.margin is None) == (result.certified_layer is None)
    if "tolerance" in parameters:
        np.testing.assert_allclose(result.points, result.limits, atol=1e-5)
        assert np.abs(result.points - result.limits).max() > 1e-7


def test_dynamics_converges_without_certificate_where_members_of_a_set_travel_for_ever() -> None:
    result = run(UNCERTIFIED)
    assert reference.run(reference.to_fractions(UNCERTIFIED), Fraction(1), 8).certified_layer is None
    assert (result.status, result.certified_layer, result.margin) == ("converged", None, None)


def test_small_integer_clouds_are_certified_but_for_a_few() -> None:
    """1.3 to 3.3 % of them once ended as converged."""
    rng = np.random.default_rng(3)
    ends = []
    for _ in range(1000):
        Z = np.unique(rng.integers(-3, 4, (int(rng.integers(3, 9)), 2)), axis=0).astype(float)
        ends.append(run(Z[Z.any(axis=1)]).status)
    assert ends.count("certified") >= 996


TURN = np.linspace(0.2, 0.3, 3000)
FAN = [[1.0, 0.0], *0.1 * np.stack([np.cos(TURN), np.sin(TURN)], axis=1)]


TIE = [(1, 0, 2), (-1, 0, 2), (0, 0.5, 0.5)]  # two leaders, and a token that moves to their mean
BEHIND = (0, -5, 1.999)  # is second for the mean
LINE = [(0, -5 * t, 2 * t) for t in np.linspace(0.01, 0.5, 303)]
# The fourth point ties for the mean at layer 0, and has moved at the certified layer.
MOVING = [*TIE[:2], (0, 0.25, 0.5), (0, -1, 2), (0, -5, 2 - 2**-10), (0, 1, 1)]


@pytest.mark.parametrize(
    ("points", "minimum"),
    [
        (np.random.default_rng(4).standard_normal((300, 3)), 0),
        (np.array(FAN), 0.01),
        *((np.random.default_rng(seed).standard_normal((2500, 3)), 0) for seed in range(3)),
        (np.array([BEHIND, *TIE, *LINE]), 0),
        (np.array([*TIE, BEHIND, *LINE]), 0),
        (np.array(MOVING), 0),
    ],
    ids=["all pairs", "fan", *"abc", "second of a mean first", "second of a mean", "moved away from a mean"],
)
def test_dynamics_margin_is_the_smallest_relative_gap(points: Floats, minimum: float) -> None:
    A = random_form(np.random.default_rng(4), points.shape[1]) if len(points) == 300 else None
    result = run(points, A=A)
    C = reference.argmax_sets(result.points, A, 1e-12)
    assert result.margin == pytest.approx(reference.margin(result.points, C, A, 1e-12), rel=1e-9)
    assert result.margin > minimum


@pytest.mark.parametrize("scale", [5e-324, 1e-310, 1e-150, 1e150, 8e307])
def test_dynamics_at_extreme_scales_gives_the_same_clusters(scale: float) -> None:
    Z = np.array([[8, 8], [4, -4], [-8, -8], [2, -2], [1, -2], [0, 4]]) / 8 if scale > 1 else SQUARE * 8
    plain, scaled = run(Z), run(Z * scale)
    assert scaled.status == plain.status
    assert argmax_sets(scaled) == argmax_sets(plain)
    np.testing.assert_array_equal(scaled.limits, plain.limits * scale)


@pytest.mark.parametrize("alpha", [1e-300, 1e-9, 1e9, 2.0**53 - 1])
def test_dynamics_with_extreme_alpha_stays_finite(alpha: float) -> None:
    result = run(TRIANGLE, alpha=alpha, max_layers=50)
    assert np.isfinite(result.limits).all()
    assert np.isfinite(result.points).all()


def test_dynamics_vertices_are_those_of_the_hull_of_leaders() -> None:
    for d in (2, 3, 4):
        Z = np.random.default_rng(d).standard_normal((400, d))
        result = run(Z)
        hull = ConvexHull(result.leaders.point)
        assert set(result.vertices) == set(result.leaders.index[hull.vertices])
    planar = run(TRIANGLE, alpha=0.5)
    x, y = TRIANGLE[planar.vertices].T
    assert float(np.sum(x * np.roll(y, -1) - y * np.roll(x, -1))) > 0  # counter-clockwise


def test_dynamics_refuses_an_alpha_whose_step_is_one_in_double_precision() -> None:
    """A run with alpha 1e300 was once certified, with a margin of 0.0."""
    for alpha in (2.0**53, 1e300):
        with pytest.raises(InvalidInput, match=r"alpha should be less than 2\^53") as exc_info:
            run(TRIANGLE, alpha=alpha)
        assert exc_info.value.param == "alpha"


def test_run_reports_every_layer() -> None:
    reports: list[Progress] = []
    result = load_dynamics().run(EMERGING, Parameters(alpha=0.5), reports.append)
    gap = EMERGING - EMERGING[(EMERGING @ EMERGING.T).argmax(1)]
    distance = np.linalg.norm(gap, axis=1).max() / np.linalg.norm(EMERGING, axis=1).max()
    assert reports == [
        Progress(layer=0, leaders=2, distance=pytest.approx(distance)),
        Progress(layer=1, leaders=3, distance=pytest.approx(distance / 1.5)),
    ]
    assert result.certified_layer == 1


def test_run_reports_the_layers_of_a_long_trajectory() -> None:
    """It is certified at layer 1; the other 499 layers are in closed form."""
    reports: list[Progress] = []
    options = Parameters(alpha=0.5, stop="never", max_layers=500, include=TRAJECTORY, trajectory_every=2)
    result = load_dynamics().run(TRIANGLE, options, reports.append)
    assert [report.layer for report in reports][-240:] == list(range(22, 501, 2))
    assert result.trajectory is not None
    assert result.trajectory.layers.tolist() == list(range(0, 501, 2))


def test_dynamics_lists_the_argmax_sets_of_every_layer() -> None:
    """The sets have the indices of the points, twins included."""
    Z = np.concatenate([EMERGING, EMERGING[2:3]])
    result = run(Z, alpha=0.5, include=frozenset({"argmax"}))
    assert result.argmax is not None
    for sets_of_layer in result.argmax:
        C = reference.argmax_sets(Z, tau=1e-12)
        assert [members.tolist() for members in sets_of_layer] == [np.flatnonzero(row).tolist() for row in C]
        Z = reference.layer(Z, 0.5, tau=1e-12)
    assert len(result.argmax) == result.certified_layer + 1


def test_margin_is_a_lower_bound() -> None:
    """It was once .0663 instead of .0625, where rounding of the positions is as large as the gap."""
    rng = np.random.default_rng(11)
    for _ in range(200):
        Z = np.unique(rng.integers(-4, 5, (6, 2)).astype(float), axis=0) * 2.0 ** rng.integers(0, 52, 1)
        Z = Z[Z.any(axis=1)] + rng.integers(-1, 2, 2)
        result = run(Z[Z.any(axis=1)], alpha=2.0**-53, max_layers=1)
        if result.status == "certified" and result.certified_layer == 0 and result.margin is not None:
            exact = reference.to_fractions(Z[Z.any(axis=1)])
            assert result.margin <= reference.margin(exact, reference.argmax_sets(exact)) * (1 + 1e-15)
