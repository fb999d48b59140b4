"""From texts to their words and where they are; knows no vocabulary.

The pipeline in a bundle's tokenizer.json (a `tokenizers` normalizer and pre-tokenizer) defines what a word
is. For the one pipeline our models are trained with, arrays find the same words of many texts at once, as
long as every character maps to one ASCII character; any other pipeline or text goes the defined way.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

# The pipeline that this module says again in its own way; tests/test_words.py holds the two together.
_TAG = r"</?[a-z][^<>]*>"
_JOIN = r" +(?=(?:n't|'(?:s|re|ve|ll|d|m))\b)"
_KNOWN = {
    "normalizer": {
        "type": "Sequence",
        "normalizers": [
            {"type": "NFKD"},
            {"type": "StripAccents"},
            {"type": "Lowercase"},
            {"type": "Replace", "pattern": {"String": "’"}, "content": "'"},
            {"type": "Replace", "pattern": {"Regex": _TAG}, "content": " "},
            {"type": "Replace", "pattern": {"Regex": _JOIN}, "content": ""},
        ],
    },
    "pre_tokenizer": {
        "type": "Split",
        "pattern": {"Regex": r"\p{L}+(?:'\p{L}+)*|\d+(?:[./]\d+)?|[!?]"},
        "behavior": "Removed",
        "invert": True,
    },
}
_NOT_ASCII = re.compile(r"[^\x00-\x7f]")
_TAGS = re.compile(_TAG)
_WORDS = re.compile(r"[a-z]+(?:'[a-z]+)*|[0-9]+(?:[./][0-9]+)?|[!?]")
_JOINS = re.compile(_JOIN, re.ASCII)
_FOREIGN = "\0"  # stands for a character that only the definition can read

_LETTER, _DIGIT, _APOSTROPHE, _POINT, _MARK = 1, 2, 4, 8, 16
_KIND = np.zeros(256, dtype=np.uint8)
for _characters, _kind in (
    (b"abcdefghijklmnopqrstuvwxyz", _LETTER),
    (b"0123456789", _DIGIT),
    (b"'", _APOSTROPHE),
    (b"./", _POINT),
    (b"!?", _MARK),
):
    _KIND[list(_characters)] = _kind
_GAP = "  "  # between texts; two characters, so that looking back twice never meets the text before


@dataclass(frozen=True, slots=True)
class Words:
    """The words of several texts, one after the other."""

    text: Ints  # the number of the text that each word is in, ascending
    start: Ints  # character offsets into that text, as it was given
    end: Ints
    spelling: Spelling


@dataclass(frozen=True, slots=True)
class Spelling:
    """How words are written after normalization: bytes[begin:end] of each, lower case and without accents."""

    bytes: bytes
    begin: Ints
    end: Ints

    def __getitem__(self, i: int) -> str:
        return self.bytes[self.begin[i] : self.end[i]].decode()

    def __len__(self) -> int:
        return len(self.begin)


class WordReader:
    """Thread-safe: nothing changes but a cache of characters."""

    def __init__(self, tokenizer: Mapping[str, Any]) -> None:
        """From a tokenizer.json, parsed; of its vocabulary nothing is used."""
        without_words = {**tokenizer["model"], "vocab": {"[UNK]": 0}}
        pipeline = {**tokenizer, "model": without_words, "added_tokens": []}
        self._definition = Tokenizer.from_str(json.dumps(pipeline))
        self._is_known = all(pipeline[part] == known for part, known in _KNOWN.items())
        self._fold = _Fold(self._definition)

    def read(self, texts: Sequence[str]) -> Words:
        folded = [self.fold(text) for text in texts]
        plain = [i for i, fold in enumerate(folded) if fold is not None]
        words = find_words([fold for fold in folded if fold is not None])
        if len(plain) == len(texts):
            return words
        others = [self._defined_words(text, i) for i, text in enumerate(texts) if folded[i] is None]
        return _merge(
            [Words(np.array(plain, np.int64)[words.text], words.start, words.end, words.spelling), *others]
        )

    def fold(self, text: str) -> str | None:
        """The text as ASCII with the same words at the same places; None where only the definition helps."""
        if not self._is_known:
            return None
        if not text.isascii():
            for character in set(_NOT_ASCII.findall(text)):
                text = text.replace(character, self._fold[character])
        if _FOREIGN in text:
            return None
        folded = text.lower()
        if "<" in folded:
            folded = _TAGS.sub(_blank, folded)
        if (" '" in folded or " n't" in folded) and _JOINS.search(folded):
            return None  # "do n't" is one word with a hole in it
        return folded

    def _defined_words(self, text: str, number: int) -> Words:
        definition = self._definition
        normal = definition.normalizer.normalize_str(text) if definition.normalizer else text
        words = [word.encode() for word, _ in definition.pre_tokenizer.pre_tokenize_str(normal)]
        offsets = np.array(definition.encode(text).offsets, dtype=np.int64).reshape(-1, 2)
        end = np.cumsum([len(word) for word in words], dtype=np.int64)
        begin = end - np.array([len(word) for word in words], dtype=np.int64)
        spelling = Spelling(b"".join(words), begin, end)
        return Words(np.full(len(words), number, np.int64), offsets[:, 0], offsets[:, 1], spelling)


def find_words(folded: Sequence[str], few: int = 600) -> Words:
    """The words of folded texts; up to `few` characters a regular expression is the faster way."""
    joined = _GAP + _GAP.join(folded)
    data = joined.encode("ascii")
    begin, end = _match(joined) if len(joined) <= few else _scan(data)
    lengths = np.fromiter(map(len, folded), np.int64, len(folded))
    origin = np.cumsum(lengths + len(_GAP)) - lengths
    if len(folded) == 1:
        text = np.zeros(len(begin), np.int64)
    else:
        text = np.repeat(np.arange(len(folded)), np.diff(np.searchsorted(begin, origin), append=len(begin)))
    shift = origin[text]
    return Words(text, begin - shift, end - shift, Spelling(data, begin, end))


def _match(joined: str) -> tuple[Ints, Ints]:
    spans = np.array([match.span() for match in _WORDS.finditer(joined)], np.int64).reshape(-1, 2)
    return spans[:, 0], spans[:, 1]


def _scan(data: bytes) -> tuple[Ints, Ints]:
    """Where words begin and end, by arrays.

    A word begins at ! and ?, and at a letter or digit that does not go on with what is before it: with its
    like at once, letters also over an apostrophe, digits over one dot or slash.
    """
    kind = _KIND[np.frombuffer(data, dtype=np.uint8)]
    here, before, earlier = kind[2:], kind[1:-1], kind[:-2]
    pair = ((here & earlier & _LETTER) != 0) & (before == _APOSTROPHE)
    point = ((here & earlier & _DIGIT) != 0) & (before == _POINT)
    goes_on = ((here & before & (_LETTER | _DIGIT)) != 0) | pair | point
    part = (here & (_LETTER | _DIGIT | _MARK)) != 0
    starts = part & ~goes_on
    if point.any():
        _part_numbers(starts, np.flatnonzero(point))
    inside = np.flatnonzero(part)
    first = np.flatnonzero(starts[inside])
    begin = inside[first] + len(_GAP)
    end = inside[np.append(first[1:], len(inside))[: len(first)] - 1] + len(_GAP) + 1
    return begin, end


def _part_numbers(starts: Bools, points: Ints) -> None:
    """1.2.3 is 1.2 and 3: of the points inside one number every second one ends it."""
    number = np.searchsorted(np.flatnonzero(starts), points, side="right")
    rank = np.arange(len(points)) - np.searchsorted(number, number)
    starts[points[rank % 2 == 1]] = True


def _merge(parts: Sequence[Words]) -> Words:
    """Several as one, in the order of their texts."""
    order = np.argsort(np.concatenate([part.text for part in parts]), kind="stable")
    shift = np.cumsum([0, *(len(part.spelling.bytes) for part in parts)])
    begin = [part.spelling.begin + more for part, more in zip(parts, shift[:-1], strict=True)]
    end = [part.spelling.end + more for part, more in zip(parts, shift[:-1], strict=True)]
    text, start, stop = (
        np.concatenate([getattr(part, name) for part in parts])[order] for name in ("text", "start", "end")
    )
    whole = b"".join(part.spelling.bytes for part in parts)
    return Words(text, start, stop, Spelling(whole, np.concatenate(begin)[order], np.concatenate(end)[order]))


class _Fold(dict[str, str]):
    """What the normalizer makes of each character where that is one ASCII character; filled as met."""

    def __init__(self, definition: Tokenizer) -> None:
        super().__init__()
        self._definition = definition

    def __missing__(self, character: str) -> str:
        self[character] = self._single(self._definition.normalizer.normalize_str(character))
        return self[character]

    def _single(self, normal: str) -> str:
        if len(normal) != 1:
            return _FOREIGN
        if normal.isascii():
            return normal
        # subtle: the definition may know a later Unicode than Python, which has no category for its letters.
        combines = unicodedata.category(normal) in ("Mn", "Mc", "Me", "Cn")
        is_word = bool(self._definition.pre_tokenizer.pre_tokenize_str(normal))
        return _FOREIGN if combines or is_word or normal.isalnum() else "|"


def _blank(tag: re.Match[str]) -> str:
    return " " * (tag.end() - tag.start())
