"""How chunks of texts were read, remembered in arrays: a long text is looked up in a few steps of numpy."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from itertools import chain, repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

MOST_CHUNKS = 1 << 17  # that are remembered; then all are forgotten
NOTHING, OPEN, CLOSED = range(3)  # what a chunk does to the sentence: nothing, goes on with it, ends it

Token = tuple[int, int, int]  # id, start, end
Learnt = tuple[list[Token], list[Token], int]  # inside a sentence, first in one, NOTHING or OPEN or CLOSED
Ints = NDArray[np.int64]


class Chunks:
    """Chunk c has the rows 2 c (inside a sentence) and 2 c + 1 (first in one).

    It only grows: rows stay where they are, whatever other threads learn meanwhile.
    """

    def __init__(self) -> None:
        self.number: dict[str, int] = {}
        self.state = np.zeros(0, np.int8)  # [chunks]
        self.length = np.zeros(0, np.int64)
        self.first = np.zeros(0, np.int64)  # [rows], where a row's tokens begin
        self.size = np.zeros(0, np.int64)
        self.tokens = np.zeros((0, 3), np.int32)  # id, start, end
        self._count = 0  # of tokens
        self._letters = 0
        self._learning = threading.Lock()

    @property
    def is_full(self) -> bool:
        filled = len(self.number), self._count / 4, self._letters / 16
        return max(filled) > MOST_CHUNKS

    def look_up(self, chunks: Sequence[str]) -> Ints:
        """The number of each chunk, -1 where it is new."""
        return np.fromiter(map(self.number.get, chunks, repeat(-1)), np.int64, len(chunks))

    def learn(self, found: Mapping[str, Learnt]) -> None:
        with self._learning:
            new = {chunk: learnt for chunk, learnt in found.items() if chunk not in self.number}
            count = len(self.number)
            rows = [row for inside, begins, _ in new.values() for row in (inside, begins)]
            size = np.fromiter(map(len, rows), np.int64, len(rows))
            flat = chain.from_iterable(chain.from_iterable(rows))
            tokens = np.fromiter(flat, np.int32, 3 * int(size.sum())).reshape(-1, 3)
            states = np.fromiter((state for _, _, state in new.values()), np.int8, len(new))
            length = np.fromiter(map(len, new), np.int64, len(new))
            self.first = _extended(self.first, 2 * count, self._count + np.cumsum(size) - size)
            self.size = _extended(self.size, 2 * count, size)
            self.state = _extended(self.state, count, states)
            self.length = _extended(self.length, count, length)
            self.tokens = _extended(self.tokens, self._count, tokens)
            self._count += len(tokens)
            self._letters += int(length.sum())
            self.number.update(zip(new, range(count, count + len(new)), strict=True))  # now all else is there


def _extended(array: NDArray[Any], length: int, values: NDArray[Any]) -> NDArray[Any]:
    """`array` with the values behind its first `length`; itself where it has room."""
    if length + len(values) > len(array):
        larger = np.empty((2 * (length + len(values)), *array.shape[1:]), array.dtype)
        larger[:length] = array[:length]
        array = larger
    array[length : length + len(values)] = values
    return array
