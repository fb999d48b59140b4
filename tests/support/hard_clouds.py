"""Hard clouds, and their comparison with rational arithmetic.

The clouds have near ties down to one unit in the last place, alpha from 1e-12 to 1e14, forms of condition
up to 1e12, spheres, grids, lines, equal points, few directions with unequal scales, subnormal numbers, and
points far from the origin. Certificates and the argmax sets of every layer must be those that
`model_export/attention/reference.py` computes in fractions.
"""

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from model_export.attention import reference
from service.cloud import candidates, cones
from service.cloud.dynamics import Dynamics, Parameters, Result
from tests.support.clouds import Floats, argmax_sets, leader_since

LAYERS = 8
DEFAULT_LIMITS = candidates.MAX_PAIRS_ALL_SCORED, candidates.MAX_PAIRS_BY_LENGTH, cones.QUERIES_PER_CONE
LARGE_CLOUD_LIMITS = 0, 0, 2.0**-14


@dataclass(frozen=True)
class Case:
    """A cloud, its step size and its form."""

    kind: str
    points: Floats
    alpha: float
    form: Floats | None


def draw(rng: np.random.Generator) -> Case:
    """Draw a hard cloud."""
    kind = str(rng.choice(list(KINDS)))
    d, n = int(rng.integers(1, 5)), int(rng.integers(1, 9))
    points = KINDS[kind](rng, n, d)
    if rng.random() < 0.3:
        points = _perturb_last_place(rng, points)
    if rng.random() < 0.2:
        points = points[rng.integers(0, len(points), len(points) + 2)]
    points = points[points.any(axis=1)] + 0.0
    if not len(points):
        points = np.ones((1, d))
    if rng.random() < 0.5:
        alpha = float(rng.choice([0.25, 0.5, 1.0, 2.0, 3.0]))
    else:
        alpha = float(10.0 ** rng.uniform(-12, 14))
    return Case(kind, points, alpha, _form(rng, points.shape[1]))


def _integers(rng: np.random.Generator, n: int, d: int) -> Floats:
    return rng.integers(-3, 4, (n, d)).astype(np.float64)


def _faces(rng: np.random.Generator, n: int, d: int) -> Floats:
    """Draw integer points and midpoints of some pairs: tokens that tie or stay between leaders."""
    corners = 2.0 * rng.integers(-2, 3, (n, max(d, 2)))
    pairs = rng.integers(0, n, (int(rng.integers(1, 4)), 2))
    return np.concatenate([corners, corners[pairs].mean(axis=1)])


def _gaussian(rng: np.random.Generator, n: int, d: int) -> Floats:
    return rng.standard_normal((n, d))


def _sphere(rng: np.random.Generator, n: int, d: int) -> Floats:
    points = rng.standard_normal((n, d))
    return points / np.linalg.norm(points, axis=1, keepdims=True)


def _whole_circle(rng: np.random.Generator, n: int, d: int) -> Floats:
    """Draw integer points on one circle, in the first two coordinates: norms tie exactly."""
    circle = np.array([(25, 0), (7, 24), (15, 20), (20, 15), (24, 7), (0, 25)])
    points = np.zeros((n, max(d, 2)))
    points[:, :2] = circle[rng.integers(0, len(circle), n)] * rng.choice([-1, 1], (n, 2))
    return points


def _line(rng: np.random.Generator, n: int, d: int) -> Floats:
    return rng.integers(-8, 9, (n, 1)) * rng.integers(-3, 4, d) / 8 + rng.integers(-2, 3, d)


def _flat(rng: np.random.Generator, n: int, d: int) -> Floats:
    """Draw fewer directions than coordinates, and coordinates of unequal scales."""
    basis = rng.integers(-2, 3, (int(rng.integers(1, d + 1)), d + 1))
    scales = rng.choice([1.0, 3.0, 24.0, 2.0**20, 2.0**-30], d + 1)
    return rng.integers(-3, 4, (n, len(basis))) @ basis * scales


def _duplicates(rng: np.random.Generator, n: int, d: int) -> Floats:
    points = _integers(rng, n, d)
    return points[rng.integers(0, n, n + 3)]


