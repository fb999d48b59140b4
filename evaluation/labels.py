"""Labelled rows of a file, for training or evaluation, with notes on how the file was read."""

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from evaluation.tables.columns import find_column, find_named_column, normalize_name
from evaluation.tables.reading import Table, read_table
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

Pairs = Sequence[tuple[str, tuple[str, ...]]]  # a text, and its labels


@dataclass(frozen=True)
class Rows:
    """Texts with their labels, and notes for people on how the file was read."""

    texts: list[str]
    truth: list[tuple[str, ...]]
    labels: tuple[str, ...]
    multi_label: bool  # labels do not exclude each other, and a text may have none
    notes: list[str]

    @property
    def targets(self) -> NDArray[np.float32]:
        """[n, C]"""
        return np.array([[label in row for label in self.labels] for row in self.truth], np.float32)

    @property
    def digest(self) -> str:
        rows = zip(self.texts, self.truth, strict=True)
        content = "\0".join(f"{text}\1{SEPARATOR.join(labels)}" for text, labels in rows)
        return hashlib.sha256(content.encode("utf-8", "replace")).hexdigest()


def read_rows(
    path: str,
    *,
    column: str | None = None,
    label: Sequence[str] = (),
    keep_labels: bool = False,
    multi_label: bool = False,
    min_rows: int = MIN_ROWS_PER_LABEL,
) -> Rows:
    """Return the labelled texts of a file.

    Stars become negative and positive, and `a|b` becomes two labels, unless `keep_labels`.
    """
    table = read_table(path, column=column)
    text_column = find_column(table, column)
    if len(label) > 1:
        return _read_label_columns(table, text_column, [find_column(table, name) for name in label], min_rows)
    label_column = find_label(table, text_column, label[0] if label else None)
    pairs = [(row.get(text_column), label_text(row.get(label_column))) for row in table.rows]
    rows = [(text, value) for text, value in pairs if is_text(text) and value]
    notes = [
        f"{path}: {len(table):,} rows, texts from column {text_column!r}, labels from column {label_column!r}"
    ]
    is_output = "hardmax_error" in table.columns and "hardmax_label" not in table.columns
    if is_output and label_column == "label":
        notes.append("warning: this column is what a model answered, unless somebody has corrected it")
    if len(rows) < len(pairs):
        notes.append(f"left out: {len(pairs) - len(rows):,} without a text or a label")
    if not keep_labels and (multi_label or any(SEPARATOR in value for _, value in rows)):
        return _split_labels(table, rows, notes, min_rows)
    if keep_labels:
        return _check_rows(table, [(text, (value,)) for text, value in rows], notes, min_rows)
    return _name_labels(table, rows, label_column, notes, min_rows)


def _split_labels(table: Table, rows: Sequence[tuple[str, str]], notes: list[str], min_rows: int) -> Rows:
    """Return rows whose labels are written a|b."""
    pairs = [(text, tuple(filter(None, map(str.strip, value.split(SEPARATOR))))) for text, value in rows]
    hint = f"(written a{SEPARATOR}b); --keep-labels keeps each value as one label"
    notes = [*notes, f"a text may have several labels {hint}"]
    return _check_rows(table, pairs, notes, min_rows, multi_label=True)


def _name_labels(
    table: Table, rows: Sequence[tuple[str, str]], column: str, notes: list[str], min_rows: int
) -> Rows:
    """Return rows with stars and usual spellings as negative and positive, without stars in the middle."""
    names = _find_polarity(table, [value for _, value in rows], column)
    pairs = [(text, names.get(value, value)) for text, value in rows]
    if neutral := {value for _, value in rows if names.get(value) == ""}:
        number = sum(1 for _, name in pairs if not name)
        values = ", ".join(sorted(neutral, key=float))
        note = f"left out: {number:,} with {column} {values}, which is neither (--keep-labels keeps it)"
        notes = [*notes, note]
    return _check_rows(table, [(text, (name,)) for text, name in pairs if name], notes, min_rows)


