"""What the teacher said, kept: nothing is asked twice, and the reader can be trained again without it.

A file of records: the first eight bytes of the sentence's SHA-256, and three logits in two bytes each. The
sentences themselves are in the data sets.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from model_export.data.training_set import padded
from model_export.teacher.encoder import PADDING, Teacher, in_whole_numbers
from model_export.writing import atomic_write

SAID = Path(__file__).with_name("said.npy")  # what comes with the project
RECORD = np.dtype([("text", "S8"), ("logits", np.float16, (3,))])
PART = 4_000  # texts between two writings
TOGETHER = 2_000  # pieces that are asked at once
CENTRE, SLOPE = -0.4, 1.6  # of its odds: what it did not learn from labels it takes for blame too often


class Answers:
    """By sentence, from the first of `files` that has it; new ones are added to the last."""

    def __init__(self, *files: Path) -> None:
        self._files = files
        self._said: dict[bytes, NDArray[np.float16]] = {}
        for file in files:
            if file.exists():
                self._said = {bytes(text): logits for text, logits in np.load(file)} | self._said

    def __contains__(self, text: str) -> bool:
        return _key(text) in self._said

    def ask(self, teacher: Teacher, texts: Sequence[str], say: Callable[[str], None]) -> None:
        """Asks what was never asked; written every few thousand sentences."""
        new = [text for text in dict.fromkeys(texts) if text not in self]
        teacher, began = in_whole_numbers(teacher), time.monotonic()
        for at in range(0, len(new), PART):
            part = new[at : at + PART]
            logits = _asked(teacher, part)
            self._said |= {_key(text): row for text, row in zip(part, logits, strict=True)}
            with atomic_write(self._files[-1]) as out:
                np.save(out, np.array(list(self._said.items()), RECORD))
            done = at + len(part)
            left = (time.monotonic() - began) / done * (len(new) - done)
            say(f"asked {done} of {len(new)} sentences, {left:.0f} s left")

    def positive(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """The probability that each is praise: of three logits, what neither side gets counts for both."""
        logits = np.array([self._said[_key(text)] for text in texts], np.float32).reshape(-1, 3)
        odds = logits[:, 2] - logits[:, 0]
        return np.asarray(1 / (1 + np.exp(-SLOPE * (odds - CENTRE))), np.float32)


def _key(text: str) -> bytes:
    return sha256(text.encode()).digest()[:8].rstrip(b"\0")  # as numpy gives it back


@torch.no_grad()
def _asked(teacher: Teacher, texts: Sequence[str]) -> NDArray[np.float16]:
    pieces = teacher.pieces(texts)
    found = np.zeros((len(texts), 3), np.float16)
    order = np.argsort([len(each) for each in pieces], kind="stable")
    for rows in np.array_split(order, max(1, sum(map(len, pieces)) // TOGETHER)):
        found[rows] = teacher(padded([pieces[row] for row in rows], PADDING)).numpy()
    return found
