"""Large JSON is read in pieces, so that no step holds the interpreter for longer than a few milliseconds.

Parsing 60 MB in one call would hold Python's lock, and with it the event loop, for as long as it takes, even
from another thread. So the text is cut at commas that are outside strings. Each piece is parsed alone, with
the arrays and objects that are open where it begins opened again, and what it holds is put into them:

    {"a": [1, 2, 3], "b": 4}    cut after the 2:    {"a": [1, 2]}    and    {"?": [3], "b": 4}
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from secrets import token_hex
from typing import Any, NamedTuple

from pydantic_core import from_json

from service.errors import HardmaxError, InvalidInput, MalformedInput

PIECE = 64 * 1024  # bytes parsed in one call: half a millisecond
WHOLE = 2 * PIECE  # bytes of a document that is not cut

_STRING = rb'"(?:[^"\\]++|\\.)*+"'
_STRINGS = re.compile(_STRING, re.DOTALL)
_TO_LAST_COMMA = re.compile(rb'(?:(?:[^",]++|%b)*+,)++' % _STRING, re.DOTALL)
_NO_HALF_STRING = re.compile(rb'(?:[^"]++|%b)*+' % _STRING, re.DOTALL)
_BLANKS = b" \t\r\n"
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_CLOSING = bytes.maketrans(b"[{", b"]}")
_DEPTH = 300  # more than the parser allows


class Progress(NamedTuple):
    document: dict[str, Any]  # what has been read so far
    parts: int  # values, names and containers that the last piece added, about


def read_large(body: bytes, *, longest: int, refusal: HardmaxError, piece: int = PIECE) -> Iterator[Progress]:
    """The JSON object in `body`, growing; it is complete when the iterator ends.

    The caller lets others run after each step. It may take elements out of the document's arrays, but the
    last of each, which may still grow. `refusal` is raised for `longest` bytes without a comma.
    """
    document = _Document()
    if len(body) <= 2 * piece:
        document.root = parse_json(body)
        yield Progress(document.as_object(), 0)
        return
    position, text = 0, b""
    while position < len(body):
        if (comma := _last_comma(body, position, position + piece)) >= 0:
            parts = document.add(text + body[position:comma])
            position, text = comma + 1, b""
            yield Progress(document.as_object(), parts)
            continue
        end = _end_of_tokens(body, position, piece, longest)
        some = body[position:end]
        position = end
        text += some if some.strip(_BLANKS) else b" "
        if len(text) > longest:
            _parse(document.opening() + text, beginning=True)  # it may be no JSON at all
            raise refusal
        yield Progress(document.root or {}, 0)
    document.end(text)
    yield Progress(document.as_object(), 0)


def _last_comma(body: bytes, start: int, end: int) -> int:
    """The place of the last comma outside strings, or -1. No string is open at `start`."""
    if body.find(b'"', start, end) < 0:
        return body.rfind(b",", start, end)
    found = _TO_LAST_COMMA.match(body, start, end)
    return found.end() - 1 if found else -1


def _end_of_tokens(body: bytes, start: int, piece: int, longest: int) -> int:
    """As far as a piece goes without a half string; the end of the string at `start` if that is longer."""
    found = _NO_HALF_STRING.match(body, start, start + piece)
    if found and found.end() > start:
        return found.end()
    string = _STRINGS.match(body, start, start + longest)
    return string.end() if string else min(len(body), start + longest + 1)


class _Document:
    """A document that is put together. Marks, which no body can guess, show where it was cut."""

    def __init__(self) -> None:
        self.root: Any = None
        self._open: list[Any] = []  # the containers that the next piece continues, from the root inwards
        self._brackets = b""  # how they began
        self._before, self._after = token_hex(8), token_hex(8)

    def as_object(self) -> dict[str, Any]:
        if not isinstance(self.root, dict):
            raise InvalidInput("the body should be an object")
        return self.root

    def opening(self) -> bytes:
        """What goes before a piece: all that is open, and a mark for what was before the comma."""
        before = b'"%b"' % self._before.encode()
        outer = self._brackets[:-1].replace(b"{", b"{" + before + b":")
        inner = {b"": b"", b"[": b"[" + before + b",", b"{": b"{" + before + b":0,"}
        return outer + inner[self._brackets[-1:]]

    def add(self, text: bytes) -> int:
        """Put in what is before a comma, and tell how many parts it has."""
        bare = _STRINGS.sub(b"", text)
        brackets = _unclosed(self._brackets + bare.translate(None, _NO_BRACKETS))
        mark = b',"%b"' % self._after.encode() + (b":0" if brackets.endswith(b"{") else b"")
        self._join(_parse(self.opening() + text + mark + brackets[::-1].translate(_CLOSING)))
        self._brackets = brackets
        self._follow()
        return 1 + sum(map(bare.count, (b",", b":", b"[", b"{")))

    def end(self, text: bytes) -> None:
        """Put in what is after the last comma."""
        self._join(_parse(self.opening() + text))

    def _join(self, part: Any) -> None:
        if not self._open:
            self.root = part
        for container in self._open:
            if isinstance(container, list):
                inner = part.pop(0)
                container.extend(part)
            else:
                inner = part.pop(self._before)
                container.update(part)
            part = inner

    def _follow(self) -> None:
        """Find the open containers. Each is the last value of the one before; the innermost has the mark."""
        self._open = []
        name, value = None, self.root
        for _ in self._brackets:
            if not isinstance(value, (list, dict)) or not value:
                break
            self._open.append(value)
            name, value = (None, value[-1]) if isinstance(value, list) else next(reversed(value.items()))
        if self._after not in (name, value):
            raise InvalidInput("the body has an object with a name twice")
        innermost = self._open[-1]
        innermost.pop() if isinstance(innermost, list) else innermost.popitem()


def _unclosed(brackets: bytes) -> bytes:
    """The brackets without those that are closed. Others that close stay, and the parser will refuse them."""
    for _ in range(_DEPTH):
        fewer = brackets.replace(b"[]", b"").replace(b"{}", b"")
        if fewer == brackets:
            break
        brackets = fewer
    return brackets


def parse_json(text: bytes) -> Any:
    """A document in one call."""
    try:
        return from_json(text, allow_inf_nan=True)
    except ValueError as invalid:
        raise MalformedInput(f"the body is not JSON: {str(invalid)[:200]}") from None


def _parse(text: bytes, *, beginning: bool = False) -> Any:
    """A piece, or the beginning of one. Where in it something is wrong would tell nobody anything."""
    try:
        return from_json(text, allow_inf_nan=True)
    except ValueError as invalid:
        what = str(invalid).partition(" at line ")[0]
        if beginning and what.startswith("EOF "):
            return None
        raise MalformedInput(f"the body is not JSON: {what[:200]}") from None
