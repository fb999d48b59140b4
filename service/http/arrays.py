"""Arrays of numbers: rows of a JSON document in, npy in, npz out."""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from tokenize import TokenError
from typing import Any

import numpy as np

from service.clouds.points import check_finite, check_size
from service.engine.lane import Steps
from service.errors import InvalidInput, MalformedInput, TooLarge, UnsupportedMediaType
from service.http.large_json import WHOLE, read_large

Array = np.ndarray[Any, np.dtype[np.float64]]
PIECE = 128 * 1024
PARTS = 100_000  # values and names beside the rows: a matrix A has the most
# After each piece: within it numpy lets go of the lock, too briefly for a waiting thread to take it, but the
# thread's claim to get it after five milliseconds starts anew. Without a pause it waits for the last piece.
PAUSE_S = 1e-4


def read_rows(
    body: bytes, field: str, *, max_rows: int, max_columns: int
) -> Steps[tuple[Array, dict[str, Any]]]:
    """The member `field` of the object in `body`, which is rows of numbers; and the other members."""
    rows = _Rows(field, max_rows, max_columns)
    document = yield from _read(body, field, rows.take)
    return rows.array(), document


def read_arrays(
    body: bytes, field: str, *, most: int, max_rows: int, max_columns: int
) -> Steps[tuple[list[Array], dict[str, Any]]]:
    """The same where the member is up to `most` arrays of rows."""
    arrays = _Arrays(field, most, max_rows, max_columns)
    document = yield from _read(body, field, arrays.take)
    return arrays.arrays(), document


def as_matrix(rows: list[Any], param: str) -> Array:
    """The same of rows that are parsed already, of which there are as many as columns."""
    found = _Rows(param, len(rows), len(rows))
    found.take(rows, more=False)
    return found.array()


def _read(body: bytes, field: str, take: Callable[..., int]) -> Steps[dict[str, Any]]:
    """The document without the field, whose elements are taken out as they are read."""
    refusal = InvalidInput(f"{field} should be an array of numbers, and little beside it", param=field)
    beside = 0
    document: dict[str, Any] = {}
    for document, parts in read_large(body, longest=WHOLE, refusal=refusal):
        if parts:
            beside += parts - take(document.get(field), more=True)
            if beside > PARTS:
                raise refusal
            time.sleep(PAUSE_S)
        yield
    if field not in document:
        raise InvalidInput(f"{field} is required", param=field)
    take(document.pop(field), more=False)
    return document


class _Rows:
    """Rows of equally many finite numbers, on their way to be one array."""

    def __init__(self, param: str, max_rows: int, max_columns: int) -> None:
        self._param = param
        self._max_rows = max_rows
        self._max_columns = max_columns
        self._source: object = None
        self._parts: list[Array] = []

    def array(self) -> Array:
        return self._parts[0] if len(self._parts) == 1 else np.concatenate(self._parts)

    def take(self, rows: Any, *, more: bool) -> int:
        """Take rows out of a list: all but the last if more may come. Tell how much was taken."""
        if rows is not self._source:  # of two members with one name the last counts
            self._source, self._parts = rows, []
        if more and (not isinstance(rows, list) or not rows):
            return 0
        if more and isinstance(rows[-1], list):
            self._check(0, len(rows[-1]))
        if more and len(rows) == 1:
            return 0
        part = self._converted(rows[:-1] if more else rows)
        self._parts.append(part)
        self._check(sum(map(len, self._parts)), part.shape[1])
        if more:
            del rows[:-1]
        return part.size + len(part)

    def _check(self, rows: int, columns: int) -> None:
        check_size(rows, columns, self._max_rows, self._max_columns, self._param)

    def _converted(self, rows: object) -> Array:
        param, offset = self._param, sum(map(len, self._parts))
        if not isinstance(rows, list):
            raise InvalidInput(f"{param} should be an array of arrays of numbers", param=param)
        if not rows:
            raise InvalidInput(f"{param} is empty", param=param)
        columns = self._parts[0].shape[1] if self._parts else isinstance(rows[0], list) and len(rows[0])
        regular = set(map(type, rows)) == {list} and set(map(len, rows)) == {columns} and columns
        if not regular or not set(map(type, chain.from_iterable(rows))) <= {float, int}:
            raise _irregular(rows, param, offset, columns)
        try:
            array = np.array(rows, np.float64)
        except OverflowError:
            raise InvalidInput(
                f"{param} holds an integer too large to be a number here", param=param
            ) from None
        check_finite(array, param, offset)
        return array


