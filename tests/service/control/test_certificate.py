"""Proofs in integers: elimination, and what forms and weights prove or do not prove."""

import numpy as np
import pytest

from service.control.certificate import verify_feasible, verify_infeasible
from service.control.constraints import GapConstraints, LeaderConstraints
from service.control.deadline import Deadline
from service.control.elimination import is_semidefinite, solve, to_integers
from service.errors import DeadlineExceeded


def first_leads(points):
    return LeaderConstraints(points, np.arange(len(points)), np.array([0]), np.array([0]))


def pairs(*triples):
    return GapConstraints(*np.array(triples).T)


def test_integers_are_the_numbers_exactly():
    x = np.array([[0.1, -3.0], [0.0, 2.0**-1074]])
    (tenth, three), (zero, least) = to_integers(x)
    assert zero == 0
    scale = three // -3
    assert tenth * 2**55 == 3602879701896397 * scale  # 0.1 as a double
    assert least * 2**1074 == scale


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
def test_elimination_knows_the_sign_of_a_matrix(M, semidefinite, definite):
    assert is_semidefinite(M) is semidefinite
    assert is_semidefinite(M, definite=True) is definite


def test_elimination_sees_an_eigenvalue_that_doubles_cannot():
    """One entry is smaller by one unit: that makes the matrix singular less one part in 2^212."""
    n = 2**106
    assert is_semidefinite([[n, n], [n, n]])
    assert not is_semidefinite([[n, n], [n, n - 1]])


def test_solve_is_exact_and_needs_pivots():
    M = np.array([[0, 2, 1], [1, 0, 0], [3, 0, 7]], object)
    right = np.array([[1], [2], [3]], object)
    X, d = solve(np.hstack([M, right]).tolist())
    assert d != 0
    assert (d * right == M @ np.array(X, object)).all()
    assert solve([[1, 2, 1], [2, 4, 2]])[1] == 0


def test_verify_feasible_decides_a_gap_that_rounding_hides():
    """Under I the two points tie; a form one ulp away parts them by 2^-104, in one direction or the other."""
    tiny = 2.0**-52
    z = np.array([[1.0, 1.0], [1.0 + tiny, 1.0 - tiny]])
    for entry, granted in ((1.0, False), (1.0 - tiny, True), (1.0 + tiny, False)):
        assert verify_feasible(first_leads(z), np.diag([entry, 1.0])) is granted


def test_verify_feasible_refuses_a_form_that_is_not_positive_definite():
    z = np.array([[1.0, 0.0], [0.0, 1.0]])
    for A in ([[1.0, 1.0], [1.0, 1.0]], [[1.0, 0.0], [0.0, -1.0]], [[np.nan, 0.0], [0.0, 1.0]]):
        assert not verify_feasible(first_leads(z), np.array(A))


def test_verify_infeasible_finds_whole_weights_near_those_of_floating_point():
    """The middle of two points: the weights must be equal exactly, and floating point has them nearly so."""
    z = np.array([[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]])
    found = verify_infeasible(z, pairs((1, 1, 0), (1, 1, 2)), np.array([0.5 + 1e-9, 0.5]))
    assert found == [1, 1]


def test_verify_infeasible_believes_no_weights_that_prove_nothing():
    z = np.array([[1.0, 0.0], [2.0, 0.001]])
    assert verify_infeasible(z, pairs((0, 0, 1)), np.array([1.0])) is None


def wide(d):
    """A positive definite matrix of integers of four thousand bits, which doubles cannot distinguish."""
    rng = np.random.default_rng(d)
    small, powers = (rng.integers(*span).tolist() for span in ((1, 99, (d, d)), (0, 2000, (d, 1))))
    B = np.array(small, object) * 2 ** np.array(powers, object)
    return (B @ B.T).tolist()


def test_elimination_gives_up_at_its_deadline():
    with pytest.raises(DeadlineExceeded):
        is_semidefinite(wide(12), Deadline(-1))
    assert is_semidefinite(wide(12))
