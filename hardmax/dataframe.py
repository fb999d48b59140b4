"""Answers as further columns of a table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

MIN_CONTRIBUTION = 0.05  # of a leader in a table

# The columns of an answer and their types.
RESULT_COLUMNS = {
    "label": "string",
    "score": "number",
    "abstain_reason": "string",
    "truncated": "boolean",
    "leaders": "strings",
    "hardmax_error": "string",
}


def result_column_names(columns: Sequence[str]) -> dict[str, str]:
    """Return the name of each result column in a table with these columns.

    If a column of the same name exists, the result column is called `hardmax_label`, `hardmax_score`, ...
    """
    return {
        name: f"hardmax_{name.removeprefix('hardmax_')}" if name in columns else name
        for name in RESULT_COLUMNS
    }


def append_columns(table: Any, rows: Iterable[dict[str, Any]]) -> Any:
    """Return a pyarrow table with the answers to its rows as further columns."""
    import pyarrow as pa

    types = {
        "string": pa.string(),
        "number": pa.float64(),
        "boolean": pa.bool_(),
        "strings": pa.list_(pa.string()),
    }
    schema = pa.schema({name: types[kind] for name, kind in RESULT_COLUMNS.items()})
    results = pa.Table.from_pylist(list(rows), schema=schema)
    for name, column in result_column_names(table.column_names).items():
        if column in table.column_names:  # an earlier answer
            table = table.drop_columns([column])
        table = table.append_column(column, results.column(name))
    return table


def as_frame(
    rows: Sequence[dict[str, Any]],
    probabilities: Sequence[dict[str, float]],
    columns: Sequence[str],
    index: Any = None,
) -> Any:
    """Return a pandas DataFrame of rows, which have these columns, with a column `p(label)` for each label.

    Raises:
        ImportError: pandas is not installed.
    """
    try:
        import pandas
    except ImportError:
        raise ImportError("to_frame() needs pandas: pip install pandas") from None
    if not rows:
        return pandas.DataFrame(columns=[*columns], index=index)
    labels = ({f"p({label})": p for label, p in probs.items()} for probs in probabilities)
    return pandas.DataFrame([row | p for row, p in zip(rows, labels, strict=True)], index=index)
