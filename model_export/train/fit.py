"""Fitting: Adam on batches of like length, the mean of late weights kept, a checkpoint after each epoch."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from model_export.sentiment.model import HardmaxTransformer
from model_export.train.material import Ints, Texts
from service.texts.reader import ENDINGS, GROUP, SPECIAL, UNKNOWN

AVERAGE_EVERY = 20  # steps


@dataclass(frozen=True)
class Optimisation:
    epochs: int = 5
    rate: float = 2e-3
    vectors_rate: float = 2e-3  # of the word vectors and the hashed tables
    places: int = 16_384  # a batch
    texts: int = 256  # at most, a batch
    warm_up: int = 200  # steps
    vector_dropout: float = 0.1
    dropout: float = 0.3  # of the hidden layer
    skip: float = 0.0  # texts that go past the layers
    gain: float = 0.5  # of the gradient that a place gets as if it stood for itself
    forget: float = 0.5  # pairs and triples left out
    drop_words: float = 0.1  # read as their ending or as unknown
    drop_mark: float = 0.3  # texts without their last mark
    sure: float = 0.97  # hard labels are moved to it and to 1 - it
    below: float = 0.0  # what a place below the first axis costs: then none points away from all leaders
    average: float = 0.3  # the weights kept are the mean over so much of the end
    decay: float = 1e-3
    seed: int = 0


@dataclass(frozen=True)
class Blur:
    """How a text is changed before each look at it: words read as if not known, last marks left out."""

    fallback: NDArray[np.int64]  # [V]
    marks: NDArray[np.bool_]  # [V]

    def __call__(self, x: Tensor, how: Optimisation) -> Tensor:
        drop = (torch.rand(x.shape) < how.drop_words) & (x > 0)
        x = torch.where(drop, torch.from_numpy(self.fallback)[x], x)
        last = (x > 0).sum(1, keepdim=True) - 1
        word = x.gather(1, last)
        gone = torch.from_numpy(self.marks)[word] & (last > 0) & (torch.rand(len(x), 1) < how.drop_mark)
        return x.scatter(1, last, torch.where(gone, 0, word))


def fit(
    model: HardmaxTransformer,
    texts: Texts,
    epochs: Sequence[Ints],
    how: Optimisation,
    blur: Blur,
    *,
    measure: Callable[[HardmaxTransformer], str] = lambda _: "",
    checkpoint: Path | None = None,
    say: Callable[[str], None] = print,
) -> HardmaxTransformer:
    """Trains `model` in place on the rows of each epoch; goes on from `checkpoint` where one is."""
    torch.manual_seed(how.seed)
    rng = np.random.default_rng(how.seed)
    plans = [list(texts.batches(rng.permutation(rows), how.places, how.texts)) for rows in epochs]
    steps = sum(len(plan) for plan in plans)
    dense = [p for p in model.parameters() if all(p is not table for table in model.tables)]
    optimisers: list[torch.optim.Optimizer] = [
        torch.optim.SparseAdam(model.tables, lr=how.vectors_rate),
        torch.optim.AdamW(dense, lr=how.rate, weight_decay=how.decay),
    ]
    rates = (how.vectors_rate, how.rate)
    mean = [torch.zeros_like(p) for p in model.parameters()]
    means, step, first = 0, 0, 0
    if checkpoint is not None and checkpoint.exists():
        kept = torch.load(checkpoint)
        first, step, means, mean = kept["epoch"], kept["step"], kept["means"], kept["mean"]
        model.load_state_dict(kept["model"])
        for optimiser, state in zip(optimisers, kept["optimisers"], strict=True):
            optimiser.load_state_dict(state)
    began = time.monotonic()
    for epoch, plan in enumerate(plans):
        if epoch < first:
            continue
        model.train()
        total = 0.0
        for at in rng.permutation(len(plan)):
            rows, step = plan[at], step + 1
            for optimiser, rate in zip(optimisers, rates, strict=True):
                optimiser.param_groups[0]["lr"] = (
                    rate * min(1.0, step / how.warm_up) * max(0.02, 1 - step / steps)
                )
                optimiser.zero_grad()
            x = blur(texts.padded(rows), how)
            z, w = model.places(x, (how.vector_dropout, how.dropout), how.forget, how.gain)
            value = loss(model.read_out(z, w, skip=how.skip), torch.from_numpy(texts.targets[rows]), how.sure)
            value = value + how.below * below(z, x > 0)
            value.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(dense, 1.0)
            for optimiser in optimisers:
                optimiser.step()
            total += float(value.detach())
            if step > (1 - how.average) * steps and step % AVERAGE_EVERY == 0:
                means += 1
                with torch.no_grad():
                    for kept_mean, p in zip(mean, model.parameters(), strict=True):
                        kept_mean.lerp_(p, 1 / means)
        said = (
            f"epoch {epoch + 1}/{len(plans)}, {time.monotonic() - began:.0f} s, loss {total / len(plan):.4f}"
        )
        say(f"{said} {measure(model.eval())}".rstrip())
        if checkpoint is not None:
            torch.save(
                {"epoch": epoch + 1, "step": step, "means": means, "mean": mean, "model": model.state_dict(),
                 "optimisers": [optimiser.state_dict() for optimiser in optimisers]},
                checkpoint,
            )  # fmt: skip
    if means:
        with torch.no_grad():
            for p, kept_mean in zip(model.parameters(), mean, strict=True):
                p.copy_(kept_mean)
    return model.eval()


def below(z: Tensor, there: Tensor) -> Tensor:
    """How far places [B, N, d] point below the first axis, on average: a half-plane is enough.

    A word that says little points along the second axis. If all others lay above and it below, it would lead
    itself, however short its place is.
    """
    sine = z[..., 1] * torch.rsqrt(z.square().sum(-1) + 1e-6)
    return (torch.relu(-sine) * there).sum() / there.sum()


def loss(logits: Tensor, targets: Tensor, sure: float) -> Tensor:
    """Cross-entropy against soft targets: [B, 1] against [B], or [B, C] against [B, C]."""
    if logits.shape[1] == 1:
        return nn.functional.binary_cross_entropy_with_logits(logits[:, 0], targets.clamp(1 - sure, sure))
    spread = targets * sure + (1 - sure) / logits.shape[1]
    return nn.functional.cross_entropy(logits, spread)


@torch.no_grad()
def logits(
    model: HardmaxTransformer, texts: Texts, layers: int | None = None, places: int = 16_384
) -> NDArray[np.float64]:
    """[n, C], in the order of the texts."""
    model.eval()
    found = np.zeros((len(texts), len(model.b)))
    for rows in texts.batches(np.arange(len(texts)), places):
        found[rows] = model(texts.padded(rows), layers).numpy()
    return found


def ending(word: str) -> int:
    """The row of a word's ending, or UNKNOWN: how the reader reads what it does not know."""
    rows = (i for i, end in enumerate(ENDINGS, start=GROUP + 1) if len(word) > 4 and word.endswith(end))
    return next(rows, UNKNOWN)


def blur_of(words: Sequence[str], marks: str = ".!?,;:…") -> Blur:
    fallback = np.array([i if i < len(SPECIAL) else ending(word) for i, word in enumerate(words)])
    return Blur(fallback, np.isin(words, list(marks)))
