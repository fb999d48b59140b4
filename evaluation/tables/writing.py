"""What `--out` writes: every row of a file as it was, with its answer beside it."""

import csv
import io
import json
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import IO, Any

from evaluation.tables.reading import READ, Row, Table, import_pyarrow
from hardmax.dataframe import append_columns, result_column_names
from hardmax.errors import InvalidInput, NotFound

WRITTEN = {suffix: form for suffix, form in READ.items() if form not in ("json", "xlsx")}


def check_writable(path: str) -> None:
    """Refuse a file that cannot be written before the work is done."""
    if Path(path).suffix.lower() not in WRITTEN:
        raise InvalidInput(f"{path}: --out writes {', '.join(WRITTEN)}")
    if WRITTEN[Path(path).suffix.lower()] == "parquet":
        import_pyarrow()
    check_folder(path)


def check_folder(path: str | Path) -> None:
    place = Path(path).absolute()
    if not place.parent.is_dir():
        raise NotFound(f"{path} cannot be written: there is no such folder")
    if place.is_dir():
        raise InvalidInput(f"{path} cannot be written: it is a folder")


def write_rows(path: str, table: Table, answers: Iterable[Row]) -> None:
    """Each row of `table` with its answer beside it, in the columns of `hardmax.dataframe`.

    The file appears when it is whole; until then whatever was there stays.
    """
    write = _WRITERS[WRITTEN[Path(path).suffix.lower()]]
    place = Path(path).absolute()
    try:
        with tempfile.TemporaryDirectory(dir=place.parent, prefix=f".{place.name}-") as folder:
            with open(Path(folder) / place.name, "wb") as file:
                write(file, table, answers)
            os.replace(file.name, place)
    except OSError as failure:
        problem = f"{path} cannot be written: {failure.strerror or failure}"
        raise InvalidInput(problem, param="--out") from None


def _write_separated(delimiter: str, file: IO[bytes], table: Table, answers: Iterable[Row]) -> None:
    # half a character becomes ?
    text = io.TextIOWrapper(file, encoding="utf-8", errors="replace", newline="")
    writer = csv.writer(text, delimiter=delimiter, lineterminator="\n")
    columns = list(dict.fromkeys([*table.columns, *result_column_names(table.columns).values()]))
    writer.writerow(columns)
    for row in _whole(table, answers):
        writer.writerow([_cell(row.get(name)) for name in columns])
    text.detach()


def _whole(table: Table, answers: Iterable[Row]) -> Iterator[Row]:
    names = result_column_names(table.columns)
    for row, answer in zip(table.rows, answers, strict=True):
        yield row | {names[name]: value for name, value in answer.items()}


def _cell(value: Any) -> Any:
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return "; ".join(value)
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list | dict | bool) else value


def _write_jsonl(file: IO[bytes], table: Table, answers: Iterable[Row]) -> None:
    for row in _whole(table, answers):
        line = json.dumps(row, ensure_ascii=False, default=str)
        # subtle: backslashreplace writes half a character as JSON does.
        file.write(line.encode("utf-8", "backslashreplace") + b"\n")


def _write_parquet(file: IO[bytes], table: Table, answers: Iterable[Row]) -> None:
    pa, parquet = import_pyarrow()
    whole = table.arrow
    if whole is None:
        whole = pa.table({name: _column(pa, table.values(name)) for name in table.columns})
    parquet.write_table(append_columns(whole, answers), file)


def _column(pa: Any, values: Sequence[Any]) -> Any:
    """Of one type; as text where the values have several, or one that parquet cannot hold."""
    with suppress(ValueError, TypeError, OverflowError):
        column = pa.array(values)
        if "struct<>" not in str(column.type):  # an object without fields
            return column
    return pa.array([None if value is None else _as_text(value) for value in values], pa.string())


def _as_text(value: Any) -> str:
    """Half a character becomes ?"""
    return str(_cell(value)).encode("utf-8", "replace").decode()


_WRITERS: dict[str, Callable[[IO[bytes], Table, Iterable[Row]], None]] = {
    "csv": partial(_write_separated, ","),
    "tsv": partial(_write_separated, "\t"),
    "jsonl": _write_jsonl,
    "parquet": _write_parquet,
}
