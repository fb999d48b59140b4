"""The certificate by temperature, against runs of softmax attention."""

import numpy as np
import pytest
from clouds import EDGE, EMERGING, SQUARE, TRIANGLE, Floats, random_form, run

from model_export.attention import reference
from service.cloud.margin import NEAR, Gap, apart, largest

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
    """The greatest A-distance of a point's softmax run from its hardmax run, over these layers."""
    soft, hard, most = Z, Z, 0.0
    for _ in range(layers):
        soft, hard = softmax_layer(soft, alpha, A, t), reference.layer(hard, alpha, A, tau=1e-12)
        most = max(most, float(reference.norms(soft - hard, A).max()))
    return most


@pytest.mark.parametrize("name", CASES)
def test_temperature_keeps_softmax_near_at_every_layer(name: str) -> None:
    Z, alpha, A = CASES[name]
    result = run(Z, alpha=alpha, A=A, include=frozenset({"temperature"}))
    found = result.temperature
    form = np.eye(Z.shape[1]) if A is None else A
    assert found.distance == pytest.approx(NEAR * reference.norms(Z / 2.0**400, form).max() * 2.0**400)
    assert found.layers == max(1, result.certified_layer or 0)
    unit = 2.0**450 if abs(Z).max() > 1e100 else 1.0  # the squares of such numbers overflow here
    for share in (1.0, 0.5, 0.1, 0.01):
        way = farthest(Z / unit, alpha, form, share * found.t / unit / unit, found.layers)
        assert way <= found.distance / unit


def test_temperature_is_not_far_below_where_softmax_departs() -> None:
    for name in ("triangle", "emerging", "still", "form"):
        Z, alpha, A = CASES[name]
        found = run(Z, alpha=alpha, A=A, include=frozenset({"temperature"})).temperature
        form = np.eye(Z.shape[1]) if A is None else A
        assert farthest(Z, alpha, form, 30 * found.t, found.layers) > found.distance


def test_temperature_is_claimed_only_with_a_proof() -> None:
    wanted = frozenset({"temperature"})
    assert run(EDGE, include=wanted).temperature is None  # never certified
    assert run(TRIANGLE, include=wanted, tie_tolerance=1e-9).temperature is None
    assert run(TRIANGLE).temperature is None  # not asked for
    lone = run([[1.0, 2.0]], include=wanted).temperature
    assert (lone.t, lone.layers) == (None, 1)


def test_largest_temperature_is_where_the_bound_ends_and_all_lower_ones_are_within() -> None:
    gaps = [Gap(0.3, False), Gap(0.2, True), Gap(0.25, False)]
    T = largest(gaps, 1.0, 100)
    assert apart(T, gaps, 1.0, 100) <= NEAR < apart(1.001 * T, gaps, 1.0, 100)
    lower = [apart(T * share, gaps, 1.0, 100) for share in np.linspace(0.05, 1, 50)]
    assert lower == sorted(lower)
    assert largest([Gap(0.0, False)], 1.0, 100) is None
