"""A reader and its plane learn in four steps, each from the weights of the one before.

soft     the published transformer, fitted to the lessons as everybody does
hard     every head follows one piece or nobody; learns to end as its soft self does, state by state
place    a plane learns on the states as they are, in whole numbers: the verdict is read off the leaders
settle   reader and plane learn together, still told what the soft self says
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, mse_loss

from model_export.data.lessons import Ints, Lessons
from model_export.heads.plane import Plane
from model_export.reader.model import PAD, Reader

Say = Callable[[str], None]
EVERY = 50  # steps between two lines


@dataclass(frozen=True)
class Step:
    """How one of the four is fitted."""

    pieces: int = 1_536  # a batch
    rate: float = 1e-4
    plane_rate: float = 2e-3
    warm_up: int = 50
    anneal: float = 0.3  # the share of the steps in which softmax becomes argmax
    states: float = 2.0  # what a distance from the soft states weighs
    follow: float = 0.0  # what following somebody costs in the last layer; in those before it less
    reach: float = 0.3  # what a mean reach of one costs
    sure: float = 0.97


class Pooled(nn.Module):
    """The mean state of a text, one logit: only for the first two steps."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, 1)
        nn.init.normal_(self.linear.weight, std=0.02)
        nn.init.zeros_(self.linear.bias)

    def forward(self, states: Tensor, there: Tensor) -> Tensor:
        mean = (states * there[..., None]).sum(1) / there.sum(1, keepdim=True)
        logit: Tensor = self.linear(mean)[:, 0]
        return logit


def soft(reader: Reader, pooled: Pooled, lessons: Lessons, how: Step, seed: int, say: Say) -> None:
    def loss(rows: Ints, at: float) -> Tensor:
        x = lessons.padded(rows)
        return against(pooled(reader.soft(x)[-1], x != PAD), lessons.answers(rows), how.sure)

    fit("soft", lessons, how, seed, [(weights(reader), 1.0), (list(pooled.parameters()), 10.0)], loss, say)


def hard(reader: Reader, pooled: Pooled, lessons: Lessons, how: Step, seed: int, say: Say) -> None:
    """`reader` is soft before and hard behind."""
    teacher, head = copy.deepcopy(reader).requires_grad_(False), copy.deepcopy(pooled).requires_grad_(False)

    def loss(rows: Ints, at: float) -> Tensor:
        x = lessons.padded(rows)
        there = x != PAD
        with torch.no_grad():
            theirs = teacher.soft(x)
            says = torch.sigmoid(head(theirs[-1], there))
        ours, followed = reader.hard(x, min(1.0, at / how.anneal))
        apart = sum(
            (mse_loss(a[there], b[there]) for a, b in zip(ours, theirs, strict=True)), torch.zeros(())
        )
        target = (says + lessons.answers(rows)) / 2
        value = against(pooled(ours[-1], there), target, how.sure)
        return value + how.states * apart / len(ours) + min(1.0, at / how.anneal) * price(followed, how)

    fit("hard", lessons, how, seed, [(weights(reader), 1.0), (list(pooled.parameters()), 10.0)], loss, say)


def place(reader: Reader, plane: Plane, lessons: Lessons, how: Step, seed: int, say: Say) -> None:
    def loss(rows: Ints, at: float) -> Tensor:
        batch = lessons.batch(rows)
        with torch.no_grad():
            states, first, _, _ = reader.whole(batch.pieces)
        logits, reach = plane(reader, states, first, batch)
        told = against(logits[:, 0].float(), lessons.answers(rows), how.sure)
        whole: Tensor = told + how.reach * reach.float()
        return whole

    plane.train()
    fit("place", lessons, how, seed, [(list(plane.parameters()), how.plane_rate / how.rate)], loss, say)
    plane.eval()


