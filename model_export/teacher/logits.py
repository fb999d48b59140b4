"""The teacher's logits of the training texts: they are committed, so that they need not be computed again.

A file of records: the first eight bytes of the text's SHA-256, and three logits in two bytes each. The texts
themselves are in the data sets.
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
from model_export.teacher.encoder import PADDING, Teacher, quantize_teacher
from model_export.writing import atomic_write

COMMITTED = Path(__file__).with_name("teacher_logits.npy")
RECORD = np.dtype([("text", "S8"), ("logits", np.float16, (3,))])
TEXTS_PER_FILE_WRITE = 4_000
TOKENS_PER_BATCH = 2_000
CENTRE, SLOPE = -0.4, 1.6  # of its log odds: it mistakes too many texts of unlabelled kinds for criticism


class TeacherLogits:
    """The teacher's logits by text, from the first of `files` that has it; new ones go to the last file."""

    def __init__(self, *files: Path) -> None:
        self._files = files
        self._logits: dict[bytes, NDArray[np.float16]] = {}
        for file in files:
            if file.exists():
                self._logits = {bytes(text): logits for text, logits in np.load(file)} | self._logits

    def __contains__(self, text: str) -> bool:
        return _key(text) in self._logits

    def label_with_teacher(
        self, teacher: Teacher, texts: Sequence[str], report: Callable[[str], None]
    ) -> None:
        """Compute the logits of texts that have none."""
        new = [text for text in dict.fromkeys(texts) if text not in self]
        teacher, start = quantize_teacher(teacher), time.monotonic()
        for at in range(0, len(new), TEXTS_PER_FILE_WRITE):
            part = new[at : at + TEXTS_PER_FILE_WRITE]
            logits = _compute(teacher, part)
            self._logits |= {_key(text): row for text, row in zip(part, logits, strict=True)}
            with atomic_write(self._files[-1]) as out:
                np.save(out, np.array(list(self._logits.items()), RECORD))
            done = at + len(part)
            left = (time.monotonic() - start) / done * (len(new) - done)
            report(f"labelled {done} of {len(new)} texts, {left:.0f} s left")

    def positive(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the probability that each is positive; what the neutral logit gets counts for both sides."""
        logits = np.array([self._logits[_key(text)] for text in texts], np.float32).reshape(-1, 3)
        odds = logits[:, 2] - logits[:, 0]
        return np.asarray(1 / (1 + np.exp(-SLOPE * (odds - CENTRE))), np.float32)


def _key(text: str) -> bytes:
    return sha256(text.encode()).digest()[:8].rstrip(b"\0")  # as numpy gives it back


@torch.no_grad()
def _compute(teacher: Teacher, texts: Sequence[str]) -> NDArray[np.float16]:
    tokens = teacher.tokenize(texts)
    logits = np.zeros((len(texts), 3), np.float16)
    order = np.argsort([len(each) for each in tokens], kind="stable")
    for rows in np.array_split(order, max(1, sum(map(len, tokens)) // TOKENS_PER_BATCH)):
        logits[rows] = teacher(padded([tokens[row] for row in rows], PADDING)).numpy()
    return logits
