"""Draws docs/figures/exact.png: one small data set on its way through the blocks of its transformer.

Run from the root: python docs/figures/exact.py
"""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes

from model_export.exact.command import BuiltClassifier, build_classifier
from model_export.exact.data import make_examples

COLOURS = {"circle": "#0072b2", "square": "#d55e00", "star": "#009e73"}
TOKENS = np.array([[-0.9, -0.4], [-0.3, 0.8], [0.2, -0.7], [0.6, 0.5], [1.0, -0.1]])
A, B, C, D, E = TOKENS
ROWS = [
    {"sequence": [A, B], "label": "circle"},
    {"sequence": [A, B, C], "label": "square"},
    {"sequence": [B, C, D, E], "label": "circle"},
    {"sequence": [B, D, E], "label": "star"},
    {"sequence": [B, D, D, E], "label": "square"},
    {"sequence": [A, C, E], "label": "star"},
]


def draw_input(axes: Axes) -> None:
    for row in ROWS:
        points = np.array(row["sequence"])
        axes.plot(*points.T, color=COLOURS[row["label"]], alpha=0.35, lw=2, zorder=1)
    axes.scatter(*TOKENS.T, s=40, color="black", zorder=2)
    axes.set_title("input: 6 sequences over 5 points of the plane", fontsize=9)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.set_aspect("equal", adjustable="datalim")


def draw_codes(axes: Axes, states: list[np.ndarray], title: str, origin: float) -> None:
    """Each sequence a row, its tokens where their codes g are; flagged tokens (f = 1) are stars."""
    for height, (row, X) in enumerate(zip(ROWS, states, strict=True)):
        colour, flagged = COLOURS[row["label"]], X[:, 1] == 1
        axes.axhline(-height, color="0.9", lw=0.8, zorder=0)
        axes.scatter(X[~flagged, 0] - origin, np.full((~flagged).sum(), -height), s=26, color=colour)
        axes.scatter(X[flagged, 0] - origin, np.full(flagged.sum(), -height), s=110, color=colour, marker="*")
    axes.set_title(title, fontsize=9)
    axes.set_yticks([])
    axes.tick_params(labelsize=7)


def draw_outputs(axes: Axes, states: list[np.ndarray]) -> None:
    for height, (row, X) in enumerate(zip(ROWS, states, strict=True)):
        axes.axhline(-height, color="0.9", lw=0.8, zorder=0)
        axes.scatter(X[:, 1], np.full(len(X), -height), s=60, color=COLOURS[row["label"]])
    axes.set_title("read-out: f is the label, exactly", fontsize=9)
    axes.set_xticks(range(len(COLOURS)), sorted(COLOURS), fontsize=8)
    axes.set_yticks([])


def main() -> None:
    built: BuiltClassifier = build_classifier(make_examples(ROWS))
    model = built.model
    ways = [model.states(points) for points in built.examples.points]
    origin = min(X[:, 0].min() for way in ways for X in way[1 : model.read_out + 1]) // 1
    attending = [i for i, block in enumerate(model.blocks) if block.attends]
    *splits, collapse = attending
    figure, grid = plt.subplots(3, 3, figsize=(11, 7.5), constrained_layout=True)
    panels = list(grid.flat)
    draw_input(panels[0])
    draw_codes(
        panels[1], [way[1] for way in ways], "block 1: every token becomes a number, its code g", origin
    )
    for panel, i in zip(panels[2:], splits, strict=False):
        kind = (
            "share of the flagged token"
            if not model.blocks[i].q.any()
            else "flagged token leads its sequence"
        )
        draw_codes(panel, [way[i + 1] for way in ways], f"blocks {i}, {i + 1}: {kind}", origin)
    used = 2 + len(splits)
    title = f"block {collapse + 1}: collapse on one leader"
    draw_codes(panels[used], [way[collapse + 1] for way in ways], title, origin)
    draw_outputs(panels[used + 1], [way[-1] for way in ways])
    for panel in panels[used + 2 :]:
        panel.remove()
    figure.savefig(Path(__file__).with_suffix(".png"), dpi=110)


if __name__ == "__main__":
    main()
