"""How steeply a measured cost grows: exponents fitted to a table of results, and where they change.

A cost that grows like x^a is a line of slope a when both are drawn as logarithms. It knows nothing of what
was measured.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from benchmarks.record import Case, Record, Table

BEND = 0.35  # slopes of neighbouring steps that differ by more are a kink; less is noise
Point = tuple[float, float]


def note_growth(record: Record, table: Table, axis: str) -> Table:
    """Beside a table another, of the exponents of each of its lines in `axis`, and of its kinks."""
    title = f"{table.title}: exponents in {axis}"
    growth = record.table(f"{table.name}-growth", title, unit="", better="neither")
    for subject, case, points in lines(table, axis):
        named: Case = {"of": subject, **case} if len({row.subject for row in table.rows}) > 1 else case
        growth.add("fitted over all", named, [fit(points)])
        growth.add("between the two largest", named, [fit(points[-2:])])
        bends = (f"{axis} {x:,.0f}: {before:.2f}, then {after:.2f}" for x, before, after in kinks(points))
        growth.add("kinks", named, [], "; ".join(bends) or "none")
    return growth


def lines(table: Table, axis: str) -> Iterator[tuple[str, Case, list[Point]]]:
    """Subject, the rest of the case, and the measured points along `axis` in order; two points at least."""
    found: dict[tuple[str, tuple[tuple[str, object], ...]], list[Point]] = {}
    for row in table.rows:
        if row.median:
            rest = tuple((name, value) for name, value in row.case.items() if name != axis)
            found.setdefault((row.subject, rest), []).append((float(row.case[axis]), row.median))
    for (subject, rest), points in found.items():
        if len(points) > 1:
            yield subject, dict(rest), sorted(points)  # type: ignore[arg-type]


def fit(points: Sequence[Point]) -> float:
    """The exponent: least squares through the logarithms."""
    x, y = np.log(points).T
    return float(np.polyfit(x, y, 1)[0])


def kinks(points: Sequence[Point]) -> Iterator[tuple[float, float, float]]:
    """Where the slope changes, and the slopes before and after."""
    slopes = [fit(step) for step in pairwise(points)]
    for (x, _), (before, after) in zip(points[1:-1], pairwise(slopes), strict=True):
        if abs(after - before) > BEND:
            yield x, before, after
