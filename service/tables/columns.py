"""Which column holds what: by its name, or by what stands in it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from service.errors import InvalidInput
from service.tables.reading import TEXT, Table

TEXT_NAMES = (TEXT, "review", "sentence", "content", "comment", "message", "tweet", "body", "feedback")


def find_column(table: Table, wanted: str | None) -> str:
    """The column of texts: the one wanted, one with a usual name, or the one that reads like text."""
    if not table.columns:
        raise InvalidInput(f"{table.source} is empty: it needs a line of names, and a row for each text")
    have = ", ".join(table.columns)
    if wanted is not None:
        if wanted not in table.columns:
            raise InvalidInput(f"{table.source} has no column {wanted!r}; it has {have}")
        return wanted
    usual = usual_column(table.columns, TEXT_NAMES)
    if usual is not None:
        return usual
    lengths = {column: _mean_length(table.sample(column)) for column in table.columns}
    longest = max(table.columns, key=lambda column: lengths[column])
    others = [length for column, length in lengths.items() if column != longest]
    if not others or lengths[longest] > 2 * max(others):
        return longest
    raise InvalidInput(f"{table.source}: which column holds the texts? Say --column; it has {have}")


def usual_column(columns: Sequence[str], names: Sequence[str]) -> str | None:
    """The column that has one of these names; where several have one, that of the earlier name."""
    found = {normal(column): column for column in reversed(columns)}
    return next((found[name] for name in names if name in found), None)


def normal(name: str) -> str:
    """A column's name in small letters and digits alone: "Review Text" and "review_text" become the same."""
    return re.sub(r"[^a-z0-9]", "", name.lower()).removesuffix("text") or "text"


def _mean_length(values: Sequence[str]) -> float:
    return sum(map(len, values)) / len(values) if values else 0.0
