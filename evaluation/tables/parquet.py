"""Read and write parquet files with pyarrow, which keeps the types of all columns.

Part of the extra `tables`.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import IO, Any

from evaluation.tables.text import Row, Table, as_text, needs_tables
from hardmax.dataframe import append_columns
from hardmax.errors import InputError, MalformedInput, NotFound, TooLarge

MAX_CELLS = 20_000_000
MAX_BYTES = 2**30  # of the values of all rows
MAX_BATCH_ROWS = 1_024


def import_pyarrow() -> tuple[Any, Any]:
    """Return pyarrow and its parquet module, or raise NotFound."""
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError:
        raise needs_tables("parquet", "pyarrow") from None
    return pa, parquet


def read_parquet(path: str) -> Table:
    """Read a parquet file.

    Raises:
        InputError: There is no such file, it is damaged, or its values would fill the memory.
    """
    pa, parquet = import_pyarrow()
    try:
        with parquet.ParquetFile(path) as file:
            table = pa.Table.from_batches(_read_batches(file, path), file.schema_arrow)
        rows = table.to_pylist()
    except FileNotFoundError:
        raise NotFound(f"{path} cannot be read: No such file or directory") from None
    except InputError:
        raise
    except (pa.ArrowException, OSError, ValueError, OverflowError, MemoryError) as error:
        reason = " ".join(str(error).split())
        raise MalformedInput(f"{path} is not a parquet file that can be read: {reason}") from None
    return Table(path, tuple(table.column_names), rows, range(1, len(rows) + 1), arrow=table)


def _read_batches(file: Any, path: str) -> Iterable[Any]:
    """Yield the rows of a file, while they have less than MAX_BYTES.

    subtle: a value that repeats is stored once, so a small file may hold any number of bytes. A single value
    is no larger than its column in a row group, which bounds the size of a batch.
    """
    groups = [file.metadata.row_group(i) for i in range(file.metadata.num_row_groups)]
    columns = [group.column(i) for group in groups for i in range(group.num_columns)]
    n_cells = sum(max(column.num_values, 0) for column in columns)
    largest = max((column.total_uncompressed_size for column in columns), default=0)
    if n_cells > MAX_CELLS or largest > MAX_BYTES:
        size = f"{n_cells:,} cells, {largest / 1e6:,.0f} MB in a column"
        raise TooLarge(f"{path}: {size}; more than {MAX_CELLS:,} or {MAX_BYTES >> 20:,} MB: split the file")
    n_bytes = 0
    for batch in file.iter_batches(max(1, min(MAX_BATCH_ROWS, 2 * MAX_BYTES // max(1, largest)))):
        columns = [c.dictionary_decode() if hasattr(c, "dictionary") else c for c in batch.columns]
        n_bytes += sum(column.nbytes for column in columns)
        if n_bytes > MAX_BYTES:
            raise TooLarge(f"{path}: its values have more than {MAX_BYTES >> 20:,} MB: split the file")
        yield batch


def write_parquet(file: IO[bytes], table: Table, answers: Iterable[Row] | None) -> None:
    """Write the rows, with their answers if there are some."""
    pa, parquet = import_pyarrow()
    rows = table.arrow
    if rows is None:
        rows = pa.table({name: _column(pa, table.values(name)) for name in table.columns})
    parquet.write_table(rows if answers is None else append_columns(rows, answers), file)


def _column(pa: Any, values: Sequence[Any]) -> Any:
    """Return a column of one type: texts if the values have several types, or one unknown to parquet."""
    with suppress(ValueError, TypeError, OverflowError):
        column = pa.array(values)
        if "struct<>" not in str(column.type):  # an object without fields
            return column
    texts = [
        None if value is None else as_text(value).encode("utf-8", "replace").decode() for value in values
    ]
    return pa.array(texts, pa.string())