def _grid(rng: np.random.Generator, n: int, d: int) -> Floats:
    side = np.arange(-1.0, 2.0) if d > 1 else np.arange(-3.0, 4.0)
    grid = np.stack(np.meshgrid(*[side] * min(d, 2)), axis=-1).reshape(-1, min(d, 2))
    return rng.permutation(grid)[: n + 3] * float(rng.choice([1.0, 0.1, 1 / 3]))


def _subnormal(rng: np.random.Generator, n: int, d: int) -> Floats:
    return rng.integers(-9, 10, (n, d)) * 5e-324


def _spans(rng: np.random.Generator, n: int, d: int) -> Floats:
    return _integers(rng, n, d) * 10.0 ** rng.choice([-200, -12, -6, 0], (n, 1))


def _far(rng: np.random.Generator, n: int, d: int) -> Floats:
    return _integers(rng, n, d) + 10.0 ** float(rng.choice([2, 6, 12, 15])) * rng.integers(-1, 2, d)


def _near_pairs(rng: np.random.Generator, n: int, d: int) -> Floats:
    """Draw pairs that differ by a few units in the last place, or by 1e-6."""
    half = rng.standard_normal((max(1, n // 2), d))
    return np.concatenate([half, half * (1 + rng.choice([2.0**-52, 2.0**-40, 1e-6], half.shape))])


KINDS: dict[str, Any] = {
    "integers": _integers, "faces": _faces, "gaussian": _gaussian, "sphere": _sphere, "whole circle":
    _whole_circle, "line": _line, "flat": _flat, "twins": _duplicates, "grid": _grid, "subnormal": _subnormal,
    "spans": _spans, "far": _far, "near pairs": _near_pairs,
}  # fmt: skip


def _perturb_last_place(rng: np.random.Generator, points: Floats) -> Floats:
    """Move some coordinates by one unit in the last place."""
    neighbours = np.nextafter(points, np.inf * rng.choice([-1, 1], points.shape))
    return np.where(rng.random(points.shape) < 0.3, neighbours, points)


def _form(rng: np.random.Generator, d: int) -> Floats | None:
    kind = rng.choice(["none", "whole", "ill"])
    if kind == "none":
        return None
    if kind == "whole":
        B = rng.integers(-2, 3, (d, d)).astype(np.float64)
        return B.T @ B + np.eye(d)
    Q, _ = np.linalg.qr(rng.standard_normal((d, d)))
    A = (Q * 10.0 ** -rng.uniform(0, 12, d)) @ Q.T
    return (A + A.T) / 2


def check(dynamics: Dynamics, case: Case) -> str:
    """Return the status of the run; raise an AssertionError if it contradicts rational arithmetic."""
    result = dynamics.run(case.points, Parameters(alpha=case.alpha, A=case.form, max_layers=LAYERS))
    compare(case, result)
    return result.status


def compare(case: Case, result: Result) -> None:
    """Compare argmax sets, leaders, certificate, limits and margin with fractions."""
    distinct, inverse = np.unique(case.points, axis=0, return_inverse=True)
    inverse = inverse.reshape(-1)
    weights = reference.to_fractions(np.bincount(inverse))
    A = None if case.form is None else reference.to_fractions(case.form)
    exact = reference.run(reference.to_fractions(distinct), Fraction(case.alpha), result.layers, A, weights)
    assert result.certified_layer == exact.certified_layer
    duplicates = [frozenset(np.flatnonzero(inverse == i).tolist()) for i in range(len(distinct))]
    expected = [frozenset().union(*(duplicates[j] for j in exact.sets[i])) for i in inverse.tolist()]
    assert argmax_sets(result) == expected
    assert leader_since(result).tolist() == [exact.since_layer[i] for i in inverse.tolist()]
    limits = exact.targets[inverse].astype(float)
    np.testing.assert_allclose(result.limits, limits, rtol=1e-10, atol=1e-10 * np.abs(case.points).max())
    if result.margin is not None:
        squared = reference.squared_margin(exact.points, exact.C, A, w=weights)
        assert Fraction(result.margin) ** 2 <= squared
