"""How answers look: in a line, and in a notebook as HTML that needs nothing else, with inline styles and SVG.

Ink is the page's own (`currentColor`), surfaces are tints with alpha: so one drawing suits light and dark
pages. All text is escaped, and the HTML is well-formed XML.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape as escape_markup

import numpy as np
from numpy.typing import NDArray

from hardmax.documents import Classification, DynamicsResult, Leader, Spans, Word, number_of

Floats = NDArray[np.float64]

LONGEST = 4000  # characters of a text that are shown
ROWS = 20  # of a table of answers
BARS = 8  # clusters that have one of their own
DOTS = 2000  # points that are drawn
SIDE, EDGE = 320, 28  # of a plane and its margin, in pixels
FOR, AGAINST = (47, 134, 207), (217, 105, 32)  # numbers above 0 and below, as on the page
HUES = ("#2f86cf", "#d96920", "#1f9d7c", "#c0549c", "#a98300", "#7a70d8", "#cc4b50", "#4b97b0")
FRAME = "font:14px/1.5 system-ui,sans-serif;max-width:46em;color:inherit"
FAINT = "opacity:.65"


# What steers a terminal or turns the direction of writing, and halves of characters.
UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    """Text of strangers for a terminal: what would steer it is shown as a replacement character."""
    return UNPRINTABLE.sub("\ufffd", text)


def answer(text: str, verdict: str, shown: Classification, spans: Spans = "codepoints") -> str:
    """One text: the verdict, its words in colour, the sum, and the plane where there is one."""
    headline = _tag("div", _tag("b", escape(verdict)))
    parts = [headline, _coloured(text, shown, spans), _sum(shown), _plane_of_words(shown)]
    return _tag("div", "".join(parts), style=FRAME)


def answers(shown: Sequence[tuple[str, str, str]], total: int) -> str:
    """A table of the first texts, their verdicts and reasons, of so many in total."""
    rows = [_row("td", [shortened(text, 80), verdict, reason]) for text, verdict, reason in shown]
    heads = _row("th", ["text", "verdict", "because of"])
    table = _tag("table", heads + "".join(rows), style="font:inherit")
    rest = total - len(shown)
    more = _tag("div", f"and {rest} more; .to_frame() has them all", style=FAINT) if rest > 0 else ""
    return _tag("div", table + more, style=FRAME)


def cloud(points: Floats, run: DynamicsResult) -> str:
    """A cloud, its leaders and where every point goes."""
    return _tag("div", _tag("div", escape(summary(run))) + _plane_of_points(points, run), style=FRAME)


def summary(run: DynamicsResult) -> str:
    certified = f"certified at layer {run.certified_layer}"
    state = certified if run.status == "certified" else run.status.replace("_", " ")
    size = f"{counted(run.n, 'point')} in {counted(run.d, 'dimension')}"
    return f"{size}: {state}, {counted(len(run.leaders), 'leader')}"


def _coloured(text: str, shown: Classification, spans: Spans) -> str:
    """The text with a tint behind each word, as strong as what it contributes."""
    marked: Sequence[Word | Leader] = shown.words or shown.leaders
    values = [number_of(each.contribution, shown.label) for each in marked]
    largest = max(map(abs, values), default=0) or 1
    places = _places(text[:LONGEST], spans)
    found = sorted(
        (places[start], places[end], value)
        for each, value in zip(marked, values, strict=True)
        for start, end in each.spans
        if 0 <= start <= end < len(places)
    )
    parts, at = [], 0
    for start, end, value in found:
        if start < at:
            continue
        word = _tag("span", escape(text[start:end]), style=_tint(value / largest), title=f"{value:+.4g}")
        parts += [escape(text[at:start]), word]
        at = end
    parts.append(escape(shortened(text, LONGEST)[at:]))
    return _tag("p", "".join(parts), style="white-space:pre-wrap;margin:.6em 0")


def _places(text: str, spans: Spans) -> list[int]:
    """For each offset that a span of the text may have, the place of its character."""
    widths = (1 + (spans == "utf16" and character > "\uffff") for character in text)
    return [place for place, width in enumerate(widths) for _ in range(width)] + [len(text)]


def _sum(shown: Classification) -> str:
    """The bias and the clusters' contributions, which add up to the logit."""
    terms = [
        (", ".join(each.words[:3]), number_of(each.contribution, shown.label)) for each in shown.clusters
    ]
    terms.sort(key=lambda term: -abs(term[1]))
    if len(terms) > BARS:
        rest = terms[BARS - 1 :]
        terms = [*terms[: BARS - 1], (f"{len(rest)} more clusters", sum(value for _, value in rest))]
    if not terms:
        return ""
    terms.append(("bias", number_of(shown.bias, shown.label)))
    largest = max(abs(value) for _, value in terms) or 1
    rows = [_bar(name, value, largest) for name, value in terms]
    total = _row("td", ["sum", "", signed(number_of(shown.logit, shown.label))], style="font-weight:bold")
    return _tag("table", "".join(rows) + total, style="font:inherit;border-collapse:collapse;margin:.4em 0")


