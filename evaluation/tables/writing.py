"""Write the rows of a table with their answers as further columns."""

import csv
import io
import json
import os
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import IO

from evaluation.tables.parquet import import_pyarrow, write_parquet
from evaluation.tables.text import FORMAT_BY_SUFFIX, Row, Table, TextFormat, as_csv_cell, as_json
from evaluation.tables.workbooks import import_openpyxl, write_workbook
from hardmax.dataframe import result_column_names
from hardmax.errors import InvalidInput, NotFound


def check_writable(path: str, param: str = "--out") -> None:
    """Refuse a file that cannot be written, before texts are classified."""
    form = FORMAT_BY_SUFFIX.get(Path(path).suffix.lower())
    if form is None:
        raise InvalidInput(f"{path}: {param} writes {', '.join(FORMAT_BY_SUFFIX)}")
    if form == "parquet":
        import_pyarrow()
    if form == "xlsx":
        import_openpyxl()
    check_folder(path)


def check_folder(path: str | Path) -> None:
    """Refuse a path in a folder that does not exist, and a folder."""
    target = Path(path).absolute()
    if not target.parent.is_dir():
        raise NotFound(f"{path} cannot be written: there is no such folder")
    if target.is_dir():
        raise InvalidInput(f"{path} cannot be written: it is a folder")


def write_rows(
    path: str, table: Table, answers: Iterable[Row] | None = None, *, param: str = "--out"
) -> None:
    """Write the rows of a table, each with its answer in the columns of `hardmax.dataframe`.

    The file is replaced when all rows are written. A text file is written as the one that was read: with its
    separator, decimal mark, byte order mark and encoding.

    Args:
        path: The file; its ending is the format.
        table: The rows.
        answers: The result columns of each row; None writes the rows alone.
        param: The option that names the file.

    Raises:
        InvalidInput: The file cannot be written.
    """
    target = Path(path).absolute()
    try:
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}-") as folder:
            with open(Path(folder) / target.name, "wb") as file:
                _write(file, FORMAT_BY_SUFFIX[target.suffix.lower()], table, answers)
            os.replace(file.name, target)
    except OSError as error:
        problem = f"{path} cannot be written: {error.strerror or error}"
        raise InvalidInput(problem, param=param) from None


def _write(file: IO[bytes], form: str, table: Table, answers: Iterable[Row] | None) -> None:
    if form == "parquet":
        return write_parquet(file, table, answers)
    results = {} if answers is None else result_column_names(table.columns)
    columns = list(dict.fromkeys([*table.columns, *results.values()]))
    rows: Iterable[Row] = table.rows
    if answers is not None:
        pairs = zip(rows, answers, strict=True)
        rows = (row | {results[name]: value for name, value in answer.items()} for row, answer in pairs)
    if form == "xlsx":
        return write_workbook(file, table, columns, rows)
    if form in ("csv", "tsv"):
        return _write_separated(file, _format_of(form, table), columns, rows)
    return _write_json(file, rows, by_line=form == "jsonl")


def _format_of(form: str, table: Table) -> TextFormat:
    """Return the format of the file that was read, with the separator of the format that is written."""
    read = table.text_format
    delimiter = "\t" if form == "tsv" else "," if read.delimiter == "\t" else read.delimiter
    decimal_comma = read.decimal_comma and delimiter != ","
    return TextFormat(read.encoding, delimiter, read.line_end, decimal_comma)


def _write_separated(
    file: IO[bytes], text_format: TextFormat, columns: Sequence[str], rows: Iterable[Row]
) -> None:
    # half a character, and one that the encoding lacks, become ?
    text = io.TextIOWrapper(file, encoding=text_format.encoding, errors="replace", newline="")
    writer = csv.writer(text, delimiter=text_format.delimiter, lineterminator=text_format.line_end)
    writer.writerow([as_csv_cell(name, text_format) for name in columns])
    for row in rows:
        writer.writerow([as_csv_cell(row.get(name), text_format) for name in columns])
    text.detach()


def _write_json(file: IO[bytes], rows: Iterable[Row], *, by_line: bool) -> None:
    indent = None if by_line else 1
    values = map(as_json, rows) if by_line else [[as_json(row) for row in rows]]
    for value in values:
        line = json.dumps(value, ensure_ascii=False, indent=indent, default=str)
        # subtle: backslashreplace writes a lone surrogate as JSON does
        file.write(line.encode("utf-8", "backslashreplace") + b"\n")