class _Arrays:
    """Arrays of rows."""

    def __init__(self, param: str, most: int, max_rows: int, max_columns: int) -> None:
        self._param = param
        self._most = most
        self._limits = (max_rows, max_columns)
        self._source: object = None
        self._found: list[_Rows] = []

    def arrays(self) -> list[Array]:
        return [rows.array() for rows in self._found]

    def take(self, arrays: Any, *, more: bool) -> int:
        """Take arrays out of a list, and rows out of the last one if more may come."""
        param = self._param
        if arrays is not self._source:
            self._source, self._found = arrays, []
        if not isinstance(arrays, list) or not arrays:
            if more:
                return 0
            raise InvalidInput(f"{param} should be an array of arrays of points", param=param)
        taken = 0
        for index, rows in enumerate(arrays):
            if index or not self._found:  # the first goes on where the last one stopped
                self._found.append(_Rows(f"{param}[{len(self._found)}]", *self._limits))
            if len(self._found) > self._most:
                raise TooLarge(f"more than {self._most} {param} (MAX_CLIENT_BATCH_SIZE)", param=param)
            taken += self._found[-1].take(rows, more=more and index == len(arrays) - 1)
        del arrays[:-1]
        return taken


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


def read_npy(
    body: bytes,
    param: str,
    *,
    max_rows: int,
    max_columns: int,
    check: Callable[[int, int], None] = lambda rows, columns: None,
) -> Array:
    """What `numpy.save` wrote: a 2-d array of numbers. Its header is believed only as far as bytes follow.

    `check` may refuse its size before there is an array: bytes become eight times as many.
    """
    stream = io.BytesIO(body)
    try:
        version = np.lib.format.read_magic(stream)
        read_header = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }.get(version)
        if read_header is None:
            raise MalformedInput("this version of the npy format is not supported: numpy.save writes 1.0")
        shape, fortran, dtype = read_header(stream)
    except (ValueError, EOFError, SyntaxError, TypeError, RecursionError, MemoryError, TokenError):
        raise MalformedInput("the body is not an npy file") from None
    if dtype.kind not in "fiu":
        raise UnsupportedMediaType(f"{param} should hold real numbers", param=param)
    if not all(type(size) is int and size >= 0 for size in shape):
        raise MalformedInput("the shape in the npy header is not one of whole numbers")
    if len(shape) != 2 or 0 in shape:
        raise InvalidInput(f"{param} should have two dimensions, neither of them empty", param=param)
    check_size(*shape, max_rows, max_columns, param)
    if shape[0] * shape[1] * dtype.itemsize != len(body) - stream.tell():
        raise MalformedInput("the body is not as long as its npy header says")
    check(*shape)
    flat = np.frombuffer(body, dtype, offset=stream.tell())
    array = np.ascontiguousarray(flat.reshape(shape, order="F" if fortran else "C"), dtype=np.float64)
    check_finite(array, param)
    return array


def write_npz(arrays: Mapping[str, Any]) -> Iterator[bytes]:
    """What `numpy.savez` writes, in pieces."""
    stream = io.BytesIO()
    np.savez(stream, allow_pickle=False, **arrays)
    stream.seek(0)
    yield from iter(lambda: stream.read(PIECE), b"")