def _bar(name: str, value: float, largest: float) -> str:
    width = 60 * abs(value) / largest
    bar = _tag("rect", "", x=60 - width * (value < 0), y=4, width=width, height=8, fill=_colour(value))
    axis = _tag("line", "", x1=60, x2=60, y1=0, y2=16, stroke="currentColor", stroke_opacity=0.4)
    drawn = _tag("svg", bar + axis, width=120, height=16, role="img", aria_label=signed(value))
    cells = [_tag("td", escape(shortened(name, 40))), _tag("td", drawn), _tag("td", signed(value))]
    return _tag("tr", "".join(cells))


def _plane_of_words(shown: Classification) -> str:
    """Where each word starts and where it ends; nothing where the model's words are in no plane."""
    words = [word for word in shown.words if len(word.end) == 2]
    if not words:
        return ""
    start = np.array([word.start for word in words])
    end = np.array([word.end for word in words])
    plane = _Plane(np.concatenate([start, end, np.zeros((1, 2))]))
    colours = [_colour(number_of(word.contribution, shown.label)) for word in words]
    marks = [plane.way(*each) for each in zip(start, end, colours, strict=True)]
    named: dict[str, None] = {}
    for word, place in zip(words, end, strict=True):
        if word.leader and word.text not in named:
            named[word.text] = None
            marks.append(plane.ring(place, word.text))
    return plane.draw(marks, f"{len(words)} words on their plane")


def _plane_of_points(points: Floats, result: DynamicsResult) -> str:
    flat = _two(np.asarray(points, np.float64).reshape(result.n, -1))
    limits = _two(np.array([cluster.limit for cluster in result.clusters]))
    plane = _Plane(np.concatenate([flat, limits, np.zeros((1, 2))]))
    chosen = np.unique(np.linspace(0, len(flat) - 1, min(DOTS, len(flat))).astype(int))
    if result.assignment:
        ends = [(i, result.assignment[i]) for i in chosen]
        marks = [plane.way(flat[i], limits[to], HUES[to % len(HUES)]) for i, to in ends]
    else:
        marks = [plane.dot(flat[i], "currentColor") for i in chosen]
    marks += [plane.cross(limit) for limit in limits[:DOTS]]
    for leader in result.leaders[:DOTS]:
        marks.append(plane.ring(_two(np.array([leader.point]))[0], str(leader.index)))
    notes = []
    if len(chosen) < result.n:
        notes.append(f"{len(chosen)} of {result.n} points")
    if result.d > 2:
        notes.append(f"the first two of {result.d} coordinates")
    drawn = plane.draw(marks, "the cloud: rings are leaders, crosses are limits")
    return drawn + (_tag("div", "shown: " + ", ".join(notes), style=FAINT) if notes else "")


