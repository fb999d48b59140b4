"""Draw clouds in the plane and in space with matplotlib: the paths of points, coloured by cluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hardmax.errors import InvalidInput
from hardmax.formatting import CLUSTER_COLORS, pluralize
from hardmax.models.clouds import DynamicsResult, Softmax

if TYPE_CHECKING:
    from matplotlib.figure import Figure

GREY = "#888888"  # of all clusters but the largest, which have hues
MAX_PATHS = 2000  # more lines would merge into a surface
MAX_NAMED_LEADERS = 24


def draw_dynamics(result: DynamicsResult, points: ArrayLike) -> Figure:
    """Draw a run; with softmax attention also its run, and the distance of both at each layer.

    Raises:
        InvalidInput: The points have one number or more than three, or the run has no assignment.
    """
    if result.d not in (2, 3) or not result.assignment:
        problem = 'a plot needs points of two or three numbers, and "assignment" in include'
        raise InvalidInput(problem, param="include" if result.d in (2, 3) else "points")
    softmax = result.softmax
    figure = _figure(2, result.d, plain=1) if softmax else _figure(1, result.d)
    _draw(figure.axes[0], result, points, _title(result))
    if softmax:
        _draw_softmax(figure.axes[1], result, softmax)
        _draw_distance(figure.axes[2], softmax)
    return figure


def _draw_softmax(axes: Any, result: DynamicsResult, softmax: Softmax) -> None:
    """Draw the same points under softmax attention, in the colours of their hardmax clusters."""
    layers = np.array(softmax.points)
    colours = _hues(result)[np.array(result.assignment)]
    if len(layers[0]) <= MAX_PATHS:
        for path, colour in zip(np.moveaxis(layers, 0, 2), colours, strict=True):
            axes.plot(*path, color=colour, linewidth=0.8, alpha=0.45)
    axes.scatter(*layers[-1].T, s=14, c=colours, label=f"point at layer {softmax.layers[-1]}")
    axes.set_title(f"softmax attention, temperature {softmax.temperature:g}", fontsize=10, loc="left")
    axes.set_aspect("equal", **({"adjustable": "datalim"} if result.d == 2 else {}))
    axes.legend(frameon=False, fontsize=8)


def _draw_distance(axes: Any, softmax: Softmax) -> None:
    axes.plot(softmax.layers, softmax.distance, color="k", marker="o", markersize=3)
    axes.set_title("farthest point from its hardmax run", fontsize=10, loc="left")
    axes.set_xlabel("layer")
    axes.set_ylabel("distance (A-norm)")


def draw_control(
    before: DynamicsResult, after: DynamicsResult, points: ArrayLike, leaders: Sequence[int]
) -> Figure:
    """Draw the dynamics with A = I next to those with the matrix found; the chosen leaders are ringed."""
    figure = _figure(2, before.d)
    axes: Any
    for axes, result, name in zip(figure.axes, (before, after), ("A = I", "A found"), strict=True):
        start = _draw(axes, result, points, f"{name}: {_title(result)}")
        ringed = start[list(leaders)]
        axes.scatter(*ringed.T, s=240, facecolors="none", edgecolors="k", label="wanted leader")
        axes.legend(frameon=False, fontsize=8)
    return figure


def _draw(axes: Any, result: DynamicsResult, points: ArrayLike, title: str) -> NDArray[np.float64]:
    """Draw a run, and return the initial points."""
    start = np.asarray(points, np.float64).reshape(result.n, result.d)
    layers = np.array(result.trajectory.points) if result.trajectory else start[None]
    limits = np.array([result.clusters[i].limit for i in result.assignment or []])
    hues = _hues(result)
    colours = hues[np.array(result.assignment)]
    hull = limits[list(result.polytope.vertices if result.polytope else [])]
    if len(hull) >= 2 and result.d == 2:  # in space only its vertices are drawn, as stars
        axes.fill(*hull.T, facecolor="whitesmoke", edgecolor="lightgrey", label="hull of the limits")
    if len(start) <= MAX_PATHS:
        for path, colour in zip(np.stack([*layers, limits], axis=2), colours, strict=True):
            axes.plot(*path, color=colour, linewidth=0.8, alpha=0.45)
    axes.scatter(*start.T, s=14, c=colours, label="point")
    if ties := [cluster for cluster in result.clusters if cluster.kind == "tie"]:
        ends, edges = np.array([tie.limit for tie in ties]), hues[[tie.id for tie in ties]]
        axes.scatter(*ends.T, s=52, facecolors="none", edgecolors=edges, label="limit of a tie")
    leaders = sorted(result.leaders, key=lambda leader: -leader.followers)
    if leaders:
        positions = start[[leader.index for leader in leaders]]
        stars = hues[[leader.cluster for leader in leaders]]
        axes.scatter(*positions.T, s=150, marker="*", c=stars, label="leader")
        for leader, position in zip(leaders[:MAX_NAMED_LEADERS], positions, strict=False):
            axes.text(*position, f"  {leader.index}", fontsize=8)
    axes.set_title(title, fontsize=10, loc="left")
    axes.set_aspect("equal", **({"adjustable": "datalim"} if result.d == 2 else {}))
    axes.legend(frameon=False, fontsize=8)
    return start


def _hues(result: DynamicsResult) -> NDArray[np.str_]:
    """Return the colours of clusters, by their rank in size."""
    hues = np.full(len(result.clusters), GREY)
    largest = sorted(result.clusters, key=lambda cluster: -cluster.size)
    for hue, cluster in zip(CLUSTER_COLORS, largest, strict=False):
        hues[cluster.id] = hue
    return hues


def _title(result: DynamicsResult) -> str:
    end = f"certified at layer {result.certified_layer}" if result.status == "certified" else result.status
    leaders = pluralize(len(result.leaders), "leader")
    return f"{pluralize(result.n, 'point')}, alpha {result.alpha:g}: {leaders}, {end}"


def _figure(clouds: int, d: int, *, plain: int = 0) -> Figure:
    """Return a figure with axes for clouds of dimension d, then plain ones, from left to right."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4 * (clouds + plain), 5.6), layout="constrained")
    for i in range(clouds + plain):
        is_3d = d == 3 and i < clouds
        figure.add_subplot(1, clouds + plain, i + 1, projection="3d" if is_3d else "rectilinear")
    return figure
