"""Labelled rows of a file, for training or evaluation, with notes on how the file was read."""

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from evaluation.tables.columns import find_column, find_named_column, normalize_name
from evaluation.tables.reading import read_table
from evaluation.tables.text import SHEET, Row, Table
from hardmax.errors import InvalidInput

LABEL_NAMES = (
    "label", "labels", "sentiment", "class", "category", "target", "polarity", "topic", "topics", "tags",
    "intent",
)  # fmt: skip
STAR_NAMES = ("stars", "star", "starrating", "rating", "ratings", "score", "overall", "grade")
POLARITY = {"negative": ("0", "-1", "neg", "negative"), "positive": ("1", "+1", "pos", "positive")}
FIRST_LABELS = ("negative", "neg", "bad", "no", "false", "0")  # of two labels
YES, NO = ("1", "true", "yes", "x"), ("0", "false", "no", "")
SEPARATOR = "|"  # between the labels of a text
NAN = "nan"
MAX_LABELS_OF_FILE = 100
MAX_LISTED_LABELS = 12  # in the notes
MIN_ROWS_PER_LABEL = 2  # to train


@dataclass(frozen=True)
class Rows:
    """Texts with their labels, and notes for people on how the file was read."""

    texts: list[str]
    truth: list[tuple[str, ...]]
    labels: tuple[str, ...]
    multi_label: bool  # labels do not exclude each other, and a text may have none
    notes: list[str]
    numbers: Sequence[int] = ()  # of each row in its file
    cells: Sequence[Row] = ()  # all cells of each row

    @property
    def targets(self) -> NDArray[np.float32]:
        """[n, C]"""
        return np.array([[label in row for label in self.labels] for row in self.truth], np.float32)

    @property
    def digest(self) -> str:
        rows = zip(self.texts, self.truth, strict=True)
        content = "\0".join(f"{text}\1{SEPARATOR.join(labels)}" for text, labels in rows)
        return hashlib.sha256(content.encode("utf-8", "replace")).hexdigest()

    def values(self, column: str, option: str) -> list[str]:
        """Return the values of another column as labels, or raise InvalidInput if there is no such column."""
        known = dict.fromkeys(name for row in self.cells for name in row)
        if column not in known:
            raise InvalidInput(f"{option}: no column {column!r}; there are {', '.join(known)}", param=option)
        return [label_text(row.get(column)) for row in self.cells]


@dataclass(frozen=True)
class _Labels:
    """The labels of rows by their position in the table."""

    by_row: dict[int, tuple[str, ...]]
    notes: list[str]
    multi_label: bool = False


def read_rows(
    path: str,
    *,
    column: str | None = None,
    label: Sequence[str] = (),
    sheet: str | None = None,
    keep_labels: bool = False,
    multi_label: bool = False,
    min_rows: int = MIN_ROWS_PER_LABEL,
) -> Rows:
    """Return the labelled texts of a file.

    Stars become negative and positive, and `a|b` becomes two labels, unless `keep_labels`.
    """
    table = read_table(path, column=column, sheet=sheet)
    text_column = find_column(table, column)
    texts = {i: text for i, text in enumerate(table.values(text_column)) if is_text(text)}
    if len(label) > 1:
        labels = _read_label_columns(table, texts, [find_column(table, name) for name in label])
        source = f"one label each from {', '.join(label)}"
    else:
        label_column = find_label(table, text_column, label[0] if label else None)
        labels = _read_label_column(table, texts, label_column, keep_labels, multi_label)
        source = f"labels from column {label_column!r}"
    notes = [f"{path}: {len(table):,} rows, texts from column {text_column!r}, {source}", *labels.notes]
    by_row = labels.by_row
    names, count = _check_labels(table, by_row, min_rows)
    listed = [f"{name} ({count[name]:,})" for name in names[:MAX_LISTED_LABELS]]
    more = f" and {len(names) - len(listed)} more" if len(names) > len(listed) else ""
    return Rows(
        [texts[i] for i in by_row],
        list(by_row.values()),
        names,
        labels.multi_label,
        [*table.notes, *notes, f"labels: {', '.join(listed)}{more}"],
        [table.numbers[i] for i in by_row],
        [table.rows[i] for i in by_row],
    )


