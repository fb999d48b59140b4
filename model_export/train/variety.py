"""Training texts in other words, for the teacher to label: a run of words, some replaced by near ones.

Such texts are often odd. The teacher reads them all the same, and so shows what it knows beyond our texts.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

NEAR = 12  # words that may take a word's place
REPLACED = 25_000  # the most frequent words may be replaced
LONGEST = 24  # words
MOST = 0.4  # of the words of a text are replaced at most
TOGETHER = 2_000  # words that are compared at once


def neighbours(
    words: Sequence[str], vectors: NDArray[np.float32], known: Sequence[str]
) -> dict[str, list[str]]:
    """For each frequent word those whose vectors point most nearly its way; `words` fall in frequency."""
    pretrained = set(known)
    rows = np.array([i for i, word in enumerate(words) if word.isalpha() and word in pretrained])
    unit = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)
    frequent, found = rows[rows < REPLACED], {}
    for at in range(0, len(frequent), TOGETHER):
        some = frequent[at : at + TOGETHER]
        nearest = np.argsort(-(unit[some] @ unit[rows].T), axis=1)[:, : NEAR + 1]
        for word, row in zip(some, nearest, strict=True):
            found[words[word]] = [words[rows[j]] for j in row if rows[j] != word][:NEAR]
    return found


def varied(
    texts: Sequence[str], number: int, near: Mapping[str, Sequence[str]], rng: random.Random
) -> list[str]:
    """So many texts, each one of `texts` in other words."""
    return [_in_other_words(rng.choice(texts).split(), near, rng) for _ in range(number if texts else 0)]


def _in_other_words(words: Sequence[str], near: Mapping[str, Sequence[str]], rng: random.Random) -> str:
    start, share = rng.randrange(max(1, len(words) - LONGEST + 1)), MOST * rng.random()
    return " ".join(
        rng.choice(near[word.lower()]) if word.lower() in near and rng.random() < share else word
        for word in words[start : start + LONGEST]
    )
