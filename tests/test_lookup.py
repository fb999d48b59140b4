"""Many keys at once find what a dictionary finds one by one."""

from __future__ import annotations

import numpy as np

from service.lookup import Lookup, spell, spell_all


def test_lookup_finds_each_key_and_nothing_else() -> None:
    rng = np.random.default_rng(0)
    keys = np.unique(rng.integers(1, 1 << 63, size=5000).astype(np.uint64))
    table = Lookup(keys[::2], np.arange(1, len(keys[::2]) + 1))
    expected = np.where(np.arange(len(keys)) % 2 == 0, np.arange(len(keys)) // 2 + 1, 0)
    assert table.find(keys).tolist() == expected.tolist()


def test_lookup_finds_keys_that_share_a_bucket() -> None:
    keys = np.arange(1, 9, dtype=np.uint64) * np.uint64(0xF1DE83E19937733D)  # times _MIX: 1..8, one bucket
    table = Lookup(keys, np.arange(11, 19))
    assert table.find(keys).tolist() == list(range(11, 19))
    assert table.find(keys + np.uint64(1)).tolist() == [0] * 8


def test_lookup_without_keys_finds_nothing() -> None:
    table = Lookup(np.zeros(0, np.uint64), np.zeros(0, np.int64))
    assert table.find(np.array([0, 5], np.uint64)).tolist() == [0, 0]


def test_spelling_tells_words_apart_wherever_they_stand() -> None:
    words = [
        "a",
        "b",
        "ab",
        "ba",
        "aaaaaaaa",
        "aaaaaaaab",
        "baaaaaaaa",
        "a" * 16,
        "a" * 17,
        "x" * 300,
        "x" * 301,
    ]
    words += [first + second for first in "qwertyuiop" for second in "asdfghjkl"]
    keys = spell_all(words)
    assert len(set(keys.tolist())) == len(words)
    data = " ".join(words).encode()
    begin = np.array([data.index(b" " + word.encode() + b" ") + 1 for word in words[1:-1]])
    end = begin + np.array([len(word) for word in words[1:-1]])
    assert spell(data, begin, end).tolist() == keys[1:-1].tolist()
