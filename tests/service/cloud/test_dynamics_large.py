"""Clouds too large for one matrix of scores: candidates, exact ties, memory and time."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from fractions import Fraction

import numpy as np
import pytest
from clouds import Floats, load_dynamics, run
from numpy.typing import NDArray
from paths import ROOT

from service.cloud import cones
from service.cloud.candidates import score_all_pairs, screen_keys
from service.cloud.cones import CandidateBatch, ConeSearch
from service.cloud.coordinates import Frame, slack_of


@pytest.mark.parametrize("cloud", ["sphere", "clustered"])
def test_dynamics_finds_wide_margins_in_little_memory(cloud: str) -> None:
    """Comparing all pairs of 4000 points in 64 dimensions would take gigabytes; it runs in a new process."""
    command = [sys.executable, "-m", "benchmarks.clouds", "--certify", cloud, "4000", "64"]
    answer = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    _, peak_gib, status, *_ = answer.stdout.split()
    assert status == "certified"
    assert float(peak_gib) < 0.4


def test_dynamics_of_a_cloud_far_from_the_origin_is_certified() -> None:
    """No two scores differ by more than 1e-14: all seem to tie, and exactly one wins."""
    Z = np.random.default_rng(0).standard_normal((5000, 2)) + 1e14
    result = run(Z)
    assert result.status == "certified"
    assert len(result.clusters) == len(result.leaders)
    best = max(range(5000), key=lambda i: Fraction(Z[i, 0]) + Fraction(Z[i, 1]))
    assert result.leaders.index.tolist() == [best]


def grid_and_noise(rng: np.random.Generator, d: int) -> Floats:
    """Return a grid, whose points tie by the dozen, and random points."""
    grid = np.stack(np.meshgrid(*[np.arange(-3.0, 4.0)] * d), axis=-1).reshape(-1, d)
    grid = rng.permutation(grid[grid.any(axis=1)])[:700]
    return np.concatenate([grid, rng.uniform(-2.5, 2.5, (2048 - len(grid), d))])


def shell(rng: np.random.Generator, d: int) -> Floats:
    points = rng.standard_normal((1500, d))
    return points / np.linalg.norm(points, axis=1, keepdims=True)


CLOUDS: dict[str, Callable[[np.random.Generator, int], Floats]] = {
    "grid": grid_and_noise,
    "shifted": lambda rng, d: rng.standard_normal((1500, d)) + 40.0,
    "needle": lambda rng, d: rng.standard_normal((1500, d)) * np.geomspace(1, 1e-6, d),
    "shell": shell,
}


def mark_candidates(batches: Iterator[CandidateBatch], n: int) -> NDArray[np.bool_]:
    """Return a matrix [query, key] that marks the candidates in the batches."""
    marks = np.zeros((n, n), bool)
    for rows, pairs in batches:
        marks[rows[pairs.query], pairs.key] = True
    return marks


@pytest.mark.parametrize("d", [1, 2, 3, 5])
@pytest.mark.parametrize("name", CLOUDS)
def test_candidates_of_every_method_include_all_keys_near_the_best(d: int, name: str) -> None:
    margin = 1e-3 if d % 2 else 0.0
    Z = CLOUDS[name](np.random.default_rng(d), d)
    frame = Frame(Z, None)
    located = frame.centred(Z)
    keys, queries = frame.keys(*located), frame.queries(*located)
    slack = slack_of(queries, keys) + margin
    score = queries.x @ keys.x.T
    needed = score >= score.max(axis=1, keepdims=True) - margin
    rows = np.arange(len(Z))
    methods = {
        "score_all_pairs": score_all_pairs(queries.x, keys.x, slack),
        "screen_keys": screen_keys(load_dynamics().session, rows, queries.x, keys.x, slack),
    }
    if d <= 3:
        methods["by_direction"] = ConeSearch(queries.x, keys.x, slack).batches()
    for method, batches in methods.items():
        assert mark_candidates(batches, len(Z))[needed].all(), method


def test_candidates_of_the_narrowest_cones_include_every_tie(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cones are as narrow as those of a million points; every edge of the polygon ties at the edge of one."""
    monkeypatch.setattr(cones, "QUERIES_PER_CONE", 2.0**-9)
    normals = np.array([(64.0, k) for k in range(-63, 64)])
    edges = np.stack([-normals[:, 1], normals[:, 0]], axis=1)
    half = np.cumsum(edges, axis=0) + np.array([9000.0, -4064.0])  # corners in whole numbers
    Z = np.concatenate([half, -half] + [sign * normals * 2.0**-k for k in (3, 4, 5) for sign in (1, -1)])
    score = Z @ Z.T  # of whole numbers and powers of two: without rounding
    needed = score == score.max(axis=1, keepdims=True)
    assert needed[len(half) * 2 :].sum(axis=1).mean() > 1.9
    candidates = mark_candidates(ConeSearch(Z, Z, np.full(len(Z), 1e-9)).batches(), len(Z))
    assert candidates[needed].all()


@pytest.mark.parametrize("level", range(1, 21))
@pytest.mark.parametrize("d", [2, 3])
def test_exact_ties_at_the_edges_of_cones_are_kept_at_every_depth(level: int, d: int) -> None:
    """From a depth of twelve halvings on, one of two keys that tie at a corner of a cell was once dropped."""
    rng = np.random.default_rng(level)
    for _ in range(50 if level < 16 else 8):  # the edges of all cells of a level are many
        place = rng.integers(1, 2**level, d - 1)  # 0 is in another face
        corner = place / 2 ** (level - 1) - 1  # in the cell that begins there
        u = np.append(1.0, corner)
        across = np.append(-corner[0], np.eye(d - 1)[0]) / 2  # <u, across> is 0, without rounding
        keys = np.array([np.full(d, 2.0) + across, np.full(d, 2.0) - across])
        bits = [(place >> level - 1 - bit) & 1 for bit in range(level)]
        cell = int("".join(str(value) for row in bits for value in row), 2)
        assert cones.cone_codes(u[None], np.ones(1), level).tolist() == [cell]
        candidates, count = cones._prune(np.array([cell]), np.arange(2), np.array([2]), keys, level, 1e-14)
        assert (candidates.tolist(), count.tolist()) == ([0, 1], [2])


def test_exact_ties_are_found_in_a_large_cloud_of_whole_numbers() -> None:
    """(128, 1) ties between two corners; it was certified to end at the wrong one."""
    corners = [(511, 64), (512, -64), (-511, -64), (-512, 64)]
    rng = np.random.default_rng(1)
    noise = np.unique(rng.integers(-300, 300, (280_000, 2)), axis=0)
    noise = rng.permutation(noise[noise.any(axis=1) & (noise[:, 0] != 128 * noise[:, 1])])[:140_000]
    large = run(np.concatenate([corners, [(128, 1), (256, 2)], noise]))
    small = run(np.concatenate([corners, [(128, 1), (256, 2)], noise[:500]]))
    assert large.status == small.status == "certified"
    assert large.limits[4:6].tolist() == small.limits[4:6].tolist()


def test_crowded_cones_are_split_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """They were once not split: a million points in space had two hundred thousand candidates each."""
    x = np.random.default_rng(3).standard_normal((20_000, 3))
    slack = np.full(len(x), 1e-13)

    def count() -> int:
        return sum(len(pairs.key) for _, pairs in ConeSearch(x, x, slack).batches())

    expected = count()
    monkeypatch.setattr(cones, "MAX_BATCH_KEYS", 2**12)
    assert count() == expected < 2 * len(x)
