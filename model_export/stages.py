"""A reader and its plane learn in four steps, each from the weights of the one before.

soft     the published transformer, fitted to the lessons as everybody does
hard     every head follows one piece or nobody; learns to end as its soft self does, state by state
place    a plane learns on the states as they are, in whole numbers: the verdict is read off the leaders
settle   reader and plane learn together

While the reader learns, the published encoder's idea of a text must remain readable in its states: a model of
one's own finds its subjects there.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cosine_similarity, mse_loss

from model_export.data.training_set import Ints, Lessons
from model_export.encoder.model import PAD, Encoder, MaxRanges
from model_export.head.leader_head import LeaderHead
from model_export.writing import atomic_write

Say = Callable[[str], None]
EVERY = 50  # steps between two lines
CHECKPOINT = 250  # steps


@dataclass(frozen=True)
class Step:
    """How one of the four is fitted."""

    looks: float = 1.0  # at every lesson
    pieces: int = 1_536  # a batch
    rate: float = 1e-4
    plane_rate: float = 2e-3
    warm_up: int = 50
    anneal: float = 0.3  # the share of the steps in which softmax becomes argmax
    states: float = 2.0  # what a distance from the soft states weighs
    follow: float = 0.0  # what following somebody costs in the last layer; in those before it less
    reach: float = 0.3  # what a mean reach of one costs
    memory: float = 0.5  # what it costs to forget the published encoder's idea of a text
    sure: float = 0.97


class Pooled(nn.Module):
    """The mean state of a text, one logit: only for the first two steps."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, 1)
        nn.init.normal_(self.linear.weight, std=0.02)
        nn.init.zeros_(self.linear.bias)

    def forward(self, states: Tensor, there: Tensor) -> Tensor:
        logit: Tensor = self.linear(mean_state(states, there))[:, 0]
        return logit


class Memory(nn.Module):
    """How far the published encoder's idea of a text, its mean state, is from what a map reads off ours."""

    def __init__(self, published: Encoder) -> None:
        super().__init__()
        self.read = nn.Linear(published.config.width, published.config.width, bias=False)
        nn.init.eye_(self.read.weight)
        self._published = [copy.deepcopy(published)]  # subtle: in a list it is no part of what learns

    def forward(self, x: Tensor, states: Tensor) -> Tensor:
        """Of every third text: the published encoder must read it too."""
        x, states = x[::3], states[::3]
        there = x != PAD
        with torch.no_grad():
            theirs = mean_state(self._published[0].soft(x)[-1], there)
        return 1 - cosine_similarity(self.read(mean_state(states, there)), theirs).mean()


def mean_state(states: Tensor, there: Tensor) -> Tensor:
    return (states * there[..., None]).sum(1) / there.sum(1, keepdim=True)


@dataclass(frozen=True)
class StepContext:
    """What every step needs beside its lessons."""

    memory: Memory
    seed: int
    say: Say


def soft(
    reader: Encoder, pooled: Pooled, lessons: Lessons, how: Step, context: StepContext, checkpoint: Path
) -> None:
    def loss(rows: Ints, at: float) -> Tensor:
        x = lessons.padded(rows)
        states = reader.soft(x)[-1]
        value = against(pooled(states, x != PAD), lessons.answers(rows), how.sure)
        whole: Tensor = value + how.memory * context.memory(x, states)
        return whole

    fit("soft", lessons, how, with_head(reader, pooled, context), loss, context, checkpoint)


