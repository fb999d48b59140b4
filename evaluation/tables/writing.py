"""Write the rows of a table with their answers as further columns."""

import csv
import io
import json
import math
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import IO, Any

from evaluation.tables.reading import FORMAT_BY_SUFFIX, Row, Table, import_pyarrow
from hardmax.dataframe import append_columns, result_column_names
from hardmax.errors import InvalidInput, NotFound

MAX_SHEET_ROWS = 2**20  # of a worksheet
MAX_SHEET_CELL_CHARS = 32_767
NO_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


def check_writable(path: str) -> None:
    """Refuse a file that cannot be written, before texts are classified."""
    if Path(path).suffix.lower() not in FORMAT_BY_SUFFIX:
        raise InvalidInput(f"{path}: --out writes {', '.join(FORMAT_BY_SUFFIX)}")
    if FORMAT_BY_SUFFIX[Path(path).suffix.lower()] == "parquet":
        import_pyarrow()
    check_folder(path)


def check_folder(path: str | Path) -> None:
    """Refuse a path in a folder that does not exist, and a folder."""
    target = Path(path).absolute()
    if not target.parent.is_dir():
        raise NotFound(f"{path} cannot be written: there is no such folder")
    if target.is_dir():
        raise InvalidInput(f"{path} cannot be written: it is a folder")


def write_rows(path: str, table: Table, answers: Iterable[Row]) -> None:
    """Write each row of a table with its answer, in the columns of `hardmax.dataframe`.

    The file is replaced when all rows are written.

    Args:
        path: The file; its ending is the format.
        table: The rows.
        answers: The result columns of each row.

    Raises:
        InvalidInput: The file cannot be written.
    """
    write = _WRITERS[FORMAT_BY_SUFFIX[Path(path).suffix.lower()]]
    target = Path(path).absolute()
    try:
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}-") as folder:
            with open(Path(folder) / target.name, "wb") as file:
                write(file, table, answers)
            os.replace(file.name, target)
    except OSError as error:
        problem = f"{path} cannot be written: {error.strerror or error}"
        raise InvalidInput(problem, param="--out") from None


def _write_separated(delimiter: str, file: IO[bytes], table: Table, answers: Iterable[Row]) -> None:
    # a lone surrogate becomes ?
    text = io.TextIOWrapper(file, encoding="utf-8", errors="replace", newline="")
    writer = csv.writer(text, delimiter=delimiter, lineterminator="\n")
    columns = _columns(table)
    writer.writerow(columns)
    for row in _joined_rows(table, answers):
        writer.writerow([_cell(row.get(name)) for name in columns])
    text.detach()


def _columns(table: Table) -> list[str]:
    return list(dict.fromkeys([*table.columns, *result_column_names(table.columns).values()]))


def _joined_rows(table: Table, answers: Iterable[Row]) -> Iterator[Row]:
    names = result_column_names(table.columns)
    for row, answer in zip(table.rows, answers, strict=True):
        yield row | {names[name]: value for name, value in answer.items()}


def _cell(value: Any) -> Any:
    if isinstance(value, list) and all(isinstance(part, str) for part in value):
        return "; ".join(value)
    is_nested = isinstance(value, list | dict | bool)
    return json.dumps(value, ensure_ascii=False, default=str) if is_nested else value


def _write_jsonl(file: IO[bytes], table: Table, answers: Iterable[Row]) -> None:
    for row in _joined_rows(table, answers):
        line = json.dumps(_json_value(row), ensure_ascii=False, default=str)
        # subtle: backslashreplace writes a lone surrogate as JSON does
        file.write(line.encode("utf-8", "backslashreplace") + b"\n")


def _write_json(file: IO[bytes], table: Table, answers: Iterable[Row]) -> None:
    rows = _json_value(list(_joined_rows(table, answers)))
    text = json.dumps(rows, ensure_ascii=False, indent=1, default=str)
    file.write(text.encode("utf-8", "backslashreplace") + b"\n")


def _json_value(value: Any) -> Any:
    """Return a value without NaN and infinities, which JSON lacks: null in their place."""
    if isinstance(value, dict):
        return {name: _json_value(part) for name, part in value.items()}
    if isinstance(value, list):
        return list(map(_json_value, value))
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _write_xlsx(file: IO[bytes], table: Table, answers: Iterable[Row]) -> None:
    from openpyxl import Workbook

    if len(table) >= MAX_SHEET_ROWS:
        raise InvalidInput(f"a sheet holds {MAX_SHEET_ROWS:,} rows; write .csv or .parquet", param="--out")
    workbook = Workbook(write_only=True)
    sheet = workbook.create_sheet()
    columns = _columns(table)
    sheet.append([_sheet_cell(sheet, name) for name in columns])
    for row in _joined_rows(table, answers):
        sheet.append([_sheet_cell(sheet, row.get(name)) for name in columns])
    workbook.save(file)


def _sheet_cell(sheet: Any, value: Any) -> Any:
    """Return a cell of a sheet. A text stays a text: `=1+1` is not a formula."""
    from openpyxl.cell import WriteOnlyCell

    value = _cell(value)
    if value is None or isinstance(value, int | float):
        return value if value is None or abs(value) < 1e300 else str(value)
    cell = WriteOnlyCell(sheet, NO_XML.sub("?", str(value))[:MAX_SHEET_CELL_CHARS])
    cell.data_type = "s"
    return cell


def _write_parquet(file: IO[bytes], table: Table, answers: Iterable[Row]) -> None:
    pa, parquet = import_pyarrow()
    rows = table.arrow
    if rows is None:
        rows = pa.table({name: _column(pa, table.values(name)) for name in table.columns})
    parquet.write_table(append_columns(rows, answers), file)


def _column(pa: Any, values: Sequence[Any]) -> Any:
    """Return a column of one type: texts if the values have several types, or one unknown to parquet."""
    with suppress(ValueError, TypeError, OverflowError):
        column = pa.array(values)
        if "struct<>" not in str(column.type):  # an object without fields
            return column
    return pa.array([None if value is None else _as_text(value) for value in values], pa.string())


def _as_text(value: Any) -> str:
    """Return a value as text that can be encoded; a lone surrogate becomes `?`."""
    return str(_cell(value)).encode("utf-8", "replace").decode()


_WRITERS: dict[str, Callable[[IO[bytes], Table, Iterable[Row]], None]] = {
    "csv": partial(_write_separated, ","),
    "tsv": partial(_write_separated, "\t"),
    "json": _write_json,
    "jsonl": _write_jsonl,
    "xlsx": _write_xlsx,
    "parquet": _write_parquet,
}
