"""The definition: results by hand, and equal results in floats and in fractions."""

from fractions import Fraction

import numpy as np
from clouds import EMERGING, TRIANGLE

from model_export.attention import reference


def test_reference_layer_of_four_tokens_worked_by_hand() -> None:
    """(2, 0) and (0, 2) lead; (1, 1) ties with both and with itself, and their mean is (1, 1)."""
    Z = reference.to_fractions([[2, 0], [0, 2], [1, 1], [1, 0]])
    C = reference.argmax_sets(Z)
    assert C.astype(int).tolist() == [[1, 0, 0, 0], [0, 1, 0, 0], [1, 1, 1, 0], [1, 0, 0, 0]]
    assert reference.layer(Z, Fraction(1)).tolist() == [[2, 0], [0, 2], [1, 1], [Fraction(3, 2), 0]]
    assert reference.resting_tokens(Z, C).tolist() == [True, True, True, False]
    assert reference.is_certified(Z, C)
    w = reference.to_fractions([3, 1, 2, 1])
    assert reference.resting_tokens(Z, C, w).tolist() == [True, True, False, False]
    assert not reference.is_certified(Z, C, w=w)
    weighted = reference.means(C, Z, w)
    assert weighted.tolist()[2] == [Fraction(8, 6), Fraction(4, 6)]


def test_reference_finds_the_leaders_of_the_golden_clouds() -> None:
    for points, since in ((TRIANGLE, [0, 0, 0]), (EMERGING, [0, 1, 0])):
        exact = reference.run(reference.to_fractions(points), Fraction(1, 2), 5)
        floats = reference.run(points, 0.5, 5)
        assert exact.certified_layer == floats.certified_layer == 1
        assert exact.since_layer == floats.since_layer == [*since, *[-1] * (len(points) - 3)]
        assert exact.sets == floats.sets


def test_reference_with_a_matrix_is_that_of_the_transformed_cloud() -> None:
    rng = np.random.default_rng(0)
    Z, B = rng.standard_normal((20, 3)), rng.standard_normal((3, 3))
    with_matrix, transformed = reference.run(Z, 0.7, 6, A=B.T @ B), reference.run(Z @ B.T, 0.7, 6)
    assert with_matrix.sets == transformed.sets
    np.testing.assert_allclose(with_matrix.points @ B.T, transformed.points, atol=1e-12)
