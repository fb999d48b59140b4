"""Arrays of numbers out of JSON, in pieces: no step holds the interpreter for long.

A cloud of 200,000 points is megabytes of JSON. Parsing them in one call would hold Python's lock, and with
it the event loop, for as long as it takes, even from another thread. So a long array is cut at its rows and
parsed piecewise; between the pieces the lock is free. What the numbers mean is not its business.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from itertools import chain
from typing import Any

import numpy as np
from pydantic_core import from_json

from service.errors import InvalidInput, MalformedInput, TooLarge

Array = np.ndarray[Any, np.dtype[np.float64]]

WHOLE = 128 * 1024  # bytes of JSON parsed in one call: about a millisecond
PIECE = 64 * 1024
# After each: within a piece numpy lets go of the lock, too briefly for a waiting thread to take it, but the
# thread's claim to get it after five milliseconds starts anew. Without a pause it waits for the last piece.
PAUSE_S = 1e-4
SKELETON = 2 * 1024 * 1024  # what may remain of a document beside its long array: a matrix A is the most
PARTS = 100_000  # arrays, objects and members in it: they, not their bytes, are what takes time
MEMBERS = 64  # among which the long array is looked for
ROW = 1024 * 1024  # of one row

_MEMBER = re.compile(rb'[ \t\r\n]*+[{,][ \t\r\n]*+"((?:[^"\\]++|\\.)*+)"[ \t\r\n]*+:[ \t\r\n]*+')
_SCALAR = re.compile(rb'"(?:[^"\\]++|\\.)*+"|[^\[\]{},"]++')
_FLAT = re.compile(rb'\[(?:[^\[\]{}"]++|"(?:[^"\\]++|\\.)*+")*+\]')
_NUMBERS = re.compile(rb"[-+0-9eE.,\[\] \t\r\nNaInfity]*+")
_ROW_END = re.compile(rb"\][ \t\r\n]*+,")


def read_document(body: bytes, field: str) -> dict[str, Any]:
    """The JSON object in `body`. Where `field` is a long array of rows it is left to be parsed in pieces."""
    if len(body) <= WHOLE:
        return as_object(parse_json(body))
    span = _find(body, field.encode())
    start, end = span or (0, 0)
    beside = len(body) - (end - start)
    skeleton = body[:start] + b'"\\u0000"' + body[end:] if span and beside <= SKELETON else body
    if beside > SKELETON or skeleton.count(b"[") + skeleton.count(b"{") + skeleton.count(b":") > PARTS:
        parse_piece(body[:WHOLE], beginning=True)  # it may be no JSON at all, and that is said first
        raise InvalidInput(f"{field} should be an array of numbers, and little beside it", param=field)
    if span is None:
        return as_object(parse_json(body))
    document = as_object(parse_piece(skeleton))
    if document[field] != "\0":  # a second member of that name took its place
        raise InvalidInput(f"{field} is given twice", param=field)
    document[field] = _Pieces(body, start, end)
    return document


class _Pieces:
    """A long array of rows, or of arrays of rows, that is still text: parsed piece by piece."""

    def __init__(self, body: bytes, start: int, end: int) -> None:
        self._body = body
        self._start = start + 1  # inside the outer brackets
        self._end = end - 1

    def _texts(self) -> Iterator[bytes]:
        position = self._start
        while position < self._end:
            window = min(self._end, position + PIECE + ROW)
            cut = _ROW_END.search(self._body, position + PIECE, window)
            stop, after = (cut.start() + 1, cut.end()) if cut else (self._end, self._end)
            if stop - position > PIECE + ROW:
                raise TooLarge("a row is over a megabyte of JSON")
            yield self._body[position:stop]
            position = after
            time.sleep(PAUSE_S)

    def rows(self) -> Iterator[Any]:
        """Some rows at a time."""
        for text in self._texts():
            yield parse_piece(b"[" + text + b"]")

    def arrays(self, param: str) -> Iterator[tuple[Any, bool]]:
        """Some arrays of rows at a time, and whether the first of them continues the last one before."""
        inside = 0  # an array that an earlier piece has begun
        for text in self._texts():
            deep = inside + text.count(b"[") - text.count(b"]")
            if deep > 1:
                raise InvalidInput(f"{param} should be an array of arrays of points", param=param)
            if deep < 0:
                raise MalformedInput("the body is not JSON: there are brackets too many")
            yield parse_piece(b"[" * (1 + inside) + text + b"]" * (1 + deep)), bool(inside)
            inside = deep
        if inside:
            raise MalformedInput("the body is not JSON: an array has no end")


class _Growing:
    """Rows that come in pieces, on their way to be one array."""

    def __init__(self, param: str, max_rows: int, max_columns: int) -> None:
        self._param = param
        self._max_rows = max_rows
        self._max_columns = max_columns
        self._parts: list[Array] = []
        self._count = 0

    def add(self, rows: object) -> None:
        param = self._param
        columns = self._parts[0].shape[1] if self._parts else None
        part = _rows(rows, param, offset=self._count, columns=columns)
        self._parts.append(part)
        self._count += len(part)
        if self._count > self._max_rows:
            raise TooLarge(f"{param} has more than {self._max_rows} rows (MAX_POINTS)", param=param)
        if part.shape[1] > self._max_columns:
            message = f"{param} has {part.shape[1]} columns, more than {self._max_columns} (MAX_DIMENSION)"
            raise TooLarge(message, param=param)

    def array(self) -> Array:
        if not self._parts:
            raise InvalidInput(f"{self._param} is empty", param=self._param)
        return self._parts[0] if len(self._parts) == 1 else np.concatenate(self._parts)


def read_rows(value: object, param: str, *, max_rows: int, max_columns: int) -> Array:
    """Rows of equally many finite numbers, as a float64 array [n, d]; what is wrong is named by its index."""
    growing = _Growing(param, max_rows, max_columns)
    for rows in value.rows() if isinstance(value, _Pieces) else [value]:
        growing.add(rows)
    return growing.array()


def read_arrays(value: object, param: str, *, most: int, max_rows: int, max_columns: int) -> list[Array]:
    """Up to `most` arrays such as `read_rows` reads."""
    found: list[_Growing] = []
    for arrays, continues in value.arrays(param) if isinstance(value, _Pieces) else [(value, False)]:
        if not isinstance(arrays, list):
            break
        for index, rows in enumerate(arrays):
            if index or not continues:
                found.append(_Growing(f"{param}[{len(found)}]", max_rows, max_columns))
            if len(found) > most:
                raise TooLarge(f"more than {most} {param} (MAX_CLIENT_BATCH_SIZE)", param=param)
            found[-1].add(rows)
    if not found:
        raise InvalidInput(f"{param} should be an array of arrays of points", param=param)
    return [growing.array() for growing in found]


def _rows(rows: object, param: str, *, offset: int, columns: int | None) -> Array:
    if not isinstance(rows, list):
        raise InvalidInput(f"{param} should be an array of arrays of numbers", param=param)
    if not rows:
        raise InvalidInput(f"{param} is empty", param=param)
    if columns is None and isinstance(rows[0], list):
        columns = len(rows[0])
    regular = set(map(type, rows)) == {list} and set(map(len, rows)) == {columns} and columns
    if not regular or not set(map(type, chain.from_iterable(rows))) <= {float, int}:
        raise _irregular(rows, param, offset, columns or 0)
    try:
        array = np.array(rows, np.float64)
    except OverflowError:
        raise InvalidInput(f"{param} holds an integer too large to be a number here", param=param) from None
    if not np.isfinite(array).all():
        row, column = np.argwhere(~np.isfinite(array))[0]
        place = f"{param}[{offset + row}][{column}]"
        raise InvalidInput(f"{place} is not a finite number", param=place)
    return array


def _irregular(rows: list[Any], param: str, offset: int, columns: int) -> InvalidInput:
    """What is wrong with the first row that is not `columns` numbers."""
    for i, row in enumerate(rows, start=offset):
        place = f"{param}[{i}]"
        if not isinstance(row, list):
            return InvalidInput(f"{place} should be an array of numbers", param=place)
        for j, number in enumerate(row):
            if type(number) not in (float, int):
                return InvalidInput(f"{place}[{j}] should be a number", param=f"{place}[{j}]")
        if not row:
            return InvalidInput(f"{place} is empty", param=place)
        if len(row) != columns:
            return InvalidInput(f"{place} has {len(row)} numbers, expected {columns}", param=place)
    return InvalidInput(f"{param} should be an array of arrays of numbers", param=param)


def parse_json(text: bytes) -> Any:
    try:
        return from_json(text, allow_inf_nan=True)
    except ValueError as invalid:
        raise MalformedInput(f"the body is not JSON: {str(invalid)[:200]}") from None


def parse_piece(text: bytes, *, beginning: bool = False) -> Any:
    """The same for a piece of a body, or for its beginning. Where in it something is wrong tells nobody."""
    try:
        return from_json(text, allow_inf_nan=True)
    except ValueError as invalid:
        what = str(invalid).partition(" at line ")[0]
        if beginning and what.startswith("EOF "):
            return from_json(text, allow_inf_nan=True, allow_partial=True)
        raise MalformedInput(f"the body is not JSON: {what[:200]}") from None


def as_object(document: Any) -> dict[str, Any]:
    if not isinstance(document, dict):
        raise InvalidInput("the body should be an object")
    return document


def _find(body: bytes, field: bytes) -> tuple[int, int] | None:
    """Where the array that is the member `field` of the document begins and ends, if it is easily seen."""
    position = 0
    for _ in range(MEMBERS):
        member = _MEMBER.match(body, position, position + SKELETON)
        if member is None:
            return None
        start = member.end()
        if member.group(1) == field:
            return _numbers(body, start) if body[start : start + 1] == b"[" else None
        end = _skip(body, start)
        if end is None:
            return None
        position = end
    return None


def _skip(body: bytes, start: int) -> int | None:
    """The end of the value at `start`, if it is a scalar, a flat array or an array of numbers."""
    if body[start : start + 1] != b"[":
        scalar = _SCALAR.match(body, start, start + SKELETON)
        return scalar.end() if scalar else None
    flat = _FLAT.match(body, start, start + SKELETON)
    if flat:
        return flat.end()
    span = _numbers(body, start)
    return span[1] if span else None


def _numbers(body: bytes, start: int) -> tuple[int, int] | None:
    """The extent of an array of arrays of numbers: it ends before the first byte no number can hold."""
    position = start
    while True:
        match = _NUMBERS.match(body, position, position + PIECE)
        assert match is not None
        if match.end() == position:
            break
        position = match.end()
    while position > start:
        tail = body[max(start, position - PIECE) : position]
        if rest := tail.rstrip(b" \t\r\n,"):
            end = position - len(tail) + len(rest)
            return (start, end) if rest.endswith(b"]") else None
        position -= len(tail)
    return None
