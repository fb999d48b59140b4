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
TWO = {"negative": ("0", "-1", "neg", "negative"), "positive": ("1", "+1", "pos", "positive")}
ORDER = ("negative", "neg", "bad", "no", "false", "0")  # labels that come first of two
YES, NO = ("1", "true", "yes", "x"), ("0", "false", "no", "")
BETWEEN = "|"  # labels of one text
NAN = "nan"
MAX_LABELS_OF_FILE = 100
MAX_LISTED_LABELS = 12  # in the notes
MIN_ROWS_PER_LABEL = 2  # rows of a label, or it cannot be trained

Pairs = Sequence[tuple[str, tuple[str, ...]]]  # a text, and its labels


@dataclass(frozen=True)
class Rows:
    """Texts with their labels, and notes for people on how the file was read."""

    texts: list[str]
    truth: list[tuple[str, ...]]
    labels: tuple[str, ...]
    several: bool  # labels do not exclude each other, and a text may have none
    notes: list[str]

    @property
    def targets(self) -> NDArray[np.float32]:
        """[n, C]"""
        return np.array([[label in have for label in self.labels] for have in self.truth], np.float32)

    @property
    def digest(self) -> str:
        rows = zip(self.texts, self.truth, strict=True)
        whole = "\0".join(f"{text}\1{BETWEEN.join(have)}" for text, have in rows)
        return hashlib.sha256(whole.encode("utf-8", "replace")).hexdigest()


def read_rows(
    path: str,
    *,
    column: str | None = None,
    label: Sequence[str] = (),
    as_is: bool = False,
    several: bool = False,
    least: int = MIN_ROWS_PER_LABEL,
) -> Rows:
    """Return the labelled texts of a file.

    Stars become negative and positive, and `a|b` becomes two labels, unless `as_is`.
    """
    table = read_table(path)
    text_column = find_column(table, column)
    if len(label) > 1:
        return _one_column_each(table, text_column, [find_column(table, each) for each in label], least)
    label_column = find_label(table, text_column, label[0] if label else None)
    pairs = [(row.get(text_column), label_text(row.get(label_column))) for row in table.rows]
    whole = [(text, value) for text, value in pairs if is_text(text) and value]
    notes = [
        f"{path}: {len(table):,} rows, texts from column {text_column!r}, labels from column {label_column!r}"
    ]
    written = "hardmax_error" in table.columns and "hardmax_label" not in table.columns
    if written and label_column == "label":
        notes.append("careful: this column is what a model answered, unless somebody has corrected it")
    if len(whole) < len(pairs):
        notes.append(f"left out: {len(pairs) - len(whole):,} without a text or a label")
    if not as_is and (several or any(BETWEEN in value for _, value in whole)):
        return _several_labels(table, whole, notes, least)
    if as_is:
        return _rows(table, [(text, (value,)) for text, value in whole], notes, least)
    return _named_labels(table, whole, label_column, notes, least)


def _several_labels(table: Table, rows: Sequence[tuple[str, str]], notes: list[str], least: int) -> Rows:
    """Return rows whose labels are written a|b."""
    parts = [(text, tuple(filter(None, map(str.strip, value.split(BETWEEN))))) for text, value in rows]
    how = f"(written a{BETWEEN}b); --keep-labels keeps each value as one label"
    return _rows(table, parts, [*notes, f"a text may have several labels {how}"], least, several=True)


def _named_labels(
    table: Table, rows: Sequence[tuple[str, str]], column: str, notes: list[str], least: int
) -> Rows:
    """Return rows with stars and usual spellings as negative and positive, without stars in the middle."""
    names = _names(table, [value for _, value in rows], column)
    named = [(text, names.get(value, value)) for text, value in rows]
    if between := {value for _, value in rows if names.get(value) == ""}:
        number = sum(1 for _, name in named if not name)
        neither = ", ".join(sorted(between, key=float))
        left_out = f"left out: {number:,} with {column} {neither}, which is neither"
        notes = [*notes, f"{left_out} (--keep-labels keeps it)"]
    return _rows(table, [(text, (name,)) for text, name in named if name], notes, least)


