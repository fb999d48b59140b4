"""The texts that the encoder is trained on: tokenized once, packed into batches of similar length."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
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

    def to(self, device: torch.device) -> Batch:
        """Return the batch on a device."""
        flags = self.function_words
        return replace(
            self,
            token_ids=to_device(self.token_ids, device),
            word=to_device(self.word, device),
            function_words=None if flags is None else to_device(flags, device),
        )

    def by_word(self, x: Tensor) -> Tensor:
        """Return the mean of [chunks, N, c] over the tokens of each word, [B, M, c]."""
        mean: Tensor = self._sums(x) / self.sizes
        return mean

    @property
    def sizes(self) -> Tensor:
        """The number of tokens of each word [B, M, 1]; 1 where there is no word."""
        return self._count.clamp(min=1)[..., None]

    @property
    def there(self) -> Tensor:
        """Where there is a word, [B, M]."""
        return self._count > 0

    @property
    def _count(self) -> Tensor:
        """The number of tokens of each word, [B, M]."""
        return self._sums(torch.ones((*self.word.shape, 1), device=self.word.device))[..., 0]

    def _sums(self, x: Tensor) -> Tensor:
        flat = x.new_zeros(self.texts * self.words + 1, x.shape[-1])
        flat = flat.index_add(0, self.word.flatten(), x.flatten(0, 1))[:-1]
        return flat.view(self.texts, self.words, -1)


@dataclass(frozen=True)
class PackedTexts:
    """Tokens, words and chunks of many texts, one text behind the other.

    Chunk c has the tokens from chunk_offsets[c] to chunk_offsets[c + 1], text i the chunks from
    text_offsets[i] to text_offsets[i + 1] and the words from word_offsets[i] to word_offsets[i + 1].
    """

    token_ids: NDArray[np.int32]  # [tokens]
    word_of: NDArray[np.int32]  # [tokens] the number, in its text, of the word that the token belongs to
    function_words: NDArray[np.bool_]  # [words]
    chunk_offsets: Ints
    text_offsets: Ints
    word_offsets: Ints

    @classmethod
    def pack(cls, texts: Sequence[TokenizedText]) -> PackedTexts:
        """Return the content of some texts in one array each."""
        begins = _ends([len(text.token_ids) for text in texts])
        cuts = [
            begin + np.flatnonzero(np.diff(text.chunk_ids, prepend=-1))
            for begin, text in zip(begins.tolist(), texts, strict=False)
        ]
        return cls(
            _concatenate([text.token_ids for text in texts], np.int32),
            _concatenate([words_of(text.bounds) for text in texts], np.int32),
            _concatenate([function_words(text) for text in texts], np.bool_),
            np.append(_concatenate(cuts, np.int64), begins[-1]),
            _ends([len(each) for each in cuts]),
            _ends([len(text) for text in texts]),
        )

    def __len__(self) -> int:
        return len(self.text_offsets) - 1

    def __add__(self, other: PackedTexts) -> PackedTexts:
        def joined(name: str) -> NDArray[Any]:
            ours, theirs = getattr(self, name), getattr(other, name)
            if name.endswith("_offsets"):
                return np.concatenate([ours, ours[-1] + theirs[1:]])
            return np.concatenate([ours, theirs])

        return PackedTexts(*(joined(name) for name in vars(self)))

    def take(self, rows: Ints) -> PackedTexts:
        """Return some of the texts."""
        chunks = _ranges(self.text_offsets[rows], self.text_offsets[rows + 1])
        tokens = _ranges(self.chunk_offsets[chunks], self.chunk_offsets[chunks + 1])
        words = _ranges(self.word_offsets[rows], self.word_offsets[rows + 1])
        return PackedTexts(
            self.token_ids[tokens], self.word_of[tokens], self.function_words[words],
            _ends(np.diff(self.chunk_offsets)[chunks]), _ends(np.diff(self.text_offsets)[rows]),
            _ends(np.diff(self.word_offsets)[rows]),
        )  # fmt: skip

    @property
    def sizes(self) -> Ints:
        """The number of tokens of each text."""
        return np.diff(self.chunk_offsets[self.text_offsets])

    def padded(self, rows: Ints) -> Tensor:
        """Return [B, N], the token ids of texts of one chunk, padded with zeros."""
        return self._padded(self.token_ids, self.chunk_offsets, self.text_offsets[rows], 0)

    def batch(self, rows: Ints) -> Batch:
        """Return the chunks and words of some texts."""
        chunks = _ranges(self.text_offsets[rows], self.text_offsets[rows + 1])
        text = np.repeat(np.arange(len(rows)), np.diff(self.text_offsets)[rows])
        M = int(np.diff(self.word_offsets)[rows].max())
        word = self._padded(self.word_of, self.chunk_offsets, chunks, -1)
        word = torch.where(word < 0, len(rows) * M, word + M * torch.from_numpy(text)[:, None])
        flags = self._padded(self.function_words, self.word_offsets, rows, False)
        token_ids = self._padded(self.token_ids, self.chunk_offsets, chunks, 0)
        return Batch(token_ids, word, len(rows), M, flags)

    @staticmethod
    def _padded(flat: NDArray[Any], bounds: Ints, parts: Ints, fill: int | bool) -> Tensor:
        """Return [len(parts), longest]; part i is flat[bounds[i]:bounds[i + 1]]."""
        begins, sizes = bounds[parts], bounds[parts + 1] - bounds[parts]
        at = np.arange(sizes.max())
        inside = at < sizes[:, None]
        values = flat[np.minimum(begins[:, None] + at, len(flat) - 1)]
        kind = np.bool_ if isinstance(fill, bool) else np.int64
        return torch.from_numpy(np.where(inside, values, fill).astype(kind))


@dataclass(frozen=True)
class TrainingSet:
    """Tokenized texts with their targets and, where known, labels and published embeddings."""

    packed: PackedTexts
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
            PackedTexts.pack([tokenized[i] for i in rows.tolist()]),
            np.asarray(targets, np.float32)[rows],
            None if labels is None else np.asarray(labels, np.float32)[rows],
            None if embeddings is None else embeddings[rows],
        )

    def __len__(self) -> int:
        return len(self.packed)

    def __add__(self, other: TrainingSet) -> TrainingSet:
        width = next((x.shape[1] for x in (self.embeddings, other.embeddings) if x is not None), None)
        parts = (self, other)
        return TrainingSet(
            self.packed + other.packed,
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
            self.packed.take(rows),
            self.targets[rows],
            None if self.labels is None else self.labels[rows],
            None if self.embeddings is None else self.embeddings[rows],
        )

    def single_chunk(self) -> TrainingSet:
        """Return the texts of one chunk."""
        return self.take(np.flatnonzero(np.diff(self.packed.text_offsets) == 1))

    def batches(self, max_tokens: int, rng: np.random.Generator | None = None) -> Iterator[Ints]:
        """Yield the rows of each batch."""
        return batches(self.packed.sizes, max_tokens, rng)


def to_device(x: Tensor, device: torch.device) -> Tensor:
    """Return a tensor on a device; a copy to a GPU does not wait for the work that is queued there."""
    return x.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else x.to(device)


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


def plan_epochs(sizes: Ints, epochs: float, max_tokens: int, rng: np.random.Generator) -> list[Ints]:
    """Return the batches of all epochs; of the last one a part."""
    plan: list[Ints] = []
    while epochs > 0:
        parts = list(batches(sizes, max_tokens, rng))
        plan += parts[: round(min(1.0, epochs) * len(parts))]
        epochs -= 1
    return plan


def padded(parts: Sequence[NDArray[Any]], fill: int | bool) -> Tensor:
    """Return [B, N], with `fill` after the end of each text."""
    x = np.full((len(parts), max(map(len, parts))), fill, bool if fill is False else np.int64)
    for row, part in zip(x, parts, strict=True):
        row[: len(part)] = part
    return torch.from_numpy(x)


def _ranges(begins: Ints, ends: Ints) -> Ints:
    """Return the whole numbers of each range, one range behind the other."""
    sizes = ends - begins
    found: Ints = np.repeat(begins - _ends(sizes)[:-1], sizes) + np.arange(sizes.sum())
    return found


def _ends(sizes: Sequence[int] | Ints) -> Ints:
    """Return 0 and where each part ends."""
    return np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])


def _concatenate(parts: Sequence[NDArray[Any]], kind: type[np.generic]) -> NDArray[Any]:
    return np.concatenate([np.zeros(0, kind), *parts]).astype(kind, copy=False)
