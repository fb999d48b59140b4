"""Pictures of plane clouds for `--plot`: the ways of the points, leaders as stars, limits, the polytope.

Draws answers shaped like the API's (with trajectory, limits and polytope included). Needs the extra `plot`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from service.errors import InvalidInput, NotFound
from service.schemas import DynamicsResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WAY, START, LEADER, LIMIT, HULL = "#9aa5b1", "#52606d", "#d9480f", "#1c7ed6", "#e7f0fa"
MOST_WAYS = 2000  # more lines than that are a grey surface


def plot_dynamics(result: DynamicsResult, path: str) -> None:
    """Draw one cloud's way to its limits."""
    _require_plane(result)
    figure = _figure(1)
    _draw(figure.axes[0], result, _title(result))
    _save(figure, path)


def plot_control(before: DynamicsResult, after: DynamicsResult, leaders: Sequence[int], path: str) -> None:
    """Draw the dynamics with A = I beside those with the matrix that was found; wanted leaders are ringed."""
    _require_plane(before)
    figure = _figure(2)
    for axes, result, name in zip(figure.axes, (before, after), ("A = I", "A found"), strict=True):
        _draw(axes, result, f"{name}: {_title(result)}")
        wanted = _layers(result)[0][list(leaders)]
        axes.scatter(wanted[:, 0], wanted[:, 1], s=260, facecolors="none", edgecolors=LEADER, linewidths=1.5)
    _save(figure, path)


def _draw(axes: Axes, result: DynamicsResult, title: str) -> None:
    layers, limits = _layers(result), np.array(result.limits)
    start, ways = layers[0], np.concatenate([layers, limits[None]])  # [layers, n, 2]
    hull = limits[_around(limits, result.polytope.vertices if result.polytope else [])]
    if len(hull) >= 3:
        axes.fill(hull[:, 0], hull[:, 1], color=HULL, zorder=0)
    if len(hull) >= 2:
        axes.plot(*np.vstack([hull, hull[:1]]).T, color=LIMIT, linewidth=1, alpha=0.5, zorder=1)
    if len(start) <= MOST_WAYS:
        axes.plot(ways[:, :, 0], ways[:, :, 1], color=WAY, linewidth=0.8, zorder=2)
    axes.scatter(start[:, 0], start[:, 1], s=14, color=START, zorder=3, label="start")
    ends = np.array([cluster.limit for cluster in result.clusters])
    axes.scatter(ends[:, 0], ends[:, 1], s=46, facecolors="white", edgecolors=LIMIT, zorder=4, label="limit")
    if result.leaders:
        led = np.array([leader.point for leader in result.leaders])
        axes.scatter(led[:, 0], led[:, 1], s=120, marker="*", color=LEADER, zorder=5, label="leader")
    axes.set_title(title, fontsize=10)
    axes.set_aspect("equal", adjustable="datalim")
    axes.margins(0.12)
    axes.legend(frameon=False, fontsize=8)


def _layers(result: DynamicsResult) -> NDArray[np.float64]:
    assert result.trajectory is not None
    return np.array(result.trajectory.points)


def _around(points: NDArray[np.float64], vertices: Sequence[int]) -> list[int]:
    """The vertices of a convex polygon in the order in which they stand around it."""
    if not vertices:
        return []
    chosen = points[list(vertices)]
    x, y = (chosen - chosen.mean(axis=0)).T
    return [vertices[i] for i in np.argsort(np.arctan2(y, x))]


def _title(result: DynamicsResult) -> str:
    end = f"certified at layer {result.certified_layer}" if result.status == "certified" else result.status
    return f"{result.n} points, alpha {result.alpha:g}, {end}"


def _require_plane(result: DynamicsResult) -> None:
    if result.d != 2:
        raise InvalidInput(f"--plot draws points of the plane; these have {result.d} numbers", param="--plot")


def _figure(columns: int) -> Figure:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise NotFound("--plot needs matplotlib: pip install 'hardmax[plot]'", param="--plot") from None
    figure = Figure(figsize=(6.4 * columns, 5.6), layout="constrained")
    figure.subplots(1, columns)
    return figure


def _save(figure: Figure, path: str) -> None:
    try:
        figure.savefig(path, dpi=150)
    except (OSError, ValueError) as failure:  # ValueError: a format matplotlib does not write
        raise InvalidInput(f"{path} cannot be written: {failure}", param="--plot") from None
