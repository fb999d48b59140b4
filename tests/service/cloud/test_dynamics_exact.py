"""Certificates, sets and leaders against rational arithmetic, on clouds made to be hard."""

import math

import numpy as np
import pytest
from clouds import EDGE, EMERGING, SQUARE, TRIANGLE, Floats, load_dynamics, run
from hypothesis import event, given, note, settings
from hypothesis import strategies as st

from model_export.attention import reference
from tests.support.hard_clouds import DEFAULT_LIMITS, LARGE_CLOUD_LIMITS, Case, check, compare, draw


@settings(max_examples=10 * settings.default.max_examples)  # 100,000 clouds in the profile `long`
@given(seed=st.integers(0, 2**32 - 1), limits=st.sampled_from([DEFAULT_LIMITS, LARGE_CLOUD_LIMITS]))
def test_dynamics_equals_rational_arithmetic_on_hard_clouds(
    seed: int, limits: tuple[int, int, float]
) -> None:
    """Half of the candidates are searched as in large clouds: by window, in narrow cones, by length."""
    case = draw(np.random.default_rng(seed))
    note(str(case))
    with pytest.MonkeyPatch.context() as patch:
        for constant, value in zip(
            ("candidates.MAX_PAIRS_ALL_SCORED", "candidates.MAX_PAIRS_BY_LENGTH", "cones.QUERIES_PER_CONE"),
            limits,
            strict=True,
        ):
            patch.setattr(f"service.cloud.{constant}", value)
        event(f"{case.kind}: {check(load_dynamics(), case)}")


def grid(number: int) -> Case:
    """Return a cloud full of ties."""
    rng, d = np.random.default_rng(number), 2 + number % 2
    points = np.stack(np.meshgrid(*[np.arange(-2.0, 3.0)] * d), axis=-1).reshape(-1, d)
    points = rng.permutation(points[points.any(axis=1)])[:40] / 3
    return Case(f"grid {number}", points, [1.0, 0.3, 1e9][number % 3], None)


TURNS = np.array([0.3, 0.3 + 1.3e-6])
RESTING = (EDGE, [[0, 2], [2, 0], [1, 1]], [[0, 3], [3, 0], [1, 2], [2, 1]])
UNDERFLOW = np.array([[-1e-200, -1e-200], [-3e-200, 1e-200], [1e-6, 3e-6]])


@pytest.mark.parametrize(
    ("case", "statuses"),
    [
        *((grid(number), "certified or converged or max_layers") for number in range(6)),
        # Followers that jump to within rounding of their leaders are no ties.
        *((Case(f"alpha {alpha}", TRIANGLE, alpha, None), "certified") for alpha in (1e8, 1e12, 1e14)),
        # A cloud that hardly moves has not converged.
        *((Case(f"alpha {alpha}", EMERGING, alpha, None), "max_layers") for alpha in (1e-12, 1e-9)),
        # Two points of a circle both lead, however near they are.
        (Case("circle", np.stack([np.cos(TURNS), np.sin(TURNS)], axis=1), 1.0, None), "certified"),
        # A token that rests in the middle of an edge is no leader; such clouds once ended as converged.
        *((Case("resting", np.asarray(points, float), 1.0, None), "certified") for points in RESTING),
        (Case("square", SQUARE, 1.0, None), "certified"),
        # Found by fuzzing: the error bound of points near 1e-200 was 0, because it was made of squares.
        (Case("squares underflow", UNDERFLOW, 1.0, np.array([[5.0, 4.0], [4.0, 5.0]])), "converged"),
    ],
    ids=lambda value: value.kind if isinstance(value, Case) else "",
)
def test_dynamics_equals_rational_arithmetic_on_clouds_made_by_hand(case: Case, statuses: str) -> None:
    assert check(load_dynamics(), case) in statuses.split(" or ")


R = math.sqrt(11)
NEARLY_TIED = [(1 + 0.95e-12 * R, 1, 3), (1, -1, 3 - 0.685e-12 * R), (0.9, 0, 0)]


def test_dynamics_near_ties_are_confirmed_by_more_layers() -> None:
    """The third token and the mean of the others tie within 1e-12; what is between them does not."""
    result = run(NEARLY_TIED)
    assert result.status == "certified"
    layers = result.certified_layer + 60
    longer = run(NEARLY_TIED, stop="never", max_layers=layers)
    np.testing.assert_allclose(longer.points, result.limits, atol=1e-12)
    points = np.array(NEARLY_TIED)
    for _ in range(60):
        points = reference.layer(points, 1.0)
    np.testing.assert_allclose(points, result.limits, atol=1e-9)


def test_dynamics_of_ill_conditioned_forms_loses_no_winner_in_large_clouds() -> None:
    """The clouds are too large to compare all pairs, and the forms have condition 1e8."""
    for seed in range(4):
        rng = np.random.default_rng(seed)
        d = 2 + seed % 4
        Q, _ = np.linalg.qr(rng.standard_normal((d, d)))
        A = (Q * np.geomspace(1, 1e-8, d)) @ Q.T
        A = (A + A.T) / 2
        Z = rng.standard_normal((3000, d))
        result = run(Z, A=A, stop="never", max_layers=1)
        longs = Z.astype(np.longdouble)
        best = (longs @ A.astype(np.longdouble) @ longs.T).argmax(axis=1)
        np.testing.assert_allclose(result.points, Z + (Z[best] - Z) / 2, atol=1e-12)


@pytest.mark.parametrize(("points", "layers"), [(EMERGING, 36), (TRIANGLE, 24)])
def test_dynamics_small_alpha_is_proved_over_many_layers(points: Floats, layers: int) -> None:
    """Rounding of many small steps is bounded: what is certified agrees with fractions."""
    result = run(points, alpha=0.01)
    compare(Case("small alpha", points, 0.01, None), result)
    assert (result.status, result.certified_layer) == ("certified", layers)


def test_dynamics_ties_that_rounding_would_break_are_ties() -> None:
    """At layer 2 the first token ties exactly, and alpha = 2 makes float64 miss it by one rounding."""
    Z = np.array([[1, 2], [-1, 1], [0, 2], [2, 2], [1, -1], [0, 1], [0, -1]])
    result = run(Z, alpha=2.0)
    compare(Case("rounding", Z, 2.0, None), result)
    assert result.certified_layer == 3
