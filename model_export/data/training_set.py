"""The texts that the encoder is trained on: tokenized once, packed into batches of similar length."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from model_export.data.function_words import function_words
from service.text.tokenizer import TokenizedText, WordPieceTokenizer

Ints = NDArray[np.int64]
TEXTS_PER_SORT = 8_192  # texts that are sorted by length together
MAX_TRAINING_WORDS = 400  # of a text


@dataclass(frozen=True)
class Batch:
    """Texts as the input of a head: chunks of tokens, and the word that each token belongs to."""

    token_ids: Tensor  # [chunks, N], 0 = padding
    word: Tensor  # [chunks, N]: text * M + its number in the text; B * M for padding
    texts: int
    words: int  # M, of the text with most
    function_words: Tensor | None = None  # [B, M] bool

    def by_word(self, x: Tensor) -> Tensor:
        """Return the mean of [chunks, N, c] over the tokens of each word, [B, M, c]."""
        flat = x.new_zeros(self.texts * self.words + 1, x.shape[-1])
        flat = flat.index_add(0, self.word.flatten(), x.flatten(0, 1))[:-1]
        mean: Tensor = flat.view(self.texts, self.words, -1) / self.sizes
        return mean

    @property
    def sizes(self) -> Tensor:
        """The number of tokens of each word [B, M, 1]; 1 where there is no word."""
        return self._count.clamp(min=1).float()[..., None]

    @property
    def there(self) -> Tensor:
        """Where there is a word, [B, M]."""
        return self._count > 0

    @property
    def _count(self) -> Tensor:
        """The number of tokens of each word, [B, M]."""
        count = torch.bincount(self.word.flatten(), minlength=self.texts * self.words + 1)[:-1]
        return count.view(self.texts, self.words)


@dataclass(frozen=True)
class TrainingSet:
    """Tokenized texts with their targets and, where known, labels and published embeddings."""

    texts: Sequence[TokenizedText]
    targets: NDArray[np.float32]  # [n] the probability that it is positive
    labels: NDArray[np.float32] | None = None  # [n] 0, .5 or 1 where it has one of three labels, else NaN
    embeddings: NDArray[np.float16] | None = None  # [n, W] of the published encoder; NaN where unknown

    @classmethod
    def from_texts(
        cls,
        tokenizer: WordPieceTokenizer,
        texts: Sequence[str],
        targets: Sequence[float],
        labels: Sequence[float] | None = None,
        embeddings: NDArray[np.float16] | None = None,
    ) -> TrainingSet:
        """Tokenize texts; those without words are left out."""
        tokenized = [tokenizer.tokenize(text, MAX_TRAINING_WORDS) for text in texts]
        rows = np.flatnonzero([len(text) for text in tokenized])
        return cls(
            [tokenized[i] for i in rows.tolist()],
            np.asarray(targets, np.float32)[rows],
            None if labels is None else np.asarray(labels, np.float32)[rows],
            None if embeddings is None else embeddings[rows],
        )

    def __len__(self) -> int:
        return len(self.texts)

    def __add__(self, other: TrainingSet) -> TrainingSet:
        width = next((x.shape[1] for x in (self.embeddings, other.embeddings) if x is not None), None)
        parts = (self, other)
        return TrainingSet(
            [*self.texts, *other.texts],
            np.concatenate([part.targets for part in parts]),
            np.concatenate([part.three_labels for part in parts]),
            None if width is None else np.concatenate([part._embeddings(width) for part in parts]),
        )

    @property
    def three_labels(self) -> NDArray[np.float32]:
        return np.full(len(self), np.nan, np.float32) if self.labels is None else self.labels

    def _embeddings(self, width: int) -> NDArray[np.float16]:
        unknown = np.full((len(self), width), np.nan, np.float16)
        return unknown if self.embeddings is None else self.embeddings

    def take(self, rows: Ints) -> TrainingSet:
        """Return some of the texts."""
        return TrainingSet(
            [self.texts[i] for i in rows.tolist()],
            self.targets[rows],
            None if self.labels is None else self.labels[rows],
            None if self.embeddings is None else self.embeddings[rows],
        )

    @property
    def sizes(self) -> Ints:
        return np.array([len(text.token_ids) for text in self.texts])

    def single_chunk(self) -> TrainingSet:
        """Return the texts of one chunk."""
        return self.take(np.flatnonzero([text.chunk_ids[-1] == 0 for text in self.texts]))

    def batches(self, max_tokens: int, rng: np.random.Generator | None = None) -> Iterator[Ints]:
        """Yield the rows of each batch."""
        return batches(self.sizes, max_tokens, rng)

    def padded(self, rows: Ints) -> Tensor:
        """Return [B, N], the token ids of texts of one chunk, padded with zeros."""
        return padded([self.texts[i].token_ids for i in rows.tolist()], 0)

    def batch(self, rows: Ints) -> Batch:
        """Return the chunks and words of texts of any length."""
        texts = [self.texts[i] for i in rows.tolist()]
        M = max(map(len, texts))
        tokens, words = [], []
        for b, text in enumerate(texts):
            cuts = np.flatnonzero(np.diff(text.chunk_ids)) + 1
            tokens += np.split(text.token_ids, cuts)
            words += np.split(b * M + words_of(text.bounds), cuts)
        flags = padded([function_words(text) for text in texts], False)
        return Batch(padded(tokens, 0), padded(words, len(rows) * M), len(rows), M, flags)


def words_of(bounds: Ints) -> Ints:
    """Return the index of the word that each token belongs to."""
    return np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))


def batches(sizes: Ints, max_tokens: int, rng: np.random.Generator | None = None) -> Iterator[Ints]:
    """Yield the rows of each batch: texts of similar length, at most `max_tokens` tokens with padding.

    The batches come in random order if there is an `rng`.
    """
    order = rng.permutation(len(sizes)) if rng else np.arange(len(sizes))
    parts: list[Ints] = []
    for at in range(0, len(order), TEXTS_PER_SORT):
        rows = order[at : at + TEXTS_PER_SORT]
        rows = rows[np.argsort(sizes[rows], kind="stable")]
        begin = 0
        for i in range(1, len(rows) + 1):
            if i == len(rows) or sizes[rows[i]] * (i - begin + 1) > max_tokens:
                parts.append(rows[begin:i])
                begin = i
    yield from (parts[i] for i in (rng.permutation(len(parts)) if rng else range(len(parts))))


def padded(parts: Sequence[NDArray[Any]], fill: int | bool) -> Tensor:
    """Return [B, N], with `fill` after the end of each text."""
    x = np.full((len(parts), max(map(len, parts))), fill, bool if fill is False else np.int64)
    for row, part in zip(x, parts, strict=True):
        row[: len(part)] = part
    return torch.from_numpy(x)
