"""Read tables of texts from csv, tsv, jsonl, json, parquet, xlsx and plain lines, and find the texts."""

import csv
import io
import json
import sys
import zlib
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import ParseError
from zipfile import BadZipFile

from hardmax.errors import InvalidInput, MalformedInput, NotFound, TooLarge

STDIN = "-"
TEXT = "text"  # the column of a file of plain lines
FORMAT_BY_SUFFIX = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".parquet": "parquet",
    ".xlsx": "xlsx",
}
SHEETS = (".xls", ".xlsb", ".xlsm", ".ods")
MAX_SHEET_CELLS = 50_000_000
SAMPLE_ROWS = 200  # rows that decide the type of a column
END_OF_TABLE = "\0the end"  # appended as a last row, which it is not if a quote is open
# A workbook is a zip of XML: each layer has errors of its own, and some parts may be missing.
DAMAGED_WORKBOOK = (
    BadZipFile, zlib.error, ParseError, EOFError, RuntimeError, KeyError, TypeError, ValueError, IndexError,
)  # fmt: skip
csv.field_size_limit(2**31 - 1)

Row = dict[str, Any]


@dataclass(frozen=True)
class Table:
    """The rows of a file, in their order. A row of jsonl may lack a column."""

    source: str
    columns: tuple[str, ...]
    rows: list[Row]
    arrow: Any = field(default=None, repr=False)  # the table of a parquet file, with its types

    def __len__(self) -> int:
        return len(self.rows)

    def values(self, column: str) -> list[Any]:
        """Return the values of a column, None where a row lacks it."""
        return [row.get(column) for row in self.rows]

    def sample(self, column: str) -> list[str]:
        """Return the first values of a column that are not empty, as texts."""
        values = (str(value) for row in self.rows[:SAMPLE_ROWS] if (value := row.get(column)) is not None)
        return [value for value in values if value.strip()]


def read_table(path: str, *, column: str | None = None) -> Table:
    """Read the rows of a file in the format that its name ends with; `-` is standard input.

    Args:
        path: A file, or `-`. A file with any other ending has a text per line.
        column: The column of texts. It makes a file with any other ending csv or jsonl.

    Returns:
        The rows with their columns.

    Raises:
        InputError: The file cannot be read, or is damaged; the message names the line.
    """
    suffix = Path(path).suffix.lower()
    form = FORMAT_BY_SUFFIX.get(suffix) if path != STDIN else None
    if suffix in SHEETS:
        raise InvalidInput(f"{path}: {suffix} is not read; save the sheet as .xlsx or .csv")
    source = source_name(path)
    if form == "parquet":
        return _read_parquet(path)
    if form == "xlsx":
        return _read_xlsx(path)
    text = read_text(path)
    if form is None:
        form = "lines" if column is None else "jsonl" if text.lstrip().startswith("{") else "csv"
    return _READERS[form](text, source)