def _two(points: Floats) -> Floats:
    """The first two coordinates; 0 where there is one only."""
    return np.pad(points, [(0, 0), (0, 1)])[:, :2]


class _Plane:
    """Pixels of a plane that holds some points, as large in both directions."""

    def __init__(self, points: Floats) -> None:
        low, high = points.min(axis=0), points.max(axis=0)
        self._middle = (low + high) / 2
        self._scale = (SIDE - 2 * EDGE) / (float((high - low).max()) or 1.0)

    def _at(self, point: Floats) -> tuple[float, float]:
        x, y = (point - self._middle) * self._scale
        return round(SIDE / 2 + float(x), 1), round(SIDE / 2 - float(y), 1)

    def way(self, start: Floats, end: Floats, colour: str) -> str:
        """From where a point is to where it goes."""
        (x1, y1), (x2, y2) = self._at(start), self._at(end)
        line = _tag("line", "", x1=x1, y1=y1, x2=x2, y2=y2, stroke=colour, stroke_opacity=0.45)
        return line + self.dot(start, colour)

    def dot(self, place: Floats, colour: str) -> str:
        x, y = self._at(place)
        return _tag("circle", "", cx=x, cy=y, r=2.5, fill=colour)

    def ring(self, place: Floats, name: str) -> str:
        x, y = self._at(place)
        ring = _tag("circle", "", cx=x, cy=y, r=5, fill="none", stroke="currentColor", stroke_width=1.5)
        inside = x < SIDE - 60
        text = _tag("text", escape(shortened(name, 24)), x=x + 8 if inside else x - 8, y=y - 6, font_size=11,
                    text_anchor="start" if inside else "end", fill="currentColor")  # fmt: skip
        return ring + text

    def cross(self, place: Floats) -> str:
        x, y = self._at(place)
        path = f"M{x - 4} {y - 4}l8 8m0 -8l-8 8"
        return _tag("path", "", d=path, stroke="currentColor", stroke_opacity=0.6)

    def draw(self, marks: Iterable[str], what: str) -> str:
        """Behind the marks a cross of lines through the origin."""
        x, y = self._at(np.zeros(2))
        axes = [
            _tag("line", "", x1=0, x2=SIDE, y1=y, y2=y, stroke="currentColor", stroke_opacity=0.2),
            _tag("line", "", x1=x, x2=x, y1=0, y2=SIDE, stroke="currentColor", stroke_opacity=0.2),
        ]
        box = {"width": SIDE, "height": SIDE, "viewBox": f"0 0 {SIDE} {SIDE}", "role": "img"}
        return _tag("svg", "".join([*axes, *marks]), aria_label=what, **box)


def signed(value: float) -> str:
    return f"{round(value, 3) + 0.0:+.3f}"  # not -0.000


def _colour(value: float) -> str:
    return "rgb({},{},{})".format(*(AGAINST if value < 0 else FOR))


def _tint(share: float) -> str:
    red, green, blue = AGAINST if share < 0 else FOR
    return f"background:rgba({red},{green},{blue},{0.55 * abs(share):.3f});border-radius:3px"


def _row(kind: str, cells: Sequence[str], **attributes: object) -> str:
    drawn = (_tag(kind, escape(cell), style="text-align:left") for cell in cells)
    return _tag("tr", "".join(drawn), **attributes)


def shortened(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"


def counted(number: int, noun: str) -> str:
    """1 leader, 2 leaders."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def escape(text: str) -> str:
    return escape_markup(printable(text))


def _tag(name: str, content: str, **attributes: object) -> str:
    """An element; its content is markup already. In names of attributes _ stands for -."""
    told = "".join(
        f' {key.replace("_", "-")}="{escape_markup(str(value))}"' for key, value in attributes.items()
    )
    return f"<{name}{told}>{content}</{name}>"
