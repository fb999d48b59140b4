"""Fine-tune the teacher on all labelled data sets, with a fixed number of texts of each label."""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from model_export.data.corpora import Rows
from model_export.data.training_set import Ints, pad, plan_epochs, to_device
from model_export.teacher.encoder import NEGATIVE_INDEX, PADDING, POSITIVE_INDEX, Teacher
from model_export.training import ParameterGroup, Report, train_loop

THREE_LABEL_SETS = ("tweets", "electronics")  # the others have no neutral texts
CENTER, SLOPE = -0.4, 1.6  # of its log odds: it classifies too many unlabelled texts as negative


@dataclass(frozen=True)
class LabelQuota:
    """The number of negative, neutral and positive texts of a data set, and the noise of their labels."""

    quota: tuple[int, int, int]
    noise: float = 0.05


@dataclass(frozen=True)
class TeacherConfig:
    """The texts and the settings of the fine-tuning."""

    parts: Mapping[str, LabelQuota] = field(
        default_factory=lambda: {
            "sst": LabelQuota((9_999, 0, 9_999), 0.03),
            "phrases": LabelQuota((9_999, 0, 4_200)),
            "yelp": LabelQuota((15_000, 0, 15_000), 0.1),
            "tweets": LabelQuota((2_700, 3_000, 2_800)),
            "amazon": LabelQuota((1_500, 0, 1_500)),
            "electronics": LabelQuota((1_000, 1_200, 1_200), 0.12),
            "mpqa": LabelQuota((3_300, 0, 3_300)),
            "reviews": LabelQuota((1_500, 0, 1_500)),
        }
    )
    max_tokens: int = 40  # per text
    tokens_per_batch: int = 768
    epochs: float = 0.9
    lr: float = 5e-5
    head_lr: float = 3e-3  # subtle: with a small one the states collapse to two points
    frozen: int = 4  # layers that are not trained
    warm_up: int = 60  # steps
    seed: int = 0


GPU_TEACHER = TeacherConfig(
    parts={
        "sst": LabelQuota((9_999, 0, 9_999), 0.03),
        "phrases": LabelQuota((9_999, 0, 9_999)),
        "yelp": LabelQuota((40_000, 0, 40_000), 0.1),
        "tweets": LabelQuota((4_000, 5_000, 4_000)),
        "amazon": LabelQuota((3_000, 0, 3_000)),
        "electronics": LabelQuota((2_000, 2_500, 2_500), 0.12),
        "mpqa": LabelQuota((6_000, 0, 6_000)),
        "reviews": LabelQuota((8_000, 0, 8_000)),
    },
    max_tokens=128, tokens_per_batch=8_192, epochs=2.0, lr=4e-5, frozen=0, warm_up=100,
)  # fmt: skip


def fit_teacher(
    teacher: Teacher, sets: Mapping[str, Rows], config: TeacherConfig, checkpoint: Path, report: Report
) -> None:
    """Fine-tune a published teacher; resume from `checkpoint` if it exists."""
    torch.manual_seed(config.seed)
    rng, device = random.Random(config.seed), teacher.words.weight.device
    for layer in teacher.layers[: config.frozen]:
        layer.requires_grad_(False)
    rows = [
        (name, row.text, row.target)
        for name, quota in config.parts.items()
        for row in _sample(sets[name], quota, rng)
    ]
    token_ids = teacher.tokenize([text for _, text, _ in rows], config.max_tokens)
    labels = torch.tensor([int(2 * (target or 0.0)) for _, _, target in rows])
    noise = torch.tensor([config.parts[name].noise for name, _, _ in rows])
    has_neutral = torch.tensor([name in THREE_LABEL_SETS for name, _, _ in rows])
    sizes = np.array([len(ids) for ids in token_ids])
    plan = plan_epochs(sizes, config.epochs, config.tokens_per_batch, np.random.default_rng(config.seed))
    head = list(teacher.head.parameters())
    body = [p for name, p in teacher.named_parameters() if p.requires_grad and not name.startswith("head.")]

    def compute_loss(rows: Ints, progress: float) -> Tensor:
        x = to_device(pad([token_ids[row] for row in rows], PADDING), device)
        index = torch.from_numpy(rows)
        targets = [to_device(values[index], device) for values in (labels, noise, has_neutral)]
        with torch.autocast(device.type, torch.bfloat16):
            logits = teacher(x)
        return _loss(logits.float(), *targets)

    groups = [ParameterGroup(body), ParameterGroup(head, config.head_lr / config.lr)]
    train_loop(
        "teacher", plan, groups, compute_loss,
        lr=config.lr, warm_up=config.warm_up, report=report, checkpoint=checkpoint,
    )  # fmt: skip


def positive_probs(logits: NDArray[np.floating]) -> NDArray[np.float32]:
    """Return the probability that each text is positive; a neutral logit counts for both sides."""
    odds = logits[:, POSITIVE_INDEX].astype(np.float32) - logits[:, NEGATIVE_INDEX].astype(np.float32)
    return np.asarray(1 / (1 + np.exp(-SLOPE * (odds - CENTER))), np.float32)


def _sample(rows: Rows, quota: LabelQuota, rng: random.Random) -> Rows:
    """Return a random sample of training texts with the given number of texts of each label."""
    train = [row for row in rows if row.split == "train" and row.target is not None]
    rng.shuffle(train)
    return [
        row
        for target, n in zip((0.0, 0.5, 1.0), quota.quota, strict=True)
        for row in [row for row in train if row.target == target][:n]
    ]


def _loss(logits: Tensor, labels: Tensor, noise: Tensor, has_neutral: Tensor) -> Tensor:
    """Return the cross-entropy over three labels, or over two for texts of data sets without neutral ones."""
    log_p = logits[:, [NEGATIVE_INDEX, POSITIVE_INDEX]].log_softmax(1)
    label = (labels // 2)[:, None]
    two_labels = (1 - noise) * log_p.gather(1, label)[:, 0] + noise * log_p.gather(1, 1 - label)[:, 0]
    log_p = logits.log_softmax(1)
    three_labels = (1 - 1.5 * noise) * log_p.gather(1, labels[:, None])[:, 0] + 0.5 * noise * log_p.sum(1)
    return -torch.where(has_neutral, three_labels, two_labels).mean()
