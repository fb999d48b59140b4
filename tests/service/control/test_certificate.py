"""Certificates in integer arithmetic: elimination, forms that prove feasibility, weights that refute it."""

import numpy as np
import pytest

from service.control.certificate import _root_below, verify_feasible, verify_infeasible
from service.control.constraints import GapConstraints, LeaderConstraints
from service.control.elimination import Deadline, is_semidefinite
from service.errors import DeadlineExceeded


def constraints_of_first_leader(points):
    return LeaderConstraints(points, np.arange(len(points)), np.array([0]), np.array([0]))


def pairs(*triples):
    return GapConstraints(*np.array(triples).T)


def test_elimination_decides_an_eigenvalue_that_doubles_round():
    """One entry is smaller by one unit, which makes the singular matrix indefinite by one part in 2^212."""
    n = 2**106
    assert is_semidefinite([[n, n], [n, n]])
    assert not is_semidefinite([[n, n], [n, n - 1]])


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
