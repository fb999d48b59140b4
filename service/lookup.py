"""From many 64-bit keys to numbers at once, and from spellings to such keys; knows nothing of texts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Keys = NDArray[np.uint64]
Ints = NDArray[np.int64]

_MIX = np.uint64(0x9E3779B97F4A7C15)  # odd; spreads keys over their high bits
_FACTOR = np.uint64(0xA0761D6478BD642F)
_LOAD = 4  # buckets a key


class Lookup:
    """A table of distinct keys in order of their hashes: a bucket is a run of it, hardly ever of two keys."""

    def __init__(self, keys: Keys, values: Ints) -> None:
        bits = max(4, int(len(keys) * _LOAD).bit_length())
        self._shift = np.uint64(64 - bits)
        bucket = self._bucket(keys)
        order = np.argsort(bucket, kind="stable")
        self._keys = np.append(keys[order], np.uint64(0))
        self._values = np.append(values[order], 0)
        self._first = np.searchsorted(bucket[order], np.arange((1 << bits) + 1)).astype(np.int32)
        self._longest = int(np.diff(self._first).max(initial=0))

    def find(self, keys: Keys) -> Ints:
        """The value of each key, 0 where there is none."""
        bucket = self._bucket(keys)
        place = self._first[bucket]
        value: Ints = np.where(self._keys[place] == keys, self._values[place], 0)
        if self._longest > 1:
            length = self._first[bucket + 1] - place
            for step in range(1, self._longest):
                again = np.flatnonzero(length > step)
                if not len(again):
                    break
                further = place[again] + step
                same = self._keys[further] == keys[again]
                value[again[same]] = self._values[further[same]]
        return value

    def _bucket(self, keys: Keys) -> Ints:
        return ((keys * _MIX) >> self._shift).astype(np.int64)


_MASKS = np.array([(1 << 8 * n) - 1 for n in range(9)], np.uint64)


def spell(data: bytes, begin: Ints, end: Ints) -> Keys:
    """A key for each word data[begin:end]: eight bytes after the other are mixed into it."""
    padded = data + bytes(8)  # the last window may look beyond the end
    windows: Keys = np.ndarray((len(padded) - 7,), np.dtype("<u8"), padded, strides=(1,))
    length = end - begin
    key = np.zeros(len(begin), np.uint64)
    for part in range(0, int(length.max(initial=0)), 8):
        left = np.minimum(length - part, 8)
        some = np.flatnonzero(left > 0)
        word = windows[begin[some] + part] & _MASKS[left[some]]
        key[some] = (key[some] ^ (key[some] >> np.uint64(29))) * _FACTOR + (word + np.uint64(1)) * _MIX
    return key ^ (key >> np.uint64(32))


def spell_all(words: Sequence[str]) -> Keys:
    """The keys of some words."""
    encoded = [word.encode() for word in words]
    end = np.cumsum([len(word) for word in encoded], dtype=np.int64)
    return spell(b"".join(encoded), end - np.array([len(word) for word in encoded], dtype=np.int64), end)