def _read_label_column(
    table: Table, texts: Mapping[int, str], column: str, keep_labels: bool, multi_label: bool
) -> _Labels:
    """Return the labels of one column: names, stars, or several written a|b."""
    values = {i: value for i in texts if (value := label_text(table.rows[i].get(column)))}
    notes = []
    if column == "label" and "hardmax_error" in table.columns and "hardmax_label" not in table.columns:
        notes.append("warning: this column is what a model answered, unless somebody has corrected it")
    if len(values) < len(table):
        notes.append(f"left out: {len(table) - len(values):,} without a text or a label")
    if keep_labels:
        return _Labels({i: (value,) for i, value in values.items()}, notes)
    if multi_label or any(SEPARATOR in value for value in values.values()):
        several = {i: tuple(filter(None, map(str.strip, v.split(SEPARATOR)))) for i, v in values.items()}
        hint = f"(written a{SEPARATOR}b); --keep-labels keeps each value as one label"
        return _Labels(several, [*notes, f"a text may have several labels {hint}"], multi_label=True)
    names = _find_polarity(table, values.values(), column)
    named = {i: names.get(value, value) for i, value in values.items()}
    if neutral := {value for value in values.values() if names.get(value) == ""}:
        number, stars = sum(not name for name in named.values()), ", ".join(sorted(neutral, key=_stars))
        notes.append(f"left out: {number:,} with {column} {stars}, which is neither (--keep-labels keeps it)")
    return _Labels({i: (name,) for i, name in named.items() if name}, notes)


def _read_label_columns(table: Table, texts: Mapping[int, str], columns: Sequence[str]) -> _Labels:
    """Return the labels of columns of 0 and 1, one for each label."""
    by_row = {}
    for i, row in enumerate(table.rows):
        cells = {column: label_text(row.get(column)).lower() for column in columns}
        for column, cell in cells.items():
            if cell not in (*YES, *NO):
                problem = f"{column} is {cell!r}; one column a label holds 1 or 0"
                raise InvalidInput(f"{table.source}, row {table.numbers[i]}: {problem}")
        if i in texts:
            by_row[i] = tuple(column for column, cell in cells.items() if cell in YES)
    n_missing = len(table) - len(by_row)
    notes = [f"left out: {n_missing:,} without a text"] if n_missing else []
    return _Labels(by_row, notes, multi_label=True)


def _check_labels(
    table: Table, by_row: Mapping[int, tuple[str, ...]], min_rows: int
) -> tuple[tuple[str, ...], Counter[str]]:
    """Check that there are enough labels with enough rows each, and not too many; return and count them."""
    count = Counter(label for labels in by_row.values() for label in labels)
    if not by_row:
        raise InvalidInput(
            f"{table.source}: no row has a text and a label. Say --column and --label if others hold them"
        )
    if len(count) < min_rows:  # also the number of labels: one to evaluate, two to train
        present = f"the label {next(iter(count))!r}" if count else "no label"
        raise InvalidInput(
            f"{table.source}: all of {len(by_row):,} rows with a text have {present}; a model learns two or "
            "more. Add rows of another, or say --label if another column holds the labels"
        )
    if len(count) > MAX_LABELS_OF_FILE:
        problem = (
            f"{len(count):,} different labels; at most {MAX_LABELS_OF_FILE}. Is it the label? Say --label"
        )
        raise InvalidInput(f"{table.source}: {problem}")
    if rare := [label for label, rows in count.items() if rows < min_rows]:
        names = ", ".join(map(repr, rare[:5])) + (", .." if rare[5:] else "")
        raise InvalidInput(
            f"{table.source}: a single row has the label {names}; each needs {min_rows} or more. "
            "Add rows, take these out, or say --label if another column holds the labels"
        )
    return tuple(sorted(count, key=lambda label: (label.lower() not in FIRST_LABELS, label))), count