def find_label(table: Table, text_column: str, requested: str | None) -> str:
    """Return the column of labels: as requested, by a usual name, or the only one with few values."""
    if requested is not None and requested == text_column:
        problem = f"column {requested!r} holds the texts and cannot hold the labels"
        raise InvalidInput(f"{table.source}: {problem}: use --column or another --label", param="--label")
    if requested is not None:
        return find_column(table, requested)
    columns = [column for column in table.columns if column != text_column]
    usual = find_named_column(columns, (*LABEL_NAMES, *STAR_NAMES))
    if usual is not None:
        return usual
    categorical = [name for name in columns if 2 <= len({label_text(v) for v in table.values(name)}) <= 20]
    if len(categorical) == 1:
        return categorical[0]
    names = ", ".join(table.columns)
    hint = "Say --label (--label a b where a and b have a column each)"
    raise InvalidInput(f"{table.source}: which column holds the labels? {hint}; it has {names}")


def _read_label_columns(table: Table, text_column: str, columns: Sequence[str], min_rows: int) -> Rows:
    pairs = []
    for number, row in enumerate(table.rows, 1):
        cells = {column: label_text(row.get(column)).lower() for column in columns}
        for column, cell in cells.items():
            if cell not in (*YES, *NO):
                problem = f"{column} is {cell!r}; one column a label holds 1 or 0"
                raise InvalidInput(f"{table.source}, row {number}: {problem}")
        if is_text(text := row.get(text_column)):
            pairs.append((text, tuple(column for column, cell in cells.items() if cell in YES)))
    source = f"texts from column {text_column!r}, one label each from {', '.join(columns)}"
    notes = [f"{table.source}: {len(table):,} rows, {source}"]
    if len(pairs) < len(table):
        notes.append(f"left out: {len(table) - len(pairs):,} without a text")
    return _check_rows(table, pairs, notes, min_rows, multi_label=True)


def _check_rows(
    table: Table, pairs: Pairs, notes: list[str], min_rows: int, *, multi_label: bool = False
) -> Rows:
    """Check that there are enough labels with enough rows each, and not too many; return the rows."""
    count = Counter(label for _, labels in pairs for label in labels)
    if not pairs:
        raise InvalidInput(
            f"{table.source}: no row has a text and a label. Say --column and --label if others hold them"
        )
    if len(count) < min_rows:  # also the number of labels: one to evaluate, two to train
        present = f"the label {next(iter(count))!r}" if count else "no label"
        raise InvalidInput(
            f"{table.source}: all of {len(pairs):,} rows with a text have {present}; a model learns two or "
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
    labels = tuple(sorted(count, key=lambda label: (label.lower() not in FIRST_LABELS, label)))
    listed = [f"{label} ({count[label]:,})" for label in labels[:MAX_LISTED_LABELS]]
    more = f" and {len(labels) - len(listed)} more" if len(labels) > len(listed) else ""
    notes = [*notes, f"labels: {', '.join(listed)}{more}"]
    return Rows([text for text, _ in pairs], [row for _, row in pairs], labels, multi_label, notes)


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


def _find_polarity(table: Table, values: Iterable[str], column: str) -> dict[str, str]:
    """Return the labels of stars and usual spellings by value; "" for stars in the middle."""
    distinct = set(values)
    names = {spelling: name for name, spellings in POLARITY.items() for spelling in spellings}
    polarity = {value: names[value.lower()] for value in distinct if value.lower() in names}
    if len(polarity) == len(distinct) and len(set(polarity.values())) == 2:
        return polarity
    numbers = all(re.fullmatch(r"\d+(\.\d+)?", value) for value in distinct)
    if normalize_name(column) in STAR_NAMES and distinct and numbers:
        highest = max(map(float, distinct))
        top = 5 if highest <= 5 else 10
        polarity = {value: _star_polarity((float(value) - 1) / (top - 1)) for value in distinct}
        sides = set(polarity.values()) - {""}
        if highest <= top and len(sides) < 2 <= len(distinct):
            raise InvalidInput(
                f"{table.source}: {column} from {min(distinct, key=float)} to {highest:g}, read as stars "
                f"of {top}, has one side only; --keep-labels keeps every value as a label"
            )
        if highest <= top and sides:
            return polarity
    return {}


def _star_polarity(share: float) -> str:
    return "negative" if share < 0.4 else "positive" if share > 0.6 else ""
