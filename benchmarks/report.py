"""`python -m benchmarks.report`: docs/benchmarks.md and the README's table, from results/*.json alone.

It measures nothing. Where a peer is better or a target is missed, a section of its own says so, first of all.
What was measured with other weights than those in service/pretrained, or with another version or on another
machine than the newest results, is told apart, and is compared with nothing.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.record import MODELS, RESULTS, ROOT, Case, Row, Table, digest, read_results

# The chapters in their order: the make target that measures each, and how many of its tables the page shows.
CHAPTERS = {
    **dict.fromkeys(("texts", "http", "faithfulness", "own", "own-setfit", "own-costs"), ("bench", 9)),
    **dict.fromkeys(("equality", "clouds", "exact", "startup", "sizing"), ("bench", 9)),
    **{"soak": ("soak", 1), "faults": ("soak", 1), "attacks": ("soak", 1)},
    **{"fuzz": ("fuzz", 1), "fuzz-clouds": ("fuzz", 1)},
}  # fmt: skip
CLOSE = 1.05  # a difference below 5 % on a shared machine is none
POINTS = 1.0  # nor is one below a point, of what is counted in per cent
# The README's tables: (chapter, table, title of the first column).
README = (
    ("texts", "speed", "on one core"),
    ("http", "throughput", "over HTTP, one worker on one core"),
)
BLOCK = re.compile(r"(<!-- figures: make bench -->\n).*(<!-- end of figures -->)", re.DOTALL)

Content = dict[str, Any]
CaseKey = tuple[tuple[str, Any], ...]


def write(results: Path = RESULTS, root: Path = ROOT) -> list[Path]:
    records, served = read_results(results), digests()
    paths = root / "docs/benchmarks.md", root / "README.md"
    paths[0].write_text(page(records, served))
    paths[1].write_text(with_figures(paths[1].read_text(), records, served))
    return list(paths)


def digests(models: Path = MODELS) -> dict[str, str]:
    """Which weights are served now."""
    return {card.parent.name: digest(card) for card in models.glob("*/card.json")}


def page(records: dict[str, Content], served: dict[str, str]) -> str:
    names = [name for name in CHAPTERS if name in records] + sorted(records.keys() - CHAPTERS.keys())
    newest = newest_of(records)
    compared = [records[name] for name in names if is_alike(records[name], newest, served)]
    lines = [
        "# Benchmarks",
        "",
        "For people who compare.",
        "Written by `python -m benchmarks.report` from `results/*.json`, nothing by hand. Below each title",
        "stand its make target and the command that measured it alone. A figure is a median with the",
        "smallest and the largest sample after it; a ratio is of figures of one run.",
        "",
        f"{newest['date'][:10]}, {told_of(newest)}.",
        "",
        "## Where we lose",
        "",
        *_losses(compared),
        *_missed(compared),
    ]
    if apart := [records[name]["title"] for name in names if records[name] not in compared]:
        lines += [f"Left out, as they were measured apart: {'; '.join(apart)}.", ""]
    for name in names:
        lines += _chapter(records[name], newest, served)
    return "\n".join(lines).rstrip() + "\n"


def with_figures(text: str, records: dict[str, Content], served: dict[str, str]) -> str:
    """The README with our figures between its two marks."""
    lines = []
    for name, which, title in README:
        found = [table for table in records[name]["tables"] if table.name == which] if name in records else []
        for table in found:
            lines += _apart(records[name], newest_of(records), served)
            lines += [*_rows(table, title, spread=False), ""]
    return BLOCK.sub(lambda marks: marks[1] + "\n".join(lines) + marks[2], text)


# ---- what may be compared


def newest_of(records: dict[str, Content]) -> Content:
    return max(records.values(), key=lambda record: str(record["date"]))


def is_alike(record: Content, newest: Content, served: dict[str, str]) -> bool:
    """Whether both are of one version and one machine, and the record's weights are those served now."""
    return bool(
        record["versions"]["hardmax"] == newest["versions"]["hardmax"]
        and record["machine"] == newest["machine"]
        and record["models"].items() <= served.items()
    )


def told_of(record: Content) -> str:
    weights = ", ".join(f"{name} {digest}" for name, digest in record["models"].items())
    return f"hardmax {record['versions']['hardmax']}{f' ({weights})' if weights else ''}, {record['machine']}"


def by_case(table: Table) -> dict[CaseKey, dict[str, Row]]:
    """The rows that may be compared, by case and subject."""
    cases: dict[CaseKey, dict[str, Row]] = {}
    for row in table.rows:
        cases.setdefault(tuple(row.case.items()), {})[row.subject] = row
    return cases


def split(table: Table, found: dict[str, Row]) -> tuple[Row | None, Row | None]:
    """The best of our measured rows of a case, and the best of our peers'."""
    measured = [row for row in found.values() if row.median is not None and row.subject not in table.floors]
    sign = -1 if table.better == "higher" else 1

    def best(rows: Sequence[Row]) -> Row | None:
        return min(rows, key=lambda row: sign * (row.median or 0), default=None)

    if table.better == "neither":
        return None, None
    return (
        best([row for row in measured if row.subject in table.ours]),
        best([row for row in measured if row.subject not in table.ours]),
    )


def gain(table: Table, one: Row, other: Row) -> tuple[float, str]:
    """How much better `one` is than `other`: above 1 where it counts, and in words."""
    a, b = one.median or 0.0, other.median or 0.0
    if table.unit == "%":
        points = b - a if table.better == "lower" else a - b
        return 1 + points - POINTS, f"{points:.1f} points"
    above, below = (b, a) if table.better == "lower" else (a, b)
    times = above / below if below else float("inf")
    return times / CLOSE, f"{times:.2f} x"


