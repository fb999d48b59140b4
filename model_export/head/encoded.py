"""Quantized encoder outputs of texts, computed once and cached on disk so that a stopped run can resume."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from model_export.data.function_words import function_words
from model_export.data.training_set import Batch, Ints, padded, words_of
from model_export.writing import atomic_write
from service.runtime.batcher import group_by_length
from service.text.encoder import Encoder
from service.text.tokenizer import TokenizedText

Array = NDArray[Any]
Progress = Callable[[int, int], None]

TEXTS_PER_FILE = 1_024
ENCODED_TOKENS_PER_RUN = 320
MAX_TEXT_CHARS = 2_000  # characters of a text that training uses
WINDOW_WORDS = 48  # words of a text that one training step uses
ZERO = 128  # the code of 0


def no_progress(done: int, total: int) -> None:
    """Report nothing."""


@dataclass(frozen=True)
class EncodedTexts:
    """n texts: their tokens, and the hidden state and input embedding of each token as uint8."""

    tokenized: Sequence[TokenizedText]
    states: Sequence[Array]  # of each text [T, 2, W]: hidden state, input embedding

    def __len__(self) -> int:
        return len(self.tokenized)

    @property
    def width(self) -> int:
        """W, the width of the encoder."""
        return int(self.states[0].shape[-1])

    def take(self, rows: Ints) -> EncodedTexts:
        """Return some of the texts."""
        return EncodedTexts([self.tokenized[i] for i in rows], [self.states[i] for i in rows])

    def members(self, i: int) -> list[list[int]]:
        """Return the token rows of each word of a text."""
        bounds = self.tokenized[i].bounds.tolist()
        return [list(range(*each)) for each in pairwise(bounds)]

    def batch(
        self, rows: Ints, window: np.random.Generator | None = None
    ) -> tuple[torch.Tensor, torch.Tensor, Batch]:
        """Return hidden states and embeddings [1, T, W] of some texts, centred at 0, and their words.

        With `window` a long text is represented by WINDOW_WORDS consecutive words, drawn at random: the cost
        of attention is quadratic.
        """
        bounds = [self.tokenized[i].bounds for i in rows]
        flags = [function_words(self.tokenized[i]) for i in rows]
        if window is not None:
            begins = [window.integers(max(1, len(each) - WINDOW_WORDS)) for each in bounds]
            bounds = [each[k : k + WINDOW_WORDS + 1] for k, each in zip(begins, bounds, strict=True)]
            flags = [each[k : k + WINDOW_WORDS] for k, each in zip(begins, flags, strict=True)]
        states = [self.states[i][each[0] : each[-1]] for i, each in zip(rows, bounds, strict=True)]
        both = torch.from_numpy(np.concatenate(states)).float() - ZERO
        M = max(map(len, bounds)) - 1
        word = np.concatenate([b * M + words_of(each) for b, each in enumerate(bounds)])
        batch = Batch(
            torch.zeros(1, len(word)), torch.from_numpy(word)[None], len(rows), M, padded(flags, False)
        )
        return both[None, :, 0], both[None, :, 1], batch

    def word_features(self, i: int) -> NDArray[np.float64]:
        """Return [M, 2W]: hidden state and embedding of each word of a text, centred at 0."""
        both, bounds = self.states[i].reshape(len(self.states[i]), -1), self.tokenized[i].bounds
        sums = np.add.reduceat(both.astype(np.float64) - ZERO, bounds[:-1], axis=0)
        mean: NDArray[np.float64] = sums / np.diff(bounds)[:, None]
        return mean

    def mean_features(self) -> NDArray[np.float32]:
        """Return [n, 2W]: the mean of each text's words."""
        return np.array([self.word_features(i).mean(0).astype(np.float32) for i in range(len(self))])


def encode_texts(
    encoder: Encoder, texts: Sequence[str], *, cache: Path | None = None, progress: Progress = no_progress
) -> tuple[EncodedTexts, Ints]:
    """Encode all texts that have words; return them and their indices.

    Args:
        encoder: the encoder.
        texts: the texts; their first MAX_CHARS characters are used.
        cache: a folder for the outputs of this encoder; a later call reads what it finds there.
        progress: called with the number of texts done and their total.
    """
    tokenized: list[TokenizedText] = []
    indices: list[int] = []
    states: list[Array] = []
    for begin in range(0, len(texts), TEXTS_PER_FILE):
        progress(begin, len(texts))
        read = [encoder.tokenize(text[:MAX_TEXT_CHARS]) for text in texts[begin : begin + TEXTS_PER_FILE]]
        with_words = [each for each in read if len(each) > 0]
        indices += [begin + i for i, each in enumerate(read) if len(each) > 0]
        tokenized += with_words
        if not with_words:
            continue

        def report(share: float, begin: int = begin, n: int = len(read)) -> None:
            progress(begin + int(share * n), len(texts))

        encoded = _encode_or_load(encoder, with_words, cache, report)
        states += np.split(encoded, np.cumsum([len(each.token_ids) for each in with_words])[:-1])
    progress(len(texts), len(texts))
    return EncodedTexts(tokenized, states), np.array(indices, np.int64)


def _encode_or_load(
    encoder: Encoder, tokenized: Sequence[TokenizedText], cache: Path | None, report: Callable[[float], None]
) -> Array:
    """Return [T, 2, W] of all tokens, one text after the other."""
    if cache is None:
        return np.concatenate(_encode(encoder, tokenized, report))
    file = cache / f"{_digest(tokenized)}.npy"
    if not file.exists():
        with atomic_write(file) as out:
            np.save(out, np.concatenate(_encode(encoder, tokenized, report)))
    loaded: Array = np.load(file, mmap_mode="r")
    return loaded


def _encode(
    encoder: Encoder, tokenized: Sequence[TokenizedText], report: Callable[[float], None]
) -> list[Array]:
    """Return [T, 2, W] of each text; `report` gets the share of tokens done."""
    chunks = [(i, chunk) for i, text in enumerate(tokenized) for chunk in text.chunks()]
    lengths = [len(token_ids) for _, (token_ids, _) in chunks]
    outputs: dict[int, Array] = {}
    done = 0
    for run in group_by_length(lengths, ENCODED_TOKENS_PER_RUN):
        for k, each in zip(
            run, encoder.encode([chunks[k][1] for k in run], output_attentions=False), strict=True
        ):
            outputs[k] = np.stack([each.hidden_states, each.input_embeddings], axis=1)
            done += lengths[k]
        report(done / sum(lengths))
    parts: list[list[Array]] = [[] for _ in tokenized]
    for k, (i, _) in enumerate(chunks):
        parts[i].append(outputs[k])
    return [np.concatenate(each) for each in parts]


def _digest(tokenized: Sequence[TokenizedText]) -> str:
    content = hashlib.sha256()
    for each in tokenized:
        content.update(each.token_ids.tobytes() + each.position_ids.tobytes() + b"/")
    return content.hexdigest()[:24]
