"""The matrix that makes chosen tokens lead: found where there is one, refused with a reason otherwise."""

from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest
from clouds import leader_since, run
from control_checks import assert_feasible, assert_refuted, score_gaps, solve_control, squared_margin

from service.control.search import find_form
from service.errors import DeadlineExceeded, InvalidInput, TooLarge


def assignment_under(points, A):
    """What A makes of the cloud at layer 0: tokens whose target leads, and their targets."""
    first = (points @ A @ points.T).argmax(axis=1)
    return {i: int(leader) for i, leader in enumerate(first) if first[leader] == leader}


def drawn(rng, n, d):
    """A cloud, a matrix, and what that makes of the cloud."""
    points, B = rng.normal(size=(n, d)), rng.normal(size=(d, d))
    A = B @ B.T + 0.1 * np.eye(d)
    return points, A, assignment_under(points, A)


@pytest.mark.parametrize(
    ("n", "d", "times"), [(10, 1, 3), (12, 2, 3), (60, 3, 3), (200, 8, 3), (40, 16, 3), (1000, 6, 1)]
)
def test_control_recovers_an_assignment_read_off_a_matrix(n, d, times):
    rng = np.random.default_rng(n)
    for _ in range(times):
        points, _, wanted = drawn(rng, n, d)
        found = solve_control(points, wanted)
        assert found.feasible
        assert found.margin > 0
        assert np.array_equal(found.A, found.A.T)
        assert np.linalg.eigvalsh(found.A).min() > 0
        assert np.trace(found.A) == pytest.approx(d, rel=1e-6)
        assert assignment_under(points, found.A).items() >= wanted.items()
        for token, leader in wanted.items():
            assert leader in found.dynamics.clusters.leaders[found.dynamics.assignment[token]]


def test_control_margin_is_near_that_of_the_matrix_it_was_read_off():
    """Another measure than the one that is maximised, so only near it."""
    rng = np.random.default_rng(3)
    for _ in range(5):
        points, A, wanted = drawn(rng, 80, 3)
        lengths = np.sqrt(np.einsum("ij,jk,ik->i", points, A, points))
        score = points @ A @ points.T / lengths[:, None] / lengths.max()
        top = np.sort(score[list(wanted)], axis=1)
        assert solve_control(points, wanted).margin >= 0.3 * (top[:, -1] - top[:, -2]).min()


def test_control_margin_agrees_with_the_certificate():
    rng = np.random.default_rng(0)
    agreed = 0
    for _ in range(20):
        points, _, wanted = drawn(rng, 15, 2)
        found = solve_control(points, wanted)
        if len(wanted) == len(points):
            assert found.dynamics.certified_layer == 0
            assert found.margin == pytest.approx(found.dynamics.margin, rel=1e-9)
            agreed += 1
    assert agreed >= 5


def test_control_tells_the_margin_of_the_form_that_it_answers():
    """Where the identity is answered, it was that of the form which no doubles hold: 1.34 and 1.73."""
    for points, leaders, margin in (
        ([[1.0, 1e-170], [0.5, -1e-170]], [0], 0.5),
        ([[1.0, 0.0], [0.0, 1e-170]], [0, 1], 1e-170),
    ):
        found = solve_control(points, leaders=leaders)
        assert np.array_equal(found.A, np.eye(2))
        assert found.margin == pytest.approx(margin, rel=1e-9, abs=0)


@pytest.mark.parametrize(
    ("points", "assignment"),
    [
        ([(2, 0, -24), (0, -1, -24)], {0: 0}),  # the margin was 1,419 times that of the form in the answer
        ([(0, -1, 3), (-2, 1, -1), (-1, 0, 1)], {1: 0, 2: 0}),  # was undecided
        ([(3, 3 * 2**20, 0), (-1, -(2**20), 0), (2, 2**21, 0)], {2: 0}),
    ],
)
def test_control_finds_a_form_for_a_flat_cloud_of_unequal_scales(points, assignment):
    wanted = assignment | {leader: leader for leader in assignment.values()}
    assert_feasible(points, wanted, solve_control(points, assignment))


