"""Long bodies of texts, in pieces: between two of them the event loop is free for others.

What makes JSON slow is the number of its values, and no request of legal texts has many. So a long body is
scanned once: strings that are long, or hold an escape, are lifted out and decoded one at a time; what remains
must be small, is parsed in one call, and gets its strings back.
"""

from __future__ import annotations

import asyncio
import re
import struct
from collections.abc import Iterator
from typing import Any, TypeVar

from pydantic import BaseModel

from service.errors import InvalidInput, MalformedInput, TooLarge
from service.http.numbers import PIECE, WHOLE, as_object, parse_piece
from service.http.problems import parse, validate
from service.settings import Settings

BESIDE = 64  # strings that a request may have beside its texts
ROOM = 128  # bytes of a text that need not be lifted, and of what is around it
CHAR = 12  # bytes that one character may take: two escapes of six
TOO_LONG = "a text is longer than any may be (MAX_TEXT_CHARS)"

# Everything that stays: no strings, or short ones without an escape. None of those can hold a NUL.
_PLAIN = re.compile(rb'(?:[^"]++|"[^"\\]{0,64}+")*+')
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)  # but for its last quote
_COLON = re.compile(rb"[ \t\r\n]*+:")
_BLANKS = re.compile(rb"[ \t\r\n]{65,}+")  # more than a string that stays can hold

Model = TypeVar("Model", bound=BaseModel)


class TextReader:
    """Belongs to one event loop. Long bodies take turns: together they hold it up no more than one does."""

    def __init__(self, settings: Settings) -> None:
        self._most = settings.max_client_batch_size
        self._longest = CHAR * settings.max_text_chars
        self._turn = asyncio.Lock()

    async def read(self, model: type[Model], body: bytes) -> Model:
        if len(body) <= WHOLE:
            return parse(model, body)
        async with self._turn:
            lifting = Lifting(body, self._most, self._longest)
            for _ in lifting.steps():
                await asyncio.sleep(0)
            document = lifting.document()
            await asyncio.sleep(0)
            return lifting.checked(model, document)

    async def read_elements(self, tensor: memoryview, count: int) -> list[str]:
        """A BYTES tensor: of each element its length in four bytes, little endian, and as many of UTF-8."""
        async with self._turn:
            texts: list[str] = []
            position = done = 0
            while position < len(tensor):
                if len(texts) == count:
                    raise InvalidInput(f"the shape says {count} texts, there are more")
                text, position = self._element(tensor, position)
                texts.append(text)
                if position - done >= PIECE:
                    done = position
                    await asyncio.sleep(0)
            return texts

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


class Lifting:
    """One long document on its way: `steps` until there are no more, then `document`, which is `checked`."""

    def __init__(self, body: bytes, most: int, longest: int) -> None:
        self._body = body
        self._most = most
        self._longest = longest  # bytes of a string
        self._limit = WHOLE + ROOM * most
        self._kept: list[bytes] = []  # what remains of the document
        self._size = 0
        self._lifted: list[str] = []
        self._over = False

    def steps(self) -> Iterator[None]:
        """Scan the body, a piece or a long string at a time."""
        position = done = 0
        while position < len(self._body) and not self._over:
            plain = _PLAIN.match(self._body, position, position + PIECE)
            assert plain is not None
            if plain.end() > position:
                self._keep(_BLANKS.sub(b" ", plain.group()))
                position = plain.end()
            else:
                position = self._lift(position)
            if position - done >= PIECE:
                done = position
                yield

    def _keep(self, text: bytes) -> None:
        self._kept.append(text)
        self._size += len(text)
        self._over = self._over or self._size > self._limit

    def _lift(self, start: int) -> int:
        """Take out the string that begins at `start`, unless it is a name. Where it ends."""
        body = self._body
        string = _STRING.match(body, start, start + self._longest + 2)
        assert string is not None
        end = string.end() + 1
        if body[end - 1 : end] != b'"':
            if start + self._longest + 2 < len(body):
                raise TooLarge(TOO_LONG)
            raise MalformedInput("the body is not JSON: a string has no end")
        if _COLON.match(body, end, end + PIECE):
            self._keep(body[start:end])
            return end
        self._keep(b'"\\u0000%d"' % len(self._lifted))
        self._lifted.append(parse_piece(body[start:end]))
        self._over = self._over or len(self._lifted) > self._most + BESIDE
        return end

    def document(self) -> dict[str, Any]:
        """What was scanned, with its strings back in their places: the beginning, if the body is too much."""
        remains = b"".join(self._kept)
        document = as_object(parse_piece(remains[: self._limit], beginning=self._over))
        waiting: list[Any] = [document]
        while waiting:
            inside = waiting.pop()
            for place, value in enumerate(inside) if isinstance(inside, list) else inside.items():
                if isinstance(value, (list, dict)):
                    waiting.append(value)
                elif isinstance(value, str) and value[:1] == "\0":
                    inside[place] = self._lifted[int(value[1:])]
        return document

    def checked(self, model: type[Model], document: dict[str, Any]) -> Model:
        """The document as `model`. What is wrong with a beginning is said before that there is too much."""
        request = validate(model, document)
        if self._over:
            raise TooLarge(f"the body holds more than {self._most} texts (MAX_CLIENT_BATCH_SIZE)")
        return request
