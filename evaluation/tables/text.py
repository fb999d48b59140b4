"""Tables of texts, and how they are read from files of text: csv, tsv, jsonl, json and plain lines."""

import csv
import io
import json
import math
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

from hardmax.errors import InvalidInput, MalformedInput, NotFound

STDIN = "-"
TEXT = "text"  # the column of a file of plain lines
SHEET = "sheet"  # the column with the name of the sheet, if several are read
FORMAT_BY_SUFFIX = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".parquet": "parquet",
    ".xlsx": "xlsx",
}
SAMPLE_ROWS = 200  # rows that decide the type of a column
END_OF_TABLE = "\0the end"  # appended as a last row, which it is not if a quote is open
WINDOWS = "cp1252"  # of files that Excel saves as csv
FORMULA_MARKS = "=+-@\t\r"  # a cell that begins with one is a formula to a spreadsheet
# A number, an amount or a telephone number: no formula, though it may begin with a sign.
HARMLESS = re.compile(r"[+-][\d.,'\s]*\d[\d.,'\s]*(e[+-]?\d+|[%€$£])?", re.IGNORECASE)
csv.field_size_limit(2**31 - 1)

Row = dict[str, Any]


@dataclass(frozen=True)
class TextFormat:
    """How a text file is written. Its copy with answers is written likewise."""

    encoding: str = "utf-8"  # utf-8-sig and utf-16 have a byte order mark
    delimiter: str = ","
    line_end: str = "\n"
    decimal_comma: bool = False


@dataclass(frozen=True)
class Table:
    """The rows of a file, in their order. A row of jsonl may lack a column."""

    source: str
    columns: tuple[str, ...]
    rows: list[Row]
    numbers: Sequence[int] = ()  # of each row in its file, as a spreadsheet or an editor counts them
    notes: tuple[str, ...] = ()  # for people, on how the file was read
    text_format: TextFormat = TextFormat()
    sheets: Sequence[str] = ()  # of each row, if several sheets were read
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


def read_text_table(path: str, form: str | None, column: str | None) -> Table:
    """Read csv, tsv, json, jsonl or, if there is no format and no column, a text per line."""
    source, is_json = source_name(path), form in ("json", "jsonl")
    text, encoding = _decode(_read_bytes(path), source, windows=not is_json)
    if is_json:
        return _read_json(text, source, by_line=form == "jsonl")
    if form is None and column is not None and text.lstrip().startswith("{"):
        return _read_json(text, source, by_line=True)
    if form is None and column is None:
        table = _read_lines(text, source)
    else:
        table = _read_separated(text, source, "\t" if form == "tsv" else detect_delimiter(text))
    notes = (f"{source} is not UTF-8, and is read as Windows-1252 (cp1252)",) if encoding == WINDOWS else ()
    line_end = "\r\n" if "\r\n" in text[: text.find("\n") + 1] else "\n"
    text_format = replace(table.text_format, encoding=encoding, line_end=line_end)
    return replace(table, text_format=text_format, notes=notes)


def read_text(path: str) -> str:
    """Return the text of a file or of standard input: UTF-8, or UTF-16 with a byte order mark."""
    return _decode(_read_bytes(path), source_name(path))[0]


def _read_bytes(path: str) -> bytes:
    try:
        return sys.stdin.buffer.read() if path == STDIN else Path(path).read_bytes()
    except OSError as error:
        raise read_error(path, error) from None