def hard(
    reader: Encoder, pooled: Pooled, lessons: Lessons, how: Step, context: StepContext, checkpoint: Path
) -> None:
    """`reader` is soft before and hard behind."""
    teacher, head = copy.deepcopy(reader).requires_grad_(False), copy.deepcopy(pooled).requires_grad_(False)

    def loss(rows: Ints, at: float) -> Tensor:
        x = lessons.padded(rows)
        there = x != PAD
        with torch.no_grad():
            theirs = teacher.soft(x)
            says = torch.sigmoid(head(theirs[-1], there))
        ours, attention = reader.hard(x, min(1.0, at / how.anneal))
        apart = sum(
            (mse_loss(a[there], b[there]) for a, b in zip(ours, theirs, strict=True)), torch.zeros(())
        )
        target = (says + lessons.answers(rows)) / 2
        value = against(pooled(ours[-1], there), target, how.sure)
        value = value + how.states * apart / len(ours) + how.memory * context.memory(x, ours[-1])
        whole: Tensor = value + min(1.0, at / how.anneal) * price(attention.attending, how)
        return whole

    fit("hard", lessons, how, with_head(reader, pooled, context), loss, context, checkpoint)


def place(
    reader: Encoder, plane: LeaderHead, lessons: Lessons, how: Step, context: StepContext, checkpoint: Path
) -> None:
    def loss(rows: Ints, at: float) -> Tensor:
        batch = lessons.batch(rows)
        with torch.no_grad():
            states, first, _ = reader.quantized(batch.pieces)
        logits, reach = plane(reader.output_scales, states, first, batch)
        told = against(logits[:, 0].float(), lessons.answers(rows), how.sure)
        whole: Tensor = told + how.reach * reach.float()
        return whole

    plane.train()
    fit(
        "place",
        lessons,
        how,
        [(list(plane.parameters()), how.plane_rate / how.rate)],
        loss,
        context,
        checkpoint,
    )
    plane.eval()


def settle(
    reader: Encoder, plane: LeaderHead, lessons: Lessons, how: Step, context: StepContext, checkpoint: Path
) -> None:
    def loss(rows: Ints, at: float) -> Tensor:
        batch = lessons.batch(rows)
        states, first, attention = reader.quantized(batch.pieces)
        logits, reach = plane(reader.output_scales, states, first, batch)
        value = against(logits[:, 0].float(), lessons.answers(rows), how.sure)
        value = value + how.reach * reach.float() + price(attention.attending, how)
        whole: Tensor = value + how.memory * context.memory(
            batch.pieces, states * reader.output_scales.hidden
        )
        return whole

    groups = [
        (weights(reader), 1.0),
        (list(plane.parameters()), how.plane_rate / how.rate),
        (list(context.memory.parameters()), 10.0),
    ]
    plane.train()
    fit("settle", lessons, how, groups, loss, context, checkpoint)
    plane.eval()


@torch.no_grad()
def verdicts(
    reader: Encoder, plane: LeaderHead, lessons: Lessons, pieces: int = 6_000
) -> np.ndarray[Any, Any]:
    """[n, C] logits in whole numbers, in the order of the texts."""
    plane.eval()
    found = np.zeros((len(lessons), plane.config.n_logits))
    for rows in lessons.batches(pieces):
        batch = lessons.batch(rows)
        states, first, _ = reader.quantized(batch.pieces)
        found[rows] = plane(reader.output_scales, states, first, batch)[0].numpy()
    return found


@torch.no_grad()
def calibrate(reader: Encoder, lessons: Lessons, how: Step, texts: int = 600) -> None:
    """Chooses what a step of the whole numbers is worth, channel by channel, from some texts."""
    some = lessons.short().take(np.random.default_rng(0).permutation(len(lessons.short()))[:texts])
    ranges = MaxRanges()
    for rows in some.batches(how.pieces):
        reader.hard(some.padded(rows), ranges=ranges)
    ranges.set_scales(reader.config.heads)


def price(attending: Sequence[Tensor], how: Step) -> Tensor:
    """Who follows in a late layer takes over all that was read before, so it costs more."""
    layers = len(attending)
    return how.follow * (torch.stack(list(attending)) * torch.linspace(1 / layers, 1, layers)).sum()


