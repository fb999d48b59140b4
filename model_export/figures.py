"""The drawings of `reproduce`: numbers and traces become SVG, PNG and GIF. Computes nothing itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib import animation
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from model_export.trace import Trace

INK, RED, BLUE, GREY = "#22252a", "#c0392b", "#2166ac", "#9aa0a6"
AUTHORS_BEST = {2: 79.14, 4: 82.28, 8: 85.05, 16: 88.21}


def accuracy(histories: Mapping[int, Sequence[float]], path: Path) -> None:
    """Validation accuracy an epoch, ours, with the authors' best test accuracy as a dashed line."""
    figure, panels = _panels(len(histories), 2.6)
    for axes, (d, history) in zip(panels, histories.items(), strict=True):
        axes.plot(
            range(1, len(history) + 1), [100 * a for a in history], color=BLUE, marker="o", label="ours"
        )
        axes.axhline(AUTHORS_BEST[d], color=GREY, linestyle="--", label="authors' best")
        axes.set(title=f"d = {d}", xlabel="epoch", ylim=(78, 93))
    panels[0].set_ylabel("accuracy, %")
    panels[0].legend(frameon=False, fontsize=8)
    figure.savefig(path)


def softmax_losses(losses: Mapping[int, Mapping[float, float]], path: Path) -> None:
    """Validation log-loss when the trained model attends with softmax at a temperature; 0 is hardmax."""
    figure, panels = _panels(len(losses), 2.6)
    for axes, (d, by_temperature) in zip(panels, losses.items(), strict=True):
        soft = {t: loss for t, loss in by_temperature.items() if t > 0}
        axes.plot(list(soft), list(soft.values()), color=RED, marker="o", label="softmax")
        axes.axhline(by_temperature[0.0], color=BLUE, label="hardmax")
        axes.set(title=f"d = {d}", xlabel="temperature", xscale="log")
    panels[0].set_ylabel("log-loss")
    panels[0].legend(frameon=False, fontsize=8)
    figure.savefig(path)


def leader_words(counts: Sequence[tuple[str, int]], path: Path) -> None:
    figure = Figure(figsize=(6, 4.2), layout="constrained")
    axes = figure.subplots()
    words, numbers = zip(*reversed(counts), strict=True)
    axes.barh(words, numbers, color=BLUE)
    axes.set(title="How often a word leads (d = 2, confident and correct reviews)", xlabel="reviews")
    figure.savefig(path)


def review(trace: Trace, names: Sequence[str], readout: NDArray[np.float32], bias: float, path: Path) -> None:
    """A review in the plane: each layer's cloud, leaders named, and the line where the answer changes."""
    figure, panels = _panels(len(trace.states), 3.6)
    for layer, axes in enumerate(panels):
        _cloud(axes, trace, layer, names, readout, bias)
    figure.savefig(path, dpi=90)


def review_film(
    trace: Trace, names: Sequence[str], readout: NDArray[np.float32], bias: float, path: Path, frames: int = 8
) -> None:
    figure = Figure(figsize=(4.2, 4.2), layout="constrained")
    axes = figure.subplots()
    last = len(trace.states) - 1

    def draw(frame: int) -> None:
        axes.clear()
        _cloud(axes, trace, min(frame / frames, last), names, readout, bias)

    film = animation.FuncAnimation(figure, draw, frames=last * frames + frames)
    film.save(path, writer=animation.PillowWriter(fps=8), dpi=72)


def clouds(named: Mapping[str, Trace], path: Path) -> None:
    """Figure 2 of the paper: the way of every point, leaders in red."""
    figure, panels = _panels(len(named), 3.6)
    for axes, (title, trace) in zip(panels, named.items(), strict=True):
        for i in range(len(trace.tokens)):
            axes.plot(*trace.states[:, i].T, color=GREY, linewidth=0.8)
        axes.scatter(trace.states[0][:, 0], trace.states[0][:, 1], color=BLUE, s=14, zorder=2)
        lead = trace.leaders
        axes.scatter(trace.states[-1][lead, 0], trace.states[-1][lead, 1], color=RED, s=36, zorder=3)
        axes.set(title=title, aspect="equal")
    figure.savefig(path)


def _cloud(
    axes: Axes, trace: Trace, layer: float, names: Sequence[str], readout: NDArray[np.float32], bias: float
) -> None:
    whole = int(layer)
    part = layer - whole
    Z = trace.states[whole]
    if part > 0:
        Z = (1 - part) * Z + part * trace.states[whole + 1]
    side = trace.states[0] @ readout + bias > 0
    axes.scatter(Z[:, 0], Z[:, 1], c=np.where(side, BLUE, RED), s=12, alpha=0.6)
    lead = trace.leaders[np.argsort(-np.linalg.norm(trace.states[0][trace.leaders], axis=1))][:8]
    for i in lead:
        axes.annotate(names[trace.tokens[i]], Z[i], fontsize=8, color=INK)
    bound = 1.1 * np.abs(trace.states).max()
    normal = readout / np.linalg.norm(readout)
    foot = -bias / np.linalg.norm(readout) * normal
    along = np.array([-normal[1], normal[0]]) * 2 * bound
    axes.plot(*np.stack([foot - along, foot + along]).T, color=GREY, linestyle="--", linewidth=1)
    axes.set(title=f"layer {whole}", xlim=(-bound, bound), ylim=(-bound, bound), aspect="equal")


def _panels(number: int, height: float) -> tuple[Figure, list[Axes]]:
    figure = Figure(figsize=(3.0 * number, height), layout="constrained")
    return figure, list(figure.subplots(1, number, squeeze=False)[0])
