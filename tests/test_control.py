"""The matrix that makes chosen tokens lead: found where there is one, refused with a reason otherwise."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from service.bundle import read_bundle
from service.control import Control, control
from service.dynamics import Dynamics, Parameters
from service.errors import DeadlineExceeded, InferenceError, InvalidInput, TooLarge
from service.runtime import Runtime

pytest.importorskip("clarabel", reason="needs the control extra")

MODELS = Path(__file__).parent.parent / "service" / "models"


@pytest.fixture(scope="module")
def dynamics():
    return Dynamics.load(read_bundle(MODELS / "dynamics"), Runtime("cpu"))


@pytest.fixture
def solve(dynamics):
    def run(points, A):
        started = dynamics.start(points, Parameters(A=A))
        for _ in started:
            pass
        return started.result

    def solve(points, assignment=None, leaders=None, deadline_s=60.0) -> Control:
        return control(np.asarray(points, float), assignment, leaders, run, deadline_s)

    return solve


def assignment_under(points, A):
    """What A makes of the cloud at layer 0: tokens whose target leads, and their targets."""
    first = (points @ A @ points.T).argmax(axis=1)
    return {i: int(leader) for i, leader in enumerate(first) if first[leader] == leader}


def random_form(rng, d):
    B = rng.normal(size=(d, d))
    return B @ B.T + 0.1 * np.eye(d)


@pytest.mark.parametrize(("n", "d"), [(10, 1), (12, 2), (60, 3), (200, 8), (40, 16)])
def test_control_recovers_an_assignment_read_off_a_matrix(solve, n, d):
    rng = np.random.default_rng(n)
    for _ in range(3):
        points = rng.normal(size=(n, d))
        wanted = assignment_under(points, random_form(rng, d))
        found = solve(points, wanted)
        assert found.feasible
        assert np.array_equal(found.A, found.A.T)
        assert np.linalg.eigvalsh(found.A).min() > 0.9e-4
        assert np.trace(found.A) == pytest.approx(d, rel=1e-6)
        assert assignment_under(points, found.A).items() >= wanted.items()
        for token, leader in wanted.items():
            assert leader in found.dynamics.clusters.leaders[found.dynamics.assignment[token]]


def test_control_margin_is_at_least_that_of_the_matrix_the_wish_came_from(solve):
    rng = np.random.default_rng(3)
    points = rng.normal(size=(80, 3))
    A = random_form(rng, 3)
    A *= 3 / np.trace(A)
    wanted = assignment_under(points, A)
    score = (points / np.linalg.norm(points, axis=1)[:, None]) @ A @ points.T
    score /= np.linalg.norm(points, axis=1).max()
    top = np.sort(score[list(wanted)], axis=1)
    found = solve(points, wanted)
    assert found.bound >= (top[:, -1] - top[:, -2]).min()


def test_control_margin_agrees_with_the_certificate(solve):
    rng = np.random.default_rng(0)
    agreed = 0
    for _ in range(20):
        points = rng.normal(size=(15, 2))
        wanted = assignment_under(points, random_form(rng, 2))
        found = solve(points, wanted)
        if len(wanted) == len(points):
            assert found.dynamics.certified_layer == 0
            assert found.margin == pytest.approx(found.dynamics.margin, rel=1e-9)
            agreed += 1
    assert agreed >= 5


def test_control_makes_chosen_tokens_lead(solve):
    points = np.array([[1.0, 0.0], [0.0, 1.0], [1.1, 0.6], [0.6, 1.1], [-0.3, -0.4]])
    assert not any(np.isin([0, 1], np.flatnonzero((points @ points.T).argmax(axis=1) == np.arange(5))))
    found = solve(points, leaders=[0, 1])
    assert found.feasible
    led = dict(zip(found.dynamics.leaders.index, found.dynamics.leaders.since_layer, strict=True))
    assert led[0] == 0
    assert led[1] == 0


def test_control_refuses_what_no_matrix_can_do(solve):
    """A point between two others never leads: it is no vertex of the hull."""
    found = solve([[1.0, 0.0], [0.5, 0.5], [0.0, 1.0], [-1.0, -1.0]], leaders=[1])
    assert not found.feasible
    assert found.A is None
    assert found.dynamics is None
    assert found.bound <= 1e-8
    assert found.worst_pair[:2] == (1, 1)


def test_control_bound_holds_for_every_matrix(solve):
    rng = np.random.default_rng(5)
    points = rng.normal(size=(30, 3))
    inner = int(np.linalg.norm(points, axis=1).argmin())
    found = solve(points, leaders=[inner])
    assert not found.feasible
    z = points / np.linalg.norm(points, axis=1).max()
    q = z[inner] / np.linalg.norm(z[inner])
    for _ in range(200):
        A = random_form(rng, 3)
        score = z @ (A * 3 / np.trace(A)) @ q
        assert score[inner] - np.delete(score, inner).max() <= found.bound + 1e-12


def test_control_takes_twins_for_one_token(solve):
    found = solve([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [-0.2, -0.1]], assignment={0: 1, 2: 2})
    assert found.feasible
    assert found.dynamics.assignment[0] == found.dynamics.assignment[1]


@pytest.mark.parametrize(
    ("points", "assignment", "leaders", "message"),
    [
        ([[1.0, 0.0], [0.0, 1.0]], {0: 1, 1: 0}, None, "point 0 cannot lead"),
        ([[1.0, 0.0], [0.0, 1.0]], {0: 2}, None, "names point 2 of 2"),
        ([[1.0, 0.0], [0.0, 1.0]], None, [], "leaders asks for nothing"),
        ([[1.0, 0.0], [0.0, 0.0]], {1: 0}, None, r"points\[1\] is zero"),
    ],
)
def test_control_refuses_a_wish_that_means_nothing(solve, points, assignment, leaders, message):
    with pytest.raises(InvalidInput, match=message):
        solve(points, assignment, leaders)


def test_control_refuses_dimensions_it_cannot_serve(solve):
    with pytest.raises(TooLarge, match="control takes 64"):
        solve(np.ones((2, 65)), leaders=[0])


def test_control_stops_at_its_deadline(solve):
    rng = np.random.default_rng(1)
    points = rng.normal(size=(300, 12))
    inner = int(np.linalg.norm(points, axis=1).argmin())
    with pytest.raises(DeadlineExceeded):
        solve(points, leaders=[inner], deadline_s=0.0)


def test_control_gives_what_it_has_at_its_deadline(solve):
    """The identity already does what is asked; there is no time to find a larger margin."""
    found = solve([[1.0, 0.0], [0.0, 1.0], [0.5, 0.1]], leaders=[0, 1], deadline_s=0.0)
    assert found.feasible
    assert np.array_equal(found.A, np.eye(2))


def test_control_never_gives_a_matrix_that_a_run_contradicts():
    """A run in which nobody leads."""
    nobody = SimpleNamespace(
        leaders=SimpleNamespace(index=np.array([], int), since_layer=np.array([], int)),
        clusters=SimpleNamespace(leaders=[np.array([0])], tie=np.array([False])),
        assignment=np.zeros(2, int),
    )
    with pytest.raises(InferenceError, match="contradicts"):
        control(np.eye(2), None, [0, 1], lambda points, A: nobody)


def test_control_handles_two_thousand_points(solve):
    rng = np.random.default_rng(8)
    points = rng.normal(size=(2000, 6))
    wanted = assignment_under(points, random_form(rng, 6))
    found = solve(points, wanted)
    assert found.feasible
    assert found.margin > 0
