"""Which words and phrases deserve to be tokens: frequent enough, and telling about the label.

Knows counts and labels, nothing of models.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from model_export.tokens import BASE, LONGEST_PHRASE, SPECIAL, Ids, WordIds


@dataclass(frozen=True)
class Candidates:
    """Every run of words of one length: its key, the texts it is in, and how telling it is."""

    keys: Ids
    frequency: Ids  # texts
    score: NDArray[np.float64]  # chi-square like


def count(words: WordIds, positive: NDArray[np.float32], length: int, least: int) -> Candidates:
    """Runs of `length` words that at least `least` texts have. `positive` is a probability a text, hard or
    soft.
    """
    key, text = words.phrases(length)
    order = np.argsort(key, kind="stable")  # texts stay ascending within a key
    key, text = key[order], text[order]
    first = np.ones(len(key), dtype=bool)  # once a text
    first[1:] = (key[1:] != key[:-1]) | (text[1:] != text[:-1])
    key, text = key[first], text[first]
    keys, begin, frequency = np.unique(key, return_index=True, return_counts=True)
    agree = np.add.reduceat(positive[text].astype(np.float64), begin) if len(begin) else np.zeros(0)
    p = float(positive.mean())
    # the 2 keeps a phrase that a handful of texts agree on by chance from leading the list
    score = (agree - frequency * p) ** 2 / (frequency * p * (1 - p) + 2.0)
    enough = frequency >= least
    return Candidates(keys[enough], frequency[enough], score[enough])


def choose(
    names: list[str],
    words: WordIds,
    positive: NDArray[np.float32],
    *,
    size: int,
    least: int,
    longest: int = LONGEST_PHRASE,
    drop_frequent: int = 0,
) -> list[str]:
    """The tokens of a model. `names[i - 2]` is the word of id i in `words`; words first, then the best
    phrases.
    """
    single = count(words, positive, 1, least)
    common_first = single.keys[np.argsort(-single.frequency, kind="stable")]
    chosen = [names[i - len(SPECIAL)] for i in common_first[drop_frequent:]]
    if longest > 1:
        known = np.zeros(len(names) + len(SPECIAL), dtype=bool)
        known[common_first[drop_frequent:]] = True
        kept = WordIds(np.where(known[words.ids], words.ids, 1), words.start)
        runs = [count(kept, positive, length, least) for length in range(2, longest + 1)]
        score = np.concatenate([r.score for r in runs])
        length = np.repeat(np.arange(2, longest + 1), [len(r.keys) for r in runs])
        keys = np.concatenate([r.keys for r in runs])
        best = np.argsort(-score, kind="stable")[: max(size - len(chosen), 0)]
        chosen += [_spell(int(keys[i]), int(length[i]), names) for i in best]
    return chosen[:size]


def _spell(key: int, length: int, names: list[str]) -> str:
    digits = [(key // BASE**place) % BASE for place in reversed(range(length))]
    return " ".join(names[digit - len(SPECIAL)] for digit in digits)
