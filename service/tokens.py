"""From words to the distinct tokens of a text: words, and phrases of two or three words side by side.

Phrases are found from word ids, for all texts of a call at once. Knows nothing of models.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.errors import BundleError, InvalidInput, TooLarge
from service.words import Offsets, Reading, WordReader, vocabulary

PAD, UNK = 0, 1
SPECIAL = ("[PAD]", "[UNK]")
LONGEST_PHRASE = 3
_BASE = 1 << 21  # a phrase of word ids is one integer in this base: three digits fit in 63 bits
_HASH = np.uint64(0x9E3779B97F4A7C15)
_SEEN_BITS = 22

Ids = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Words:
    """One text, ready for the model: its distinct tokens with multiplicities, and how to find them again."""

    ids: Ids  # ascending
    counts: NDArray[np.float32]
    tokens: int  # words that were read
    unknown: int  # those of them that the model does not know
    truncated: bool
    reading: Reading
    first: Ids  # [n + 1]; occurrences of token i: at[first[i]:first[i + 1]]
    at: Ids  # the word where each occurrence begins

    @property
    def length(self) -> int:
        """Distinct tokens: what batches are measured in."""
        return len(self.ids)


class Tokens:
    """The vocabulary of one model. Thread-safe."""

    def __init__(self, tokenizer: str, max_length: int) -> None:
        """From the content of a tokenizer.json; `max_length` words of a text are read."""
        try:
            self._reader = WordReader(tokenizer)
            self._id = vocabulary(tokenizer)
            names = sorted(self._id, key=self._id.__getitem__)
        except Exception as damage:  # the tokenizers library raises no other
            raise BundleError(f"tokenizer.json cannot be read: {damage}", param="tokenizer.json") from damage
        if tuple(names[:2]) != SPECIAL or self._id[names[-1]] != len(names) - 1:
            problem = "tokenizer.json must number its tokens without gaps, [PAD] and [UNK] first"
            raise BundleError(problem, param="tokenizer.json")
        self.max_length = max_length
        self.names: NDArray[Any] = np.array(names, dtype=object)
        self._phrases = _PhraseTable(names, self._id)

    def __len__(self) -> int:
        return len(self.names)

    def read(self, texts: Sequence[str], *, truncate: bool = True) -> list[Words]:
        """Every text's words. An empty text is an error, and a long one where it may not be cut."""
        readings = [self._reader.read(text) for text in texts]
        for i, reading in enumerate(readings):
            if not reading.words and not reading.text.strip():
                raise InvalidInput("the text is empty", param=f"input[{i}]")
            if not truncate and len(reading.words) > self.max_length:
                problem = f"the text has {len(reading.words)} words, the model reads {self.max_length}"
                raise TooLarge(problem, param=f"input[{i}]")
        return self._bags(readings) if readings else []

    def spans(self, words: Words) -> Spans:
        return Spans(words, self._reader.spans(words.reading), self._phrases.width)

    def _bags(self, readings: list[Reading]) -> list[Words]:
        """All texts as one row of word ids, kept apart by two unknown words, which no phrase crosses."""
        get, limit = self._id.get, self.max_length
        row: list[int] = []
        starts = []
        for reading in readings:
            starts.append(len(row))
            row += [get(word, UNK) for word in reading.words[:limit]]
            row += (UNK, UNK)
        ids = np.array(row, dtype=np.int64)
        start = np.array([*starts, len(row)], dtype=np.int64)
        phrase, begin = self._phrases.find(ids)
        known = np.flatnonzero(ids > UNK)
        token, at = np.concatenate((ids[known], phrase)), np.concatenate((known, begin))
        text = np.searchsorted(start, at, side="right") - 1 if len(readings) > 1 else np.zeros(1, np.int64)
        order = np.argsort(key := text * len(self) + token, kind="stable")
        key, at = key[order], (at - start[text])[order] if len(readings) > 1 else at[order]
        edge = np.flatnonzero(np.concatenate(([True], key[1:] != key[:-1], [True]))) if len(key) else _NONE
        return list(self._split(readings, start, known, key, at, edge))

    def _split(
        self, readings: list[Reading], start: Ids, known: Ids, key: Ids, at: Ids, edge: Ids
    ) -> list[Words]:
        distinct, counts = key[edge[:-1]], np.diff(edge).astype(np.float32)
        if len(readings) == 1:
            bounds, heard = [0, len(distinct)], [0, len(known)]
        else:
            bounds = np.searchsorted(distinct, np.arange(len(readings) + 1) * len(self)).tolist()
            heard = np.searchsorted(known, start).tolist()
        found = []
        for i, reading in enumerate(readings):
            a, b = bounds[i], bounds[i + 1]
            read = min(len(reading.words), self.max_length)
            found.append(
                Words(
                    ids=distinct[a:b] - i * len(self),
                    counts=counts[a:b],
                    tokens=read,
                    unknown=read - (heard[i + 1] - heard[i]),
                    truncated=len(reading.words) > read,
                    reading=reading,
                    first=edge[a : b + 1],
                    at=at,
                )
            )
        return found


