"""The certificate by temperature, against runs of softmax attention."""

from decimal import Decimal, localcontext

import numpy as np
import pytest
from clouds import EMERGING, SQUARE, TRIANGLE, UNCERTIFIED, Floats, random_form, run

from model_export.attention import reference
from service.cloud.margin import MAX_SOFTMAX_DISTANCE, LayerGap, largest_temperature, max_drift

rng = np.random.default_rng(7)
STILL = np.array([(1.0, 0.2), (-0.9, 0.5), (0.1, -1.0)])  # certified at layer 0
TWINS = np.concatenate([TRIANGLE, TRIANGLE[3:5], TRIANGLE[3:4]])
CASES = {
    "triangle": (TRIANGLE, 0.5, None),
    "emerging": (EMERGING, 0.5, None),
    "slow": (TRIANGLE, 0.05, None),
    "ties": (SQUARE, 1.0, None),
    "ties, late": (SQUARE * [1.0, 1.0] + [0.0, 0.25], 0.3, None),
    "still": (STILL, 2.0, None),
    "twins": (TWINS, 0.5, None),
    "form": (rng.standard_normal((40, 3)), 1.0, 37.0 * random_form(rng, 3)),
    "large numbers": (TRIANGLE * 2.0**450, 0.5, None),
    "space": (rng.standard_normal((60, 5)), 0.2, None),
}


def softmax_layer(Z: Floats, alpha: float, A: Floats, t: float) -> Floats:
    score = Z @ A @ Z.T / t
    weight = np.exp(score - score.max(axis=1, keepdims=True))
    return Z + alpha / (1 + alpha) * (weight / weight.sum(axis=1, keepdims=True) @ Z - Z)


def farthest(Z: Floats, alpha: float, A: Floats, t: float, layers: int) -> float:
    """Return the greatest A-distance of a point's softmax run from its hardmax run, over these layers."""
    soft, hard, distance = Z, Z, 0.0
    for _ in range(layers):
        soft, hard = softmax_layer(soft, alpha, A, t), reference.layer(hard, alpha, A, tau=1e-12)
        distance = max(distance, float(reference.norms(soft - hard, A).max()))
    return distance


@pytest.mark.parametrize("name", CASES)
def test_temperature_keeps_softmax_near_at_every_layer(name: str) -> None:
    Z, alpha, A = CASES[name]
    result = run(Z, alpha=alpha, A=A, include=frozenset({"temperature"}))
    certificate = result.temperature
    form = np.eye(Z.shape[1]) if A is None else A
    assert certificate.distance == pytest.approx(
        MAX_SOFTMAX_DISTANCE * reference.norms(Z / 2.0**400, form).max() * 2.0**400
    )
    assert certificate.layers == max(1, result.certified_layer or 0)
    unit = 2.0**450 if abs(Z).max() > 1e100 else 1.0  # the squares of such numbers overflow here
    for share in (1.0, 0.5, 0.1, 0.01):
        distance = farthest(Z / unit, alpha, form, share * certificate.t / unit / unit, certificate.layers)
        assert distance <= certificate.distance / unit


def test_temperature_is_near_the_one_at_which_softmax_departs() -> None:
    for name in ("triangle", "emerging", "still", "form"):
        Z, alpha, A = CASES[name]
        certificate = run(Z, alpha=alpha, A=A, include=frozenset({"temperature"})).temperature
        form = np.eye(Z.shape[1]) if A is None else A
        assert farthest(Z, alpha, form, 30 * certificate.t, certificate.layers) > certificate.distance


def test_temperature_is_claimed_only_with_a_proof() -> None:
    include = frozenset({"temperature"})
    assert run(UNCERTIFIED, include=include, max_layers=50).temperature is None
    assert run(TRIANGLE).temperature is None  # not requested
    single = run([[1.0, 2.0]], include=include).temperature
    assert (single.t, single.layers) == (None, 1)


def test_largest_temperature_is_at_the_bound_and_lower_ones_are_within() -> None:
    gaps = [LayerGap(0.3, False), LayerGap(0.2, True), LayerGap(0.25, False)]
    T = largest_temperature(gaps, 1.0, 100)
    assert max_drift(T, gaps, 1.0, 100) <= MAX_SOFTMAX_DISTANCE < max_drift(1.001 * T, gaps, 1.0, 100)
    lower = [max_drift(T * share, gaps, 1.0, 100) for share in np.linspace(0.05, 1, 50)]
    assert lower == sorted(lower)
    assert largest_temperature([LayerGap(0.0, False)], 1.0, 100) is None


