"""Clouds too large for one matrix of scores: the same answers, wide margins, and too many ties."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import reference
from clouds import Floats, bundled, run

from service.dynamics import Dynamics
from service.errors import TooLarge


@pytest.fixture(scope="module")
def dynamics() -> Dynamics:
    return bundled()


def test_dynamics_margin_of_a_large_cloud_is_found_however_large_it_is(dynamics: Dynamics) -> None:
    turn = np.linspace(0.2, 0.3, 3000)
    Z = np.concatenate([[[1.0, 0.0]], 0.1 * np.stack([np.cos(turn), np.sin(turn)], axis=1)])
    result = run(dynamics, Z)
    C = reference.argmax_sets(result.points)
    assert result.margin == pytest.approx(reference.margin(result.points, C), rel=1e-9)
    assert result.margin > 0.01


@pytest.mark.parametrize(("cloud", "d"), [("sphere", 64), ("clustered", 64)])
def test_dynamics_finds_wide_margins_in_little_memory(cloud: str, d: int) -> None:
    """In a process of its own: looking at all pairs of 4000 points in 64 dimensions would take gigabytes."""
    command = [sys.executable, "-m", "benchmarks.clouds", "--certify", cloud, "4000", str(d)]
    answer = subprocess.run(
        command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[1]
    )
    _, peak_gib, status, *_ = answer.stdout.split()
    assert status == "certified"
    assert float(peak_gib) < 0.4


def test_dynamics_refuses_a_large_cloud_in_which_everybody_ties(dynamics: Dynamics) -> None:
    """So far from the origin that no two scores differ by more than the tolerance: n^2 ties."""
    Z = np.random.default_rng(0).standard_normal((5000, 2)) + 1e14
    with pytest.raises(TooLarge, match="too many points tie"):
        run(dynamics, Z)


@pytest.mark.parametrize("seed", range(3))
def test_dynamics_margin_of_a_large_cloud_is_its_smallest_gap_and_not_one_seen_by_chance(
    dynamics: Dynamics, seed: int
) -> None:
    result = run(dynamics, np.random.default_rng(seed).standard_normal((2500, 3)))
    C = reference.argmax_sets(result.points)
    assert result.margin == pytest.approx(reference.margin(result.points, C), rel=1e-6)


def grid_and_noise(d: int) -> Floats:
    """2048 points: their pairs are just few enough for one matrix of scores. The grid ties by the dozen."""
    rng = np.random.default_rng(d)
    side = np.arange(-3.0, 4.0)
    grid = np.stack(np.meshgrid(*[side] * d), axis=-1).reshape(-1, d)
    grid = rng.permutation(grid[grid.any(axis=1)])[:700]
    return np.concatenate([grid, rng.uniform(-2.5, 2.5, (2048 - len(grid), d))])


@pytest.mark.parametrize("d", [2, 3, 5])
@pytest.mark.parametrize(("tie_tolerance", "layers"), [(0.0, 1), (1e-12, 6)])
def test_dynamics_gives_the_same_on_both_sides_of_the_size_that_parts_the_ways(
    dynamics: Dynamics, d: int, tie_tolerance: float, layers: int
) -> None:
    """A token more, which nobody can attend to, takes a cloud from the matrix of scores to the bounds.

    Compared to the bit, ties are only sure to be the same while coordinates are small integers.
    """
    Z = grid_and_noise(d)
    extra = np.full((1, d), 0.1)
    names = [
        "points",
        "since",
        "key",
        "hint",
        "clear",
        "layer",
        "target",
        "size",
        "ties",
        "certified",
        "margin",
    ]
    found = []
    for points, key in ((Z, np.ones(2048, np.bool_)), (np.concatenate([Z, extra]), np.arange(2049) < 2048)):
        n = len(points)
        feeds = {
            "points": points, "since": np.full(n, -1), "key": key, "hint": np.arange(n),
            "weights": np.ones(n), "A": np.eye(d), "clear": np.array(True),
            "layer": np.array(0), "layers": np.array(layers), "last": np.array(20),
            "alpha": np.array(0.7), "tolerance": np.array(-1.0), "reach": np.array(2.5),
            "tie_tolerance": np.array(tie_tolerance), "guard": np.array(max(tie_tolerance, 1e-14)),
        }  # fmt: skip
        out = dynamics.session.run(feeds, [f"{name}_out" for name in names])
        found.append(dict(zip(names, out, strict=True)))
    few, many = found
    ties = [{(i, j) for i, j in each["ties"].T.tolist() if i < 2048} for each in found]
    assert ties[0] == ties[1]
    assert ties[0]
    for name in ("since", "key", "hint", "size"):
        np.testing.assert_array_equal(few[name], many[name][:2048])
    for name in ("clear", "layer", "certified"):
        assert few[name] == many[name]
    np.testing.assert_allclose(few["points"], many["points"][:2048], rtol=0, atol=1e-13)
    np.testing.assert_allclose(few["target"], many["target"][:2048], rtol=0, atol=1e-13)
    assert few["margin"] == pytest.approx(many["margin"], abs=1e-13)
