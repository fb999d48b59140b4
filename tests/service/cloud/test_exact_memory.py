"""The memory of exact arithmetic and of argmax sets."""

from resource import RUSAGE_SELF, getrusage

import numpy as np
import pytest
from clouds import EDGE, load_dynamics, run

from service.cloud import candidates, rational
from service.cloud.attention import Attention
from service.cloud.points import prepare
from service.cloud.tokens import Tokens
from service.errors import TooLarge
from tests.support.hard_clouds import Case, check


def test_run_caches_a_bounded_number_of_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """With tiny alphas positions grow by a thousand bits a layer; all layers together had 370 MB."""
    monkeypatch.setattr(rational, "MAX_CACHED_BITS", 100_000)
    cloud, peak_bits = prepare(EDGE, None), 0
    tokens = Tokens(cloud, 1e-300)
    attention = Attention(load_dynamics().session, tokens)
    for _ in range(40):
        tokens.settled[:] = -1  # so that every set is searched again
        attention.attend()
        tokens.step()
        positions = attention._history.rational.positions
        bits = sum(x.bit_length() for layer in positions for z in layer.values() for x in z)
        peak_bits = max(peak_bits, bits)
    assert 100_000 < peak_bits < 1_000_000  # of six million in all


@pytest.mark.parametrize("max_bits", [0, rational.MAX_CACHED_BITS])
def test_forgotten_positions_are_computed_again(max_bits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rational, "MAX_CACHED_BITS", max_bits)
    rng = np.random.default_rng(1)
    for _ in range(10):
        Z = np.unique(rng.integers(-3, 4, (12, 2)), axis=0)
        Z = Z[Z.any(axis=1)]
        assert check(load_dynamics(), Case("integers", Z, 0.5, None)) != "refused"


def test_dynamics_refuses_sets_that_do_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Points before a wall tie with all of it: a batch was bounded, and a layer was not."""
    monkeypatch.setattr("service.cloud.sets.MAX_MEMBERS", 5_000)
    axis, wall = np.zeros((200, 2)), np.full((40, 2), 3.0)
    axis[:, 0], wall[:, 1] = np.arange(1, 201) / 201, np.linspace(-1, 1, 40)
    assert run(np.concatenate([wall, axis[:50]]), max_layers=1).leaders
    with pytest.raises(TooLarge, match="too many points tie, or nearly"):
        run(np.concatenate([wall, axis]))


@pytest.mark.alone
def test_wall_that_ties_is_refused_in_little_memory() -> None:
    """Every point on the axis ties with all of the wall: 120 million members, which once took 9 GB."""
    axis, wall = np.zeros((60_000, 2)), np.full((2_000, 2), 3.0)
    axis[:, 0], wall[:, 1] = np.arange(1, 60_001) / 60_001, np.linspace(-1, 1, 2_000)
    before = getrusage(RUSAGE_SELF).ru_maxrss
    with pytest.raises(TooLarge, match="too many points tie, or nearly"):
        load_dynamics().run(np.concatenate([wall, axis]))
    assert getrusage(RUSAGE_SELF).ru_maxrss < before + 400_000  # kB


def test_candidates_come_in_bounded_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(candidates, "PAIRS_PER_BATCH", 5_000)
    rows, y = np.arange(600), np.random.default_rng(0).normal(size=(600, 5))
    slack = np.full(600, 100.0)  # every key is a candidate
    batches = list(candidates.screen_keys(load_dynamics().session, rows, y, y, slack))
    assert max(len(pairs.key) for _, pairs in batches) <= 5_000 + 600
    assert sum(len(pairs.key) for _, pairs in batches) == 600 * 600
    assert sorted(np.concatenate([rows for rows, _ in batches])) == list(range(600))