def _decode(raw: bytes, source: str, *, windows: bool = False) -> tuple[str, str]:
    """Return the text and its encoding; `windows`: what is not UTF-8 may be Windows-1252."""
    encoding = "utf-16" if raw[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8"
    encoding = "utf-8-sig" if raw.startswith(b"\xef\xbb\xbf") else encoding
    try:
        return raw.decode(encoding), encoding
    except UnicodeDecodeError as error:
        with suppress(UnicodeDecodeError):
            if windows and "\0" not in (text := raw.decode(WINDOWS)):  # else it is no text at all
                return text, WINDOWS
        line = raw.count(b"\n", 0, error.start) + 1
        problem = "is not UTF-8 text; save it so (iconv -f latin1 -t utf-8 does)"
        raise MalformedInput(f"{source}, line {line}: {problem}") from None


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


def _read_lines(text: str, source: str) -> Table:
    """Return a text per line. subtle: str.splitlines would also split at characters inside texts."""
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    rows = [{TEXT: line.removesuffix("\r")} for line in lines]
    return Table(source, (TEXT,), rows, range(1, len(rows) + 1))


def detect_delimiter(text: str) -> str:
    """Return the separator that is most frequent in the first line."""
    first = text.lstrip("\r\n").partition("\n")[0]
    return max(",;\t|", key=lambda mark: (first.count(mark), mark == ","))


def _read_separated(text: str, source: str, delimiter: str) -> Table:
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
    cells = [[_as_meant(cell) for cell in row] for row in cells]
    table = table_of_cells(cells, source)
    text_format = TextFormat(delimiter=delimiter, decimal_comma=_has_decimal_comma(cells, delimiter))
    return replace(table, text_format=text_format)


def _as_meant(cell: str) -> str:
    """Return a cell without the mark that makes it a text: '=1+1 is =1+1."""
    return cell[1:] if cell[:1] == "'" and cell[1:2] and cell[1] in FORMULA_MARKS else cell


def _has_decimal_comma(cells: Sequence[Sequence[str]], delimiter: str) -> bool:
    """Return whether numbers have a decimal comma. Who separates by semicolons needs the comma for it."""
    sample = "\n".join(cell for row in cells[:SAMPLE_ROWS] for cell in row if len(cell) < 30)
    if delimiter == "," or re.search(r"^[+-]?\d+\.\d+$", sample, re.MULTILINE):
        return False
    return delimiter == ";" or re.search(r"^[+-]?\d+,\d+$", sample, re.MULTILINE) is not None


def table_of_cells(cells: Sequence[Sequence[Any]], source: str, empty: str | None = "") -> Table:
    """Return a table of rows of cells; the first row has the names if it looks like names."""
    width = max(map(len, cells), default=0)
    numbered = list(enumerate(cells, 1))
    if width != 1:  # in a file of one column a blank line is an empty text
        numbered = [(i, row) for i, row in numbered if any(cell not in ("", None) for cell in row)]
    first = ["" if name is None else str(name) for name in numbered[0][1]] if numbered else []
    first += [""] * (width - len(first))
    has_header = bool(numbered) and _is_header(first, [row for _, row in numbered[1:SAMPLE_ROWS]])
    columns = tuple((has_header and first[i]) or f"column_{i + 1}" for i in range(width))
    if len(set(columns)) < len(columns):
        duplicate = next(name for i, name in enumerate(columns) if name in columns[:i])
        raise InvalidInput(f"{source} has two columns {duplicate!r}")
    numbered = numbered[1:] if has_header else numbered
    rows = [dict(zip(columns, [*row, *[empty] * (width - len(row))], strict=True)) for _, row in numbered]
    return Table(source, columns, rows, [number for number, _ in numbered])


def _is_header(first: Sequence[str], below: Sequence[Sequence[Any]]) -> bool:
    """Return whether a row is a header: short names that are not numbers and do not recur below.

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


def _read_json(text: str, source: str, *, by_line: bool) -> Table:
    """Return the objects or texts of JSON lines, or of one list."""
    if by_line:
        lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
        parsed = [(i, f"{source}, line {i}", parse_json(line, f"{source}, line {i}")) for i, line in lines]
    else:
        entries = parse_json(text, source)
        if not isinstance(entries, list):
            raise InvalidInput(f"{source}: expected a list of objects or of texts")
        parsed = [(i, f"{source}, entry {i}", entry) for i, entry in enumerate(entries, 1)]
    rows = [_row(entry, location) for _, location, entry in parsed]
    columns = tuple(dict.fromkeys(name for row in rows for name in row))
    return Table(source, columns, rows, [number for number, _, _ in parsed])


def _row(entry: Any, location: str) -> Row:
    if isinstance(entry, dict):
        return entry
    if isinstance(entry, str):
        return {TEXT: entry}
    raise InvalidInput(f"{location}: expected an object or a text")


def needs_tables(form: str, package: str) -> NotFound:
    """Return the error of a format whose package is not installed."""
    return NotFound(f"{form} needs {package}: pip install '.[tables]' in the checkout, or {package}")


def as_text(value: Any) -> str:
    """Return a value as text: a list of texts by semicolons, other nested values as JSON."""
    if isinstance(value, list) and all(isinstance(part, str) for part in value):
        return "; ".join(value)
    is_nested = isinstance(value, list | dict | bool)
    return json.dumps(value, ensure_ascii=False, default=str) if is_nested else str(value)


def as_csv_cell(value: Any, text_format: TextFormat) -> str:
    """Return a value as a cell of csv. A text that a spreadsheet would take for a formula begins with '."""
    if value is None:
        return ""
    if isinstance(value, float):
        return repr(value).replace(".", "," if text_format.decimal_comma else ".")
    text = as_text(value)
    is_formula = text[:1] in FORMULA_MARKS and text != "" and not HARMLESS.fullmatch(text)
    return f"'{text}" if is_formula else text


def as_json(value: Any) -> Any:
    """Return a value without NaN and infinities, which JSON lacks: null in their place."""
    if isinstance(value, dict):
        return {name: as_json(part) for name, part in value.items()}
    if isinstance(value, list):
        return list(map(as_json, value))
    return None if isinstance(value, float) and not math.isfinite(value) else value
