"""The graph of the dynamics gives the results of numpy."""

from pathlib import Path

import numpy as np
import pytest

from model_export.cli import main
from model_export.dynamics import KEYS_PER_RUN, build_dynamics
from service.cloud.candidates import KEYS_PER_RUN as SERVED_KEYS_PER_RUN
from service.runtime.bundle import read_bundle
from service.runtime.session import Runtime
from service.settings import PRETRAINED_FOLDER


@pytest.mark.parametrize(("q", "runs", "d"), [(1, 1, 1), (7, 3, 2), (50, 20, 9)])
def test_screen_names_every_run_with_a_score_near_the_best(q: int, runs: int, d: int) -> None:
    assert KEYS_PER_RUN == SERVED_KEYS_PER_RUN
    rng = np.random.default_rng(q)
    queries = rng.integers(-9, 10, (q, d)).astype(np.float32)  # small enough for exact float32
    keys = rng.integers(-9, 10, (runs * KEYS_PER_RUN, d)).astype(np.float32)
    best = np.where(rng.random(q) < 0.3, 90, -np.inf).astype(np.float32)
    slack = rng.integers(0, 20, q).astype(np.float32)
    session = Runtime("cpu", 1).open(build_dynamics().SerializeToString())
    feeds = {"queries": queries, "keys": keys, "best": best, "slack": slack}
    best_out, named_runs, scores = session.run(feeds, ("best_out", "runs", "scores"))
    truth = queries @ keys.T
    np.testing.assert_array_equal(best_out, np.maximum(best, truth.max(axis=1)))
    tops = truth.reshape(q, runs, KEYS_PER_RUN).max(axis=2)
    np.testing.assert_array_equal(named_runs, np.flatnonzero(tops >= (best_out - slack)[:, None]))
    np.testing.assert_array_equal(scores, truth.reshape(-1, KEYS_PER_RUN)[named_runs])


def test_pretrained_graph_is_the_one_built_here(tmp_path: Path) -> None:
    assert main(["dynamics", "--models-dir", str(tmp_path)]) == 0
    assert read_bundle(tmp_path / "dynamics").digest == read_bundle(PRETRAINED_FOLDER / "dynamics").digest
