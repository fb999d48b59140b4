"""Long bodies of texts, read in pieces: between two of them the event loop is free for others."""

from __future__ import annotations

import asyncio
import struct
from typing import Any, TypeVar

from pydantic import BaseModel

from service.errors import InvalidInput, MalformedInput, TooLarge
from service.http.large_json import PIECE, WHOLE, read_large
from service.http.problems import parse, validate
from service.settings import Settings

CHAR = 12  # bytes that one character may take: two escapes of six
PARTS = 4  # of JSON that one text may take
BESIDE = 10_000  # parts beside the texts
TOO_LONG = "a text is longer than any may be (MAX_TEXT_CHARS)"

Model = TypeVar("Model", bound=BaseModel)


class TextReader:
    """Belongs to one event loop. Long bodies take turns: together they hold it up no more than one does."""

    def __init__(self, settings: Settings) -> None:
        self._most = settings.max_client_batch_size
        self._longest = CHAR * settings.max_text_chars + PIECE
        self._turn = asyncio.Lock()

    async def read(self, model: type[Model], body: bytes) -> Model:
        if len(body) <= WHOLE:
            return parse(model, body)
        document: dict[str, Any] = {}
        seen = 0
        for document, parts in read_large(body, longest=self._longest, refusal=TooLarge(TOO_LONG)):
            seen += parts
            if seen > PARTS * self._most + BESIDE:
                validate(model, document)  # what is wrong with the beginning is said first
                raise TooLarge(f"the body holds more than {self._most} texts (MAX_CLIENT_BATCH_SIZE)")
            await self._pause()
        return validate(model, document)

    async def read_elements(self, tensor: memoryview, count: int) -> list[str]:
        """A BYTES tensor: of each element its length in four bytes, little endian, and as many of UTF-8."""
        texts: list[str] = []
        position = done = 0
        while position < len(tensor):
            if len(texts) == count:
                raise InvalidInput(f"the shape says {count} texts, there are more")
            text, position = self._element(tensor, position)
            texts.append(text)
            if position - done >= PIECE:
                done = position
                await self._pause()
        return texts

    async def _pause(self) -> None:
        """Let others run after each piece. Readers leave one after the other: a piece a turn of the loop."""
        async with self._turn:
            await asyncio.sleep(0)

    def _element(self, tensor: memoryview, position: int) -> tuple[str, int]:
        """The element at `position`, and where it ends."""
        start = position + 4
        if start > len(tensor):
            raise MalformedInput("the BYTES tensor ends within a length")
        (length,) = struct.unpack_from("<I", tensor, position)
        end = start + length
        if end > len(tensor):
            raise MalformedInput("the BYTES tensor ends within an element")
        if length > self._longest:
            raise TooLarge(TOO_LONG)
        try:
            return str(tensor[start:end], "utf-8"), end
        except UnicodeDecodeError:
            raise MalformedInput("an element of the BYTES tensor is not UTF-8") from None
