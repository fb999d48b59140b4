"""Finds the known word that is nearest to a misspelt one.

Two words that are one dropped, added, changed or swapped letter apart have a spelling in common: one of them,
or both, with a letter less. So all such spellings of the known words stand in one sorted row of hashes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import numpy as np

SHORTEST, LONGEST = 5, 24  # letters of a word that is looked up
_TWICE, _OFTEN = re.compile(r"(.)\1+"), re.compile(r"(.)\1{2,}")


class NearWords:
    def __init__(self, words: Sequence[str]) -> None:
        """`words` in the order of their numbers, frequent ones first; those that are no words may be "" ."""
        self._words = words
        spelt = [i for i, word in enumerate(words) if SHORTEST - 1 <= len(word) <= LONGEST + 1]
        keys = np.array([key for i in spelt for key in _keys(words[i])], np.int64)
        owners = np.repeat(np.array(spelt, np.int32), [len(words[i]) + 1 for i in spelt])
        order = np.argsort(keys, kind="stable")
        self._keys, self._owners = keys[order], owners[order]

    def find(self, word: str) -> int | None:
        """The number of the most frequent word that is one edit away from `word`."""
        if not (SHORTEST <= len(word) <= LONGEST and word.isascii()):
            return None
        keys = np.array(_keys(word), np.int64)
        begin = self._keys.searchsorted(keys).tolist()
        end = self._keys.searchsorted(keys, side="right").tolist()
        found = {i for a, b in zip(begin, end, strict=True) if a < b for i in self._owners[a:b].tolist()}
        return next((i for i in sorted(found) if is_one_edit(word, self._words[i])), None)


def squeezed(word: str) -> Iterable[str]:
    """What a word with drawn-out letters may stand for: sooo, coool."""
    once = _TWICE.sub(r"\1", word)
    return () if once == word else dict.fromkeys((_OFTEN.sub(r"\1\1", word), once))


def is_one_edit(a: str, b: str) -> bool:
    """Whether one letter dropped, added, changed, or swapped with the next makes one word of the other."""
    if abs(len(a) - len(b)) > 1 or a == b:
        return False
    same = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    x, y = a[same:], b[same:]
    if len(x) == len(y):
        return x[1:] == y[1:] or (x[:2] == y[1::-1] and x[2:] == y[2:])
    return x[1:] == y or x == y[1:]


def _keys(word: str) -> list[int]:
    """Hashes of the word, and of the word without each of its letters."""
    return [hash(word), *[hash(word[:i] + word[i + 1 :]) for i in range(len(word))]]
