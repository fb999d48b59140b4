"""Fine-tune the teacher on all labelled data sets, with a fixed number of texts of each label."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from model_export.data.corpora import Rows
from model_export.data.training_set import Ints, padded, plan_epochs, to_device
from model_export.teacher.encoder import NEGATIVE_INDEX, PADDING, POSITIVE_INDEX, Teacher
from model_export.training import ParameterGroup, Report, train_loop

THREE_LABEL_SETS = ("tweets", "electronics")  # the others have no neutral texts
CENTRE, SLOPE = -0.4, 1.6  # of its log odds: it mistakes too many texts of unlabelled kinds for criticism


@dataclass(frozen=True)
class Part:
    """How many negative, neutral and positive texts of a data set are used, and the noise of their labels."""

    quota: tuple[int, int, int]
    noise: float = 0.05


@dataclass(frozen=True)
class TeacherConfig:
    """What the teacher is fine-tuned on, and config."""

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
    max_tokens: int = 40  # of a text
    tokens_per_batch: int = 768
    epochs: float = 0.9
    lr: float = 5e-5
    head_lr: float = 3e-3  # subtle: with a small one the states collapse to two points to make up for it
    frozen: int = 4  # layers that stay as published
    warm_up: int = 60  # steps
    seed: int = 0


GPU_TEACHER = TeacherConfig(
    parts={
        "sst": Part((9_999, 0, 9_999), 0.03),
        "phrases": Part((9_999, 0, 9_999)),
        "yelp": Part((40_000, 0, 40_000), 0.1),
        "tweets": Part((4_000, 5_000, 4_000)),
        "amazon": Part((3_000, 0, 3_000)),
        "electronics": Part((2_000, 2_500, 2_500), 0.12),
        "mpqa": Part((6_000, 0, 6_000)),
        "reviews": Part((8_000, 0, 8_000)),
    },
    max_tokens=128, tokens_per_batch=8_192, epochs=2.0, lr=4e-5, frozen=0, warm_up=100,
)  # fmt: skip


def fit_teacher(
    teacher: Teacher, sets: Mapping[str, Rows], config: TeacherConfig, checkpoint: Path, report: Report
) -> None:
    """Fine-tune a published teacher; resume from `checkpoint` if it exists."""
    torch.manual_seed(config.seed)
    draw, device = random.Random(config.seed), teacher.words.weight.device
    for layer in teacher.layers[: config.frozen]:
        layer.requires_grad_(False)
    rows = [
        (name, row.text, row.target)
        for name, part in config.parts.items()
        for row in _drawn(sets[name], part, draw)
    ]
    token_ids = teacher.tokenize([text for _, text, _ in rows], config.max_tokens)
    labels = torch.tensor([int(2 * (target or 0.0)) for _, _, target in rows])
    noise = torch.tensor([config.parts[name].noise for name, _, _ in rows])
    three = torch.tensor([name in THREE_LABEL_SETS for name, _, _ in rows])
    sizes = np.array([len(each) for each in token_ids])
    plan = plan_epochs(sizes, config.epochs, config.tokens_per_batch, np.random.default_rng(config.seed))
    head = list(teacher.head.parameters())
    body = [p for name, p in teacher.named_parameters() if p.requires_grad and not name.startswith("head.")]

    def loss(rows: Ints, at: float) -> Tensor:
        x = to_device(padded([token_ids[row] for row in rows], PADDING), device)
        of_rows = [to_device(each[torch.from_numpy(rows)], device) for each in (labels, noise, three)]
        with torch.autocast(device.type, torch.bfloat16):
            logits = teacher(x)
        return _loss(logits.float(), *of_rows)

    groups = [ParameterGroup(body), ParameterGroup(head, config.head_lr / config.lr)]
    train_loop(
        "teacher", plan, groups, loss,
        lr=config.lr, warm_up=config.warm_up, report=report, checkpoint=checkpoint,
    )  # fmt: skip


def positive(logits: NDArray[np.floating]) -> NDArray[np.float32]:
    """Return the probability that each text is positive; a neutral logit counts for both sides."""
    odds = logits[:, POSITIVE_INDEX].astype(np.float32) - logits[:, NEGATIVE_INDEX].astype(np.float32)
    return np.asarray(1 / (1 + np.exp(-SLOPE * (odds - CENTRE))), np.float32)


def _drawn(rows: Rows, part: Part, draw: random.Random) -> Rows:
    learn = [row for row in rows if row.split == "train" and row.target is not None]
    draw.shuffle(learn)
    return [
        row
        for target, quota in zip((0.0, 0.5, 1.0), part.quota, strict=True)
        for row in [row for row in learn if row.target == target][:quota]
    ]


def _loss(logits: Tensor, labels: Tensor, noise: Tensor, three: Tensor) -> Tensor:
    """Return the cross-entropy; for a data set of two labels, between these two alone."""
    two = logits[:, [NEGATIVE_INDEX, POSITIVE_INDEX]].log_softmax(1)
    right = (labels // 2)[:, None]
    of_two = (1 - noise) * two.gather(1, right)[:, 0] + noise * two.gather(1, 1 - right)[:, 0]
    every = logits.log_softmax(1)
    of_three = (1 - 1.5 * noise) * every.gather(1, labels[:, None])[:, 0] + 0.5 * noise * every.sum(1)
    return -torch.where(three, of_three, of_two).mean()
