"""Long documents as JSON text, in pieces: no step holds the interpreter for long."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator, Sequence
from typing import Any

import numpy as np
from pydantic_core import to_json

from service.engine.capacity import Holding
from service.engine.lane import Steps

NUMBERS = 16_384  # rendered in one call: a millisecond or two
OBJECTS = 2048

Numbers = np.ndarray[Any, Any]
Column = Numbers | Sequence[Numbers]


class Records:
    """Objects with the same names, kept as columns and made when they are written, some at a time.

    A list of a hundred thousand dicts would hold up everybody else when the garbage collector walks through
    it, and again when it is freed.
    """

    def __init__(self, **columns: Column) -> None:
        self._columns = columns

    def __len__(self) -> int:
        return len(next(iter(self._columns.values())))

    def blocks(self) -> Iterator[list[dict[str, Any]]]:
        for start in range(0, len(self), OBJECTS):
            columns = [_list(column[start : start + OBJECTS]) for column in self._columns.values()]
            yield [dict(zip(self._columns, row, strict=True)) for row in zip(*columns, strict=True)]


def _list(column: Column) -> list[Any]:
    return column.tolist() if isinstance(column, np.ndarray) else [each.tolist() for each in column]


def write_document(document: dict[str, Any]) -> Iterator[bytes]:
    """An object whose members may be long: arrays, records, and lists or objects that hold some."""
    opening = b"{"
    for name, value in document.items():
        yield opening + to_json(name) + b":"
        yield from _write(value)
        opening = b","
    yield b"}" if document else b"{}"


def write_rows(rows: Numbers) -> Iterator[bytes]:
    """The rows of an array. What is not finite becomes null."""
    step = max(1, NUMBERS * len(rows) // max(1, rows.size))
    return _write_blocks(rows[start : start + step].tolist() for start in range(0, len(rows), step))


def keep(parts: Iterator[bytes], holding: Holding) -> Steps[list[bytes]]:
    """All parts of an answer, a step each; more than there is room for is refused."""
    kept: list[bytes] = []
    for part in parts:
        holding.add(len(part))
        kept.append(part)
        yield
    return kept


async def each_in_turn(parts: list[bytes]) -> AsyncGenerator[bytes]:
    """What a reply streams; others have their turn, even where the caller takes all at once."""
    for part in parts:
        yield part
        await asyncio.sleep(0)


def _write_blocks(blocks: Iterator[list[Any]]) -> Iterator[bytes]:
    """One list out of several."""
    opening = b"["
    for block in blocks:
        yield opening + to_json(block, inf_nan_mode="null")[1:-1]
        opening = b","
    yield b"]" if opening == b"," else b"[]"


def _write(value: Any) -> Iterator[bytes]:
    if isinstance(value, np.ndarray):
        yield from write_rows(value)
    elif isinstance(value, Records):
        yield from _write_blocks(value.blocks())
    elif isinstance(value, dict):
        yield from write_document(value)
    elif isinstance(value, list) and value and isinstance(value[0], np.ndarray):
        for i, each in enumerate(value):
            yield b"," if i else b"["
            yield from write_rows(each)
        yield b"]"
    else:
        yield to_json(value, inf_nan_mode="null")
