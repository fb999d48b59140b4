"""`python -m benchmarks.report`: docs/benchmarks.md and its plots, from results/*.json alone.

It measures nothing. The tables say who we are, who is a peer and who only a floor. Where a peer is better, a
section of its own says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.plots import draw
from benchmarks.record import RESULTS, read_results

DOCS = Path(__file__).parents[1] / "docs"
# The chapters in their order, and the make target that measures each.
CHAPTERS = dict.fromkeys(("texts", "clouds", "http", "faithfulness", "startup", "sizing"), "bench")
CHAPTERS |= {"soak": "soak", "faults": "soak", "attacks": "soak", "fuzz": "fuzz", "fuzz-clouds": "fuzz"}
CLOSE = 1.05  # a difference below 5 % on a shared machine is none

Table = dict[str, Any]
CaseKey = tuple[tuple[str, Any], ...]


def write(results: Path = RESULTS, docs: Path = DOCS) -> Path:
    """The report, and a plot beside it for every table that has one."""
    records = read_results(results)
    names = [name for name in CHAPTERS if name in records] + sorted(records.keys() - CHAPTERS.keys())
    lines = [
        "# Benchmarks",
        "",
        "For people who compare.",
        "Written by `python -m benchmarks.report` from `results/*.json`, nothing by hand. Below each title",
        "stand its make target and the command that measured it. A figure is a median with the",
        "smallest and the largest sample after it; ratios are taken within one run only.",
        "",
        *_losses([records[name] for name in names]),
    ]
    for name in names:
        lines += _chapter(records[name], docs)
    path = docs / "benchmarks.md"
    path.write_text("\n".join(lines).rstrip() + "\n")
    return path


def _losses(records: list[dict[str, Any]]) -> list[str]:
    """Every case in which a peer does better than we do, worst first in each table."""
    lines = ["## Where we lose", ""]
    found = [(record, table, list(losses(table))) for record in records for table in record["tables"]]
    for record, table, lost in found:
        if lost:
            lines += [f"{record['title']}: {table['title'].lower()} ({table['unit']})", ""]
            lines += ["| case | ours | better | by |", "|---|---|---|---|", *lost, ""]
    if not any(lost for _, _, lost in found):
        lines += ["In no case of the tables below was a peer measured to be more than 5 % better.", ""]
    return lines


def losses(table: Table) -> Iterator[str]:
    """The rows of "where we lose" of one table."""
    rows = []
    for case, found in by_case(table).items():
        ours, peers = split(table, found)
        if not ours or not peers or table["better"] == "neither":
            continue
        mine, theirs = best(table, ours), best(table, peers)
        factor = ratio(table, theirs["median"], mine["median"])
        if factor > CLOSE:
            line = f"| {say_case(case)} | {say(mine)} | {theirs['subject']}: {say(theirs)} | {factor:.2f} x |"
            rows.append((factor, line))
    yield from (line for _, line in sorted(rows, key=lambda row: -row[0]))


def by_case(table: Table) -> dict[CaseKey, dict[str, dict[str, Any]]]:
    """The rows that may be compared, by case and subject."""
    cases: dict[CaseKey, dict[str, dict[str, Any]]] = {}
    for row in table["rows"]:
        cases.setdefault(tuple(row["case"].items()), {})[row["subject"]] = row
    return cases


def split(
    table: Table, found: dict[str, dict[str, Any]]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Our measured rows of a case, and our peers'."""
    measured = [row for row in found.values() if row["median"] is not None]
    ours = [row for row in measured if row["subject"] in table["ours"]]
    peers = [row for row in measured if row["subject"] not in (*table["ours"], *table["floors"])]
    return ours, peers


def best(table: Table, rows: list[dict[str, Any]]) -> dict[str, Any]:
    sign = 1 if table["better"] == "lower" else -1
    return min(rows, key=lambda row: sign * row["median"])


def ratio(table: Table, one: float, other: float) -> float:
    """How many times better `one` is than `other`."""
    above, below = (other, one) if table["better"] == "lower" else (one, other)
    return above / below if below else float("inf")


def _chapter(record: dict[str, Any], docs: Path) -> list[str]:
    machine = record["machine"]
    where = f"{machine['cpu']}, {machine['cpus']} CPUs, {machine['memory_gb']} GB, {machine['system']}"
    versions = ", ".join(f"{name} {version}" for name, version in record["versions"].items())
    target = CHAPTERS.get(record["name"])
    lines = [
        f"## {record['title']}",
        "",
        (f"`make {target}`: " if target else "") + f"`{record['command']}`  ",
        f"{record['date'][:10]}, {where}, Python {machine['python']}  ",
        versions,
        "",
        *(f"* {note}" for note in record["notes"]),
        *([""] if record["notes"] else []),
    ]
    for table in record["tables"]:
        lines += [f"### {table['title']}", "", *(f"{note}\n" for note in table["notes"])]
        if image := draw(f"{record['name']}-{table['name']}", table, docs / "images"):
            lines += [f"![{table['title']}]({image.relative_to(docs)})", ""]
        lines += [*_rows(table), ""]
    return lines


def _rows(table: Table) -> list[str]:
    """A row a case and a column a subject; few cases of many subjects are turned."""
    subjects = list(dict.fromkeys(row["subject"] for row in table["rows"]))
    cases = by_case(table)
    compared = table["better"] != "neither" and any(all(split(table, found)) for found in cases.values())
    if len(subjects) > 4 and len(cases) <= 2:
        return _turned(table, subjects, cases)
    unit = f" ({table['unit']})" if table["unit"] else ""
    head = [f"case{unit}", *subjects, *(["ours to the best peer"] if compared else [])]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for case, found in cases.items():
        cells = [say(found[subject]) if subject in found else "" for subject in subjects]
        lines.append(
            f"| {' | '.join([say_case(case), *cells, *([_share(table, found)] if compared else [])])} |"
        )
    return lines


def _turned(table: Table, subjects: list[str], cases: dict[CaseKey, dict[str, dict[str, Any]]]) -> list[str]:
    unit = f" ({table['unit']})" if table["unit"] else ""
    head = ["", *(say_case(case) + unit for case in cases)]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for subject in subjects:
        cells = [say(found[subject]) if subject in found else "" for found in cases.values()]
        lines.append(f"| {' | '.join([subject, *cells])} |")
    return lines


def _share(table: Table, found: dict[str, dict[str, Any]]) -> str:
    ours, peers = split(table, found)
    if not ours or not peers:
        return ""
    return f"{ratio(table, best(table, ours)['median'], best(table, peers)['median']):.2f} x"


def say_case(case: CaseKey) -> str:
    """Names and values; a name that stands alone before words says nothing."""
    if len(case) == 1 and isinstance(case[0][1], str):
        return case[0][1]
    return ", ".join(
        f"{name} {value:,}" if isinstance(value, int) else f"{name} {value}" for name, value in case
    )


def say(row: dict[str, Any]) -> str:
    """A median with its spread, and what the figure alone would not say."""
    if row["median"] is None:
        return str(row["note"])
    spread = "" if row["repeats"] == 1 else f" ({_digits(row['min'])} to {_digits(row['max'])})"
    note = f", {row['note']}" if row["note"] else ""
    return f"{_digits(row['median'])}{spread}{note}"


def _digits(value: float) -> str:
    """Three digits that count."""
    if abs(value) >= 1000 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.3g}"


if __name__ == "__main__":
    print(write())
