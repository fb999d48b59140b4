"""The certificate against exact rational arithmetic: small integer clouds, full of ties."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
import reference
from clouds import bundled, run, sets, since

from service.dynamics import Dynamics

CLOUDS = 400


@pytest.fixture(scope="module")
def dynamics() -> Dynamics:
    return bundled()


def integer_cloud(rng: np.random.Generator) -> np.ndarray:
    """Distinct nonzero points with entries of one digit, in one to three dimensions, in any order."""
    d, n, largest = rng.integers(1, 4), rng.integers(1, 10), rng.integers(1, 4)
    Z = np.unique(rng.integers(-largest, largest + 1, (n, d)), axis=0)
    Z = Z[Z.any(axis=1)]
    return rng.permutation(Z) if len(Z) else np.ones((1, d), np.int64)


@pytest.mark.parametrize("tie_tolerance", [0.0, 1e-12])
def test_certificate_equals_exact_arithmetic_on_clouds_full_of_ties(
    dynamics: Dynamics, tie_tolerance: float
) -> None:
    """What is certified is true: layer, leaders, sets, limits. What is true and not certified is rare: only
    where a comparison to the bit (tolerance 0) met a tie that rounding had broken before."""
    rng = np.random.default_rng(17)
    seen: Counter[tuple[str, bool]] = Counter()
    for _ in range(CLOUDS):
        Z, alpha = integer_cloud(rng), Fraction(int(rng.integers(1, 8)), int(rng.integers(1, 4)))
        truth = reference.run_exactly(Z.tolist(), alpha, 8)
        result = run(dynamics, Z, alpha=float(alpha), tie_tolerance=tie_tolerance)
        seen[result.status, truth.certified_layer is not None] += 1
        if result.status == "certified":
            assert result.certified_layer == truth.certified_layer, Z.tolist()
            assert sets(result) == truth.sets, Z.tolist()
            assert since(result).tolist() == truth.since, Z.tolist()
            np.testing.assert_allclose(result.limits, np.array(truth.targets, float), rtol=0, atol=1e-13)
    assert seen["certified", True] > 0.9 * CLOUDS
    assert seen["certified", False] == 0
    assert seen["converged", True] <= (2 if tie_tolerance == 0 else 0)
    assert seen["max_layers", True] == seen["max_layers", False] == 0


@pytest.mark.parametrize("tie_tolerance", [0.0, 1e-12])
def test_certificate_is_withheld_where_rounding_broke_a_tie(dynamics: Dynamics, tie_tolerance: float) -> None:
    """At layer 2 the first token ties exactly, and alpha = 2 makes float64 miss it by one rounding."""
    Z = [[1, 2], [-1, 1], [0, 2], [2, 2], [1, -1], [0, 1], [0, -1]]
    truth = reference.run_exactly(Z, Fraction(2), 8)
    result = run(dynamics, Z, alpha=2.0, tie_tolerance=tie_tolerance)
    assert truth.certified_layer == 3
    if tie_tolerance:
        assert result.certified_layer == 3
        assert sets(result) == truth.sets
    else:
        assert result.status == "converged"
