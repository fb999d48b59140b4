"""Arrays as numpy writes them: npy in, npz out."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from tokenize import TokenError
from typing import Any

import numpy as np

from service.errors import InvalidInput, MalformedInput, TooLarge, UnsupportedMediaType

Array = np.ndarray[Any, np.dtype[np.float64]]
PIECE = 128 * 1024


def read_npy(body: bytes, param: str, *, max_rows: int, max_columns: int) -> Array:
    """What `numpy.save` wrote: a 2-d array of numbers. Its header is believed only as far as bytes follow."""
    stream = io.BytesIO(body)
    try:
        version = np.lib.format.read_magic(stream)
        read_header = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }.get(version)
        if read_header is None:
            raise MalformedInput("the body is npy of a version we do not read")
        shape, fortran, dtype = read_header(stream)
    except (ValueError, EOFError, SyntaxError, TypeError, RecursionError, MemoryError, TokenError):
        raise MalformedInput("the body is not an npy file") from None
    if dtype.kind not in "fiu":
        raise UnsupportedMediaType(f"{param} should hold real numbers", param=param)
    if not all(type(size) is int and size >= 0 for size in shape):
        raise MalformedInput("the shape in the npy header is not one of whole numbers")
    if len(shape) != 2 or 0 in shape:
        raise InvalidInput(f"{param} should have two dimensions, neither of them empty", param=param)
    if shape[0] > max_rows:
        raise TooLarge(f"{param} has {shape[0]} rows, more than {max_rows} (MAX_POINTS)", param=param)
    if shape[1] > max_columns:
        raise TooLarge(
            f"{param} has {shape[1]} columns, more than {max_columns} (MAX_DIMENSION)", param=param
        )
    if shape[0] * shape[1] * dtype.itemsize != len(body) - stream.tell():
        raise MalformedInput("the body is not as long as its npy header says")
    flat = np.frombuffer(body, dtype, offset=stream.tell())
    array = np.ascontiguousarray(flat.reshape(shape, order="F" if fortran else "C"), dtype=np.float64)
    if not np.isfinite(array).all():
        row, column = np.argwhere(~np.isfinite(array))[0]
        place = f"{param}[{row}][{column}]"
        raise InvalidInput(f"{place} is not a finite number", param=place)
    return array


def write_npz(arrays: Mapping[str, Any]) -> Iterator[bytes]:
    """What `numpy.savez` writes, in pieces."""
    stream = io.BytesIO()
    np.savez(stream, allow_pickle=False, **arrays)
    stream.seek(0)
    yield from iter(lambda: stream.read(PIECE), b"")