def read_text(path: str) -> str:
    """Return the text of a file or of standard input: UTF-8, or UTF-16 with a byte order mark."""
    try:
        raw = sys.stdin.buffer.read() if path == STDIN else Path(path).read_bytes()
    except OSError as error:
        raise read_error(path, error) from None
    try:
        return raw.decode("utf-16" if raw[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        problem = "is not UTF-8 text; save it so (iconv -f latin1 -t utf-8 does)"
        raise MalformedInput(f"{source_name(path)}, line {line}: {problem}") from None


def source_name(path: str) -> str:
    """Return the name of the file in messages."""
    return "standard input" if path == STDIN else path


def read_error(path: str, error: OSError, param: str | None = None) -> NotFound:
    """Return the error of a file that cannot be opened or read."""
    return NotFound(f"{path} cannot be read: {error.strerror or error}", param=param)


def parse_json(text: str, location: str) -> Any:
    """Parse JSON, or raise MalformedInput with the location."""
    try:
        return json.loads(text)
    except RecursionError:
        raise MalformedInput(f"{location}: is nested too deeply") from None
    except ValueError as error:  # also a number of thousands of digits
        raise MalformedInput(f"{location}: is not JSON: {error}") from None


def _lines(text: str, source: str) -> Table:
    """Return a text per line. subtle: str.splitlines would also split at characters inside texts."""
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    return Table(source, (TEXT,), [{TEXT: line.removesuffix("\r")} for line in lines])


def _csv(text: str, source: str) -> Table:
    return _separated(text, source, detect_delimiter(text))


def detect_delimiter(text: str) -> str:
    """Return the separator that is most frequent in the first line."""
    first = text.lstrip("\r\n").partition("\n")[0]
    return max(",;\t|", key=lambda mark: (first.count(mark), mark == ","))


def _tsv(text: str, source: str) -> Table:
    return _separated(text, source, "\t")


def _separated(text: str, source: str, delimiter: str) -> Table:
    try:
        lines = chain(io.StringIO(text, newline=""), [END_OF_TABLE])
        cells = list(csv.reader(lines, delimiter=delimiter))
    except csv.Error as error:
        raise MalformedInput(f"{source} is damaged: {error}") from None
    if cells.pop() != [END_OF_TABLE]:
        raise MalformedInput(f"{source}, row {len(cells) + 1}: has a quote that does not end")
    width = next((len(row) for row in cells if row), 0)
    if width == 1:  # further cells cannot belong to another column
        cells = [[delimiter.join(row)] for row in cells]
    for number, row in enumerate(cells, 1):
        if len(row) > width:
            problem = f"{len(row)} cells, the first has {width} (texts with {delimiter!r} need quotes)"
            raise MalformedInput(f"{source}, row {number}: {problem}")
    return _table_of_cells(cells, source)


def _table_of_cells(cells: Sequence[Sequence[Any]], source: str) -> Table:
    width = max(map(len, cells), default=0)
    if width != 1:  # in a file of one column a blank line is an empty text
        cells = [row for row in cells if any(cell != "" for cell in row)]
    first = [str(name) for name in cells[0]] if cells else []
    first += [""] * (width - len(first))
    has_header = bool(cells) and _is_header(first, cells[1:SAMPLE_ROWS])
    columns = tuple((has_header and first[i]) or f"column_{i + 1}" for i in range(width))
    if len(set(columns)) < len(columns):
        duplicate = next(name for i, name in enumerate(columns) if name in columns[:i])
        raise InvalidInput(f"{source} has two columns {duplicate!r}")
    rows = [
        dict(zip(columns, [*row, *[""] * (width - len(row))], strict=True))
        for row in (cells[1:] if has_header else cells)
    ]
    return Table(source, columns, rows)


def _is_header(first: Sequence[str], below: Sequence[Sequence[Any]]) -> bool:
    """Return whether a row is a header: short names that are no numbers and do not recur below.

    A single name is one word. The first of several names may be empty, as for an index of pandas.
    """
    names = first[1:] if len(first) > 1 and first[0] == "" else first
    if any(not name.strip() or len(name) > 64 or is_number(name) for name in names):
        return False
    if any(name in {row[i] for row in below if i < len(row)} for i, name in enumerate(first)):
        return False
    return len(first) > 1 or " " not in first[0].strip()


def is_number(cell: str) -> bool:
    """Return whether a cell is a number."""
    try:
        float(cell)
    except ValueError:
        return False
    return "_" not in cell  # Python reads 1_000


def _jsonl(text: str, source: str) -> Table:
    rows = []
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            location = f"{source}, line {number}"
            rows.append(_row(parse_json(line, location), location))
    return _table_of(rows, source)


def _json(text: str, source: str) -> Table:
    entries = parse_json(text, source)
    if not isinstance(entries, list):
        raise InvalidInput(f"{source}: expected a list of objects or of texts")
    return _table_of([_row(entry, f"{source}, entry {i}") for i, entry in enumerate(entries)], source)


def _row(entry: Any, location: str) -> Row:
    if isinstance(entry, dict):
        return entry
    if isinstance(entry, str):
        return {TEXT: entry}
    raise InvalidInput(f"{location}: expected an object or a text")


def _table_of(rows: list[Row], source: str) -> Table:
    return Table(source, tuple(dict.fromkeys(name for row in rows for name in row)), rows)


def _read_parquet(path: str) -> Table:
    pa, parquet = import_pyarrow()
    try:
        table = parquet.read_table(path)
        rows = table.to_pylist()
    except FileNotFoundError:
        raise NotFound(f"{path} cannot be read: No such file or directory") from None
    except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
        raise MalformedInput(f"{path} is not a parquet file that can be read: {error}") from None
    return Table(path, tuple(table.column_names), rows, table)


def _read_xlsx(path: str) -> Table:
    """Return the first sheet of a workbook."""
    from openpyxl import load_workbook
    from openpyxl.utils.exceptions import InvalidFileException

    try:
        workbook = load_workbook(path, read_only=True, data_only=True)
        with closing(workbook):
            sheet = workbook.worksheets[0]
            sheet.reset_dimensions()  # the extent in the file may be wrong
            cells = _sheet_cells(sheet.iter_rows(values_only=True), path)
    except OSError as error:
        raise read_error(path, error) from None
    except (*DAMAGED_WORKBOOK, InvalidFileException) as error:
        raise MalformedInput(f"{path} is not an xlsx file: {error}. Save it as .xlsx or .csv") from None
    return _table_of_cells(cells, path)


def _sheet_cells(rows: Iterable[Sequence[Any]], path: str) -> list[list[Any]]:
    """Return the rows of a sheet, or raise TooLarge before a stray cell fills the memory with rows."""
    sheet: list[Sequence[Any]] = []  # rows without a cell are the same empty tuple
    width = 0
    for row in rows:
        sheet.append(row)
        width = max(width, len(row))
        if len(sheet) * width > MAX_SHEET_CELLS:
            extent = f"{len(sheet):,} rows and {width:,} columns"
            problem = "delete what lies outside of the table, or save it as .csv"
            raise TooLarge(f"{path}: the sheet has {extent}, more than {MAX_SHEET_CELLS:,} cells; {problem}")
    return [[_sheet_cell(value) for value in row] for row in sheet]


def _sheet_cell(value: Any) -> Any:
    """Return an integer without a fraction, a date as text, an empty cell as an empty text."""
    if value is None:
        return ""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, str | int | float | bool) else str(value)


def import_pyarrow() -> tuple[Any, Any]:
    """Return pyarrow and its parquet module, or raise NotFound."""
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError:
        raise NotFound("parquet needs pyarrow: pip install pyarrow") from None
    return pa, parquet


_READERS = {"csv": _csv, "tsv": _tsv, "jsonl": _jsonl, "json": _json, "lines": _lines}
