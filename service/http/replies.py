"""How answers are sent: a short one at once; a long one is written in a thread, and leaves in pieces."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import aclosing
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from service.answers.writing import PIECE, write, write_document
from service.engine.account import Reservation
from service.http.bodies import JSON

NO_STORE = {"cache-control": "no-store"}


def reply(body: bytes, media_type: str = JSON, headers: Mapping[str, str] = NO_STORE) -> Response:
    return Response(body, 200, headers, media_type)


def reply_json(value: Any) -> Response:
    """A short answer."""
    return reply(write(value))


async def reply_document(document: Any, reservation: Reservation) -> Response:
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
    return PiecewiseResponse(let_go(written), media_type, sum(map(len, written)))


async def written_of(pieces: Iterator[bytes], reservation: Reservation) -> list[bytes]:
    """An answer that is written in a thread. More than there is room for is refused."""

    def run() -> list[bytes]:
        written = []
        for piece in pieces:
            reservation.write(len(piece))
            written.append(piece)
        return written

    return await asyncio.to_thread(run)


async def let_go(pieces: list[bytes]) -> AsyncGenerator[bytes]:
    """Each piece, which is gone when the next one is asked for."""
    pieces.reverse()
    while pieces:
        yield pieces.pop()


class PiecewiseResponse(Response):
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
