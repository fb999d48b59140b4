"""A table of results as an SVG: lines over the number that varies most, a panel for each other case.

A single subject is drawn in one panel, a line for each other case, so that its growth can be compared.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

PANELS = 6
POINTS = 3  # fewer than so many places on the axis are no line


def draw(name: str, table: dict[str, Any], folder: Path) -> Path | None:
    """The file, or None where the table has nothing to draw."""
    axis = _axis(table) if table["unit"] else None
    panels = _panels(table, axis) if axis else {}
    if not axis or not 0 < len(panels) <= PANELS:
        return None
    import matplotlib as mpl
    from matplotlib.figure import Figure

    mpl.rcParams["svg.hashsalt"] = "hardmax"  # the same results give the same file
    figure = Figure(figsize=(4.6 * len(panels), 3.6), layout="constrained")
    for plot, (title, lines) in zip(
        figure.subplots(1, len(panels), squeeze=False)[0], panels.items(), strict=True
    ):
        for subject, points in lines.items():
            _line(plot, subject, sorted(points), subject in table["ours"], subject in table["floors"])
        plot.set(xscale="log", yscale="log", xlabel=axis, ylabel=table["unit"], title=title)
        plot.grid(visible=True, alpha=0.25)
        plot.legend(fontsize="x-small", frameon=False)
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}.svg"
    figure.savefig(path, metadata={"Date": None})
    return path


def _line(
    plot: Any, subject: str, points: list[tuple[float, float, float, float]], ours: bool, floor: bool
) -> None:
    x, median, low, high = zip(*points, strict=True)
    style = {"linewidth": 2.4 if ours else 1.2, "linestyle": ":" if floor else "-"}
    color = {"color": "#b3261e"} if ours else {"color": "#888888"} if floor else {}
    [line] = plot.plot(x, median, marker="o", markersize=3, label=subject, **style, **color)
    plot.fill_between(x, low, high, alpha=0.15, color=line.get_color(), linewidth=0)


def _axis(table: dict[str, Any]) -> str | None:
    """The name of the number in the cases that takes most values."""
    values: dict[str, set[float]] = {}
    for row in table["rows"]:
        for name, value in row["case"].items():
            if isinstance(value, int | float) and not isinstance(value, bool):
                values.setdefault(name, set()).add(value)
    name = max(values, key=lambda each: len(values[each]), default=None)
    return name if name and len(values[name]) >= POINTS else None


def _panels(
    table: dict[str, Any], axis: str
) -> dict[str, dict[str, list[tuple[float, float, float, float]]]]:
    """Panel title -> subject -> points; rows without a figure are left out."""
    alone = len({row["subject"] for row in table["rows"]}) == 1
    panels: dict[str, dict[str, list[tuple[float, float, float, float]]]] = {}
    for row in table["rows"]:
        if not row["median"] or row["median"] <= 0 or row["case"].get(axis, 0) <= 0:
            continue
        rest = ", ".join(
            f"{name} {value:,}" if isinstance(value, int) else f"{name} {value}"
            for name, value in row["case"].items()
            if name != axis
        )
        title, line = ("", rest) if alone and rest else (rest, row["subject"])
        point = (row["case"][axis], row["median"], row["min"], row["max"])
        panels.setdefault(title, {}).setdefault(line, []).append(point)
    return panels
