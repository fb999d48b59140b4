"""Several runs of a cloud in one call, and their pictures."""

import numpy as np
import pytest

from hardmax import InvalidInput, Local

POINTS = np.random.default_rng(0).normal(size=(12, 2))
A = np.array([[2.0, 0.5], [0.5, 1.0]])


@pytest.fixture(scope="module")
def hardmax() -> Local:
    return Local()


def test_lists_of_alpha_and_a_are_run_in_turn(hardmax: Local) -> None:
    runs = hardmax.dynamics(POINTS, alpha=[0.1, 0.5], A=[np.eye(2), A])
    single = [hardmax.dynamics(POINTS, alpha=a, A=M) for a in (0.1, 0.5) for M in (np.eye(2), A)]
    assert [run.alpha for run in runs] == [0.1, 0.1, 0.5, 0.5]
    assert [(run.status, run.leaders, run.clusters) for run in runs] == [
        (run.status, run.leaders, run.clusters) for run in single
    ]
    assert runs[0].clusters != runs[1].clusters
    (one,) = hardmax.dynamics(POINTS, alpha=np.array([0.5]))
    assert one.clusters == single[2].clusters
    with pytest.raises(InvalidInput, match="alpha is an empty list"):
        hardmax.dynamics(POINTS, alpha=[])


def test_run_draws_its_points_and_paths(hardmax: Local) -> None:
    run = hardmax.dynamics(POINTS, alpha=0.5)
    axes = run.plot().axes[0]
    assert axes.get_title(loc="left").startswith("12 points, alpha 0.5: ")
    assert {len(line.get_xdata()) for line in axes.lines} == {2}  # from a point to its limit
    traced = hardmax.dynamics(
        POINTS, alpha=0.5, include=["assignment", "trajectory", "softmax"], temperature=0.1
    )
    figure = traced.plot()
    assert len(figure.axes) == 3
    assert {len(line.get_xdata()) for line in figure.axes[0].lines} == {len(traced.trajectory.layers) + 1}
    with pytest.raises(InvalidInput, match="points of two or three numbers"):
        hardmax.dynamics([[1.0], [2.0]], alpha=0.5).plot()
