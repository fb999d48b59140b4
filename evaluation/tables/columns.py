"""Find the columns of a table by their names or values."""

import re
from collections.abc import Sequence
from statistics import fmean

from evaluation.tables.text import TEXT, Table
from hardmax.errors import InvalidInput

TEXT_NAMES = (TEXT, "review", "sentence", "content", "comment", "message", "tweet", "body", "feedback")


def find_column(table: Table, requested: str | None) -> str:
    """Return the column of texts: as requested, by a usual name, or the one with the longest texts."""
    if not table.columns:
        raise InvalidInput(f"{table.source} is empty: it needs a line of names, and a row for each text")
    names = ", ".join(table.columns)
    if requested is not None:
        if requested not in table.columns:
            raise InvalidInput(f"{table.source} has no column {requested!r}; it has {names}")
        return requested
    usual = find_named_column(table.columns, TEXT_NAMES)
    if usual is not None:
        return usual
    lengths = {column: fmean([len(text) for text in table.sample(column)] or [0]) for column in table.columns}
    longest = max(table.columns, key=lambda column: lengths[column])
    others = [length for column, length in lengths.items() if column != longest]
    if not others or lengths[longest] > 2 * max(others):
        return longest
    raise InvalidInput(f"{table.source}: which column holds the texts? Say --column; it has {names}")


def find_named_column(columns: Sequence[str], names: Sequence[str]) -> str | None:
    """Return the column with one of these names; of several, the one with the earlier name."""
    by_name = {normalize_name(column): column for column in reversed(columns)}
    return next((by_name[name] for name in names if name in by_name), None)


def normalize_name(name: str) -> str:
    """Return a column name in lower-case letters and digits: "Review Text" and "review_text" are the same."""
    short = re.sub(r"[^a-z0-9]", "", name.lower())
    return short.removesuffix("text") or short