class Spans:
    """Where the tokens of one text are."""

    def __init__(self, words: Words, places: tuple[Offsets, Offsets], width: NDArray[np.int8]) -> None:
        starts, ends = places
        at = words.at[words.first[0] : words.first[-1]]
        last = at + np.repeat(width[words.ids], np.diff(words.first)) - 1
        self._spans: list[list[int]] = np.stack((starts[at], ends[last]), axis=1).tolist()
        self._first: list[int] = (words.first - words.first[0]).tolist()

    def of(self, i: int) -> list[list[int]]:
        """Every place of the text's token i, in order; a phrase is one span over its words."""
        return self._spans[self._first[i] : self._first[i + 1]]


class _PhraseTable:
    """Finds phrases in a row of word ids. Most runs of words are no phrase: a bit table says so cheaply."""

    def __init__(self, names: list[str], ids: dict[str, int]) -> None:
        keys, tokens = [], []
        self.width = np.ones(len(names), dtype=np.int8)
        for token, name in enumerate(names):
            if " " not in name:
                continue
            words = name.split(" ")
            if len(words) > LONGEST_PHRASE or any(word not in ids for word in words):
                problem = f"the phrase {name!r} is not of two or three words of the vocabulary"
                raise BundleError(problem, param="tokenizer.json")
            key = 0
            for word in words:
                key = key * _BASE + ids[word]
            keys.append(key)
            tokens.append(token)
            self.width[token] = len(words)
        order = np.argsort(np.array(keys, dtype=np.int64))
        last = np.iinfo(np.int64).max  # so that a search never runs off the end
        self._keys = np.append(np.array(keys, dtype=np.int64)[order], last)
        self._tokens = np.append(np.array(tokens, dtype=np.int64)[order], PAD)
        self._seen = np.zeros(1 << _SEEN_BITS, dtype=bool)
        self._seen[_hash(self._keys)] = True

    def find(self, ids: Ids) -> tuple[Ids, Ids]:
        """(token, where it begins) of every phrase. A key with an unknown word in it is no phrase's key."""
        pairs = ids[:-1] * _BASE + ids[1:]
        key = np.concatenate((pairs, pairs[:-1] * _BASE + ids[2:]))
        maybe = np.flatnonzero(self._seen[_hash(key)])
        key = key[maybe]
        place = np.searchsorted(self._keys, key)
        hit = self._keys[place] == key
        begin = maybe[hit]
        return self._tokens[place[hit]], np.where(begin < len(pairs), begin, begin - len(pairs))


_NONE = np.zeros(1, dtype=np.int64)


def _hash(key: Ids) -> NDArray[np.uint64]:
    mixed: NDArray[np.uint64] = (key.view(np.uint64) * _HASH) >> np.uint64(64 - _SEEN_BITS)
    return mixed
