"""`hardmax-export train reviews.csv --name mine`: a model of one's own rows, measured, exported and checked.

Finds the columns, says what it took from them, and writes a bundle that `hardmax serve --models-dir` serves.
How a model learns is the business of `train.own`, how it becomes a graph that of `sentiment.export`.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hardmax.display import counted
from service.cli.progress import Progress
from service.errors import InvalidInput
from service.tables.columns import find_column, normal, usual_column
from service.tables.reading import Table, read_table

LABEL_NAMES = ("label", "sentiment", "class", "category", "target", "polarity", "topic")
STAR_NAMES = ("stars", "star", "starrating", "rating", "ratings", "score", "overall", "grade")
TWO = {"negative": ("0", "-1", "neg", "negative"), "positive": ("1", "+1", "pos", "positive")}
MOST_LABELS = 100
CHECKED = 500  # texts that the exported graph is compared on
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True)
class Rows:
    """What a file teaches: texts with their labels, and how these were found, in words."""

    rows: list[tuple[str, str]]
    told: list[str]


# ---------------------------------------- rows


def read_rows(path: str, *, column: str | None = None, label: str | None = None, as_is: bool = False) -> Rows:
    """The labelled texts of a file. Stars become negative and positive unless `as_is`."""
    table = read_table(path)
    text_column = find_column(table, column)
    label_column = find_label(table, text_column, label)
    pairs = [(row.get(text_column), _spelt(row.get(label_column))) for row in table.rows]
    whole = [(text, value) for text, value in pairs if isinstance(text, str) and text.strip() and value]
    told = [
        f"{path}: {len(table):,} rows, texts from column {text_column!r}, labels from column {label_column!r}"
    ]
    if len(whole) < len(pairs):
        told.append(f"left out: {len(pairs) - len(whole):,} without a text or a label")
    values = [value for _, value in whole]
    names = {} if as_is else _names(values, label_column)
    rows = [(text, names.get(value, value)) for text, value in whole if names.get(value, value)]
    if len(rows) < len(whole):
        between = ", ".join(sorted({value for value in values if names.get(value) == ""}, key=float))
        told.append(f"left out: {len(whole) - len(rows):,} with {label_column} {between}, which is neither")
    count = Counter(name for _, name in rows)
    if len(count) > MOST_LABELS:
        raise InvalidInput(
            f"{path}: column {label_column!r} has {len(count):,} values: is it the label? Say --label"
        )
    told.append("labels: " + ", ".join(_counted(name, count[name], names) for name in sorted(count)))
    return Rows(rows, told)


def find_label(table: Table, text_column: str, wanted: str | None) -> str:
    """The column of labels: the one wanted, one with a usual name, or the only one with few values."""
    if wanted is not None:
        return find_column(table, wanted)
    others = [column for column in table.columns if column != text_column]
    usual = usual_column(others, (*LABEL_NAMES, *STAR_NAMES))
    if usual is not None:
        return usual
    few = [column for column in others if 2 <= len({_spelt(v) for v in table.values(column)}) <= 20]
    if len(few) == 1:
        return few[0]
    have = ", ".join(table.columns)
    raise InvalidInput(f"{table.source}: which column holds the labels? Say --label; it has {have}")


def _spelt(value: Any) -> str:
    """A label as text: 1, 1.0 and true are "1"."""
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return re.sub(r"^([+-]?\d+)\.0+$", r"\1", str("" if value is None else value).strip())


def _names(values: Sequence[str], column: str) -> dict[str, str]:
    """What values mean: stars and the usual spellings of two labels; "" for stars in the middle."""
    distinct = set(values)
    two = {value: name for name, spellings in TWO.items() for value in distinct if value.lower() in spellings}
    if len(two) == len(distinct) and len(set(two.values())) == 2:
        return two
    if normal(column) in STAR_NAMES and all(re.fullmatch(r"\d+(\.\d+)?", value) for value in distinct):
        top = 5 if max(map(float, distinct)) <= 5 else 10
        if max(map(float, distinct)) <= top:
            return {value: _side((float(value) - 1) / (top - 1)) for value in distinct}
    return {}


def _side(share: float) -> str:
    return "negative" if share < 0.4 else "positive" if share > 0.6 else ""


def _counted(name: str, rows: int, names: dict[str, str]) -> str:
    spelt = sorted(value for value, meant in names.items() if meant == name and value != name)
    return f"{name} ({counted(rows, 'row')}{', spelt ' + ', '.join(spelt) if spelt else ''})"


# ---------------------------------------- command line


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", help="rows of texts and labels: csv, tsv, jsonl, json, parquet")
    parser.add_argument("--name", help="name of the model (default: that of the file)")
    parser.add_argument("--out", type=Path, default=Path("models"), help="folder of models (default: models)")
    parser.add_argument("--column", help="the column of texts (default: found by its name or its content)")
    parser.add_argument("--label", help="the column of labels (default: found in the same way)")
    parser.add_argument(
        "--as-is",
        action="store_true",
        help="keep stars and 0/1 as labels of their own",
    )
    parser.add_argument("--description", help="what the model's card says of it")
    parser.add_argument("--seed", type=int, default=0)


def run(arguments: argparse.Namespace) -> int:
    """0 when the bundle was written and torch, numpy and ONNX Runtime agree on it, 1 when they do not."""
    name = _name(arguments)
    found = read_rows(arguments.file, column=arguments.column, label=arguments.label, as_is=arguments.as_is)
    _say(*found.told)
    from model_export.measure.verify import verify
    from model_export.sentiment.export import write_sentiment_bundle
    from model_export.train.own import train

    with Progress(sys.stderr) as shown:
        trained = train(
            found.rows, seed=arguments.seed, progress=lambda n, total: shown.count(n, total, "rows")
        )
    _say(*measured(trained.figures), *(f"warning: {warning}" for warning in trained.warnings))
    card = {
        "name": name,
        "description": arguments.description or f"Trained on {counted(len(found.rows), 'row')} of one's own.",
        "labels": list(trained.labels),
        "data": {"source": Path(arguments.file).name, "rows": len(found.rows)},
        "figures": trained.figures,
    }
    bundle = write_sentiment_bundle(arguments.out, trained.weights, trained.lists, card)
    parity = verify(bundle, [text for text, _ in found.rows[:CHECKED]])
    folder = arguments.out / name
    if not parity.holds:
        _say(f"{folder}: do not serve it: its graph does not compute what was trained", *parity.lines())
        return 1
    size = sum(file.stat().st_size for file in folder.iterdir()) / 1e6
    checked = counted(parity.texts, "text")
    _say(
        f"{folder}: {size:.1f} MB; torch, numpy and ONNX Runtime agree on {checked}",
        f"next: hardmax serve --models-dir {arguments.out}",
    )
    return 0


def measured(figures: dict[str, Any]) -> list[str]:
    """The figures of training as sentences."""
    rows = f"{figures['measured']:,} rows that it had not learnt from"
    folds = f" ({figures['folds']} folds)" if figures["folds"] > 1 else ""
    right = f"{figures['accuracy']:.1%} right, {figures['balanced_accuracy']:.1%} balanced"
    return [
        f"measured on {rows}{folds}: {right}",
        f"for comparison: {figures['most_frequent_label']:.1%} by always saying the most frequent label, "
        f"{figures['linear_accuracy']:.1%} by a linear model (TF-IDF with logistic regression)",
    ]


def _name(arguments: argparse.Namespace) -> str:
    name = arguments.name or re.sub(r"[^A-Za-z0-9._-]+", "-", Path(arguments.file).stem).strip("-._")
    if not NAME.fullmatch(name) or name == "dynamics":
        raise InvalidInput(
            f"--name: {name!r} cannot name a model: letters, digits, dots and hyphens, not 'dynamics'"
        )
    return str(name)


def _say(*lines: str) -> None:
    print("\n".join(lines), flush=True)
