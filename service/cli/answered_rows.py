"""What `--out` writes: every row of a file as it was, with its answer beside it."""

from __future__ import annotations

import csv
import io
import json
import os
import tempfile
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import IO, Any

from service.cli.rows import READ, Row, Table, import_pyarrow
from service.client.rows import COLUMNS, beside
from service.errors import InvalidInput, NotFound

WRITTEN = {suffix: form for suffix, form in READ.items() if form != "json"}


def check_writable(path: str) -> None:
    """Refuse a file that cannot be written before the work is done."""
    if Path(path).suffix.lower() not in WRITTEN:
        raise InvalidInput(f"{path}: --out writes {', '.join(WRITTEN)}")
    if WRITTEN[Path(path).suffix.lower()] == "parquet":
        import_pyarrow()
    if not Path(path).absolute().parent.is_dir():
        raise NotFound(f"{path} cannot be written: there is no such folder")


def write_rows(path: str, table: Table, answers: Iterable[Row]) -> None:
    """Each row of `table` with its answer beside it, in the columns of client/rows.py.

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
        raise InvalidInput(
            f"{path} cannot be written: {failure.strerror or failure}", param="--out"
        ) from None


def _write_separated(delimiter: str, file: IO[bytes], table: Table, answers: Iterable[Row]) -> None:
    columns = [*(name for name in table.columns if name not in COLUMNS), *COLUMNS]
    text = io.TextIOWrapper(file, encoding="utf-8", newline="")
    writer = csv.writer(text, delimiter=delimiter, lineterminator="\n")
    writer.writerow(columns)
    for row, answer in zip(table.rows, answers, strict=True):
        whole = row | answer
        writer.writerow([_cell(whole.get(name)) for name in columns])
    text.detach()


def _cell(value: Any) -> Any:
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return "; ".join(value)
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list | dict) else value


def _write_jsonl(file: IO[bytes], table: Table, answers: Iterable[Row]) -> None:
    for row, answer in zip(table.rows, answers, strict=True):
        file.write(json.dumps(row | answer, ensure_ascii=False, default=str).encode() + b"\n")


def _write_parquet(file: IO[bytes], table: Table, answers: Iterable[Row]) -> None:
    pa, parquet = import_pyarrow()
    whole = table.arrow if table.arrow is not None else pa.Table.from_pylist(table.rows)
    parquet.write_table(beside(whole, answers), file)


_WRITERS: dict[str, Callable[[IO[bytes], Table, Iterable[Row]], None]] = {
    "csv": partial(_write_separated, ","),
    "tsv": partial(_write_separated, "\t"),
    "jsonl": _write_jsonl,
    "parquet": _write_parquet,
}
