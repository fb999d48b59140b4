"""What a frozen reader says of texts: computed once, kept on disk, so that a stopped run goes on."""

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

from model_export.data.lessons import Batch, Ints, words_of
from model_export.writing import replacing
from service.runtime.batcher import groups_by_length
from service.text.encoder import Reader
from service.text.tokenizer import Reading

Array = NDArray[Any]

CHUNK = 1_024  # texts in one file
TOGETHER = 320  # pieces that the reader sees at once
LEARNT = 2_000  # characters of a text that are learnt from
SOME = 48  # words of it that one step looks at
ZERO = 128


@dataclass(frozen=True)
class States:
    """Of n texts: the words, and of each piece its last and its first state as uint8."""

    readings: Sequence[Reading]
    found: Sequence[Array]  # of each text [T, 2, W]

    def __len__(self) -> int:
        return len(self.readings)

    def take(self, rows: Ints) -> States:
        return States([self.readings[i] for i in rows], [self.found[i] for i in rows])

    def members(self, i: int) -> list[list[int]]:
        """The rows of the pieces of each word of a text."""
        bounds = self.readings[i].bounds.tolist()
        return [list(range(*each)) for each in pairwise(bounds)]

    def batch(
        self, rows: Ints, some: np.random.Generator | None = None
    ) -> tuple[torch.Tensor, torch.Tensor, Batch]:
        """Last and first states [1, T, W], in whole numbers around 0, and whose they are.

        With `some` a long text is SOME words in a row from anywhere: comparing all with all takes long.
        """
        bounds = [self.readings[i].bounds for i in rows]
        if some is not None:
            begins = [some.integers(max(1, len(each) - SOME)) for each in bounds]
            bounds = [each[k : k + SOME + 1] for k, each in zip(begins, bounds, strict=True)]
        found = [self.found[i][each[0] : each[-1]] for i, each in zip(rows, bounds, strict=True)]
        both = torch.from_numpy(np.concatenate(found)).float() - ZERO
        M = max(map(len, bounds)) - 1
        word = np.concatenate([b * M + words_of(each) for b, each in enumerate(bounds)])
        batch = Batch(torch.zeros(1, len(word)), torch.from_numpy(word)[None], len(rows), M)
        return both[None, :, 0], both[None, :, 1], batch

    def words(self, i: int) -> NDArray[np.float64]:
        """[M, 2W] of a text the last and first state of each word, around 0."""
        both, bounds = self.found[i].reshape(len(self.found[i]), -1), self.readings[i].bounds
        sums = np.add.reduceat(both.astype(np.float64) - ZERO, bounds[:-1], axis=0)
        mean: NDArray[np.float64] = sums / np.diff(bounds)[:, None]
        return mean

    def means(self) -> NDArray[np.float32]:
        """[n, 2W] the mean over the words of each text."""
        return np.array([self.words(i).mean(0).astype(np.float32) for i in range(len(self))])


def see(
    reader: Reader,
    texts: Sequence[str],
    *,
    cache: Path | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> tuple[States, Ints]:
    """The states of all texts that have words, and which these are. `cache`: a folder of this reader's."""
    readings: list[Reading] = []
    kept: list[int] = []
    found: list[Array] = []
    for begin in range(0, len(texts), CHUNK):
        progress(begin, len(texts))
        read = [reader.read(text[:LEARNT]) for text in texts[begin : begin + CHUNK]]
        some = [each for each in read if len(each) > 0]
        kept += [begin + i for i, each in enumerate(read) if len(each) > 0]
        readings += some
        if not some:
            continue
        file = cache / f"{_digest(some)}.npy" if cache else None
        if file is None or not file.exists():

            def seen(share: float, begin: int = begin, n: int = len(read)) -> None:
                progress(begin + int(share * n), len(texts))

            whole = np.concatenate(_states(reader, some, seen))
            if file is not None:
                with replacing(file) as out:
                    np.save(out, whole)
        if file is not None:
            whole = np.load(file, mmap_mode="r")
        found += np.split(whole, np.cumsum([len(each.pieces) for each in some])[:-1])
    progress(len(texts), len(texts))
    return States(readings, found), np.array(kept, np.int64)


def _states(reader: Reader, readings: Sequence[Reading], progress: Callable[[float], None]) -> list[Array]:
    """`progress` is told the share of the pieces that are seen."""
    passages = [(i, passage) for i, reading in enumerate(readings) for passage in reading.split()]
    lengths = [len(pieces) for _, (pieces, _) in passages]
    seen: dict[int, Array] = {}
    pieces = 0
    for run in groups_by_length(lengths, TOGETHER):
        for k, each in zip(run, reader.see([passages[k][1] for k in run], reasons=False), strict=True):
            seen[k] = np.stack([each.states, each.words], axis=1)
            pieces += lengths[k]
        progress(pieces / sum(lengths))
    parts: list[list[Array]] = [[] for _ in readings]
    for k, (i, _) in enumerate(passages):
        parts[i].append(seen[k])
    return [np.concatenate(each) for each in parts]


def _digest(readings: Sequence[Reading]) -> str:
    whole = hashlib.sha256()
    for each in readings:
        whole.update(each.pieces.tobytes() + each.places.tobytes() + b"/")
    return whole.hexdigest()[:24]
