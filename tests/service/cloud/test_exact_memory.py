"""What exact arithmetic and argmax sets keep in memory."""

from resource import RUSAGE_SELF, getrusage

import numpy as np
import pytest
from clouds import EDGE, load_dynamics, run

from service.cloud import candidates, rational
from service.cloud.attention import Attention
from service.cloud.points import prepare
from service.cloud.tokens import Tokens
from service.errors import TooLarge
from tests.fuzz.clouds import Case, check


def test_run_keeps_little_of_long_integers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The least alphas make positions grow by a thousand bits a layer; every layer was kept: 370 MB."""
    monkeypatch.setattr(rational, "MAX_CACHED_BITS", 100_000)
    cloud, most = prepare(EDGE, None), 0
    tokens = Tokens(cloud, 1e-300)
    attention = Attention(load_dynamics().session, tokens, 0.0)
    for _ in range(40):
        tokens.settled[:] = -1  # search again for every set
        attention.attend()
        tokens.step()
        known = attention._history.rational.positions
        most = max(most, sum(x.bit_length() for layer in known for z in layer.values() for x in z))
    assert 100_000 < most < 1_000_000  # of six million


@pytest.mark.parametrize("kept", [0, rational.MAX_CACHED_BITS])
def test_positions_that_were_forgotten_are_computed_again(kept: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rational, "MAX_CACHED_BITS", kept)
    rng = np.random.default_rng(1)
    for _ in range(10):
        Z = np.unique(rng.integers(-3, 4, (12, 2)), axis=0)
        Z = Z[Z.any(axis=1)]
        assert check(load_dynamics(), Case("integers", Z, 0.5, None)) != "refused"


def test_dynamics_refuses_sets_that_do_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """8,000 points of which nearly all tie with all took 9 GB: only a piece was bounded, not the layer."""
    monkeypatch.setattr("service.cloud.sets.MAX_MEMBERS", 50_000)
    points = np.random.default_rng(0).normal(size=(300, 8))
    assert run(points, max_layers=1).leaders
    with pytest.raises(TooLarge, match="too many points tie, or nearly"):
        run(points, tie_tolerance=0.9)


@pytest.mark.alone
def test_wall_that_ties_is_refused_in_little_memory() -> None:
    """Row 2 of the third attack: 9 GB. A point on the axis ties with all of the wall, 120 million members."""
    axis, wall = np.zeros((60_000, 2)), np.full((2_000, 2), 3.0)
    axis[:, 0], wall[:, 1] = np.arange(1, 60_001) / 60_001, np.linspace(-1, 1, 2_000)
    before = getrusage(RUSAGE_SELF).ru_maxrss
    with pytest.raises(TooLarge, match="too many points tie, or nearly"):
        load_dynamics().run(np.concatenate([wall, axis]))
    assert getrusage(RUSAGE_SELF).ru_maxrss < before + 400_000  # kB


def test_candidates_come_in_pieces_however_many_are_near(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(candidates, "PAIRS_PER_BATCH", 5_000)
    rows, y = np.arange(600), np.random.default_rng(0).normal(size=(600, 5))
    slack = np.full(600, 100.0)  # everybody is near
    found = list(candidates.screen_keys(load_dynamics().session, rows, y, y, slack))
    assert max(len(pairs.key) for _, pairs in found) <= 5_000 + 600
    assert sum(len(pairs.key) for _, pairs in found) == 600 * 600
    assert sorted(np.concatenate([rows for rows, _ in found])) == list(range(600))