def test_control_rounds_the_margin_down():
    """One form up to a factor, so one margin: (2 - 1) 1 / (2 * 2), and 1 / 3, which no double holds."""
    for points, margin in (([[2.0], [1.0]], Fraction(1, 2)), ([[3.0], [2.0]], Fraction(1, 3))):
        found = solve_control(points, leaders=[0])
        assert Fraction(found.margin) <= margin < Fraction(np.nextafter(found.margin, 1))


def test_control_margin_is_a_bound_where_too_many_pairs_tie():
    """600 points on a circle: every margin is about the same, and not all of them are computed exactly."""
    angle = np.arange(600) * np.pi / 300
    points = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    found = solve_control(points, leaders=range(600))
    square = squared_margin(points[:30], found.A, {0: 0, 10: 10})
    assert Fraction(found.margin) ** 2 <= square
    assert found.margin == pytest.approx(1 - np.cos(np.pi / 300), rel=0.05)


def test_control_makes_chosen_tokens_lead():
    points = np.array([[1.0, 0.0], [0.0, 1.0], [1.1, 0.6], [0.6, 1.1], [-0.3, -0.4]])
    assert not any(np.isin([0, 1], np.flatnonzero((points @ points.T).argmax(axis=1) == np.arange(5))))
    found = solve_control(points, leaders=[0, 1])
    assert found.feasible
    led = dict(zip(found.dynamics.leaders.index, found.dynamics.leaders.since_layer, strict=True))
    assert led[0] == led[1] == 0


@pytest.mark.parametrize(
    ("others", "margin"),
    [
        # With 0.001 it was called infeasible, with 0.01 it was an error.
        *(([[2.0, least]], 0.5) for least in (1e-1, 1e-2, 1e-3, 1e-4, 1e-6, 1e-9, 1e-12)),
        # Scaling does not help here: the largest gap there is shrinks with the square.
        *(([[2.0, nearly], [-3.0, 1.0]], 0.0) for nearly in (1e-1, 1e-3, 1e-5, 1e-7)),
    ],
)
def test_control_finds_a_matrix_at_every_scale_and_for_narrow_gaps(others, margin):
    points = np.array([[1.0, 0.0], *others])
    found = solve_control(points, leaders=[0])
    assert found.feasible
    assert all(gap > 0 for gap in score_gaps(points, found.A, 0, 0)[1:])
    assert np.trace(found.A) == pytest.approx(2)
    assert found.A[0, 0] * found.A[1, 1] > found.A[0, 1] ** 2
    assert found.margin > margin
    if margin and points[1, 1] >= 1e-3:
        assert found.dynamics.leaders.since_layer[list(found.dynamics.leaders.index).index(0)] == 0


def test_control_does_not_depend_on_the_scale_of_a_coordinate():
    rng = np.random.default_rng(2)
    points, _, wanted = drawn(rng, 20, 3)
    before, after = solve_control(points, wanted), solve_control(points * [1, 2.0**-12, 2.0**9], wanted)
    assert after.margin == pytest.approx(before.margin, rel=1e-6)
    assert after.bound == pytest.approx(before.bound, rel=1e-6)


@pytest.mark.parametrize(
    ("points", "leader"),
    [
        ([[1.0, 0.0], [0.5, 0.5], [0.0, 1.0], [-1.0, -1.0]], 1),  # on a side of the hull, exactly
        # Inside it by less than a unit in the last place.
        ([[1.0, 0.0], [0.3, 0.7], [0.0, 1.0], [-1.0, -1.0]], 1),
        ([[1.0, 0.0], [2.0, 0.0]], 0),
        ([[1.0, 1.0, 1.0], [3.0, 1.0, 2.0], [1.0, 3.0, 2.0], [2.0, 2.0, 3.0]], 0),
    ],
)
def test_control_refuses_what_no_matrix_can_do(points, leader):
    """A point of the hull of the others, or one that such a point lies beyond, never leads."""
    found = solve_control(points, leaders=[leader])
    assert (found.feasible, found.A, found.dynamics) == (False, None, None)
    assert found.worst_pair[:2] == (leader, leader)
    assert_refuted(np.array(points), found)


