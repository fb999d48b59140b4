"""Spans of characters: in code points or in units of UTF-16, and the words that they cover."""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from hardmax.models.texts import OffsetUnit
from service.text.tokenizer import Ints, TokenizedText

Span = tuple[int, int]


def utf16_offsets(text: str) -> Ints:
    """Return the offset in UTF-16 of each code point of a text, and of its end."""
    points = np.frombuffer(text.encode("utf-32-le"), np.uint32)
    return np.cumsum(np.append(0, 1 + (points > 0xFFFF)))


def to_codepoints(text: str, spans: Sequence[Span], unit: OffsetUnit) -> list[Span]:
    """Convert spans from `unit` to code points."""
    if unit == "codepoints":
        return list(spans)
    units = utf16_offsets(text)
    # subtle: a span that begins in the middle of a character covers that character
    return [
        (int(units.searchsorted(begin, "right")) - 1, int(units.searchsorted(end))) for begin, end in spans
    ]


def from_codepoints(text: str, spans: Sequence[Sequence[int]], unit: OffsetUnit) -> list[list[int]]:
    """Convert spans from code points to `unit`."""
    if unit == "codepoints":
        return [list(span) for span in spans]
    return [utf16_offsets(text)[list(span)].tolist() for span in spans]


def covered_words(tokenized: TokenizedText, spans: Iterable[Span]) -> NDArray[np.bool_]:
    """Return which words have a character in one of the spans."""
    merged = np.array([(-1, -1), *merge_spans(spans)], np.int64)
    index = merged[:, 0].searchsorted(tokenized.ends) - 1  # the last span that begins before a word's end
    return np.asarray(merged[index, 1] > tokenized.starts)


def merge_spans(spans: Iterable[Span]) -> list[Span]:
    """Merge spans that overlap or touch, in order."""
    merged: list[Span] = []
    for begin, end in sorted(spans):
        if merged and begin <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((begin, end))
    return merged
