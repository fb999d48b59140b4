"""Pictures of clouds in the plane and in space for `--plot`: the ways of points, coloured by where they end.

The colours are those of the page (service/web/page.css). It draws answers shaped like the API's, with
assignment, trajectory, limits and polytope. Needs the extra `plot`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

import service
from hardmax.display import counted
from hardmax.documents import DynamicsResult
from service.errors import InvalidInput, NotFound, needs

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HUES = 8  # clusters beyond these share one grey, as on the page
MOST_WAYS = 2000  # more lines than that are a surface
MOST_NAMES = 24  # leaders that are named


def plot_dynamics(result: DynamicsResult, path: str) -> None:
    """Draw one cloud's way to its limits."""
    figure = _figure(1, result.d)
    _draw(figure.axes[0], result, _title(result))
    _save(figure, path)


def plot_control(before: DynamicsResult, after: DynamicsResult, leaders: Sequence[int], path: str) -> None:
    """Draw the dynamics with A = I beside those with the matrix that was found; wanted leaders are ringed."""
    figure = _figure(2, before.d)
    for axes, result, name in zip(figure.axes, (before, after), ("A = I", "A found"), strict=True):
        _draw(axes, result, f"{name}: {_title(result)}", wanted=leaders)
    _save(figure, path)


@cache
def palette() -> dict[str, str]:
    """The page's colours on light paper, by their names in page.css."""
    css = (Path(service.__file__).parent / "web" / "page.css").read_text(encoding="utf-8")
    return dict(re.findall(r"--([a-z0-9-]+): light-dark\((#[0-9a-f]{6}),", css))


def _draw(axes: Any, result: DynamicsResult, title: str, wanted: Sequence[int] = ()) -> None:
    layers, limits = np.array(result.trajectory.points if result.trajectory else []), np.array(result.limits)
    colours = _colours(result)[np.array(result.assignment)]
    _draw_polytope(axes, limits, result.polytope.vertices if result.polytope else [])
    _draw_ways(axes, np.concatenate([layers, limits[None]]), colours)
    axes.scatter(*layers[0].T, s=14, c=colours, linewidths=0, zorder=3, label="point")
    _draw_ties(axes, result)
    _draw_leaders(axes, result, layers[0])
    if len(wanted):
        ringed = layers[0][list(wanted)]
        axes.scatter(
            *ringed.T, s=240, facecolors="none", edgecolors=palette()["accent"], zorder=6,
            linewidths=1.4, label="wanted leader",
        )  # fmt: skip
    axes.set_title(title, fontsize=10, color=palette()["ink"], loc="left")
    axes.set_facecolor(palette()["card"])
    axes.tick_params(colors=palette()["soft"], labelsize=8)
    if result.d == 2:
        axes.set_aspect("equal", adjustable="datalim")
        axes.margins(0.12)
        for spine in axes.spines.values():
            spine.set_color(palette()["line"])
    else:
        axes.set_aspect("equal")
    axes.legend(frameon=False, fontsize=8, labelcolor=palette()["soft"], loc="best")


def _colours(result: DynamicsResult) -> NDArray[np.str_]:
    """A cluster's colour by its rank in size, as on the page."""
    order = sorted(result.clusters, key=lambda cluster: -cluster.size)
    colours = [""] * len(order)
    for rank, cluster in enumerate(order):
        colours[cluster.id] = palette()[f"hue-{rank}" if rank < HUES else "soft"]
    return np.array(colours)


def _draw_polytope(axes: Any, limits: NDArray[np.float64], vertices: Sequence[int]) -> None:
    hull = limits[list(vertices)]
    if len(hull) >= 2 and limits.shape[1] == 2:  # in space its vertices are the stars
        closed = np.vstack([hull, hull[:1]])
        axes.fill(closed[:, 0], closed[:, 1], color=palette()["well"], zorder=0)
        axes.plot(
            closed[:, 0],
            closed[:, 1],
            color=palette()["line"],
            linewidth=1,
            zorder=1,
            label="hull of the limits",
        )


def _draw_ways(axes: Any, ways: NDArray[np.float64], colours: NDArray[np.str_]) -> None:
    if ways.shape[1] > MOST_WAYS:
        return
    axes.plot([], [], color=palette()["soft"], linewidth=0.8, label="way, in its cluster's colour")
    for colour in np.unique(colours):
        for way in ways[:, colours == colour].transpose(1, 2, 0):
            axes.plot(*way, color=colour, linewidth=0.8, alpha=0.45, zorder=2)


def _draw_ties(axes: Any, result: DynamicsResult) -> None:
    """What follows several at once ends where no leader stands: a ring shows where."""
    colours = _colours(result)
    ties = [cluster for cluster in result.clusters if cluster.kind == "tie"]
    if ties:
        ends = np.array([cluster.limit for cluster in ties])
        own = [colours[cluster.id] for cluster in ties]
        axes.scatter(
            *ends.T, s=52, facecolors=palette()["card"], edgecolors=own, zorder=4,
            label="limit of a tie",
        )  # fmt: skip


def _draw_leaders(axes: Any, result: DynamicsResult, start: NDArray[np.float64]) -> None:
    """Leaders as stars with their indices; only so many are named that names can be read."""
    if not result.leaders:
        return
    colours = _colours(result)
    places = start[[leader.index for leader in result.leaders]]
    own = [colours[leader.cluster] for leader in result.leaders]
    axes.scatter(
        *places.T, s=150, marker="*", c=own, edgecolors=palette()["card"], zorder=5,
        linewidths=0.8, label="leader",
    )  # fmt: skip
    named = sorted(zip(result.leaders, places, strict=True), key=lambda pair: -pair[0].followers)
    for leader, place in named[:MOST_NAMES]:
        axes.text(*place, f"  {leader.index}", fontsize=8, zorder=7, color=palette()["ink"], va="bottom")


def _title(result: DynamicsResult) -> str:
    end = f"certified at layer {result.certified_layer}" if result.status == "certified" else result.status
    leaders = counted(len(result.leaders), "leader")
    return f"{counted(result.n, 'point')}, alpha {result.alpha:g}: {leaders}, {end}"


def _figure(columns: int, d: int) -> Figure:
    if d not in (2, 3):
        raise InvalidInput(f"--plot draws points of two or three numbers; these have {d}", param="--plot")
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise NotFound(needs("--plot", "matplotlib", "plot"), param="--plot") from None
    figure = Figure(figsize=(6.4 * columns, 5.6), layout="constrained", facecolor=palette()["paper"])
    figure.subplots(1, columns, subplot_kw={"projection": "3d" if d == 3 else "rectilinear"})
    return figure


def _save(figure: Figure, path: str) -> None:
    try:
        figure.savefig(path, dpi=150)
    except (OSError, ValueError) as failure:  # ValueError: a format matplotlib does not write
        raise InvalidInput(f"{path} cannot be written: {failure}", param="--plot") from None
