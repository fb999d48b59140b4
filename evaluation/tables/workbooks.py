"""Read and write xlsx workbooks with openpyxl: numbers, dates and booleans stay what they are.

Part of the extra `tables`.
"""

import re
import zlib
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import date, datetime, time, timedelta
from itertools import chain, groupby
from operator import itemgetter
from typing import IO, Any
from xml.etree.ElementTree import ParseError
from zipfile import BadZipFile, ZipFile

from evaluation.tables.text import SHEET, Row, Table, as_text, needs_tables, read_error, table_of_cells
from hardmax.errors import InputError, InvalidInput, MalformedInput, NotFound, TooLarge

MAX_CELLS = 20_000_000
MAX_BYTES = 2**30  # of the unpacked workbook
MAX_ROWS = 2**20  # of a sheet
MAX_CELL_CHARS = 32_767
NO_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
# A workbook is a zip of XML: each layer has errors of its own, and some parts may be missing.
DAMAGED = (
    BadZipFile, zlib.error, ParseError, EOFError, RuntimeError, KeyError, TypeError, ValueError, IndexError,
    AttributeError,
)  # fmt: skip
NATIVE = bool | int | float | datetime | date | time | timedelta


def import_openpyxl() -> Any:
    """Return openpyxl, or raise NotFound."""
    try:
        import openpyxl
    except ImportError:
        raise needs_tables("xlsx", "openpyxl") from None
    return openpyxl


def read_workbook(path: str, sheet: str | None = None) -> Table:
    """Read one sheet of a workbook, or all that have the columns of the first one with rows.

    With several sheets a column `sheet` names that of each row. A note lists the sheets that are left out.
    """
    openpyxl = import_openpyxl()
    try:
        _check_size(path)
        with closing(openpyxl.load_workbook(path, read_only=True, data_only=True)) as workbook:
            names = [page.title for page in workbook.worksheets]
            if sheet is not None and sheet not in names:
                raise NotFound(f"{path} has no sheet {sheet!r}; it has {', '.join(names)}", param="--sheet")
            cells = {name: _read_cells(workbook[name], path) for name in ([sheet] if sheet else names)}
    except InputError:
        raise
    except OSError as error:
        raise read_error(path, error) from None
    except (*DAMAGED, openpyxl.utils.exceptions.InvalidFileException) as error:
        raise MalformedInput(f"{path} is not an xlsx file: {error}. Save it as .xlsx or .csv") from None
    return _join_sheets(path, {name: rows for name, rows in cells.items() if any(rows)})


def _check_size(path: str) -> None:
    """Refuse a workbook that would fill the memory. No part of a zip is unpacked beyond its stated size."""
    with ZipFile(path) as archive:
        n_bytes = sum(part.file_size for part in archive.infolist())
    if n_bytes > MAX_BYTES:
        size = f"{n_bytes >> 20:,} MB once unpacked, more than {MAX_BYTES >> 20:,} MB"
        raise TooLarge(f"{path} has {size}: save the sheet as .csv")


def _read_cells(page: Any, path: str) -> list[list[Any]]:
    """Return the rows of a sheet, or raise TooLarge before a stray cell fills the memory with rows."""
    page.reset_dimensions()  # the extent in the file may be wrong
    rows: list[Sequence[Any]] = []  # rows without a cell are the same empty tuple
    width = 0
    for row in page.iter_rows(values_only=True):
        rows.append(row)
        width = max(width, len(row))
        if len(rows) * width > MAX_CELLS:
            extent = f"{len(rows):,} rows and {width:,} columns"
            problem = "delete what lies outside of the table, or save it as .csv"
            raise TooLarge(f"{path}: the sheet has {extent}, more than {MAX_CELLS:,} cells; {problem}")
    return [[_read_cell(value) for value in row] for row in rows]


def _read_cell(value: Any) -> Any:
    """Return an integer without a fraction, and a date without a time of the day."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, datetime) and value.time() == time():
        return value.date()
    return value


def _join_sheets(path: str, cells: dict[str, list[list[Any]]]) -> Table:
    tables = {name: table_of_cells(rows, f"{path}, sheet {name!r}", None) for name, rows in cells.items()}
    first = next(iter(tables.values()), Table(path, (), []))
    read = {name: table for name, table in tables.items() if table.columns == first.columns}
    left_out = [repr(name) for name in tables if name not in read]
    problem = f"left out: sheet {', '.join(left_out)}, which has other columns (--sheet NAME reads it)"
    notes = (f"{path}: {problem}",) if left_out else ()
    if len(read) < 2:
        return replace(first, source=path, notes=notes)
    notes = (f"{path}: the rows of {len(read)} sheets, with their names in column {SHEET!r}", *notes)
    rows = [{SHEET: name} | row for name, table in read.items() for row in table.rows]
    return Table(
        path,
        tuple(dict.fromkeys([*first.columns, SHEET])),
        rows,
        [number for table in read.values() for number in table.numbers],
        notes,
        sheets=[name for name, table in read.items() for _ in table.rows],
    )


def write_workbook(file: IO[bytes], table: Table, columns: Sequence[str], rows: Iterable[Row]) -> None:
    """Write rows to the sheets that they were read from, or to one.

    Raises:
        InvalidInput: A sheet would have too many rows.
    """
    workbook = import_openpyxl().Workbook(write_only=True)
    named_rows = zip(table.sheets or [""] * len(table), rows, strict=True)
    pages = groupby(named_rows, itemgetter(0)) if len(table) else [("", iter(()))]
    for name, group in pages:
        page = workbook.create_sheet(name or None)
        cells = ([row.get(name) for name in columns] for _, row in group)
        for number, row in enumerate(chain([columns], cells)):
            if number == MAX_ROWS:
                problem = f"a sheet holds {MAX_ROWS:,} rows; write .csv or .parquet"
                raise InvalidInput(problem, param="--out")
            page.append([_write_cell(page, value) for value in row])
    workbook.save(file)


def _write_cell(page: Any, value: Any) -> Any:
    """Return a cell of a sheet. A text stays a text: `=1+1` is not a formula."""
    from openpyxl.cell import WriteOnlyCell

    is_number = isinstance(value, int | float)
    if value is None or (is_number and abs(value) < 1e300):
        return value
    if isinstance(value, NATIVE) and not is_number and getattr(value, "tzinfo", None) is None:
        return value
    cell = WriteOnlyCell(page, NO_XML.sub("?", as_text(value))[:MAX_CELL_CHARS])
    cell.data_type = "s"
    return cell