def _apart(record: Content, newest: Content, served: dict[str, str]) -> list[str]:
    if is_alike(record, newest, served):
        return []
    return [f"**Measured apart from the rest**: {record['date'][:10]}, {told_of(record)}.", ""]


def _losses(records: Sequence[Content]) -> Iterator[str]:
    """Every case and peer that does better than we do, in the order of the chapters."""
    rows = [
        f"| {record['title']}: {table.title.lower()}{_unit(table)} | {line} |"
        for record in records
        for table in record["tables"]
        for line in losses(table)
    ]
    if not rows:
        yield "In no case that is compared was a peer better by more than the noise (5 %, or a point)."
    else:
        yield from ("| measure | case | ours | better | by |", "|---|---|---|---|---|", *rows)
    yield ""


def losses(table: Table) -> Iterator[str]:
    """The peers in the order of the table, and of each the largest loss first."""
    order = list(dict.fromkeys(row.subject for row in table.rows))
    rows = []
    for case, found in by_case(table).items():
        ours, _ = split(table, found)
        for peer in found.values():
            if ours and peer.median is not None and peer.subject not in (*table.ours, *table.floors):
                counts, told = gain(table, peer, ours)
                line = f"{say_case(case)} | {say(ours)} | {peer.subject}: {say(peer)} | {told}"
                rows.append((order.index(peer.subject), -counts, line))
    yield from (line for _, counts, line in sorted(rows) if counts < -1)


def _missed(records: Sequence[Content]) -> Iterator[str]:
    """Our figures that are worse than the target that their case names."""
    sign = {"higher": 1, "lower": -1, "neither": 0}
    rows = [
        f"| {record['title']}: {table.title.lower()}{_unit(table)} | {row.case['target']} | {say(row)} |"
        for record in records
        for table in record["tables"]
        for row in table.rows
        if "target" in row.case and row.median is not None
        if sign[table.better] * (row.median - row.case["target"]) < 0
    ]
    if rows:
        yield from ("| missed target | target | ours |", "|---|---|---|", *rows, "")


# ---- how it looks


def _chapter(record: Content, newest: Content, served: dict[str, str]) -> list[str]:
    target, shown = CHAPTERS.get(record["name"], ("", 9))
    versions = ", ".join(
        f"{name} {version}" for name, version in record["versions"].items() if name != "hardmax"
    )
    lines = [
        f"## {record['title']}",
        "",
        f"{f'`make {target}`, or ' if target else ''}`{record['command']}` ({record['seconds']} s)  ",
        versions,
        "",
    ]
    lines += _apart(record, newest, served)
    lines += [*(f"* {note}" for note in record["notes"]), *([""] if record["notes"] else [])]
    for table in record["tables"][:shown]:
        lines += [f"### {table.title}", "", *_rows(table), ""]
    if record["tables"][shown:]:
        lines += [f"More in `results/{record['name']}.json`.", ""]
    return lines


def _rows(table: Table, title: str = "", *, spread: bool = True) -> list[str]:
    """A row a case and a column a subject; few cases of many subjects are turned."""
    subjects = list(dict.fromkeys(row.subject for row in table.rows))
    cases = by_case(table)
    unit = _unit(table)

    def cell(row: Row | None) -> str:
        return say(row, spread=spread) if row else ""

    if len(subjects) > max(4, len(cases)):
        lines = [[title, *(say_case(case) + unit for case in cases)]]
        lines += [[name, *(cell(found.get(name)) for found in cases.values())] for name in subjects]
    else:
        ratios = {
            case: gain(table, ours, theirs)[1]
            for case, found in cases.items()
            for ours, theirs in [split(table, found)]
            if ours and theirs
        }
        lines = [[title or f"case{unit}", *subjects, *(["ours to the best peer"] if ratios else [])]]
        lines += [
            [
                say_case(case),
                *(cell(found.get(name)) for name in subjects),
                *([ratios.get(case, "")] if ratios else []),
            ]
            for case, found in cases.items()
        ]
    head, *rest = [f"| {' | '.join(line)} |" for line in lines]
    return [head, "|---" * len(lines[0]) + "|", *rest]


def _unit(table: Table) -> str:
    return f" ({table.unit})" if table.unit else ""


def say_case(case: CaseKey | Case) -> str:
    """Names and values; a name that stands alone before words says nothing."""
    pairs = tuple(case.items()) if isinstance(case, dict) else case
    if len(pairs) == 1 and isinstance(pairs[0][1], str):
        return pairs[0][1]
    return ", ".join(
        f"{name} {value:,}" if isinstance(value, int) else f"{name} {value}" for name, value in pairs
    )


def say(row: Row, *, spread: bool = True) -> str:
    """A median with its spread, and what the figure alone would not say."""
    if row.median is None or row.min is None or row.max is None:
        return row.note
    around = f" ({_digits(row.min)} to {_digits(row.max)})" if spread and row.repeats > 1 else ""
    note = f", {row.note}" if row.note and spread else ""
    return f"{_digits(row.median)}{around}{note}"


def _digits(value: float) -> str:
    """Three digits that count."""
    if abs(value) >= 1000 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.3g}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--root", type=Path, default=ROOT, help="where README.md and docs/ are")
    arguments = parser.parse_args()
    print(*write(arguments.results, arguments.root))


if __name__ == "__main__":
    main()
