"""The account of work: exact arithmetic and gathered sets have bounds, and room to stop in between."""

from itertools import chain, islice
from resource import RUSAGE_SELF, getrusage

import numpy as np
import pytest
from clouds import EDGE, Floats, bundled, run, sets
from steps import timed

from service.cloud import candidates, rational
from service.cloud.dynamics import Parameters
from service.cloud.layers import Layers
from service.cloud.points import prepare
from service.cloud.rational import Account, Exhausted
from service.engine.cloud_queue import result_of
from service.errors import TooLarge
from tests.fuzz.clouds import Case, check


def ties(n: int) -> Floats:
    """n points that tie exactly between the first two."""
    x = np.arange(1, n + 1) / (n + 1)
    return np.concatenate([[[0.0, 2.0], [2.0, 0.0]], np.stack([x, x], axis=1)])


def test_account_is_spent_piece_by_piece_and_ends_with_a_sentence() -> None:
    account = Account(10_000_000)
    assert len(list(account.pay(1, 30, 30))) == 0
    assert len(list(account.pay(1, 180_000, 180_000))) == 1
    for digits in (600_000, 1):  # and nothing after that
        with pytest.raises(Exhausted, match="more than 10,000,000 products of digits"):
            result_of(account.pay(1, digits, digits))


def test_layers_stop_after_every_tie_that_is_decided_exactly() -> None:
    """All ties of a piece were one step: a hundred thousand held the queue long after a caller left."""
    layers = Layers(bundled().session, prepare(ties(500), None), 1.0, 0.0)
    assert sum(1 for _ in layers.attend()) >= 500


def test_run_that_spends_its_account_says_why_nothing_is_certified() -> None:
    free, steps = run(ties(50)), bundled().start(ties(50))
    steps.layers.history.account = Account(100_000)
    assert list(steps)
    short = steps.result
    assert (free.status, free.note) == ("certified", None)
    assert (short.status, short.certified_layer) == ("converged", None)
    assert short.note == "not certified: the exact decision would need more than 100,000 products of digits"
    assert sets(short) == sets(free)


def test_run_keeps_little_of_long_integers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The least alphas make positions grow by a thousand bits a layer; every layer was kept: 370 MB."""
    monkeypatch.setattr(rational, "KEPT", 100_000)
    steps = bundled().start(EDGE, Parameters(alpha=1e-300, stop="never", max_layers=40))
    most = 0
    for _ in steps.work:
        exact = steps.layers.history.rational
        known = exact.known if exact else []
        most = max(most, sum(x.bit_length() for layer in known for z in layer.values() for x in z))
    assert (steps.result.layers, steps.result.note) == (40, None)
    assert 100_000 < most < 1_000_000  # of six million


@pytest.mark.parametrize("kept", [0, rational.KEPT])
def test_positions_that_were_forgotten_are_computed_again(kept: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rational, "KEPT", kept)
    rng = np.random.default_rng(1)
    for _ in range(10):
        Z = np.unique(rng.integers(-3, 4, (12, 2)), axis=0)
        Z = Z[Z.any(axis=1)]
        assert check(bundled(), Case("integers", Z, 0.5, None)) != "refused"


def test_dynamics_refuses_sets_that_do_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """8,000 points of which nearly all tie with all took 9 GB: only a piece was bounded, not the layer."""
    monkeypatch.setattr("service.cloud.sets.GATHERED", 50_000)
    points = np.random.default_rng(0).normal(size=(300, 8))
    assert run(points, max_layers=1).leaders
    with pytest.raises(TooLarge, match="too many points tie, or nearly"):
        run(points, tie_tolerance=0.9)


@pytest.mark.alone
def test_wall_that_ties_is_refused_in_short_steps_and_little_memory() -> None:
    """Row 2 of the third attack: 9 GB. A point on the axis ties with all of the wall, 120 million members."""
    axis, wall = np.zeros((60_000, 2)), np.full((2_000, 2), 3.0)
    axis[:, 0], wall[:, 1] = np.arange(1, 60_001) / 60_001, np.linspace(-1, 1, 2_000)
    steps = bundled().start(np.concatenate([wall, axis]))
    before, took = getrusage(RUSAGE_SELF).ru_maxrss, list[float]()
    with pytest.raises(TooLarge, match="too many points tie, or nearly"):
        took.extend(timed(steps.work))
    assert max(took) < 0.15
    assert getrusage(RUSAGE_SELF).ru_maxrss < before + 400_000  # kB


def test_candidates_come_in_pieces_however_many_are_near(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(candidates, "PIECE", 5_000)
    rows, y = np.arange(600), np.random.default_rng(0).normal(size=(600, 5))
    slack = np.full(600, 100.0)  # everybody is near
    found = [piece for piece in candidates.by_length(bundled().session, rows, y, y, slack) if piece]
    assert max(len(pairs.key) for _, pairs in found) <= 5_000 + 600
    assert sum(len(pairs.key) for _, pairs in found) == 600 * 600
    assert sorted(np.concatenate([rows for rows, _ in found])) == list(range(600))


@pytest.mark.alone
def test_no_step_of_points_with_many_coordinates_takes_long() -> None:
    """Steps of the margin took .4 to .6 s of CPU time, and gathered gigabytes. What is left is .15 s: four
    million numbers in one call of numpy, which holds up no other thread.
    """
    points = np.random.default_rng(0).normal(size=(16_000, 256))
    layers = bundled().start(points, Parameters()).layers
    took = list(timed(chain(layers.attend(), islice(layers.margin(), 400))))
    assert len(took) > 400
    assert max(took) < 0.3
