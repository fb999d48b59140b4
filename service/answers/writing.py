"""Write answers as JSON text in blocks, so that no call blocks the interpreter for long.

Answers are dicts and arrays, not the models of `hardmax.models` that document them: a model of one text takes
15 us to validate and write, its dict 0.6 us, and a cloud of a million points would be a million objects. The
contract tests compare them with the models.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import orjson

from service.errors import TooLarge

JSON_BLOCK_BYTES = 65_536  # approximately
MAX_RESPONSE_BYTES = 256_000_000
NUMBERS_PER_CALL = 16_384  # rendered in one call
RECORDS_PER_BLOCK = 2048

Numbers = np.ndarray[Any, Any]
Column = Numbers | Sequence[Numbers]


class Records:
    """Objects with the same fields, stored as columns, and made block by block when they are written.

    The garbage collector would delay all other requests when it visits a list of a hundred thousand dicts,
    and again when it frees it.
    """

    def __init__(self, **columns: Column) -> None:
        self._columns = columns

    def blocks(self) -> Iterator[list[dict[str, Any]]]:
        """Yield the objects in lists of at most RECORDS_PER_BLOCK."""
        count = len(next(iter(self._columns.values())))
        for start in range(0, count, RECORDS_PER_BLOCK):
            columns = [_list(column[start : start + RECORDS_PER_BLOCK]) for column in self._columns.values()]
            yield [dict(zip(self._columns, row, strict=True)) for row in zip(*columns, strict=True)]


def _list(column: Column) -> list[Any]:
    return column.tolist() if isinstance(column, np.ndarray) else [row.tolist() for row in column]


def write(value: Any) -> bytes:
    """Return a short value as JSON text."""
    if isinstance(value, np.ndarray):
        value = np.ascontiguousarray(value)
    return orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)


def write_document(document: Any) -> Iterator[bytes]:
    """Yield a value as JSON text.

    It may contain arrays, records and long lists; the entries of a list are released once they are written.
    Numbers that are not finite become null.
    """
    parts: list[bytes] = []
    size = 0
    for part in _write(document):
        parts.append(part)
        size += len(part)
        if size > JSON_BLOCK_BYTES:
            yield b"".join(parts)
            parts, size = [], 0
    yield b"".join(parts)


def join_blocks(blocks: Iterable[bytes]) -> bytes:
    """Join the blocks of a response.

    Raises:
        TooLarge: The response is over MAX_RESPONSE_BYTES.
    """
    written: list[bytes] = []
    size = 0
    for block in blocks:
        written.append(block)
        size += len(block)
        if size > MAX_RESPONSE_BYTES:
            raise TooLarge(f"the response is over {MAX_RESPONSE_BYTES / 1e6:g} MB: ask for less at once")
    return b"".join(written)


def _write(value: Any) -> Iterator[bytes]:
    if isinstance(value, Mapping):
        opening = b"{"
        for name, member in value.items():
            yield opening + write(name) + b":"
            yield from _write(member)
            opening = b","
        yield b"}" if value else b"{}"
    elif isinstance(value, np.ndarray):
        step = max(1, NUMBERS_PER_CALL * len(value) // max(1, value.size))
        yield from _join(value[start : start + step] for start in range(0, len(value), step))
    elif isinstance(value, Records):
        yield from _join(value.blocks())
    elif isinstance(value, list):
        opening = b"["
        for index, entry in enumerate(value):
            yield opening
            yield from _write(entry) if isinstance(entry, np.ndarray) else [write(entry)]
            value[index] = None
            opening = b","
        yield b"]" if value else b"[]"
    else:
        yield write(value)


def _join(blocks: Iterator[Any]) -> Iterator[bytes]:
    """Yield one list from blocks."""
    opening = b"["
    for block in blocks:
        yield opening + write(block)[1:-1]
        opening = b","
    yield b"]" if opening == b"," else b"[]"
