"""Read arrays from rows of JSON or from npy."""

import io
from collections.abc import Callable
from itertools import chain
from tokenize import TokenError
from typing import Any

import numpy as np

from service.cloud.points import Floats, check_finite, check_size
from service.errors import InvalidInput, MalformedInput, TooLarge, UnsupportedMediaType
from service.wire.documents import Raw, parse_object

MAX_HEADER_BYTES = 65_536  # of an npy file
MAX_EXACT_INTEGER = 2.0**53  # double precision represents every integer up to this one
ROWS_PER_STEP = 8192  # that are converted at once


def read_rows(body: Raw, field: str, *, max_rows: int, max_columns: int) -> tuple[Floats, dict[str, Any]]:
    """Return the member `field` of the object in `body`, rows of numbers, and the other members."""
    document = parse_object(body)
    rows = _pop(document, field)
    return as_array(rows, field, max_rows=max_rows, max_columns=max_columns), document


def read_arrays(
    body: Raw, field: str, *, max_arrays: int, max_rows: int, max_columns: int
) -> tuple[list[Floats], dict[str, Any]]:
    """Return the member `field`, up to `max_arrays` arrays of rows, and the other members."""
    document = parse_object(body)
    arrays = _pop(document, field)
    if not isinstance(arrays, list) or not arrays:
        raise InvalidInput(f"{field} should be an array of arrays of points", param=field)
    if len(arrays) > max_arrays:
        raise TooLarge(f"more than {max_arrays} {field} (MAX_CLIENT_BATCH_SIZE)", param=field)
    limits = {"max_rows": max_rows, "max_columns": max_columns}
    return [as_array(rows, f"{field}[{i}]", **limits) for i, rows in enumerate(arrays)], document


def _pop(document: dict[str, Any], field: str) -> Any:
    if field not in document:
        raise InvalidInput(f"{field} is required", param=field)
    return document.pop(field)


def as_array(rows: Any, param: str, *, max_rows: int, max_columns: int) -> Floats:
    """Return rows of equally many finite numbers as one array."""
    if not isinstance(rows, list):
        raise InvalidInput(f"{param} should be an array of arrays of numbers", param=param)
    if not rows:
        raise InvalidInput(f"{param} is empty", param=param)
    columns = len(rows[0]) if isinstance(rows[0], list) else 0
    check_size(len(rows), columns, max_rows, max_columns, param)
    array = np.empty((len(rows), columns))
    for start in range(0, len(rows), ROWS_PER_STEP):
        block = rows[start : start + ROWS_PER_STEP]
        regular = set(map(type, block)) == {list} and set(map(len, block)) == {columns} and columns
        if not regular or not set(map(type, chain.from_iterable(block))) <= {float, int}:
            raise _irregular(block, param, start, columns)
        try:
            array[start : start + ROWS_PER_STEP] = block
            check_exact(block, array[start : start + ROWS_PER_STEP], param, start)
        except OverflowError:
            problem = f"{param} holds an integer too large to be a number here"
            raise InvalidInput(problem, param=param) from None
    check_finite(array, param)
    return array


def check_exact(rows: list[list[Any]], array: Floats, param: str, offset: int) -> None:
    """Refuse integers beyond 2^53 that double precision cannot represent.

    Raises:
        InvalidInput: It names the first such number.
    """
    for i, j in np.argwhere(np.abs(array) >= MAX_EXACT_INTEGER).tolist():
        if type(rows[i][j]) is int and int(array[i, j]) != rows[i][j]:
            raise _inexact(param, offset + i, j)


def _inexact(param: str, i: int, j: int) -> InvalidInput:
    field = f"{param}[{i}][{j}]"
    return InvalidInput(f"{field} has no exact representation in double precision", param=field)


def _irregular(rows: list[Any], param: str, offset: int, columns: int) -> InvalidInput:
    """Return the error of the first row that is not `columns` numbers."""
    for i, row in enumerate(rows, start=offset):
        field = f"{param}[{i}]"
        if not isinstance(row, list):
            return InvalidInput(f"{field} should be an array of numbers", param=field)
        for j, number in enumerate(row):
            if type(number) not in (float, int):
                return InvalidInput(f"{field}[{j}] should be a number", param=f"{field}[{j}]")
        if not row:
            return InvalidInput(f"{field} is empty", param=field)
        if len(row) != columns:
            return InvalidInput(f"{field} has {len(row)} numbers, expected {columns}", param=field)
    return InvalidInput(f"{param} should be an array of arrays of numbers", param=param)


def read_npy(
    body: Raw,
    param: str,
    *,
    max_rows: int,
    max_columns: int,
    check: Callable[[int, int], None] = lambda rows, columns: None,
) -> Floats:
    """Return the 2-d array that `numpy.save` wrote. The header must agree with the number of bytes.

    `check` may refuse the shape before the array is made, which can take eight times as many bytes.
    """
    shape, fortran, dtype, begin = _read_header(body)
    if dtype.kind not in "fiu":
        raise UnsupportedMediaType(f"{param} should hold real numbers", param=param)
    if not all(type(size) is int and size >= 0 for size in shape):
        raise MalformedInput("the shape in the npy header is not one of whole numbers")
    if len(shape) != 2 or 0 in shape:
        raise InvalidInput(f"{param} should have two dimensions, neither of them empty", param=param)
    check_size(*shape, max_rows, max_columns, param)
    if shape[0] * shape[1] * dtype.itemsize != len(body) - begin:
        raise MalformedInput("the body is not as long as its npy header says")
    check(*shape)
    flat = np.frombuffer(body, dtype, offset=begin)
    original = flat.reshape(shape, order="F" if fortran else "C")
    array = np.ascontiguousarray(original, dtype=np.float64)
    check_finite(array, param)
    if dtype.itemsize > 4 and dtype != np.float64:
        check_converted(original, array, param)
    return array


def _read_header(body: Raw) -> tuple[tuple[int, ...], bool, np.dtype[Any], int]:
    """Return the shape, Fortran order and type of an npy file, and the offset of its data."""
    stream = io.BytesIO(body[:MAX_HEADER_BYTES])
    try:
        version = np.lib.format.read_magic(stream)
        read_header = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }.get(version)
        if read_header is None:
            raise MalformedInput("this version of the npy format is not supported: numpy.save writes 1.0")
        return *read_header(stream), stream.tell()
    except (ValueError, EOFError, SyntaxError, TypeError, RecursionError, MemoryError, TokenError):
        raise MalformedInput("the body is not an npy file") from None


def check_converted(original: Any, array: Floats, param: str) -> None:
    """Refuse an array of 64-bit integers or long doubles whose conversion to double precision rounded.

    Raises:
        InvalidInput: It names the first number that changed.
    """
    if original.dtype.kind == "f":
        changed = original != array
    else:
        limits = np.iinfo(original.dtype)
        fits = (array >= float(limits.min)) & (array < float(limits.max))
        changed = ~fits | (np.where(fits, array, 0).astype(limits.dtype) != original)
    if changed.any():
        raise _inexact(param, *map(int, np.argwhere(changed)[0]))
