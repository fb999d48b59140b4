"""Answers as further columns of a table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from hardmax.errors import InvalidInput
from hardmax.formatting import pluralize

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
        raise ImportError("answers become a DataFrame by pandas: pip install pandas") from None
    if not rows:
        return pandas.DataFrame(columns=[*columns], index=index)
    labels = ({f"p({label})": p for label, p in probs.items()} for probs in probabilities)
    return pandas.DataFrame([row | p for row, p in zip(rows, labels, strict=True)], index=index)


def add_columns(frame: Any, answers: Any, texts: Any, prefix: str) -> Any:
    """Return a DataFrame, or a Series, with the columns of a frame of answers, each answer next to its text.

    The rows are those of the same position or, if `texts` is a Series with another index, of the same index.

    Raises:
        InvalidInput: The table has other rows than the answers, or other texts.
    """
    table = frame.copy() if hasattr(frame, "columns") else frame.to_frame()
    if texts is not None and not texts.index.equals(table.index):
        if not _matches(texts.index, table.index):
            problem = "the answers are of another table: the indices differ, or have repeated values"
            raise InvalidInput(problem, param="frame")
        texts, answers = texts.reindex(table.index), answers.reindex(table.index)
    if len(answers) != len(table):
        problem = f"{pluralize(len(answers), 'answer')} for {pluralize(len(table), 'row')}"
        raise InvalidInput(f"{problem}: classify a column of this table", param="frame")
    if texts is not None and texts.name in table.columns:
        column, known = table[texts.name].astype(object).array, texts.astype(object).array
        answered = answers["label"].notna().array
        if not (column[answered] == known[answered]).all():
            problem = f"the column {texts.name!r} has other texts than those that were classified"
            raise InvalidInput(problem, param="frame")
    levels = table.columns.nlevels
    for name in answers.columns:
        column_name = prefix + name.removeprefix("hardmax_")
        key = column_name if levels == 1 else (column_name, *[""] * (levels - 1))
        table[key] = answers[name].array
    return table


def _matches(answered: Any, index: Any) -> bool:
    """Return whether one index is a part of the other, and rows can be found by it."""
    if not (answered.is_unique and index.is_unique):
        return False
    return bool(answered.isin(index).all() or index.isin(answered).all())
