"""Certificates in integer arithmetic: elimination, forms that prove feasibility, weights that refute it."""

import numpy as np
import pytest

from service.control.certificate import _root_below, verify_feasible, verify_infeasible
from service.control.constraints import GapConstraints, LeaderConstraints
from service.control.elimination import Deadline, is_semidefinite, solve, to_integers
from service.errors import DeadlineExceeded


def constraints_of_first_leader(points):
    return LeaderConstraints(points, np.arange(len(points)), np.array([0]), np.array([0]))


def pairs(*triples):
    return GapConstraints(*np.array(triples).T)


def test_integers_are_exact_multiples_of_the_numbers():
    x = np.array([[0.1, -3.0], [0.0, 2.0**-1074]])
    (tenth, three), (zero, smallest) = to_integers(x)
    assert zero == 0
    scale = three // -3
    assert tenth * 2**55 == 3602879701896397 * scale  # 0.1 as a double
    assert smallest * 2**1074 == scale


@pytest.mark.parametrize(
    ("M", "semidefinite", "definite"),
    [
        ([[2, 1], [1, 2]], True, True),
        ([[1, 1], [1, 1]], True, False),
        ([[0, 0], [0, 3]], True, False),
        ([[0, 1], [1, 3]], False, False),
        ([[1, 2], [2, 1]], False, False),
        ([[1, 2, 3], [2, 4, 6], [3, 6, 9]], True, False),
        ([[1, 2, 3], [2, 4, 6], [3, 6, 8]], False, False),
    ],
)
def test_elimination_decides_definiteness(M, semidefinite, definite):
    assert is_semidefinite(M) is semidefinite
    assert is_semidefinite(M, definite=True) is definite


def test_elimination_decides_an_eigenvalue_that_doubles_round():
    """One entry is smaller by one unit, which makes the singular matrix indefinite by one part in 2^212."""
    n = 2**106
    assert is_semidefinite([[n, n], [n, n]])
    assert not is_semidefinite([[n, n], [n, n - 1]])


def test_solve_is_exact_and_needs_pivots():
    M = np.array([[0, 2, 1], [1, 0, 0], [3, 0, 7]], object)
    rhs = np.array([[1], [2], [3]], object)
    X, d = solve(np.hstack([M, rhs]).tolist())
    assert d != 0
    assert (d * rhs == M @ np.array(X, object)).all()
    assert solve([[1, 2, 1], [2, 4, 2]])[1] == 0


def test_verify_feasible_decides_a_gap_that_rounding_hides():
    """Under I the two points tie; a form one ulp away separates them by 2^-104, in either direction."""
    tiny = 2.0**-52
    z = np.array([[1.0, 1.0], [1.0 + tiny, 1.0 - tiny]])
    for entry, feasible in ((1.0, False), (1.0 - tiny, True), (1.0 + tiny, False)):
        assert verify_feasible(constraints_of_first_leader(z), np.diag([entry, 1.0])) is feasible


def test_verify_feasible_refuses_a_form_that_is_not_positive_definite():
    z = np.array([[1.0, 0.0], [0.0, 1.0]])
    for A in ([[1.0, 1.0], [1.0, 1.0]], [[1.0, 0.0], [0.0, -1.0]], [[np.nan, 0.0], [0.0, 1.0]]):
        assert not verify_feasible(constraints_of_first_leader(z), np.array(A))


def test_verify_infeasible_finds_integer_weights_near_those_of_floating_point():
    """For the middle of two points the weights must be exactly equal; in floating point they nearly are."""
    z = np.array([[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]])
    weights = verify_infeasible(z, pairs((1, 1, 0), (1, 1, 2)), np.array([0.5 + 1e-9, 0.5]))
    assert weights == [1, 1]


def test_verify_infeasible_rejects_weights_that_prove_nothing():
    z = np.array([[1.0, 0.0], [2.0, 0.001]])
    assert verify_infeasible(z, pairs((0, 0, 1)), np.array([1.0])) is None


def hard_matrix(d):
    """Return a positive definite matrix of four-thousand-bit integers, which doubles cannot tell apart."""
    rng = np.random.default_rng(d)
    factors, powers = (rng.integers(*span).tolist() for span in ((1, 99, (d, d)), (0, 2000, (d, 1))))
    B = np.array(factors, object) * 2 ** np.array(powers, object)
    return (B @ B.T).tolist()


def test_root_is_rounded_down_among_the_smallest_doubles():
    smallest = 2.0**-1074
    assert _root_below(49, 16 * 2**2148) == smallest  # 1.75 of it
    assert _root_below(1, 4 * 2**2148) == 0.0


def test_elimination_gives_up_at_its_deadline():
    with pytest.raises(DeadlineExceeded):
        is_semidefinite(hard_matrix(12), Deadline(-1))
    assert is_semidefinite(hard_matrix(12))
