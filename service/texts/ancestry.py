"""What the words of one text were made of: from pieces of passages, as the reader tells it, to words of the
text.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, cached_property
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from service.texts.heads import Read


class Ancestry:
    def __init__(self, text: Read) -> None:
        self._bounds = text.reading.bounds
        self._seen = text.seen
        self.of = cache(self._of)  # several heads ask for the same words

    @cached_property
    def _starts(self) -> list[int]:
        """The piece of the text with which each passage begins; its end."""
        return list(accumulate((len(seen.states) for seen in self._seen), initial=0))

    @cached_property
    def _word(self) -> list[int]:
        """The word of each piece."""
        sizes = np.diff(self._bounds)
        return np.repeat(np.arange(len(sizes)), sizes).tolist()

    @cached_property
    def _passage(self) -> list[int]:
        """The passage of each piece."""
        sizes = np.diff(self._starts)
        return np.repeat(np.arange(len(sizes)), sizes).tolist()

    def _of(self, word: int) -> list[tuple[int, int]]:
        """The other words that a word has read, each with the layer at which it entered, in that order."""
        first, end = self._bounds[word : word + 2].tolist()
        k = self._passage[first]
        begin, read = self._starts[k], self._seen[k].read
        assert read is not None
        sets = np.bitwise_or.reduce(read[:, first - begin : end - begin], axis=1).tolist()
        entered, before = {word: 0}, 0
        for layer, pieces in enumerate(sets):
            for piece in _members(pieces & ~before):
                entered.setdefault(self._word[begin + piece], layer)
            before = pieces
        return list(entered.items())[1:]

    def followed(self) -> list[list[list[int]]]:
        """For each word and each layer the other words that its heads followed, most followed first."""
        found: list[list[list[int]]] = []
        for k, seen in enumerate(self._seen):
            begin = self._starts[k]
            words = self._word[begin : self._starts[k + 1]]
            first = np.flatnonzero(np.diff(words, prepend=-1))
            assert seen.follows is not None
            heads = np.add.reduceat(
                np.add.reduceat(seen.follows, first, axis=1, dtype=np.int64), first, axis=2
            )
            heads[:, range(len(first)), range(len(first))] = 0
            found += _ranked(heads, words[0])
        return found


def _ranked(heads: NDArray[np.int64], first: int) -> list[list[list[int]]]:
    """[L, m, m] as lists: for each word and layer whom it follows, counted from the word `first`."""
    order = np.argsort(-heads, axis=2, kind="stable")
    counts = (heads > 0).sum(axis=2)
    return [
        [(first + row[:n]).tolist() for row, n in zip(order[:, i], counts[:, i], strict=True)]
        for i in range(heads.shape[1])
    ]


def _members(pieces: int) -> Iterator[int]:
    """The numbers of the bits that are set."""
    while pieces:
        yield (pieces & -pieces).bit_length() - 1
        pieces &= pieces - 1