def test_largest_temperature_holds_where_ties_amplify_less_than_a_double_holds() -> None:
    """exp(-gap / T) was once 0 below exp(-745), and ties then amplified nothing."""
    gaps = [LayerGap(2.5e-7, True)] * 88
    alpha = Decimal("0.004")  # nearly the double
    gamma = alpha / (1 + alpha)
    T = largest_temperature(gaps, 0.004, 12)
    assert T is not None
    with localcontext() as context:
        context.prec, context.Emin = 50, -(10**9)
        distance = Decimal(0)
        for gap in map(Decimal, (gap.smallest for gap in gaps)):
            outside = 11 * (-(gap - 4 * distance) / Decimal(T)).exp()
            distance += 2 * gamma * (outside + 4 * distance / Decimal(T))
    assert float(distance) == pytest.approx(max_drift(T, gaps, 0.004, 12), rel=1e-9)
    assert distance <= MAX_SOFTMAX_DISTANCE


def test_float64_is_not_certified_for_a_form_that_rounding_distorts() -> None:
    """Softmax in double precision is here twice as far away as `distance`."""
    q, N, phi = 0.8544921875, 55376357, 0.06437601004760067
    A = np.eye(4)
    A[:2, :2] = [[1, q], [q, q * q + 2.0**-42]]
    plane = np.zeros((5, 4))
    for row, (a, b) in zip(plane, [(3, 4), (-4, 3), (-0.25, 1.75)], strict=False):
        row[1] = b * N * 2.0**21
        row[0] = a * N - q * row[1]
    plane[3:, 2:] = 5 * N * np.array([(1, 0), (np.cos(phi), np.sin(phi))])
    certificate = run(plane, alpha=10.0, A=A, include=frozenset({"temperature"})).temperature
    assert certificate is not None
    assert not certificate.float64


@pytest.mark.parametrize(
    ("points", "t"),
    [
        ([[1e-171, 0], [1, 0], [0, 1]], 1.9e-172),
        ([[5e-324, 0], [0, 5e-324]], None),
        ([[1e308, 0], [0, 1e308]], None),
    ],
)
def test_temperature_of_tiny_and_huge_coordinates_is_scaled_or_absent(
    points: list[list[float]], t: float | None
) -> None:
    """Such points were once answered with 500."""
    result = run(points, include=frozenset({"temperature"}))
    assert result.status == "certified"
    assert (result.temperature is None) == (t is None)
    if t is not None:
        assert result.temperature.t == pytest.approx(t, rel=0.01)


def test_float64_is_not_certified_where_ties_amplify_rounding() -> None:
    """Exact softmax stays near for 73 layers of persistent ties; in floating point it departs by a third."""
    gaps = [LayerGap(0.01, True)] * 73
    T = largest_temperature(gaps, 0.01, 46)
    assert T is not None
    exact, rounded = max_drift(T, gaps, 0.01, 46), max_drift(T, gaps, 0.01, 46, rounding=2.0**-53)
    assert exact <= MAX_SOFTMAX_DISTANCE < rounded
    assert run(TRIANGLE, alpha=0.5, include=frozenset({"temperature"})).temperature.float64
    assert run(SQUARE, include=frozenset({"temperature"})).temperature.float64


def test_softmax_runs_next_to_hardmax() -> None:
    t = 0.3
    include = frozenset({"softmax", "trajectory"})
    result = run(
        TWINS, alpha=0.5, stop="never", max_layers=4, trajectory_every=2, include=include, temperature=t
    )
    soft, hard, distances = TWINS, TWINS, []
    for layer in range(5):
        if layer in (0, 2, 4):
            np.testing.assert_allclose(result.softmax.points[layer // 2], soft, atol=1e-14)
            distances.append(np.linalg.norm(soft - hard, axis=1).max())
        soft, hard = softmax_layer(soft, 0.5, np.eye(2), t), reference.layer(hard, 0.5, tau=1e-12)
    assert result.softmax.layers.tolist() == [0, 2, 4]
    np.testing.assert_allclose(result.softmax.distance, distances, atol=1e-14)


def test_softmax_uses_the_form_and_its_norm() -> None:
    Z, alpha, A = CASES["form"]
    options = {"stop": "never", "max_layers": 3, "include": frozenset({"softmax"}), "temperature": 5.0}
    result = run(Z, alpha=alpha, A=A, **options)
    assert result.trajectory is None
    assert result.softmax.distance.max() == pytest.approx(farthest(Z, alpha, A, 5.0, 3), rel=1e-9)


def test_softmax_of_large_numbers_is_that_of_small_ones() -> None:
    Z, alpha, A = CASES["form"]
    options = {"stop": "never", "max_layers": 3, "include": frozenset({"softmax"})}
    small = run(Z, alpha=alpha, A=A, temperature=5.0, **options).softmax
    large = run(np.ldexp(Z, 480), alpha=alpha, A=A, temperature=np.ldexp(5.0, 960), **options).softmax
    assert np.array_equal(large.points, np.ldexp(small.points, 480))
    assert np.array_equal(large.distance, np.ldexp(small.distance, 480))


def test_softmax_uses_the_symmetric_part_of_a_form() -> None:
    """Of this form the lower triangle alone is not positive definite."""
    A = np.array([[1, 0.99999999999949], [1.00000000000049, 1]])
    result = run(TRIANGLE, A=A, include=frozenset({"softmax"}), max_layers=3, temperature=1.0)
    assert np.isfinite(result.softmax.points).all()
