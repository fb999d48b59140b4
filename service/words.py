"""From a text to its words and where they are; knows no vocabulary.

The pipeline in a bundle's tokenizer.json (a `tokenizers` normalizer and pre-tokenizer) defines what a word
is. For the one pipeline our models are trained with, a regular expression reads the same words much faster,
as long as every character maps to one ASCII character; any other pipeline or text goes the defined way.
"""

from __future__ import annotations

import json
import re
import unicodedata
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

Offsets = NDArray[np.int64]

# The pipeline that the expressions below say again. A change of either side shows in tests/test_words.py.
KNOWN_WORDS = r"\p{L}+(?:'\p{L}+)*|\d+(?:[./]\d+)?|[!?]"
KNOWN_TAG = r"</?[a-z][^<>]*>"
KNOWN_JOIN = r" +(?=(?:n't|'(?:s|re|ve|ll|d|m))\b)"
_KNOWN = {
    "normalizer": {
        "type": "Sequence",
        "normalizers": [
            {"type": "NFKD"},
            {"type": "StripAccents"},
            {"type": "Lowercase"},
            {"type": "Replace", "pattern": {"String": "’"}, "content": "'"},
            {"type": "Replace", "pattern": {"Regex": KNOWN_TAG}, "content": " "},
            {"type": "Replace", "pattern": {"Regex": KNOWN_JOIN}, "content": ""},
        ],
    },
    "pre_tokenizer": {
        "type": "Split",
        "pattern": {"Regex": KNOWN_WORDS},
        "behavior": "Removed",
        "invert": True,
    },
}
_WORD = re.compile(KNOWN_WORDS.replace(r"\p{L}", "[a-z]"), re.ASCII)
_TAG = re.compile(KNOWN_TAG)
_JOIN = re.compile(KNOWN_JOIN, re.ASCII)
_FOREIGN = "\0"  # stands for a character that only the definition can read


# For finding words again: the kind of each character. A word begins at a letter or digit that does not go on
# with what is before it, at once or across an apostrophe (letters), a dot or a slash (digits), and at ! and ?.
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


@dataclass(frozen=True, slots=True)
class Reading:
    """The words of a text in order. `folded` is as long as the text; None: spans come from the definition."""

    text: str
    words: list[str]
    folded: str | None


class WordReader:
    """Thread-safe: nothing changes but a cache of characters."""

    def __init__(self, tokenizer: str) -> None:
        """From the content of a tokenizer.json."""
        pipeline = json.loads(tokenizer)
        pipeline["model"]["vocab"] = {"[UNK]": 0}
        pipeline["added_tokens"] = []
        self._definition = Tokenizer.from_str(json.dumps(pipeline))
        self._is_known = all(pipeline[part] == known for part, known in _KNOWN.items())
        self._fold = _Fold(self._definition)

    def read(self, text: str) -> Reading:
        if self._is_known:
            folded = text.lower() if text.isascii() else text.translate(self._fold)
            if _FOREIGN not in folded:
                return self._read_fast(text, folded)
        return Reading(text, self._defined_words(text), None)

    def spans(self, reading: Reading) -> tuple[Offsets, Offsets]:
        """Where each word begins and ends: character offsets into the text."""
        if reading.folded is None:
            offsets = np.array(self._definition.encode(reading.text).offsets, dtype=np.int64).reshape(-1, 2)
            return offsets[:, 0], offsets[:, 1]
        starts = _starts(reading.folded)
        if len(starts) != len(reading.words):  # subtle: 1.2.3 is two words; the rule below sees one
            starts = np.array([match.start() for match in _WORD.finditer(reading.folded)], dtype=np.int64)
        return starts, starts + np.fromiter(map(len, reading.words), np.int64, len(starts))

    def _read_fast(self, text: str, folded: str) -> Reading:
        if "<" in folded:
            folded = _TAG.sub(_blank, folded)
        if (" '" in folded or " n't" in folded) and _JOIN.search(folded):
            return Reading(text, _WORD.findall(_JOIN.sub("", folded)), None)
        return Reading(text, _WORD.findall(folded), folded)

    def _defined_words(self, text: str) -> list[str]:
        definition = self._definition
        normal = definition.normalizer.normalize_str(text) if definition.normalizer else text
        return [word for word, _ in definition.pre_tokenizer.pre_tokenize_str(normal)]


class _Fold(dict[int, str]):
    """What the normalizer makes of each character where that is one ASCII character; filled as met."""

    def __init__(self, definition: Tokenizer) -> None:
        super().__init__()
        self._definition = definition

    def __missing__(self, code: int) -> str:
        normal = self._definition.normalizer.normalize_str(chr(code))
        self[code] = _single(normal)
        return self[code]


def _starts(folded: str) -> Offsets:
    """Where the words of an ASCII text begin, for all of it at once."""
    kind = _KIND[np.frombuffer(b"  " + folded.encode("ascii"), dtype=np.uint8)]
    here, before, earlier = kind[2:], kind[1:-1], kind[:-2]
    # A connector goes on with the kind before it: an apostrophe with letters, a dot or slash with digits.
    joined = np.where(
        before == _APOSTROPHE, earlier & _LETTER, np.where(before == _POINT, earlier & _DIGIT, before)
    )
    continues = (here & joined & (_LETTER | _DIGIT)) != 0
    return np.flatnonzero(((here & (_LETTER | _DIGIT | _MARK)) != 0) & ~continues)


def _single(normal: str) -> str:
    if len(normal) != 1:
        return _FOREIGN
    if normal.isascii():
        return normal
    part_of_words = normal.isalnum() or unicodedata.category(normal).startswith("M")
    return _FOREIGN if part_of_words else "|"


def _blank(tag: re.Match[str]) -> str:
    return " " * (tag.end() - tag.start())


def vocabulary(tokenizer: str) -> dict[str, int]:
    """The tokens of a tokenizer.json with their ids."""
    model: Any = json.loads(tokenizer)["model"]
    return dict(model["vocab"])