def find_label(table: Table, text_column: str, requested: str | None) -> str:
    """Return the column of labels: as requested, by a usual name, or the only one with few values."""
    if requested is not None and requested == text_column:
        problem = f"column {requested!r} holds the texts and cannot hold the labels"
        raise InvalidInput(f"{table.source}: {problem}: use --column or another --label", param="--label")
    if requested is not None:
        return find_column(table, requested)
    columns = [column for column in table.columns if column not in (text_column, SHEET)]
    usual = find_named_column(columns, (*LABEL_NAMES, *STAR_NAMES))
    if usual is not None:
        return usual
    categorical = [name for name in columns if 2 <= len({label_text(v) for v in table.values(name)}) <= 20]
    if len(categorical) == 1:
        return categorical[0]
    names = ", ".join(table.columns)
    hint = "Say --label (--label a b where a and b have a column each)"
    raise InvalidInput(f"{table.source}: which column holds the labels? {hint}; it has {names}")


def is_text(value: Any) -> TypeGuard[str]:
    """Return whether a cell has a text. NaN is a missing value."""
    return isinstance(value, str) and value.strip().lower() not in ("", NAN)


def label_text(value: Any) -> str:
    """Return a label as text: "1" for 1, 1.0 and true, "a|b" for a list, "" for NaN."""
    if isinstance(value, list):
        return SEPARATOR.join(map(label_text, value))
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, float):
        if value != value:
            return ""
        if value.is_integer():
            return str(int(value))
    text = str("" if value is None else value).strip()
    return "" if text.lower() == NAN else re.sub(r"^([+-]?\d+)\.0+$", r"\1", text)


def match_labels(value: str, labels: Sequence[str], *, multi_label: bool) -> frozenset[str]:
    """Return the labels that a prediction of another model means: Positive, pos and 1 are positive."""
    names = {spelling: name for name, spellings in POLARITY.items() for spelling in spellings}
    known = {label.casefold(): label for label in labels}
    parts = value.split(SEPARATOR) if multi_label else [value]
    folded = [(part.strip(), part.strip().casefold()) for part in parts]
    return frozenset(known.get(key) or known.get(names.get(key, "")) or part for part, key in folded if key)


def _find_polarity(table: Table, values: Iterable[str], column: str) -> dict[str, str]:
    """Return the labels of stars and usual spellings by value; "" for stars in the middle."""
    distinct = set(values)
    names = {spelling: name for name, spellings in POLARITY.items() for spelling in spellings}
    polarity = {value: names[value.lower()] for value in distinct if value.lower() in names}
    if len(polarity) == len(distinct) and len(set(polarity.values())) == 2:
        return polarity
    numbers = all(re.fullmatch(r"\d+([.,]\d+)?", value) for value in distinct)
    if normalize_name(column) in STAR_NAMES and distinct and numbers:
        highest = max(map(_stars, distinct))
        top = 5 if highest <= 5 else 10
        shares = {value: (_stars(value) - 1) / (top - 1) for value in distinct}
        polarity = {v: "negative" if x < 0.4 else "positive" if x > 0.6 else "" for v, x in shares.items()}
        sides = set(polarity.values()) - {""}
        if highest <= top and len(sides) < 2 <= len(distinct):
            raise InvalidInput(
                f"{table.source}: {column} from {min(distinct, key=_stars)} to {highest:g}, read as stars "
                f"of {top}, has one side only; --keep-labels keeps every value as a label"
            )
        if highest <= top and sides:
            return polarity
    return {}


def _stars(value: str) -> float:
    return float(value.replace(",", "."))