def settle(
    reader: Reader,
    plane: Plane,
    teacher: Reader,
    head: Pooled,
    lessons: Lessons,
    how: Step,
    seed: int,
    say: Say,
) -> None:
    """`teacher` and `head` are the soft self; of a text of several passages its label is known better."""

    def loss(rows: Ints, at: float) -> Tensor:
        batch = lessons.batch(rows)
        target = lessons.answers(rows)
        if len(batch.pieces) == len(rows):
            with torch.no_grad():
                says = torch.sigmoid(head(teacher.soft(batch.pieces)[-1], batch.pieces != PAD))
            target = (says + target) / 2
        states, first, followed, _ = reader.whole(batch.pieces)
        logits, reach = plane(reader, states, first, batch)
        value = against(logits[:, 0].float(), target, how.sure)
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


@torch.no_grad()
def calibrate(reader: Reader, lessons: Lessons, how: Step, texts: int = 600) -> None:
    """Chooses what a step of the whole numbers is worth, channel by channel, from some texts."""
    some = lessons.short().take(np.random.default_rng(0).permutation(len(lessons.short()))[:texts])
    seen: dict[tuple[int, str], Tensor] = {}

    def note(layer: int, name: str, x: Tensor) -> None:
        high = x.abs().flatten(0, -2).amax(0)
        seen[layer, name] = torch.maximum(seen.get((layer, name), high), high)

    for rows in some.batches(how.pieces):
        reader.watched(some.padded(rows), note)
    reader.of_word.copy_(_steps(seen[-1, "of_word"]))
    for i, layer in enumerate(reader.layers):
        for name in ("of_state", "of_middle", "of_value", "of_wide"):
            getattr(layer, name).copy_(_steps(seen[i, name], 255 if name == "of_wide" else 127))
        for name in ("of_query", "of_key"):  # one step for all numbers that a head compares
            high = seen[i, name].view(reader.shape.heads, -1).amax(1, keepdim=True)
            getattr(layer, name).copy_(
                _steps(high.expand(-1, reader.shape.width // reader.shape.heads).flatten())
            )


def _steps(high: Tensor, most: int = 127) -> Tensor:
    """subtle: rarely used channels get a step of usual size, or their noise would be made of all steps."""
    return torch.maximum(high, 0.3 * high.median()).clamp(min=1e-4) * 1.05 / most


def price(followed: Tensor, how: Step) -> Tensor:
    """Who follows in a late layer takes over all that was read before, so it costs more."""
    return how.follow * (followed * torch.linspace(1 / len(followed), 1, len(followed))).sum()


def weights(reader: Reader) -> list[nn.Parameter]:
    """All but the table of pieces: most of them are rare."""
    for part in (reader.words, reader.places):
        part.requires_grad_(False)
    return [p for p in reader.parameters() if p.requires_grad]


def against(logits: Tensor, targets: Tensor, sure: float) -> Tensor:
    return binary_cross_entropy_with_logits(logits, targets.clamp(1 - sure, sure))


def fit(
    name: str,
    lessons: Lessons,
    how: Step,
    seed: int,
    groups: Iterable[tuple[list[Any], float]],
    loss_of: Callable[[Ints, float], Tensor],
    say: Say,
) -> None:
    """One look at every lesson."""
    torch.manual_seed(seed)
    plan = list(lessons.batches(how.pieces, np.random.default_rng(seed)))
    groups = list(groups)
    optimiser = torch.optim.AdamW(
        [{"params": parameters} for parameters, _ in groups], lr=how.rate, weight_decay=0.01, fused=True
    )
    began, total = time.monotonic(), 0.0
    for step, rows in enumerate(plan):
        at = step / len(plan)
        slope = how.rate * min(1.0, (step + 1) / how.warm_up) * max(0.02, 1 - at)
        for group, (_, times) in zip(optimiser.param_groups, groups, strict=True):
            group["lr"] = slope * times
        optimiser.zero_grad()
        value = loss_of(rows, at)
        value.backward()  # type: ignore[no-untyped-call]
        for parameters, _ in groups:
            nn.utils.clip_grad_norm_(parameters, 1.0)
        optimiser.step()
        total += float(value.detach())
        if (step + 1) % EVERY == 0 or step + 1 == len(plan):
            part = (step % EVERY) + 1
            seconds = time.monotonic() - began
            left = seconds / (step + 1) * (len(plan) - step - 1)
            say(f"{name} {step + 1}/{len(plan)}, {seconds:.0f} s, {left:.0f} s left, loss {total / part:.4f}")
            total = 0.0
