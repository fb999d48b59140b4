"""The last step of learning: a reader in whole numbers, a plane on it, the verdict read off the leaders."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from model_export.data.lessons import Ints, Lessons
from model_export.heads.plane import Plane
from model_export.reader.learn import Say, Step, against, fit, price, weights
from model_export.reader.model import Reader


def settle(reader: Reader, plane: Plane, lessons: Lessons, how: Step, seed: int, say: Say) -> None:
    def loss(rows: Ints, at: float) -> Tensor:
        batch = lessons.batch(rows)
        states, first, followed, _ = reader.whole(batch.pieces)
        logits, reach = plane(reader, states, first, batch, skip=how.skip * (1 - at), gain=how.gain)
        value = against(logits[:, 0].float(), lessons.answers(rows), how.sure)
        whole: Tensor = value + how.reach * reach.float() + price(followed, how)
        return whole

    groups = [(weights(reader), 1.0), (list(plane.parameters()), how.plane_rate / how.rate)]
    plane.train()
    fit("settle", lessons, how, seed, groups, loss, say)
    plane.eval()


@torch.no_grad()
def verdicts(reader: Reader, plane: Plane, lessons: Lessons, pieces: int = 6_000) -> np.ndarray[Any, Any]:
    """[n, C] logits in whole numbers, in the order of the texts."""
    plane.eval()
    found = np.zeros((len(lessons), plane.shape.labels))
    for rows in lessons.batches(pieces):
        batch = lessons.batch(rows)
        states, first, _, _ = reader.whole(batch.pieces)
        found[rows] = plane(reader, states, first, batch)[0].numpy()
    return found