def test_control_refuses_layer_0_for_a_token_that_leads_later():
    """Inside the hull, token 1 leads at layer 0 under no form; under A = I it leads from layer 1."""
    points = np.array([[0.0, 3.0], [1.0, 1.0], [-5.0, 3.0], [-2.0, 0.0], [2.0, 1.0]])
    assert_refuted(points, solve_control(points, leaders=[1]))
    assert leader_since(run(points, alpha=9.0))[1] == 1


def innermost(points):
    return int(np.linalg.norm(points, axis=1).argmin())


@pytest.mark.parametrize("d", [1, 2, 3, 5, 8])
def test_control_refutes_an_inner_point_exactly(d):
    rng = np.random.default_rng(d)
    points = rng.normal(size=(30 * d, d))
    inner = innermost(points)
    for leaders in ([inner], [inner, 0, 1, 2]):
        assert_refuted(points, solve_control(points, leaders=leaders))


def test_control_refutes_an_assignment_at_random():
    """Its certificate needs several tokens."""
    rng = np.random.default_rng(5)
    points = rng.normal(size=(40, 4))
    found = solve_control(
        points, {i: int(leader) for i, leader in enumerate(rng.integers(0, 2, 40)) if i > 1}
    )
    assert_refuted(points, found)
    assert len({token for token, *_ in found.certificate}) > 1


def test_control_never_calls_infeasible_what_a_known_matrix_does():
    """Clouds and forms of every scale; one that no doubles reach may be undecided, and few are."""
    rng = np.random.default_rng(11)
    undecided = 0
    for _ in range(150):
        n, d = int(rng.integers(2, 12)), int(rng.integers(1, 5))
        points = rng.normal(size=(n, d)) * 10.0 ** rng.uniform(-6, 6, d) * 10.0 ** rng.uniform(-2, 2, (n, 1))
        B = rng.normal(size=(d, d)) / 10.0 ** rng.uniform(-6, 6, d)
        A = B @ B.T
        wanted = assignment_under(points, A)
        wanted = {i: j for i, j in wanted.items() if sorted(score_gaps(points, A, i, j))[0] == 0}
        wanted = {i: j for i, j in wanted.items() if wanted.get(j) == j}
        if d > 1 and (np.linalg.eigvalsh(A)[0] <= 0 or not wanted):
            continue
        found = solve_control(points, wanted)
        assert found.feasible is not False
        undecided += found.feasible is None
    assert undecided <= 3


def test_control_says_undecided_and_why(monkeypatch):
    """Where no proof is found the answer claims nothing."""

    def no_proof(*_):
        return None

    monkeypatch.setattr("service.control.search.verify_infeasible", no_proof)
    found = solve_control([[1.0, 0.0], [0.5, 0.5], [0.0, 1.0], [-1.0, -1.0]], leaders=[1])
    assert found.feasible is None
    assert "neither" in found.note
    assert found.worst_pair[:2] == (1, 1)
    assert 0 < found.bound < 1e-6


def test_control_is_undecided_where_a_proof_takes_too_long():
    points = [[1.0, 0.0], [0.3, 0.7], [0.0, 1.0], [-1.0, -1.0]]
    found = solve_control(points, leaders=[1], proof_s=0.0)
    assert found.feasible is None
    assert "takes too long" in found.note
    assert found.worst_pair[:2] == (1, 1)
    assert solve_control(points, leaders=[1]).feasible is False


def test_control_refutes_leaders_whose_equations_are_apart():
    """Two inner points of 32 coordinates: all equations at once took 15 s, and eight more than a minute."""
    rng = np.random.default_rng(0)
    points = rng.normal(size=(800, 32))
    leaders = np.argsort(np.linalg.norm(points, axis=1))[:2].tolist()
    points[leaders] *= 0.1
    assert_refuted(points, solve_control(points, leaders=leaders))


