"""From many 64-bit keys to numbers at once, and from spellings to such keys; knows nothing of texts."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Keys = NDArray[np.uint64]
Ints = NDArray[np.int64]

_MIX = np.uint64(0x9E3779B97F4A7C15)  # odd; spreads keys over their high bits
_FACTORS = np.array([0xD6E8FEB86659FD93, 0xA0761D6478BD642F, 0xE7037ED1A0B428DB], np.uint64)
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


def spell(spelling: Any) -> Keys:
    """A key for each word: of `bytes`, `begin`, `end` arrays, or of a list of strings.

    The first 24 bytes are taken as three integers, times odd factors; longer words are folded onto them.
    """
    if isinstance(spelling, list):
        words = [word.encode() for word in spelling]
        end = np.cumsum([len(word) for word in words], dtype=np.int64)
        begin = end - np.array([len(word) for word in words], dtype=np.int64)
        return _spell(b"".join(words), begin, end)
    return _spell(spelling.bytes, spelling.begin, spelling.end)


def _spell(data: bytes, begin: Ints, end: Ints) -> Keys:
    padded = data + bytes(32)
    windows: Keys = np.ndarray((len(padded) - 7,), np.dtype("<u8"), padded, strides=(1,))
    length = end - begin
    key = np.zeros(len(begin), np.uint64)
    longest = int(length.max(initial=0))
    for part in range(0, longest, 8):
        left = np.clip(length - part, 0, 8)
        some = np.flatnonzero(left)
        word = windows[begin[some] + part] & _MASKS[left[some]]
        key[some] = (key[some] ^ (key[some] >> np.uint64(29))) * _FACTORS[1] + (
            word + np.uint64(1)
        ) * _FACTORS[0]
    return key ^ (key >> np.uint64(32))


_MASKS = np.array([(1 << 8 * n) - 1 for n in range(9)], np.uint64)
