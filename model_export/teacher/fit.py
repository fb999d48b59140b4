"""The teacher, fitted to all labelled data sets: like numbers of each label, three where there are three."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from model_export.data.corpora import Rows
from model_export.teacher.encoder import NEGATIVE, POSITIVE, Pieces, Teacher, padded

Say = Callable[[str], None]
THREE = ("tweets", "electronics")  # their texts of no label are neutral ones
TOGETHER = 8_192  # texts that are sorted by length together
CHECKPOINT, EVERY = 200, 25  # steps


@dataclass(frozen=True)
class Part:
    """How many negative, neutral and positive texts of a data set are read, and how sure their labels are."""

    quota: tuple[int, int, int]
    noise: float = 0.05


@dataclass(frozen=True)
class Fitting:
    parts: Mapping[str, Part] = field(
        default_factory=lambda: {
            "sst": Part((9_999, 0, 9_999), 0.03),
            "phrases": Part((9_999, 0, 4_200)),
            "yelp": Part((15_000, 0, 15_000), 0.1),
            "tweets": Part((2_700, 3_000, 2_800)),
            "amazon": Part((1_500, 0, 1_500)),
            "electronics": Part((1_000, 1_200, 1_200), 0.12),
            "mpqa": Part((3_300, 0, 3_300)),
            "reviews": Part((1_500, 0, 1_500)),
        }
    )
    longest: int = 40  # pieces
    pieces: int = 768  # a batch
    steps: int = 1_300
    rate: float = 5e-5
    head_rate: float = 3e-3  # subtle: with a small one the states collapse to two points to make up for it
    frozen: int = 4  # layers that are kept as published
    warm_up: int = 60  # steps
    seed: int = 0


def fitted(folder: Path, sets: Mapping[str, Rows], how: Fitting, checkpoint: Path, say: Say) -> Teacher:
    """The teacher of `folder`, fitted; goes on from `checkpoint` where one is."""
    torch.manual_seed(how.seed)
    teacher, draw = Teacher(folder), random.Random(how.seed)
    for layer in teacher.layers[: how.frozen]:
        layer.requires_grad_(False)
    rows = [
        (name, row.text, row.target)
        for name, part in how.parts.items()
        for row in _drawn(sets[name], part, draw)
    ]
    pieces = teacher.pieces([text for _, text, _ in rows], how.longest)
    labels = torch.tensor([int(2 * (target or 0.0)) for _, _, target in rows])
    noise = torch.tensor([how.parts[name].noise for name, _, _ in rows])
    three = torch.tensor([name in THREE for name, _, _ in rows])
    plan = list(_batches(pieces, how.pieces, np.random.default_rng(how.seed)))[: how.steps]
    head = list(teacher.head.parameters())
    body = [p for name, p in teacher.named_parameters() if p.requires_grad and not name.startswith("head.")]
    optimiser = torch.optim.AdamW(
        [{"params": body}, {"params": head}], lr=how.rate, weight_decay=0.01, fused=True
    )
    first = 0
    if checkpoint.exists():
        kept = torch.load(checkpoint)
        first = kept["step"]
        teacher.load_state_dict(kept["teacher"])
        optimiser.load_state_dict(kept["optimiser"])
    began, total = time.monotonic(), 0.0
    for step in range(first, len(plan)):
        slope = min(1, (step + 1) / how.warm_up) * (1 - step / len(plan))
        for group, rate in zip(optimiser.param_groups, (how.rate, how.head_rate), strict=True):
            group["lr"] = rate * slope
        part = torch.from_numpy(plan[step])
        loss = _loss(teacher(padded(pieces, plan[step])), labels[part], noise[part], three[part])
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        for part_of in (body, head):
            nn.utils.clip_grad_norm_(part_of, 1.0)
        optimiser.step()
        total += float(loss.detach())
        if (step + 1) % EVERY == 0:
            seconds = time.monotonic() - began
            left = seconds / (step + 1 - first) * (len(plan) - step - 1)
            say(f"teacher {step + 1}/{len(plan)}, {left:.0f} s left, loss {total / EVERY:.4f}")
            total = 0.0
        if (step + 1) % CHECKPOINT == 0:
            state = {"step": step + 1, "teacher": teacher.state_dict(), "optimiser": optimiser.state_dict()}
            torch.save(state, checkpoint)
    return teacher.eval()


def _drawn(rows: Rows, part: Part, draw: random.Random) -> Rows:
    learn = [row for row in rows if row.split == "train" and row.target is not None]
    draw.shuffle(learn)
    return [
        row
        for target, most in zip((0.0, 0.5, 1.0), part.quota, strict=True)
        for row in [row for row in learn if row.target == target][:most]
    ]


def _loss(logits: Tensor, labels: Tensor, noise: Tensor, three: Tensor) -> Tensor:
    """Cross-entropy; where a data set knows two labels, between these two alone."""
    two = logits[:, [NEGATIVE, POSITIVE]].log_softmax(1)
    right = (labels // 2)[:, None]
    of_two = (1 - noise) * two.gather(1, right)[:, 0] + noise * two.gather(1, 1 - right)[:, 0]
    every = logits.log_softmax(1)
    of_three = (1 - 1.5 * noise) * every.gather(1, labels[:, None])[:, 0] + 0.5 * noise * every.sum(1)
    return -torch.where(three, of_three, of_two).mean()


def _batches(pieces: Sequence[Pieces], most: int, rng: np.random.Generator) -> Iterator[NDArray[np.int64]]:
    """Texts of like length, at most `most` pieces with padding each, in any order."""
    order, parts = rng.permutation(len(pieces)), []
    for at in range(0, len(order), TOGETHER):
        near = sorted(order[at : at + TOGETHER].tolist(), key=lambda row: len(pieces[row]))
        part: list[int] = []
        for row in near:
            if part and len(pieces[row]) * (len(part) + 1) > most:
                parts.append(part)
                part = []
            part.append(row)
        parts.append(part)
    yield from (np.array(parts[i]) for i in rng.permutation(len(parts)))
