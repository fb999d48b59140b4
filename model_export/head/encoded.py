"""Quantized encoder outputs of texts, computed once and cached on disk so that a stopped run can resume."""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from model_export.data.function_words import function_words
from model_export.data.training_set import Batch, Ints, pad, words_of
from model_export.writing import atomic_write
from service.runtime.batcher import group_by_length
from service.text.encoder import EncodedText, Encoder, EncoderOutput
from service.text.head import assemble_feeds
from service.text.tokenizer import TokenizedText

Array = NDArray[Any]
Progress = Callable[[int, int], None]

TEXTS_PER_FILE = 1_024
ENCODED_TOKENS_PER_RUN = 320
MAX_TEXT_CHARS = 2_000  # characters of a text that training uses
WINDOW_WORDS = 48  # words of a text that one training step uses
ZERO = 128  # the code of 0


def no_progress(n_done: int, total: int) -> None:
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

    def take(self, rows: Ints) -> "EncodedTexts":
        """Return some of the texts."""
        return EncodedTexts([self.tokenized[i] for i in rows], [self.states[i] for i in rows])

    def feeds(self, rows: Iterable[int]) -> dict[str, Array]:
        """Return the inputs of a head's graph for some texts."""
        outputs = {i: EncoderOutput(self.states[i][:, 0], self.states[i][:, 1]) for i in rows}
        return assemble_feeds([EncodedText(self.tokenized[i], [x]) for i, x in outputs.items()]).arrays

    def batch(
        self, rows: Ints, window: np.random.Generator | None = None
    ) -> tuple[torch.Tensor, torch.Tensor, Batch]:
        """Return hidden states and embeddings [1, T, W] of some texts, centred at 0, and their words.

        With `window`, WINDOW_WORDS consecutive words of a long text are drawn at random, since the cost of
        attention is quadratic.
        """
        bounds = [self.tokenized[i].bounds for i in rows]
        flags = [function_words(self.tokenized[i]) for i in rows]
        if window is not None:
            starts = [window.integers(max(1, len(text) - WINDOW_WORDS)) for text in bounds]
            bounds = [text[k : k + WINDOW_WORDS + 1] for k, text in zip(starts, bounds, strict=True)]
            flags = [text[k : k + WINDOW_WORDS] for k, text in zip(starts, flags, strict=True)]
        states = [self.states[i][text[0] : text[-1]] for i, text in zip(rows, bounds, strict=True)]
        x = torch.from_numpy(np.concatenate(states)).float() - ZERO
        M = max(map(len, bounds)) - 1
        index = np.concatenate([b * M + words_of(text) for b, text in enumerate(bounds)])
        ids = torch.zeros(1, len(index))
        batch = Batch(ids, torch.from_numpy(index)[None], len(rows), M, pad(flags, False))
        return x[None, :, 0], x[None, :, 1], batch

    def word_features(self, i: int) -> NDArray[np.float64]:
        """Return [M, 2W]: hidden state and embedding of each word of a text, centred at 0."""
        states, bounds = self.states[i].reshape(len(self.states[i]), -1), self.tokenized[i].bounds
        sums = np.add.reduceat(states.astype(np.float64) - ZERO, bounds[:-1], axis=0)
        mean: NDArray[np.float64] = sums / np.diff(bounds)[:, None]
        return mean

    def mean_features(self) -> NDArray[np.float32]:
        """Return [n, 2W]: the mean of each text's words."""
        return np.array([self.word_features(i).mean(0).astype(np.float32) for i in range(len(self))])


def encode_texts(
    encoder: Encoder,
    texts: Sequence[str],
    *,
    fold_names: bool = True,
    cache: Path | None = None,
    progress: Progress = no_progress,
) -> tuple[EncodedTexts, Ints]:
    """Encode all texts that have words; return them and their indices.

    Args:
        encoder: the encoder.
        texts: the texts, of which the first MAX_TEXT_CHARS characters are used.
        fold_names: whether names are one token.
        cache: a folder for the outputs of this encoder, which a later call reads.
        progress: called with the number of encoded texts and the number of all texts.
    """
    tokenized: list[TokenizedText] = []
    indices: list[int] = []
    states: list[Array] = []
    for start in range(0, len(texts), TEXTS_PER_FILE):
        progress(start, len(texts))
        group = [
            encoder.tokenize(text[:MAX_TEXT_CHARS], fold_names=fold_names)
            for text in texts[start : start + TEXTS_PER_FILE]
        ]
        with_words = [text for text in group if len(text) > 0]
        indices += [start + i for i, text in enumerate(group) if len(text) > 0]
        tokenized += with_words
        if not with_words:
            continue

        def report(share: float, start: int = start, n: int = len(group)) -> None:
            progress(start + int(share * n), len(texts))

        encoded = _encode_or_load(encoder, with_words, cache, report)
        states += np.split(encoded, np.cumsum([len(text.token_ids) for text in with_words])[:-1])
    progress(len(texts), len(texts))
    return EncodedTexts(tokenized, states), np.array(indices, np.int64)


def _encode_or_load(
    encoder: Encoder, tokenized: Sequence[TokenizedText], cache: Path | None, report: Callable[[float], None]
) -> Array:
    """Return the outputs for all tokens of all texts, [T, 2, W]."""
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
    """Return the outputs for each text, [T, 2, W]; `report` gets the share of encoded tokens."""
    chunks = [(i, chunk) for i, text in enumerate(tokenized) for chunk in text.chunks()]
    lengths = [len(token_ids) for _, (token_ids, _) in chunks]
    states: dict[int, Array] = {}
    n_encoded = 0
    for run in group_by_length(lengths, ENCODED_TOKENS_PER_RUN):
        outputs = encoder.encode([chunks[k][1] for k in run], output_attentions=False)
        for k, output in zip(run, outputs, strict=True):
            states[k] = np.stack([output.hidden_states, output.input_embeddings], axis=1)
            n_encoded += lengths[k]
        report(n_encoded / sum(lengths))
    parts: list[list[Array]] = [[] for _ in tokenized]
    for k, (i, _) in enumerate(chunks):
        parts[i].append(states[k])
    return [np.concatenate(states_of_text) for states_of_text in parts]


def _digest(tokenized: Sequence[TokenizedText]) -> str:
    digest = hashlib.sha256()
    for text in tokenized:
        digest.update(text.token_ids.tobytes() + text.position_ids.tobytes() + b"/")
    return digest.hexdigest()[:24]
