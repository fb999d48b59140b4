"""What the command line shows people: tables, verdicts, progress; from answers shaped like the API's."""

from __future__ import annotations

import sys
import textwrap
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TextIO

SHOWN_LEADERS = 8
SHOWN_CLUSTERS = 20

Answer = Mapping[str, Any]


def describe_classification(text: str, result: Answer) -> Iterator[str]:
    """The verdict, then the sum that led to it: one line a leader, the rest, the bias, the logit."""
    yield f"{result['label']} {result['score']:.1%}  {textwrap.shorten(text, 72, placeholder=' …')}"
    leaders: Sequence[Answer] = result.get("leaders") or ()
    for leader in leaders[:SHOWN_LEADERS]:
        follows = f"{leader['followers']} follow" if leader["followers"] else "alone"
        since = f"leader since layer {leader['since_layer']}"
        yield f"  {leader['contribution']:+8.3f}  {leader['word']:<24} {since}, {follows}"
    if leaders:
        shown = sum(leader["contribution"] for leader in leaders[:SHOWN_LEADERS])
        rest = result["logit"] - result["bias"] - shown
        if abs(rest) >= 0.0005:
            others = max(len(leaders) - SHOWN_LEADERS, 0)
            yield f"  {rest:+8.3f}  {f'{others} other leaders' if others else 'ties'}"
        yield f"  {result['bias']:+8.3f}  bias"
        yield f"  {result['logit']:+8.3f}  = logit"


def describe_dynamics(result: Answer) -> Iterator[str]:
    """What became of a cloud: the status with its proof, then a line a cluster."""
    margin = "" if result.get("margin") is None else f", margin {result['margin']:.3g}"
    end = {
        "certified": f"certified at layer {result.get('certified_layer')}{margin}",
        "converged": f"converged after {result['layers']} layers, without a certificate",
        "max_layers": f"still moving after {result['layers']} layers",
    }[result["status"]]
    yield f"{result['n']} points in dimension {result['d']}, alpha {result['alpha']:g}: {end}"
    yield f"{len(result['leaders'])} leaders, {len(result['clusters'])} clusters"
    rows = [("cluster", "kind", "size", "leaders", "limit")]
    for cluster in sorted(result["clusters"], key=lambda c: -int(c["size"]))[:SHOWN_CLUSTERS]:
        leaders = ", ".join(map(str, cluster["leaders"][:6])) + (" …" if len(cluster["leaders"]) > 6 else "")
        limit = ", ".join(f"{x:.4g}" for x in cluster["limit"][:6]) + (
            " …" if len(cluster["limit"]) > 6 else ""
        )
        rows.append((str(cluster["id"]), cluster["kind"], str(cluster["size"]), leaders, f"({limit})"))
    yield from columns(rows)
    if len(result["clusters"]) > SHOWN_CLUSTERS:
        yield f"… and {len(result['clusters']) - SHOWN_CLUSTERS} smaller ones (--json lists all)"


def describe_control(result: Answer) -> Iterator[str]:
    """The matrix found with its proof, or the pair that stands in the way."""
    if not result["feasible"]:
        yield "infeasible: no matrix A makes this so from layer 0"
        if result.get("worst_pair"):
            token, leader, rival = result["worst_pair"]
            yield f"  token {token} cannot prefer {leader} to {rival}"
        return
    yield f"feasible, margin {result['margin']:.4g}; A ="
    for row in result["A"]:
        yield "  " + "  ".join(f"{x:10.5f}" for x in row)
    if result.get("dynamics"):
        yield from describe_dynamics(result["dynamics"])


def describe_models(cards: Sequence[Answer]) -> Iterator[str]:
    """One line a model, and what it says of itself."""
    if not cards:
        yield "no models here"
        return
    rows = [("model", "kind", "description")]
    rows += [(str(card["name"]), str(card["kind"]), str(card.get("description", ""))) for card in cards]
    yield from columns(rows)


def columns(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """Rows as aligned columns, the first one the heading."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


class Progress:
    """One line that rewrites itself on a terminal, and nothing at all elsewhere."""

    def __init__(self, stream: TextIO | None = None, every_s: float = 0.1) -> None:
        self._stream = stream or sys.stderr
        self._live = self._stream.isatty()
        self._every_s = every_s
        self._started = self._shown = time.monotonic()
        self._dirty = False

    def __call__(self, message: str) -> None:
        now = time.monotonic()
        if self._live and now - self._shown >= self._every_s:
            self._stream.write(f"\r\x1b[K{message}  {now - self._started:.1f} s")
            self._stream.flush()
            self._shown, self._dirty = now, True

    def clear(self) -> None:
        if self._dirty:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
            self._dirty = False
