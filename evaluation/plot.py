"""Pictures of a report: label counts, confusion matrix and calibration curve.

They need matplotlib, the extra `plot`.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hardmax.errors import InvalidInput, NotFound
from hardmax.formatting import CLUSTER_COLORS, printable, shorten

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BLUE, ORANGE = CLUSTER_COLORS[:2]
MAX_DRAWN_LABELS = 12


def check_matplotlib(option: str) -> None:
    """Refuse an option that draws before the work, if matplotlib is not installed."""
    if find_spec("matplotlib") is None:
        problem = f"{option} needs matplotlib: pip install '.[plot]' in the checkout, or matplotlib"
        raise NotFound(problem, param=option)


def check_picture(path: str | Path, option: str = "--plot") -> None:
    """Refuse a format that matplotlib does not write."""
    check_matplotlib(option)
    from matplotlib.backend_bases import FigureCanvasBase

    if Path(path).suffix[1:].lower() not in FigureCanvasBase.filetypes:
        problem = f"{path}: {option} writes png, svg, pdf and other formats of matplotlib"
        raise InvalidInput(problem, param=option)


def save_figure(figure: Figure, path: str | Path, option: str = "--plot") -> None:
    """Write a picture; the ending of its name is its format."""
    try:
        figure.savefig(path, dpi=150)
    except OSError as error:
        raise InvalidInput(f"{path} cannot be written: {error.strerror or error}", param=option) from None


def draw_report(models: dict[str, dict[str, Any]]) -> Figure:
    """Draw the metrics of each model in a row: label counts, confusion matrix, calibration curve."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 4.2 * len(models)), layout="constrained")
    for (name, metrics), axes in zip(
        models.items(), figure.subplots(len(models), 3, squeeze=False), strict=True
    ):
        _draw_counts(axes[0], metrics["labels"])
        axes[0].set_title(" ".join(filter(None, [name, "labels"])), loc="left")
        _draw_confusion(axes[1], metrics)
        _draw_calibration(axes[2], metrics["calibration"])
    return figure


def to_svg(metrics: dict[str, Any]) -> str:
    """Return the picture of one model as an SVG element, with its texts as texts."""
    from matplotlib import rc_context

    fonts = rc_context({"svg.fonttype": "none", "font.family": "sans-serif"})
    with fonts, io.StringIO() as file, warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # the browser has fonts for it
        draw_report({"": metrics}).savefig(file, format="svg", transparent=True, metadata={"Date": None})
        svg = file.getvalue()
    return svg[svg.index("<svg") :].replace("<svg ", "<svg role='img' aria-label='Label counts, confusion "
        "matrix and calibration curve' ", 1)  # fmt: skip


def _drawn(label: str, max_chars: int = 14) -> str:
    """Return a label as matplotlib takes it: short, without control characters, a dollar sign as such."""
    return shorten(printable(label), max_chars).replace("$", r"\$")


def _draw_counts(axes: Any, labels: Sequence[dict[str, Any]]) -> None:
    """Draw how often each label is true, and how often it is predicted."""
    shown = labels[:MAX_DRAWN_LABELS]
    y = np.arange(len(shown))
    axes.barh(y - 0.2, [label["rows"] for label in shown], 0.38, color=BLUE, label="in the file")
    axes.barh(y + 0.2, [label["predicted"] for label in shown], 0.38, color=ORANGE, label="predicted")
    axes.set_yticks(y, [_drawn(label["label"]) for label in shown])
    axes.invert_yaxis()
    axes.set_xlabel("rows")
    axes.legend(frameon=False, fontsize=8)


def _draw_confusion(axes: Any, metrics: dict[str, Any]) -> None:
    """Draw true labels down and predicted ones across, with shades by the share of the true label."""
    labels = [label["label"] for label in metrics["labels"]]
    if "confusion" not in metrics or len(labels) > MAX_DRAWN_LABELS:
        axes.set_axis_off()
        return
    counts = np.array(metrics["confusion"])
    shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    edges = np.arange(len(labels) + 1) - 0.5
    axes.pcolormesh(edges, edges, shares, cmap="Blues", vmin=0, vmax=1)
    axes.invert_yaxis()
    for (i, j), count in np.ndenumerate(counts):
        color = "white" if shares[i, j] > 0.5 else "#1c1d22"
        axes.text(j, i, f"{count:,}", ha="center", va="center", color=color)
    axes.set_xticks(range(len(labels)), [_drawn(label, 10) for label in labels])
    axes.set_yticks(range(len(labels)), [_drawn(label) for label in labels])
    axes.set_xlabel("predicted")
    axes.set_ylabel("in the file")
    axes.set_title("confusion matrix", loc="left")


def _draw_calibration(axes: Any, calibration: dict[str, Any]) -> None:
    """Draw accuracy against confidence; the area of a dot is its share of the rows."""
    bins = calibration["bins"]
    rows = np.array([b["rows"] for b in bins])
    axes.plot([0, 1], [0, 1], color="#a0a0a0", linewidth=1)
    axes.scatter(
        [b["confidence"] for b in bins],
        [b["accuracy"] for b in bins],
        20 + 400 * rows / rows.sum(),
        color=BLUE,
        alpha=0.75,
    )
    axes.set(xlim=(0, 1.02), ylim=(-0.02, 1.05), xlabel="confidence", ylabel="accuracy")
    axes.set_title(f"calibration: error {calibration['error']:.1%}", loc="left")
