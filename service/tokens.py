"""From words to the distinct tokens of a text: words, and phrases of two or three words side by side.

Everything is looked up for all texts of a call at once. Knows nothing of models.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from service.errors import BundleError, InvalidInput, TooLarge
from service.lookup import Lookup, spell, spell_all
from service.words import Ints, WordReader
from service.words import Words as Found

PAD, UNK = 0, 1
SPECIAL = ("[PAD]", "[UNK]")
LONGEST_PHRASE = 3
_BITS = 21  # a phrase of word ids is one integer, so many bits a word: three fit in 63
_PLACE_BITS = 22  # of a place in a row of words; with a token and a text above them in 63
FEW_WORDS = 64


class Places:
    """Where the tokens of texts that were read together are: from word `begin` to word `last`."""

    def __init__(self, begin: Ints, last: Ints, found: Found) -> None:
        self.begin = begin
        self._last = last
        self.found = found

    @cached_property
    def spans(self) -> list[tuple[int, int]]:
        """The same in characters of each text, made once for all of them."""
        begin, end = self.found.start[self.begin], self.found.end[self._last]
        return list(zip(begin.tolist(), end.tolist(), strict=True))


@dataclass(frozen=True, slots=True)
class Words:
    """One text, ready for the model: its distinct tokens with multiplicities, and how to find them again."""

    ids: Ints  # ascending
    counts: NDArray[np.float32]
    tokens: int  # words that were read
    unknown: int  # those of them that the model does not know
    truncated: bool
    first: list[int]  # [n + 1]; places of token i: those from first[i] to first[i + 1]
    places: Places

    @property
    def length(self) -> int:
        """Distinct tokens: what batches are measured in."""
        return len(self.ids)

    def spans(self, i: int) -> list[tuple[int, int]]:
        """Every place of token i, in order; a phrase is one span over its words."""
        return self.places.spans[self.first[i] : self.first[i + 1]]

    def reading_order(self) -> list[int]:
        """Tokens by their first occurrence; of those that begin together the one of smaller id."""
        order: list[int] = np.argsort(self.places.begin[self.first[:-1]], kind="stable").tolist()
        return order


class Tokens:
    """The vocabulary of one model. Thread-safe."""

    def __init__(self, tokenizer: str, max_length: int) -> None:
        """From the content of a tokenizer.json; `max_length` words of a text are read."""
        try:
            definition = orjson.loads(tokenizer)
            self._reader = WordReader(definition)
            ids: dict[str, int] = definition["model"]["vocab"]
            names = sorted(ids, key=ids.__getitem__)
        except Exception as damage:  # the tokenizers library raises no other
            raise BundleError(f"tokenizer.json cannot be read: {damage}", param="tokenizer.json") from damage
        if tuple(names[:2]) != SPECIAL or ids[names[-1]] != len(names) - 1:
            problem = "tokenizer.json must number its tokens without gaps, [PAD] and [UNK] first"
            raise BundleError(problem, param="tokenizer.json")
        self.max_length = max_length
        self.names: NDArray[Any] = np.array(names, dtype=object)
        self._width = np.array([name.count(" ") + 1 for name in names], dtype=np.int64)
        words = np.flatnonzero(self._width == 1)[len(SPECIAL) :]
        self._words = Lookup(spell_all([names[i] for i in words]), words)
        self._phrases = _phrases(names, ids)
        self._ids = ids

    def __len__(self) -> int:
        return len(self.names)

    def read(self, texts: Sequence[str], *, truncate: bool = True) -> list[Words]:
        """Every text's words. An empty text is an error, and a long one where it may not be cut."""
        for i, text in enumerate(texts):
            if not text or text.isspace():
                raise InvalidInput("the text is empty", param=f"input[{i}]")
        try:
            found = self._reader.read(texts)
        except UnicodeEncodeError:  # rare: looked for only where reading failed
            raise _half_a_character(texts) from None
        sizes = np.bincount(found.text, minlength=len(texts))
        if not truncate and sizes.max(initial=0) > self.max_length:
            i = int(np.argmax(sizes > self.max_length))
            problem = f"the text has {sizes[i]} words, the model reads {self.max_length}"
            raise TooLarge(problem, param=f"input[{i}]")
        if len(texts) == 1 and sizes[0] <= min(FEW_WORDS, self.max_length):
            return [self._short_bag(found)]
        return self._bags(found, sizes)

    def _short_bag(self, found: Found) -> Words:
        """The same as `_bags` for one short text, where a dictionary is faster than arrays are to start."""
        words = [found.spelling[i] for i in range(len(found.spelling))]
        known = [self._ids.get(word, UNK) for word in words]
        places: dict[int, list[int]] = {}
        for place, token in enumerate(known):
            places.setdefault(token, []).append(place)
        unknown = len(places.pop(UNK, ()))
        for width in range(2, LONGEST_PHRASE + 1):
            for place in range(len(words) - width + 1):
                if token := self._ids.get(" ".join(words[place : place + width]), PAD):
                    places.setdefault(token, []).append(place)
        ids = sorted(places)
        at = np.array([place for token in ids for place in places[token]], np.int64)
        counts = [len(places[token]) for token in ids]
        last = at + np.repeat(self._width[ids] - 1, counts) if ids else at
        return Words(
            ids=np.array(ids, np.int64),
            counts=np.array(counts, np.float32),
            tokens=len(words),
            unknown=unknown,
            truncated=False,
            first=list(accumulate(counts, initial=0)),
            places=Places(at, last, found),
        )

    def _bags(self, found: Found, sizes: Ints) -> list[Words]:
        """Words, phrases and their places as one sorted row of integers: text, token, place."""
        text = found.text
        read = np.minimum(sizes, self.max_length)
        spelling = found.spelling
        ids = self._words.find(spell(spelling.bytes, spelling.begin, spelling.end))
        ids[ids == PAD] = UNK
        if (cut := sizes > read).any():
            first = np.cumsum(sizes) - sizes
            beyond = np.arange(len(ids)) - first[text] >= self.max_length
            ids[beyond] = PAD
        phrase, begin = self._find_phrases(ids, text)
        known = np.flatnonzero(ids > UNK)
        at = np.concatenate((known, begin))
        key = ((text[at] << _BITS | np.concatenate((ids[known], phrase))) << _PLACE_BITS) | at
        key.sort()
        token, at = key >> _PLACE_BITS, key & ((1 << _PLACE_BITS) - 1)
        places = Places(at, at + self._width[token & ((1 << _BITS) - 1)] - 1, found)
        edge = np.flatnonzero(np.concatenate(([True], token[1:] != token[:-1], [True])))
        edge = edge if len(token) else np.zeros(1, np.int64)
        distinct, counts = token[edge[:-1]], np.diff(edge).astype(np.float32)
        bounds = np.searchsorted(distinct, np.arange(len(sizes) + 1) << _BITS).tolist()
        heard = np.bincount(text[known], minlength=len(sizes))
        facts = zip(read.tolist(), (read - heard).tolist(), cut.tolist(), strict=True)
        distinct &= (1 << _BITS) - 1
        edges: list[int] = edge.tolist()
        return [
            Words(distinct[a:b], counts[a:b], *fact, edges[a : b + 1], places)
            for a, b, fact in zip(bounds[:-1], bounds[1:], facts, strict=True)
        ]

    def _find_phrases(self, ids: Ints, text: Ints) -> tuple[Ints, Ints]:
        """(token, where it begins) of every phrase. No phrase has an unknown word or is in two texts."""
        pairs = ids[:-1] << _BITS | ids[1:]
        key = np.concatenate((pairs, pairs[:-1] << _BITS | ids[2:]))
        token = self._phrases.find(key.view(np.uint64))
        hit = np.flatnonzero(token)
        token = token[hit]
        begin = np.where(hit < len(pairs), hit, hit - len(pairs))
        inside = text[begin] == text[begin + self._width[token] - 1]
        return token[inside], begin[inside]


def _phrases(names: list[str], ids: dict[str, int]) -> Lookup:
    keys, tokens = [], []
    for token, name in enumerate(names):
        words = name.split(" ")
        if len(words) == 1:
            continue
        key = 0
        try:
            for word in words:
                key = key << _BITS | ids[word]
        except KeyError:
            key = -1
        if key < 0 or len(words) > LONGEST_PHRASE:
            problem = f"the phrase {name!r} is not of two or three words of the vocabulary"
            raise BundleError(problem, param="tokenizer.json")
        keys.append(key)
        tokens.append(token)
    return Lookup(np.array(keys, np.uint64), np.array(tokens, np.int64))


def _half_a_character(texts: Sequence[str]) -> InvalidInput:
    """The first text with a surrogate that has no partner: no encoding can write it."""
    i = next(i for i, text in enumerate(texts) if any("\ud800" <= each <= "\udfff" for each in text))
    return InvalidInput("the text holds half a character (a lone surrogate)", param=f"input[{i}]")
