"""The texts that the encoder is trained on: tokenized once, packed into batches of similar length."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from model_export.data.function_words import function_words
from service.text.tokenizer import TokenizedText, WordPieceTokenizer

Ints = NDArray[np.int64]
TEXTS_PER_SORT = 8_192  # texts are sorted by length in groups of this size
MAX_TRAINING_WORDS = 400  # of a text
NO_MARKS, NOT_MARKED = 0, 2  # of a word: the text has no marked words; the text has, and this is not one
MARKED_PARTS = re.compile(r"[\w'’]+|[^\w\s]")


@dataclass(frozen=True)
class Batch:
    """Texts as the input of a head: chunks of tokens, and the word that each token belongs to."""

    token_ids: Tensor  # [chunks, N], 0 = padding
    word_index: Tensor  # [chunks, N]: text * M + the number of the word in the text; B * M for padding
    n_texts: int  # B
    max_words: int  # M, the words of the text with most words
    function_words: Tensor | None = None  # [B, M] bool
    marks: Tensor | None = None  # [B, M] see PackedTexts
    parts: Tensor | None = None  # [B, M] of the text that a word belongs to

    def to(self, device: torch.device) -> "Batch":
        """Return the batch on a device."""
        tensors = {name: x for name, x in vars(self).items() if isinstance(x, Tensor)}
        moved: dict[str, Any] = {name: to_device(x, device) for name, x in tensors.items()}
        return replace(self, **moved)

    def mean_by_text(self, x: Tensor) -> Tensor:
        """Return the mean of x [chunks, N, c] over the tokens of each text, [B, c]."""
        text = torch.div(self.word_index[:, 0], self.max_words, rounding_mode="floor")
        is_token = (self.token_ids != 0)[..., None]
        sums, counts = (x * is_token).sum(1), is_token.sum(1).to(x.dtype)
        total = x.new_zeros(self.n_texts, x.shape[-1]).index_add(0, text, sums)
        return total / x.new_zeros(self.n_texts, 1).index_add(0, text, counts).clamp(min=1)

    def mean_by_word(self, x: Tensor) -> Tensor:
        """Return the mean of x [chunks, N, c] over the tokens of each word, [B, M, c]."""
        mean: Tensor = self._sums(x) / self._tokens_per_word.clamp(min=1)[..., None]
        return mean

    @property
    def is_word(self) -> Tensor:
        """Whether there is a word, [B, M]."""
        return self._tokens_per_word > 0

    @property
    def _tokens_per_word(self) -> Tensor:
        """The number of tokens of each word, [B, M]; 0 for padding."""
        return self._sums(torch.ones((*self.word_index.shape, 1), device=self.word_index.device))[..., 0]

    def _sums(self, x: Tensor) -> Tensor:
        flat = x.new_zeros(self.n_texts * self.max_words + 1, x.shape[-1])
        flat = flat.index_add(0, self.word_index.flatten(), x.flatten(0, 1))[:-1]
        return flat.view(self.n_texts, self.max_words, -1)


@dataclass(frozen=True)
class PackedTexts:
    """Tokens, words and chunks of many texts, concatenated.

    Chunk c has the tokens from chunk_offsets[c] to chunk_offsets[c + 1], text i the chunks from
    text_offsets[i] to text_offsets[i + 1] and the words from word_offsets[i] to word_offsets[i + 1].
    """

    token_ids: NDArray[np.int32]  # [tokens]
    word_index: NDArray[np.int32]  # [tokens] the number of the token's word in its text
    function_words: NDArray[np.bool_]  # [words]
    marks: NDArray[np.int8]  # [words] the side that a marked word decides for, or NOT_MARKED, or NO_MARKS
    parts: NDArray[np.int8]  # [words] which part of a joined text a word belongs to
    chunk_offsets: Ints
    text_offsets: Ints
    word_offsets: Ints

    @classmethod
    def pack(
        cls, texts: Sequence[TokenizedText], marks: Sequence[NDArray[np.int8]] | None = None
    ) -> "PackedTexts":
        """Concatenate texts; `marks` are those of the words of each text."""
        n_words = sum(map(len, texts))
        offsets = _offsets([len(text.token_ids) for text in texts])
        chunk_starts = [
            offset + np.flatnonzero(np.diff(text.chunk_ids, prepend=-1))
            for offset, text in zip(offsets.tolist(), texts, strict=False)
        ]
        return cls(
            _concatenate([text.token_ids for text in texts], np.int32),
            _concatenate([words_of(text.bounds) for text in texts], np.int32),
            _concatenate([function_words(text) for text in texts], np.bool_),
            np.full(n_words, NO_MARKS, np.int8) if marks is None else _concatenate(marks, np.int8),
            np.zeros(n_words, np.int8),
            np.append(_concatenate(chunk_starts, np.int64), offsets[-1]),
            _offsets([len(starts) for starts in chunk_starts]),
            _offsets([len(text) for text in texts]),
        )

    def __len__(self) -> int:
        return len(self.text_offsets) - 1

    def __add__(self, other: "PackedTexts") -> "PackedTexts":
        def concatenate(name: str) -> NDArray[Any]:
            first, second = getattr(self, name), getattr(other, name)
            if name.endswith("_offsets"):
                return np.concatenate([first, first[-1] + second[1:]])
            return np.concatenate([first, second])

        return PackedTexts(*(concatenate(name) for name in vars(self)))

    def take(self, rows: Ints) -> "PackedTexts":
        """Return some of the texts."""
        chunks = _ranges(self.text_offsets[rows], self.text_offsets[rows + 1])
        tokens = _ranges(self.chunk_offsets[chunks], self.chunk_offsets[chunks + 1])
        words = _ranges(self.word_offsets[rows], self.word_offsets[rows + 1])
        return PackedTexts(
            self.token_ids[tokens], self.word_index[tokens],
            self.function_words[words], self.marks[words], self.parts[words],
            _offsets(np.diff(self.chunk_offsets)[chunks]), _offsets(np.diff(self.text_offsets)[rows]),
            _offsets(np.diff(self.word_offsets)[rows]),
        )  # fmt: skip

    @property
    def sizes(self) -> Ints:
        """The number of tokens of each text."""
        return np.diff(self.chunk_offsets[self.text_offsets])

    def padded(self, rows: Ints) -> Tensor:
        """Return [B, N], the token ids of texts of one chunk, padded with zeros."""
        return _pad_parts(self.token_ids, self.chunk_offsets, self.text_offsets[rows], 0)

    def join(self, first: Ints, second: Ints) -> "PackedTexts":
        """Return texts of one chunk, each made of two of the texts, which are its parts."""
        pairs = self.take(np.stack([first, second], 1).ravel())
        n_words, n_tokens = np.diff(pairs.word_offsets), pairs.sizes
        shift = np.zeros_like(n_words)
        shift[1::2] = n_words[::2]
        tokens, words = (np.append(0, np.cumsum(n.reshape(-1, 2).sum(1))) for n in (n_tokens, n_words))
        return PackedTexts(
            pairs.token_ids, (pairs.word_index + np.repeat(shift, n_tokens)).astype(np.int32),
            pairs.function_words, pairs.marks,
            np.repeat(np.arange(len(n_words)) % 2, n_words).astype(np.int8),
            tokens, np.arange(len(first) + 1), words,
        )  # fmt: skip

    def batch(self, rows: Ints) -> Batch:
        """Return the chunks and words of some texts."""
        chunks = _ranges(self.text_offsets[rows], self.text_offsets[rows + 1])
        text = np.repeat(np.arange(len(rows)), np.diff(self.text_offsets)[rows])
        M = int(np.diff(self.word_offsets)[rows].max())
        index = _pad_parts(self.word_index, self.chunk_offsets, chunks, -1)
        index = torch.where(index < 0, len(rows) * M, index + M * torch.from_numpy(text)[:, None])
        flags = _pad_parts(self.function_words, self.word_offsets, rows, False)
        marks, parts = (_pad_parts(x, self.word_offsets, rows, 0) for x in (self.marks, self.parts))
        token_ids = _pad_parts(self.token_ids, self.chunk_offsets, chunks, 0)
        return Batch(token_ids, index, len(rows), M, flags, marks, parts)


@dataclass(frozen=True)
class TrainingSet:
    """Tokenized texts with their labels, the targets of a teacher, and published embeddings."""

    packed: PackedTexts
    labels: NDArray[np.float32]  # [n] 0, .5 or 1, else NaN
    has_neutral: NDArray[np.bool_]  # [n] whether texts of its data set may be neutral
    source: NDArray[np.int8]  # [n] the number of its source in the recipe
    targets: NDArray[np.float32]  # [n] the probability that it is positive
    part_targets: NDArray[np.float32]  # [n, 2] the same of the parts of a joined text, else NaN
    embeddings: NDArray[np.float16] | None = None  # [n, W] of the published encoder; NaN where unknown

    @classmethod
    def from_texts(
        cls,
        tokenizer: WordPieceTokenizer,
        texts: Sequence[str],
        labels: Sequence[float],
        *,
        has_neutral: bool = False,
        source: int = 0,
        marks: Sequence[Mapping[int, Sequence[str]]] | None = None,
    ) -> "TrainingSet":
        """Tokenize the texts, and leave out those without words. Targets are the labels."""
        tokenized = [tokenizer.tokenize(text, MAX_TRAINING_WORDS) for text in texts]
        rows = np.flatnonzero([len(text) for text in tokenized])
        kept = [tokenized[i] for i in rows.tolist()]
        word_marks = None if marks is None else [mark_words(tokenized[i], marks[i]) for i in rows.tolist()]
        y = np.asarray(labels, np.float32)[rows]
        return cls(
            PackedTexts.pack(kept, word_marks), y, np.full(len(y), has_neutral),
            np.full(len(y), source, np.int8), y, np.full((len(y), 2), np.nan, np.float32),
        )  # fmt: skip

    def __len__(self) -> int:
        return len(self.packed)

    def __add__(self, other: "TrainingSet") -> "TrainingSet":
        width = next((x.shape[1] for x in (self.embeddings, other.embeddings) if x is not None), None)
        arrays = ("labels", "has_neutral", "source", "targets", "part_targets")
        joined = {name: np.concatenate([getattr(self, name), getattr(other, name)]) for name in arrays}
        embeddings = None if width is None else np.concatenate([x._embeddings(width) for x in (self, other)])
        return TrainingSet(self.packed + other.packed, **joined, embeddings=embeddings)

    def _embeddings(self, width: int) -> NDArray[np.float16]:
        unknown = np.full((len(self), width), np.nan, np.float16)
        return unknown if self.embeddings is None else self.embeddings

    def take(self, rows: Ints) -> "TrainingSet":
        """Return some of the texts."""
        arrays = {name: x[rows] for name, x in vars(self).items() if isinstance(x, np.ndarray)}
        return replace(self, packed=self.packed.take(rows), **arrays)

    def single_chunk(self) -> "TrainingSet":
        """Return the texts that have a single chunk."""
        return self.take(np.flatnonzero(np.diff(self.packed.text_offsets) == 1))

    def batches(self, max_tokens: int, rng: np.random.Generator | None = None) -> Iterator[Ints]:
        """Yield the rows of each batch."""
        return batches(self.packed.sizes, max_tokens, rng)


def mark_words(text: TokenizedText, marks: Mapping[int, Sequence[str]]) -> NDArray[np.int8]:
    """Return the side that each word of a text is marked for; `marks` are the marked words of each side."""
    if not marks:
        return np.full(len(text), NO_MARKS, np.int8)
    sides = np.full(len(text), NOT_MARKED, np.int8)
    for side, words in marks.items():
        parts = {match.lower() for word in words for match in MARKED_PARTS.findall(word)}
        for i, (start, end) in enumerate(zip(text.starts.tolist(), text.ends.tolist(), strict=True)):
            if not parts.isdisjoint(map(str.lower, MARKED_PARTS.findall(text.text[start:end]))):
                sides[i] = side
    return sides


def _pad_parts(flat: NDArray[Any], offsets: Ints, parts: Ints, fill: int | bool) -> Tensor:
    """Return [len(parts), longest], padded with `fill`; part i is flat[offsets[i]:offsets[i + 1]]."""
    starts, sizes = offsets[parts], offsets[parts + 1] - offsets[parts]
    column = np.arange(sizes.max())
    values = flat[np.minimum(starts[:, None] + column, len(flat) - 1)]
    dtype = np.bool_ if isinstance(fill, bool) else np.int64
    return torch.from_numpy(np.where(column < sizes[:, None], values, fill).astype(dtype))


def to_device(x: Tensor, device: torch.device) -> Tensor:
    """Return a tensor on a device; a copy to a GPU does not wait for the kernels in its queue."""
    return x.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else x.to(device)


def words_of(bounds: Ints) -> Ints:
    """Return the index of the word that each token belongs to."""
    return np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))


def batches(sizes: Ints, max_tokens: int, rng: np.random.Generator | None = None) -> Iterator[Ints]:
    """Yield the rows of each batch: texts of similar length, at most `max_tokens` tokens with padding.

    The batches come in random order if there is an `rng`.
    """
    order = rng.permutation(len(sizes)) if rng else np.arange(len(sizes))
    result: list[Ints] = []
    for group_start in range(0, len(order), TEXTS_PER_SORT):
        rows = order[group_start : group_start + TEXTS_PER_SORT]
        rows = rows[np.argsort(sizes[rows], kind="stable")]
        start = 0
        for i in range(1, len(rows) + 1):
            if i == len(rows) or sizes[rows[i]] * (i - start + 1) > max_tokens:
                result.append(rows[start:i])
                start = i
    yield from (result[i] for i in (rng.permutation(len(result)) if rng else range(len(result))))


def plan_epochs(sizes: Ints, epochs: float, max_tokens: int, rng: np.random.Generator) -> list[Ints]:
    """Return the batches of all epochs; the last epoch may be incomplete."""
    plan: list[Ints] = []
    while epochs > 0:
        epoch = list(batches(sizes, max_tokens, rng))
        plan += epoch[: round(min(1.0, epochs) * len(epoch))]
        epochs -= 1
    return plan


def pad(sequences: Sequence[NDArray[Any]], fill: int | bool) -> Tensor:
    """Return [B, N], the sequences padded with `fill`."""
    flat = np.concatenate(sequences)
    return _pad_parts(flat, _offsets([len(x) for x in sequences]), np.arange(len(sequences)), fill)


def _ranges(starts: Ints, ends: Ints) -> Ints:
    """Return the concatenation of arange(start, end) for each range."""
    sizes = ends - starts
    ranges: Ints = np.repeat(starts - _offsets(sizes)[:-1], sizes) + np.arange(sizes.sum())
    return ranges


def _offsets(sizes: Sequence[int] | Ints) -> Ints:
    """Return the start of each part and the end of the last."""
    return np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])


def _concatenate(parts: Sequence[NDArray[Any]], dtype: type[np.generic]) -> NDArray[Any]:
    return np.concatenate([np.zeros(0, dtype), *parts]).astype(dtype, copy=False)