@pytest.mark.parametrize("tiny", [5e-324, 1e-310, 1e-170, 1e-30])
@pytest.mark.parametrize("huge", [1.0, 1e150, 1e308])
def test_control_takes_count_output_numbers_every_size(tiny, huge):
    """These were errors of ours, and warnings in the log; what doubles cannot hold is undecided."""
    for points, leaders, feasible in (
        ([[huge, 0], [0, huge], [huge / 4, huge / 2]], [0], True),
        ([[tiny, tiny], [0, huge], [huge, 0]], [0], False),
        ([[tiny, 0], [0, tiny], [tiny, tiny]], [2], True),
        ([[tiny], [-huge]], [0, 1], True),
        ([[huge], [tiny]], [1], False),
    ):
        found = solve_control(points, leaders=leaders)
        alike = len({abs(x) for row in points for x in row if x and x not in (huge / 4, huge / 2)}) == 1
        assert found.feasible in ((feasible,) if alike else (feasible, None))
        if found.feasible is False:
            assert_refuted(np.array(points), found)


def test_control_lets_a_lone_token_lead():
    for points in ([[2.0, 1.0]], [[2.0, 1.0], [2.0, 1.0]]):
        found = solve_control(points, leaders=[0])
        assert found.feasible
        assert found.margin is None


def test_control_asks_for_no_gap_between_twins():
    """The condition of docs/control.md exempts tokens at the leader's own point."""
    points = [[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]
    found = solve_control(points, leaders=[0])
    assert_feasible(points, {0: 0}, found)
    assert found.dynamics.leaders.index.tolist() == [0, 1, 2]


def test_control_takes_twins_for_one_token():
    found = solve_control([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [-0.2, -0.1]], assignment={0: 1, 2: 2})
    assert found.feasible
    assert found.dynamics.assignment[0] == found.dynamics.assignment[1]


@pytest.mark.parametrize(
    ("points", "assignment", "leaders", "refusal", "message"),
    [
        (np.eye(2), {0: 1, 1: 0}, None, InvalidInput, "point 0 cannot lead"),
        (np.eye(2), {0: 2}, None, InvalidInput, "names point 2 of 2"),
        (np.eye(2), None, [], InvalidInput, "leaders asks for nothing"),
        ([[1.0, 0.0], [0.0, 0.0]], {1: 0}, None, InvalidInput, r"points\[1\] is zero"),
        (np.ones((2, 65)), None, [0], TooLarge, "control takes 64"),
    ],
)
def test_control_refuses_what_means_nothing_or_is_too_large(points, assignment, leaders, refusal, message):
    with pytest.raises(refusal, match=message):
        solve_control(points, assignment, leaders)


def test_control_stops_at_its_deadline():
    points = np.random.default_rng(1).normal(size=(300, 12))
    with pytest.raises(DeadlineExceeded):
        solve_control(points, leaders=[innermost(points)], deadline_s=0.0)


def test_control_gives_what_it_has_at_its_deadline():
    """The identity already does what is asked; there is no time to find a larger margin."""
    found = solve_control([[1.0, 0.0], [0.0, 1.0], [0.5, 0.1]], leaders=[0, 1], deadline_s=0.0)
    assert found.feasible
    assert found.note is None


def test_control_shows_no_run_that_does_not_confirm_the_proof():
    """A run in which nobody leads: the matrix is proved, the run is left out, and the note says so."""

    nobody = SimpleNamespace(
        leaders=SimpleNamespace(index=np.array([], int), since_layer=np.array([], int)),
        clusters=SimpleNamespace(leaders=[np.array([0])], tie=np.array([False])),
        assignment=np.zeros(2, int),
    )
    found = find_form(np.eye(2), None, [0, 1], lambda points, A: nobody)
    assert found.feasible
    assert found.dynamics is None
    assert "cannot follow" in found.note
