"""Read tables from csv, tsv, jsonl, json, parquet, xlsx and plain lines."""

from pathlib import Path

from evaluation.tables.parquet import read_parquet
from evaluation.tables.text import FORMAT_BY_SUFFIX, STDIN, Table, read_text_table, source_name
from evaluation.tables.workbooks import read_workbook
from hardmax.errors import InvalidInput

SHEETS = (".xls", ".xlsb", ".xlsm", ".ods")


def read_table(path: str, *, column: str | None = None, sheet: str | None = None) -> Table:
    """Read the rows of a file in the format that its name ends with; `-` is standard input.

    Args:
        path: A file, or `-`. A file with any other ending has a text per line.
        column: The column of texts. It makes a file with any other ending csv or jsonl.
        sheet: The sheet of a workbook; by default all sheets with the columns of the first.

    Returns:
        The rows with their columns.

    Raises:
        InputError: The file cannot be read, or is damaged; the message names the line.
    """
    suffix = Path(path).suffix.lower()
    form = FORMAT_BY_SUFFIX.get(suffix) if path != STDIN else None
    if suffix in SHEETS:
        raise InvalidInput(f"{path}: {suffix} is not read; save the sheet as .xlsx or .csv")
    if sheet is not None and form != "xlsx":
        raise InvalidInput(f"--sheet is for .xlsx, not for {source_name(path)}", param="--sheet")
    if form == "parquet":
        return read_parquet(path)
    if form == "xlsx":
        return read_workbook(path, sheet)
    return read_text_table(path, form, column)
