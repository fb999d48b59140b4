"""Render answers in notebooks as self-contained HTML with inline styles and SVG.

Text and lines use `currentColor` and surfaces use transparent tints, so the same markup suits light and dark
themes. All text is escaped, and the HTML is well-formed XML.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape as escape_markup

import numpy as np
from numpy.typing import NDArray

from hardmax.formatting import CLUSTER_COLORS, format_signed, naming_words, pluralize, printable, shorten
from hardmax.models.clouds import DynamicsResult
from hardmax.models.texts import Classification, Leader, OffsetUnit, Word, number_of

Floats = NDArray[np.float64]

MAX_TEXT_CHARS_SHOWN = 4000
MAX_ROWS_SHOWN = 20  # of Answers
MAX_BARS = 8  # in a contribution table
MAX_POINTS_DRAWN = 2000
PLANE_PX, PLANE_MARGIN_PX = 320, 28
MIN_PLANE_HEIGHT_PX = 96  # for points that are nearly in a line
POSITIVE_RGB, NEGATIVE_RGB = (47, 134, 207), (217, 105, 32)  # contributions above and below 0, as on the page
FRAME_STYLE = "font:14px/1.5 system-ui,sans-serif;max-width:46em;color:inherit"
FAINT_STYLE = "opacity:.65"


def render_answer(
    text: str, verdict: str, answer: Classification, offset_unit: OffsetUnit = "codepoints"
) -> str:
    """Render the answer to one text: the verdict, the words in colour, the sum and the plane."""
    headline = _element("div", _element("b", escape(verdict)))
    highlighted = _highlighted_text(text, answer, offset_unit)
    parts = [headline, highlighted, _contribution_table(answer), _word_plane(answer)]
    return _element("div", "".join(parts), style=FRAME_STYLE)


def render_answers(answers: Sequence[tuple[str, str, str]], total: int) -> str:
    """Render a table of the first texts with their verdicts and reasons; `total` counts all texts."""
    rows = [_table_row("td", [shorten(text, 80), verdict, reason]) for text, verdict, reason in answers]
    heads = _table_row("th", ["text", "verdict", "because of"])
    table = _element("table", heads + "".join(rows), style="font:inherit")
    if total > len(answers):
        note = f"and {total - len(answers)} more; .to_frame() has them all"
        table += _element("div", note, style=FAINT_STYLE)
    return _element("div", table, style=FRAME_STYLE)


def render_cloud(points: Floats, run: DynamicsResult) -> str:
    """Render a cloud with its leaders and the limit of every point."""
    return _element(
        "div", _element("div", escape(summarize_run(run))) + _point_plane(points, run), style=FRAME_STYLE
    )


def summarize_run(run: DynamicsResult) -> str:
    """Return one line: size, status and number of leaders."""
    certified = f"certified at layer {run.certified_layer}"
    state = certified if run.status == "certified" else run.status.replace("_", " ")
    size = f"{pluralize(run.n, 'point')} in {pluralize(run.d, 'dimension')}"
    return f"{size}: {state}, {pluralize(len(run.leaders), 'leader')}"


def _highlighted_text(text: str, answer: Classification, offset_unit: OffsetUnit) -> str:
    """Render the text with a tint behind each word, as strong as its contribution."""
    words: Sequence[Word | Leader] = answer.words or answer.leaders
    values = [number_of(word.contribution, answer.label) for word in words]
    largest = max(map(abs, values), default=0) or 1
    indices = _character_indices(text[:MAX_TEXT_CHARS_SHOWN], offset_unit)
    spans = sorted(
        (indices[start], indices[end], value)
        for word, value in zip(words, values, strict=True)
        for start, end in word.spans
        if 0 <= start <= end < len(indices)
    )
    parts, position = [], 0
    for start, end, value in spans:
        if start < position:
            continue
        style, title = _tint_style(value / largest), f"{value:+.4g}"
        parts.append(escape(text[position:start]))
        parts.append(_element("span", escape(text[start:end]), style=style, title=title))
        position = end
    parts.append(escape(shorten(text, MAX_TEXT_CHARS_SHOWN)[position:]))
    return _element("p", "".join(parts), style="white-space:pre-wrap;margin:.6em 0")


def _character_indices(text: str, offset_unit: OffsetUnit) -> list[int]:
    """Return the character index of each offset that a span of the text may have."""
    widths = (1 + (offset_unit == "utf16" and character > "\uffff") for character in text)
    return [index for index, width in enumerate(widths) for _ in range(width)] + [len(text)]


def _contribution_table(answer: Classification) -> str:
    """Render the bias and the contributions of the clusters, which add up to the logit."""
    terms = [
        (", ".join(naming_words(cluster.words)[:3]), number_of(cluster.contribution, answer.label))
        for cluster in answer.clusters
    ]
    terms.sort(key=lambda term: -abs(term[1]))
    if len(terms) > MAX_BARS:
        smaller = terms[MAX_BARS - 1 :]
        total = f"{len(smaller)} more clusters", sum(value for _, value in smaller)
        terms = [*terms[: MAX_BARS - 1], total]
    if not terms:
        return ""
    terms.append(("bias", number_of(answer.bias, answer.label)))
    largest = max(abs(value) for _, value in terms) or 1
    rows = [_bar_row(name, value, largest) for name, value in terms]
    cells = ["sum", "", format_signed(number_of(answer.logit, answer.label))]
    rows.append(_table_row("td", cells, style="font-weight:bold"))
    style = "font:inherit;border-collapse:collapse;margin:.4em 0"
    return _element("table", "".join(rows), style=style)


def _bar_row(name: str, value: float, largest: float) -> str:
    width = 60 * abs(value) / largest
    bar = _element("rect", "", x=60 - width * (value < 0), y=4, width=width, height=8, fill=_color_of(value))
    axis = _element("line", "", x1=60, x2=60, y1=0, y2=16, stroke="currentColor", stroke_opacity=0.4)
    picture = _element("svg", bar + axis, width=120, height=16, role="img", aria_label=format_signed(value))
    cells = [
        _element("td", escape(shorten(name, 40))),
        _element("td", picture),
        _element("td", format_signed(value)),
    ]
    return _element("tr", "".join(cells))


def _word_plane(answer: Classification) -> str:
    """Render the path of each word; nothing unless the head has two dimensions."""
    words = [word for word in answer.words if len(word.final_position) == 2]
    if not words:
        return ""
    start = np.array([word.position for word in words])
    end = np.array([word.final_position for word in words])
    plane = _Plane(np.concatenate([start, end, np.zeros((1, 2))]))
    colours = [_color_of(number_of(word.contribution, answer.label)) for word in words]
    marks = [plane.path(*path) for path in zip(start, end, colours, strict=True)]
    leaders: dict[str, Floats] = {}  # at their first position
    for word, position in zip(words, end, strict=True):
        if word.leader:
            leaders.setdefault(word.word, position)
    marks += [plane.marker(position, word) for word, position in leaders.items()]
    return plane.draw(marks, f"{len(words)} words on their plane")


def _point_plane(points: Floats, result: DynamicsResult) -> str:
    starts = _first_two_coordinates(np.asarray(points, np.float64).reshape(result.n, -1))
    limits = _first_two_coordinates(np.array([cluster.limit for cluster in result.clusters]))
    plane = _Plane(np.concatenate([starts, limits, np.zeros((1, 2))]))
    drawn = np.unique(np.linspace(0, len(starts) - 1, min(MAX_POINTS_DRAWN, len(starts))).astype(int))
    if result.assignment:
        pairs = [(starts[i], result.assignment[i]) for i in drawn]
        marks = [plane.path(start, limits[c], CLUSTER_COLORS[c % len(CLUSTER_COLORS)]) for start, c in pairs]
    else:
        marks = [plane.dot(starts[i], "currentColor") for i in drawn]
    marks += [plane.cross(limit) for limit in limits[:MAX_POINTS_DRAWN]]
    for leader in result.leaders[:MAX_POINTS_DRAWN]:
        marks.append(plane.marker(_first_two_coordinates(np.array([leader.point]))[0], str(leader.index)))
    notes = []
    if len(drawn) < result.n:
        notes.append(f"{len(drawn)} of {result.n} points")
    if result.d > 2:
        notes.append(f"the first two of {result.d} coordinates")
    picture = plane.draw(marks, "the cloud: rings are leaders, crosses are limits")
    return picture + (_element("div", "shown: " + ", ".join(notes), style=FAINT_STYLE) if notes else "")


def _first_two_coordinates(points: Floats) -> Floats:
    """Return the first two coordinates of each point, padded with 0."""
    return np.pad(points, [(0, 0), (0, 1)])[:, :2]


class _Plane:
    """A drawing with equal scales and the height that the given points need."""

    def __init__(self, points: Floats) -> None:
        low, high = points.min(axis=0), points.max(axis=0)
        self._middle = (low + high) / 2
        self._scale = (PLANE_PX - 2 * PLANE_MARGIN_PX) / (float((high - low).max()) or 1.0)
        height = round(float((high - low)[1]) * self._scale) + 2 * PLANE_MARGIN_PX
        self._height = max(MIN_PLANE_HEIGHT_PX, height)

    def _pixels(self, point: Floats) -> tuple[float, float]:
        x, y = (point - self._middle) * self._scale
        return round(PLANE_PX / 2 + float(x), 1), round(self._height / 2 - float(y), 1)

    def path(self, start: Floats, end: Floats, colour: str) -> str:
        """Draw a point and the line to its limit."""
        (x1, y1), (x2, y2) = self._pixels(start), self._pixels(end)
        line = _element("line", "", x1=x1, y1=y1, x2=x2, y2=y2, stroke=colour, stroke_opacity=0.45)
        return line + self.dot(start, colour)

    def dot(self, point: Floats, colour: str) -> str:
        x, y = self._pixels(point)
        return _element("circle", "", cx=x, cy=y, r=2.5, fill=colour)

    def marker(self, point: Floats, name: str) -> str:
        x, y = self._pixels(point)
        ring = _element("circle", "", cx=x, cy=y, r=5, fill="none", stroke="currentColor", stroke_width=1.5)
        inside = x < PLANE_PX - 60
        anchor = {"x": x + 8, "text_anchor": "start"} if inside else {"x": x - 8, "text_anchor": "end"}
        label = escape(shorten(name, 24))
        return ring + _element("text", label, **anchor, y=y - 6, font_size=11, fill="currentColor")

    def cross(self, point: Floats) -> str:
        x, y = self._pixels(point)
        path = f"M{x - 4} {y - 4}l8 8m0 -8l-8 8"
        return _element("path", "", d=path, stroke="currentColor", stroke_opacity=0.6)

    def draw(self, marks: Iterable[str], description: str) -> str:
        """Return the SVG element with the marks on top of two axes through the origin."""
        x, y = self._pixels(np.zeros(2))
        axes = [
            _element("line", "", x1=0, x2=PLANE_PX, y1=y, y2=y, stroke="currentColor", stroke_opacity=0.2),
            _element(
                "line", "", x1=x, x2=x, y1=0, y2=self._height, stroke="currentColor", stroke_opacity=0.2
            ),
        ]
        box = {
            "width": PLANE_PX,
            "height": self._height,
            "viewBox": f"0 0 {PLANE_PX} {self._height}",
            "role": "img",
        }
        return _element("svg", "".join([*axes, *marks]), aria_label=description, **box)


def _color_of(value: float) -> str:
    return "rgb({},{},{})".format(*(NEGATIVE_RGB if value < 0 else POSITIVE_RGB))


def _tint_style(share: float) -> str:
    red, green, blue = NEGATIVE_RGB if share < 0 else POSITIVE_RGB
    return f"background:rgba({red},{green},{blue},{0.55 * abs(share):.3f});border-radius:3px"


def _table_row(kind: str, cells: Sequence[str], **attributes: object) -> str:
    columns = (_element(kind, escape(cell), style="text-align:left") for cell in cells)
    return _element("tr", "".join(columns), **attributes)


def escape(text: str) -> str:
    """Return a value as text that is safe in HTML."""
    return escape_markup(printable(text))


def _element(name: str, content: str, **attributes: object) -> str:
    """Return an element with markup as its content; `_` in attribute names stands for `-`."""
    rendered = "".join(
        f' {key.replace("_", "-")}="{escape_markup(str(value))}"' for key, value in attributes.items()
    )
    return f"<{name}{rendered}>{content}</{name}>"