def find_label(table: Table, text_column: str, wanted: str | None) -> str:
    """Return the column of labels: the one given, one with a usual name, or the only one with few values."""
    if wanted is not None and wanted == text_column:
        problem = f"column {wanted!r} holds the texts and cannot hold the labels"
        raise InvalidInput(f"{table.source}: {problem}: say --column or another --label", param="--label")
    if wanted is not None:
        return find_column(table, wanted)
    others = [column for column in table.columns if column != text_column]
    usual = find_named_column(others, (*LABEL_NAMES, *STAR_NAMES))
    if usual is not None:
        return usual
    few = [column for column in others if 2 <= len({label_text(v) for v in table.values(column)}) <= 20]
    if len(few) == 1:
        return few[0]
    have = ", ".join(table.columns)
    how = "Say --label (--label a b where a and b have a column each)"
    raise InvalidInput(f"{table.source}: which column holds the labels? {how}; it has {have}")


def _one_column_each(table: Table, text_column: str, columns: Sequence[str], least: int) -> Rows:
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
    return _rows(table, pairs, notes, least, several=True)


def _rows(table: Table, pairs: Pairs, notes: list[str], least: int, *, several: bool = False) -> Rows:
    """Check that there are enough labels with enough rows each, and not too many; return the rows."""
    count = Counter(label for _, have in pairs for label in have)
    if not pairs:
        raise InvalidInput(
            f"{table.source}: no row has a text and a label. Say --column and --label if others hold them"
        )
    if len(count) < least:  # one is enough to measure, two to learn
        have = f"the label {next(iter(count))!r}" if count else "no label"
        raise InvalidInput(
            f"{table.source}: all of {len(pairs):,} rows with a text have {have}; a model learns two or "
            "more. Add rows of another, or say --label if another column holds the labels"
        )
    if len(count) > MAX_LABELS_OF_FILE:
        problem = (
            f"{len(count):,} different labels; at most {MAX_LABELS_OF_FILE}. Is it the label? Say --label"
        )
        raise InvalidInput(f"{table.source}: {problem}")
    if rare := [label for label, rows in count.items() if rows < least]:
        names = ", ".join(map(repr, rare[:5])) + (", .." if rare[5:] else "")
        raise InvalidInput(
            f"{table.source}: a single row has the label {names}; each needs {least} or more. "
            "Add rows, take these out, or say --label if another column holds the labels"
        )
    labels = tuple(sorted(count, key=lambda label: (label.lower() not in ORDER, label)))
    listed = [f"{label} ({count[label]:,})" for label in labels[:MAX_LISTED_LABELS]]
    more = f" and {len(labels) - len(listed)} more" if len(labels) > len(listed) else ""
    notes = [*notes, f"labels: {', '.join(listed)}{more}"]
    return Rows([text for text, _ in pairs], [have for _, have in pairs], labels, several, notes)


def is_text(value: Any) -> TypeGuard[str]:
    """Return whether a cell has a text. NaN is a missing value."""
    return isinstance(value, str) and value.strip().lower() not in ("", NAN)


def label_text(value: Any) -> str:
    """Return a label as text: "1" for 1, 1.0 and true, "a|b" for a list, "" for NaN."""
    if isinstance(value, list):
        return BETWEEN.join(map(label_text, value))
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, float):
        if value != value:
            return ""
        if value.is_integer():
            return str(int(value))
    text = str("" if value is None else value).strip()
    return "" if text.lower() == NAN else re.sub(r"^([+-]?\d+)\.0+$", r"\1", text)


def _names(table: Table, values: Iterable[str], column: str) -> dict[str, str]:
    """Return the labels that values stand for: stars and usual spellings; "" for stars in the middle."""
    distinct = set(values)
    two = {value: name for name, spellings in TWO.items() for value in distinct if value.lower() in spellings}
    if len(two) == len(distinct) and len(set(two.values())) == 2:
        return two
    numbers = all(re.fullmatch(r"\d+(\.\d+)?", value) for value in distinct)
    if normalize_name(column) in STAR_NAMES and distinct and numbers:
        highest = max(map(float, distinct))
        top = 5 if highest <= 5 else 10
        meant = {value: _side((float(value) - 1) / (top - 1)) for value in distinct}
        sides = set(meant.values()) - {""}
        if highest <= top and len(sides) < 2 <= len(distinct):
            raise InvalidInput(
                f"{table.source}: {column} from {min(distinct, key=float)} to {highest:g}, read as stars "
                f"of {top}, has one side only; --keep-labels keeps every value as a label"
            )
        if highest <= top and sides:
            return meant
    return {}


def _side(share: float) -> str:
    return "negative" if share < 0.4 else "positive" if share > 0.6 else ""