def weights(reader: Encoder) -> list[nn.Parameter]:
    """All but the table of pieces: most of them are rare."""
    for part in (reader.words, reader.positions):
        part.requires_grad_(False)
    return [p for p in reader.parameters() if p.requires_grad]


def with_head(
    reader: Encoder, pooled: Pooled, context: StepContext
) -> list[tuple[list[nn.Parameter], float]]:
    """What the first two steps fit, and how many times the rate each learns with."""
    return [(weights(reader), 1.0), ([*pooled.parameters(), *context.memory.parameters()], 10.0)]


def against(logits: Tensor, targets: Tensor, sure: float) -> Tensor:
    return binary_cross_entropy_with_logits(logits, targets.clamp(1 - sure, sure))


def fit(
    name: str,
    lessons: Lessons,
    how: Step,
    groups: Sequence[tuple[list[Any], float]],
    loss_of: Callable[[Ints, float], Tensor],
    context: StepContext,
    checkpoint: Path,
) -> None:
    torch.manual_seed(context.seed)
    plan = looks(lessons, how, np.random.default_rng(context.seed))
    descend(
        name, plan, groups, loss_of,
        rate=how.rate, warm_up=how.warm_up, say=context.say, checkpoint=checkpoint,
    )  # fmt: skip


def descend(
    name: str,
    plan: Sequence[Ints],
    groups: Sequence[tuple[list[Any], float]],
    loss_of: Callable[[Ints, float], Tensor],
    *,
    rate: float,
    warm_up: int,
    say: Say,
    checkpoint: Path,
) -> None:
    """`groups`: parameters, and how many times the rate they learn with.

    Goes on from `checkpoint`, which stays: it is needed until what was learnt is kept.
    """
    optimiser = torch.optim.AdamW(
        [{"params": parameters} for parameters, _ in groups], lr=rate, weight_decay=0.01, fused=True
    )
    learnt = [p for parameters, _ in groups for p in parameters]
    first = _go_on(checkpoint, learnt, optimiser)
    began, total = time.monotonic(), 0.0
    for step in range(first, len(plan)):
        at = step / len(plan)
        slope = rate * min(1.0, (step + 1) / warm_up) * max(0.02, 1 - at)
        for group, (_, times) in zip(optimiser.param_groups, groups, strict=True):
            group["lr"] = slope * times
        optimiser.zero_grad()
        value = loss_of(plan[step], at)
        value.backward()  # type: ignore[no-untyped-call]
        for parameters, _ in groups:
            nn.utils.clip_grad_norm_(parameters, 1.0)
        optimiser.step()
        total += float(value.detach())
        if (step + 1) % EVERY == 0 or step + 1 == len(plan):
            part = (step % EVERY) + 1
            left = (time.monotonic() - began) / (step + 1 - first) * (len(plan) - step - 1)
            say(f"{name} {step + 1}/{len(plan)}, {left:.0f} s left, loss {total / part:.4f}")
            total = 0.0
        if (step + 1) % CHECKPOINT == 0:
            kept = {"step": step + 1, "learnt": learnt, "optimiser": optimiser.state_dict()}
            with atomic_write(checkpoint) as out:
                torch.save(kept, out)


def looks(lessons: Lessons, how: Step, rng: np.random.Generator) -> list[Ints]:
    """The batches of all looks; of the last one a part."""
    found: list[Ints] = []
    left = how.looks
    while left > 0:
        batches = list(lessons.batches(how.pieces, rng))
        found += batches[: round(min(1.0, left) * len(batches))]
        left -= 1
    return found


@torch.no_grad()
def _go_on(checkpoint: Path, learnt: list[Any], optimiser: torch.optim.Optimizer) -> int:
    """The step to begin with."""
    if not checkpoint.exists():
        return 0
    kept = torch.load(checkpoint)
    for parameter, value in zip(learnt, kept["learnt"], strict=True):
        parameter.copy_(value)
    optimiser.load_state_dict(kept["optimiser"])
    step: int = kept["step"]
    return step
