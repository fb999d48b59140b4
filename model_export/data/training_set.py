"""Texts as a reader learns from them: read once, packed into batches of like length."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from service.text.tokenizer import TokenizedText, WordPieceTokenizer

Ints = NDArray[np.int64]
TOGETHER = 8_192  # texts that are sorted by length together
WORDS = 400  # of a text that training reads


@dataclass(frozen=True)
class Batch:
    """Texts as the plane reads them: passages of pieces, and the word that each piece belongs to."""

    pieces: Tensor  # [passages, N], 0 = padding
    word: Tensor  # [passages, N]: text * M + its number in the text; B * M for padding
    texts: int
    words: int  # M, of the text with most

    def by_word(self, x: Tensor) -> Tensor:
        """[passages, N, c] -> the mean over the pieces of each word [B, M, c]."""
        flat = x.new_zeros(self.texts * self.words + 1, x.shape[-1])
        flat = flat.index_add(0, self.word.flatten(), x.flatten(0, 1))[:-1]
        mean: Tensor = flat.view(self.texts, self.words, -1) / self.sizes
        return mean

    @property
    def sizes(self) -> Tensor:
        """[B, M, 1] how many pieces; 1 where there is no word"""
        return self._count.clamp(min=1).float()[..., None]

    @property
    def there(self) -> Tensor:
        """[B, M] where there is a word"""
        return self._count > 0

    @property
    def _count(self) -> Tensor:
        """[B, M] how many pieces each word has"""
        count = torch.bincount(self.word.flatten(), minlength=self.texts * self.words + 1)[:-1]
        return count.view(self.texts, self.words)


@dataclass(frozen=True)
class Lessons:
    """Texts and the probability that each is positive ([n]), or of each label ([n, C])."""

    readings: Sequence[TokenizedText]
    targets: NDArray[np.float32]

    @classmethod
    def of(cls, pieces: WordPieceTokenizer, texts: Sequence[str], targets: Sequence[float]) -> Lessons:
        """Texts without words are left out."""
        read = [pieces.tokenize(text, WORDS) for text in texts]
        kept = [i for i, reading in enumerate(read) if len(reading)]
        return cls([read[i] for i in kept], np.asarray(targets, np.float32)[kept])

    def __len__(self) -> int:
        return len(self.readings)

    def __add__(self, other: Lessons) -> Lessons:
        return Lessons([*self.readings, *other.readings], np.concatenate([self.targets, other.targets]))

    def take(self, rows: Ints) -> Lessons:
        return Lessons([self.readings[i] for i in rows.tolist()], self.targets[rows])

    @property
    def sizes(self) -> Ints:
        return np.array([len(reading.token_ids) for reading in self.readings])

    def short(self) -> Lessons:
        """Those of one passage."""
        return self.take(np.flatnonzero([reading.chunk_ids[-1] == 0 for reading in self.readings]))

    def batches(self, most: int, rng: np.random.Generator | None = None) -> Iterator[Ints]:
        return batches(self.sizes, most, rng)

    def padded(self, rows: Ints) -> Tensor:
        """[B, N] pieces of texts of one passage, zeros behind the end."""
        return padded([self.readings[i].token_ids for i in rows.tolist()], 0)

    def batch(self, rows: Ints) -> Batch:
        """The same with the words, of texts of any length."""
        readings = [self.readings[i] for i in rows.tolist()]
        M = max(map(len, readings))
        pieces, words = [], []
        for b, reading in enumerate(readings):
            cuts = np.flatnonzero(np.diff(reading.chunk_ids)) + 1
            pieces += np.split(reading.token_ids, cuts)
            words += np.split(b * M + words_of(reading.bounds), cuts)
        return Batch(padded(pieces, 0), padded(words, len(rows) * M), len(rows), M)

    def answers(self, rows: Ints) -> Tensor:
        return torch.from_numpy(self.targets[rows])


def words_of(bounds: Ints) -> Ints:
    """For each piece the number of the word that it belongs to."""
    return np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))


def batches(sizes: Ints, most: int, rng: np.random.Generator | None = None) -> Iterator[Ints]:
    """Texts of like length, at most `most` pieces each with padding; in any order if there is a `rng`."""
    order = rng.permutation(len(sizes)) if rng else np.arange(len(sizes))
    parts: list[Ints] = []
    for at in range(0, len(order), TOGETHER):
        near = order[at : at + TOGETHER]
        near = near[np.argsort(sizes[near], kind="stable")]
        begin = 0
        for i in range(1, len(near) + 1):
            if i == len(near) or sizes[near[i]] * (i - begin + 1) > most:
                parts.append(near[begin:i])
                begin = i
    yield from (parts[i] for i in (rng.permutation(len(parts)) if rng else range(len(parts))))


def padded(parts: Sequence[NDArray[np.integer[Any]]], fill: int) -> Tensor:
    """[B, N], `fill` behind the end of a text."""
    x = np.full((len(parts), max(map(len, parts))), fill, np.int64)
    for row, part in zip(x, parts, strict=True):
        row[: len(part)] = part
    return torch.from_numpy(x)
