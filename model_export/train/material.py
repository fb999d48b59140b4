"""Texts as arrays: the ids of all of them one after the other, packed into batches of like length."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from service.texts.reader import UNKNOWN, Reader

Ints = NDArray[np.int64]
CHUNK = 16_384  # texts that are sorted by length together
PART, WHOLE = 2_048, 10_000  # texts that are read together; words of one that are read


@dataclass(frozen=True)
class Texts:
    """`ids[starts[i]:starts[i+1]]` are the words of text i, `targets` [n] or [n, C] its answers."""

    ids: NDArray[np.uint16]
    starts: Ints
    targets: NDArray[np.float32]

    @classmethod
    def of(cls, texts: Iterable[Sequence[int] | Ints], targets: ArrayLike, longest: int) -> Texts:
        """A text over `longest` words keeps its two ends; an empty one is a single unknown word."""
        half = longest // 2
        whole = [np.asarray(text if len(text) else [UNKNOWN], np.uint16) for text in texts]
        cut = [
            text if len(text) <= longest else np.concatenate([text[:half], text[half - longest :]])
            for text in whole
        ]
        starts = np.concatenate([[0], np.cumsum([len(text) for text in cut], dtype=np.int64)])
        return cls(np.concatenate([np.zeros(0, np.uint16), *cut]), starts, np.asarray(targets, np.float32))

    @classmethod
    def read(cls, reader: Reader, texts: Sequence[str], targets: ArrayLike, longest: int) -> Texts:
        """The same of texts as they are written."""
        parts = (reader.read_all(texts[at : at + PART], WHOLE) for at in range(0, len(texts), PART))
        return cls.of((tokens.ids for part in parts for tokens in part), targets, longest)

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def lengths(self) -> Ints:
        return np.diff(self.starts)

    def text(self, i: int) -> list[int]:
        return [int(word) for word in self.ids[self.starts[i] : self.starts[i + 1]]]

    def take(self, rows: Ints) -> Texts:
        lengths = self.lengths[rows]
        starts = np.r_[0, np.cumsum(lengths)]
        within = np.arange(starts[-1]) - np.repeat(starts[:-1], lengths)
        return Texts(self.ids[np.repeat(self.starts[rows], lengths) + within], starts, self.targets[rows])

    def sided(self) -> Texts:
        """Those that are positive or negative."""
        return self.take(np.flatnonzero(self.targets != 0.5))

    def __add__(self, other: Texts) -> Texts:
        return Texts(
            np.concatenate([self.ids, other.ids]),
            np.concatenate([self.starts, other.starts[1:] + self.starts[-1]]),
            np.concatenate([self.targets, other.targets]),
        )

    def padded(self, rows: Ints, width: int = 1) -> Tensor:
        """[B, N], zeros behind the end of a text."""
        some = self.take(rows)
        lengths = some.lengths
        x = np.zeros((len(rows), max(width, int(lengths.max()))), np.int64)
        x[np.arange(x.shape[1]) < lengths[:, None]] = some.ids
        return torch.from_numpy(x)

    def batches(self, rows: Ints, places: int, most: int = 256) -> Iterator[Ints]:
        """Parts of `rows` of like length, in no order, at most `places` places with padding each."""
        lengths = self.lengths
        for at in range(0, len(rows), CHUNK):
            near = rows[at : at + CHUNK]
            near = near[np.argsort(lengths[near], kind="stable")]
            begin = 0
            while begin < len(near):
                end = min(begin + most, len(near))
                while end > begin + 1 and lengths[near[end - 1]] * (end - begin) > places:
                    end = begin + max(1, min(end - begin - 1, places // int(lengths[near[end - 1]])))
                yield near[begin:end]
                begin = end
