"""An answer as columns of a table, beside those that the table has."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

COLUMNS = {
    "label": "string",
    "score": "number",
    "undecided": "string",
    "truncated": "truth",
    "leaders": "strings",
    "hardmax_error": "string",
}


def names_beside(columns: Sequence[str]) -> dict[str, str]:
    """What they are called beside these: hardmax_label where the table has a label of its own."""
    return {name: f"hardmax_{name.removeprefix('hardmax_')}" if name in columns else name for name in COLUMNS}


def beside(table: Any, rows: Iterable[dict[str, Any]]) -> Any:
    """A table of pyarrow with its rows' answers as further columns."""
    import pyarrow as pa

    types = {
        "string": pa.string(),
        "number": pa.float64(),
        "truth": pa.bool_(),
        "strings": pa.list_(pa.string()),
    }
    schema = pa.schema({name: types[kind] for name, kind in COLUMNS.items()})
    found = pa.Table.from_pylist(list(rows), schema=schema)
    for name, called in names_beside(table.column_names).items():
        if called in table.column_names:  # of an answer before
            table = table.drop_columns([called])
        table = table.append_column(called, found.column(name))
    return table
