"""How answers are written: JSON text in pieces, a short one at once and a long one in a thread.

No piece holds the interpreter for longer than a millisecond or two.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing
from typing import Any

import numpy as np
import orjson
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from service.engine.account import Reservation
from service.http.bodies import JSON

PIECE = 65_536  # bytes, about
NUMBERS = 16_384  # rendered in one call
OBJECTS = 2048
NO_STORE = {"cache-control": "no-store"}

Numbers = np.ndarray[Any, Any]
Column = Numbers | Sequence[Numbers]


class Records:
    """Objects with the same names, kept as columns and made when they are written, some at a time.

    A list of a hundred thousand dicts would hold up everybody else when the garbage collector walks through
    it, and again when it is freed.
    """

    def __init__(self, **columns: Column) -> None:
        self._columns = columns

    def blocks(self) -> Iterator[list[dict[str, Any]]]:
        count = len(next(iter(self._columns.values())))
        for start in range(0, count, OBJECTS):
            columns = [_list(column[start : start + OBJECTS]) for column in self._columns.values()]
            yield [dict(zip(self._columns, row, strict=True)) for row in zip(*columns, strict=True)]


def _list(column: Column) -> list[Any]:
    return column.tolist() if isinstance(column, np.ndarray) else [each.tolist() for each in column]


def write_document(document: Mapping[str, Any]) -> Iterator[bytes]:
    """An object as JSON text. Its members may be long: arrays, records, lists. A list's entries are let go
    of once they are written. What is not finite becomes null.
    """
    parts: list[bytes] = []
    size = 0
    for part in _write(document):
        parts.append(part)
        size += len(part)
        if size > PIECE:
            yield b"".join(parts)
            parts, size = [], 0
    yield b"".join(parts)


def _write(value: Any) -> Iterator[bytes]:
    if isinstance(value, Mapping):
        opening = b"{"
        for name, member in value.items():
            yield opening + orjson.dumps(name) + b":"
            yield from _write(member)
            opening = b","
        yield b"}" if value else b"{}"
    elif isinstance(value, np.ndarray):
        step = max(1, NUMBERS * len(value) // max(1, value.size))
        yield from _join(value[start : start + step] for start in range(0, len(value), step))
    elif isinstance(value, Records):
        yield from _join(value.blocks())
    elif isinstance(value, list):
        opening = b"["
        for index, each in enumerate(value):
            yield opening
            yield from _write(each) if isinstance(each, np.ndarray) else [_dump(each)]
            value[index] = None
            opening = b","
        yield b"]" if value else b"[]"
    else:
        yield _dump(value)


def _join(blocks: Iterator[Any]) -> Iterator[bytes]:
    """One list out of several."""
    opening = b"["
    for block in blocks:
        yield opening + _dump(block)[1:-1]
        opening = b","
    yield b"]" if opening == b"," else b"[]"


def _dump(value: Any) -> bytes:
    if isinstance(value, np.ndarray):
        value = np.ascontiguousarray(value)
    return orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)


def reply(body: bytes, media_type: str = JSON, headers: Mapping[str, str] = NO_STORE) -> Response:
    return Response(body, 200, headers, media_type)


async def reply_document(document: Mapping[str, Any], reservation: Reservation) -> Response:
    pieces = write_document(document)
    first = next(pieces)
    reservation.write(len(first))
    if len(first) <= PIECE:
        return reply(first)
    return await reply_pieces(pieces, reservation, first=first)


async def reply_pieces(
    pieces: Iterator[bytes], reservation: Reservation, media_type: str = JSON, *, first: bytes = b""
) -> Response:
    written = [first, *await written_of(pieces, reservation)]
    return Pieces(let_go(written), media_type, sum(map(len, written)))


async def written_of(pieces: Iterator[bytes], reservation: Reservation) -> list[bytes]:
    """An answer that is written in a thread. More than there is room for is refused."""

    def write() -> list[bytes]:
        written = []
        for piece in pieces:
            reservation.write(len(piece))
            written.append(piece)
        return written

    return await asyncio.to_thread(write)


async def let_go(pieces: list[bytes]) -> AsyncGenerator[bytes]:
    """Each piece, which is gone when the next one is asked for."""
    pieces.reverse()
    while pieces:
        yield pieces.pop()


class Pieces(Response):
    """An answer piece by piece. When it ends, however that is, its generator is closed."""

    def __init__(self, pieces: AsyncGenerator[bytes], media_type: str, length: int | None = None) -> None:
        self.status_code = 200
        self.media_type = media_type
        self.background = None
        self.init_headers(NO_STORE if length is None else {**NO_STORE, "content-length": str(length)})
        self.pieces = pieces

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with aclosing(self.pieces) as pieces:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            async for piece in pieces:
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
