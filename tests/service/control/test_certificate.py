"""Proofs in integers: elimination, and what forms and weights prove or do not prove."""

from itertools import islice

import numpy as np
import pytest
from steps import timed

from service.cloud.rational import Account, Exhausted
from service.control.certificate import verify_feasible, verify_infeasible
from service.control.constraints import GapConstraints, LeaderConstraints
from service.control.elimination import integers, is_semidefinite, solve
from service.engine.cloud_queue import result_of


def first_leads(points):
    return LeaderConstraints(points, np.arange(len(points)), np.array([0]), np.array([0]))


def pairs(*triples):
    return GapConstraints(*np.array(triples).T)


def test_integers_are_the_numbers_exactly():
    x = np.array([[0.1, -3.0], [0.0, 2.0**-1074]])
    (tenth, three), (zero, least) = integers(x)
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
    assert result_of(is_semidefinite(M, Account())) is semidefinite
    assert result_of(is_semidefinite(M, Account(), definite=True)) is definite


def test_elimination_sees_an_eigenvalue_that_doubles_cannot():
    """One entry is smaller by one unit: that makes the matrix singular less one part in 2^212."""
    n = 2**106
    assert result_of(is_semidefinite([[n, n], [n, n]], Account()))
    assert not result_of(is_semidefinite([[n, n], [n, n - 1]], Account()))


def test_solve_is_exact_and_needs_pivots():
    M = np.array([[0, 2, 1], [1, 0, 0], [3, 0, 7]], object)
    right = np.array([[1], [2], [3]], object)
    X, d = result_of(solve(np.hstack([M, right]).tolist(), Account()))
    assert d != 0
    assert (d * right == M @ np.array(X, object)).all()
    assert result_of(solve([[1, 2, 1], [2, 4, 2]], Account()))[1] == 0


def test_verify_feasible_decides_a_gap_that_rounding_hides():
    """Under I the two points tie; a form one ulp away parts them by 2^-104, in one direction or the other."""
    tiny = 2.0**-52
    z = np.array([[1.0, 1.0], [1.0 + tiny, 1.0 - tiny]])
    for entry, granted in ((1.0, False), (1.0 - tiny, True), (1.0 + tiny, False)):
        assert result_of(verify_feasible(first_leads(z), np.diag([entry, 1.0]), Account())) is granted


def test_verify_feasible_refuses_a_form_that_is_not_positive_definite():
    z = np.array([[1.0, 0.0], [0.0, 1.0]])
    for A in ([[1.0, 1.0], [1.0, 1.0]], [[1.0, 0.0], [0.0, -1.0]], [[np.nan, 0.0], [0.0, 1.0]]):
        assert not result_of(verify_feasible(first_leads(z), np.array(A), Account()))


def test_verify_infeasible_finds_whole_weights_near_those_of_floating_point():
    """The middle of two points: the weights must be equal exactly, and floating point has them nearly so."""
    z = np.array([[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]])
    found = result_of(
        verify_infeasible(z, pairs((1, 1, 0), (1, 1, 2)), np.array([0.5 + 1e-9, 0.5]), Account())
    )
    assert found == [1, 1]


def test_verify_infeasible_believes_no_weights_that_prove_nothing():
    z = np.array([[1.0, 0.0], [2.0, 0.001]])
    assert result_of(verify_infeasible(z, pairs((0, 0, 1)), np.array([1.0]), Account())) is None


def wide(d):
    """A positive definite matrix of integers of four thousand bits, which doubles cannot tell apart."""
    rng = np.random.default_rng(d)
    small, powers = (rng.integers(*span).tolist() for span in ((1, 99, (d, d)), (0, 2000, (d, 1))))
    B = np.array(small, object) * 2 ** np.array(powers, object)
    return (B @ B.T).tolist()


def assert_short(work):
    took = list(timed(islice(work, 400)))
    assert len(took) == 400
    assert max(took) < 0.1


@pytest.mark.alone
def test_elimination_works_in_short_steps():
    """A step was one operation on what is left of the matrix, 1.3 s here, and nobody else ran meanwhile."""
    assert_short(is_semidefinite(wide(64), Account()))


@pytest.mark.alone
def test_weights_of_tokens_that_depend_on_each_other_are_found_in_short_steps():
    """A thousand conditions with as many equations as there may be: all their products were one step."""
    rng = np.random.default_rng(0)
    points = rng.normal(size=(1300, 32)) * 2.0 ** rng.integers(-400, 400, (1300, 32))
    points[:40, 16:] = 0  # the tokens, of sixteen coordinates
    triples = np.stack([rng.integers(0, 40, 1000), *rng.integers(40, 1300, (2, 1000))], axis=1)
    assert_short(verify_infeasible(points, GapConstraints(*triples.T), np.ones(1000), Account()))


def test_elimination_ends_where_it_would_cost_more_than_its_bound():
    with pytest.raises(Exhausted, match="would need more than 1,000,000 products of digits"):
        result_of(is_semidefinite(wide(12), Account(1_000_000)))
    assert result_of(is_semidefinite(wide(12), Account()))
