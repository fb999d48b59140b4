"""Fitting one hardmax transformer to bags of tokens: epochs, early stopping, a checkpoint after each.

Knows bags and probabilities; nothing of where they come from.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from tqdm import tqdm

from model_export.model import HardmaxTransformer, Shape
from model_export.recipes import Recipe
from model_export.scores import score
from model_export.tokens import Bags, Ids
from service.errors import InvalidInput

PATIENCE = 3  # epochs without a better validation loss before stopping
WARM_UP = 100  # steps
_SLOWEST = 0.02  # of the learning rate, at the very end


@dataclass(frozen=True)
class Lesson:
    """What is learnt from: bags, a probability of "positive" for each, and the rows to use."""

    bags: Bags
    target: NDArray[np.float32]
    train: Ids
    validation: Ids  # may be empty: then nothing is measured and nothing stops early


def log_ratio(lesson: Lesson, vocabulary: int) -> NDArray[np.float32]:
    """[V] the log of positive over negative texts with each token, smoothed and bounded: naive Bayes."""
    rows = np.repeat(np.arange(len(lesson.bags)), lesson.bags.sizes)
    learnt = np.isin(rows, lesson.train)
    token, share = lesson.bags.tokens[learnt], lesson.target[rows[learnt]]
    positive = np.bincount(token, weights=share, minlength=vocabulary)
    negative = np.bincount(token, weights=1.0 - share, minlength=vocabulary)
    return np.clip(np.log((positive + 3.0) / (negative + 3.0)), -3.0, 3.0).astype(np.float32)


class Fit:
    """One model being fitted: everything that a checkpoint must hold, and one epoch at a time."""

    def __init__(self, recipe: Recipe, lesson: Lesson, vocabulary: int) -> None:
        torch.manual_seed(recipe.seed)
        self.recipe, self.lesson = recipe, lesson
        self.model = HardmaxTransformer(
            Shape(
                vocabulary=vocabulary, dimension=recipe.dimension, layers=recipe.layers, alpha=recipe.alpha,
                weighted=recipe.weighted, pseudo_weight=recipe.pseudo_weight, spread=recipe.spread,
                reach=recipe.reach,
            )
        )  # fmt: skip
        self.model.lean(torch.from_numpy(log_ratio(lesson, vocabulary)), recipe.lean)
        tables = [self.model.E] + ([self.model.u] if recipe.weighted else [])
        others = [p for p in (self.model.v, self.model.b) if p.requires_grad]
        self.optimisers: tuple[torch.optim.Optimizer, ...] = (
            torch.optim.SparseAdam(tables, lr=recipe.rate),
            torch.optim.Adam(others, lr=recipe.rate),
        )
        self.rng = np.random.default_rng(recipe.seed)
        self.step = 0
        self.steps = recipe.epochs * -(-len(lesson.train) // recipe.batch)
        self.history: list[dict[str, float]] = []
        self.best: dict[str, Any] | None = None

    def epoch(self, report: Callable[[int, float], None]) -> None:
        """Once through the training texts, then a look at the validation texts. `report(texts, loss)` each
        step.
        """
        loss_sum, began = 0.0, time.monotonic()
        self.model.train()
        for rows in self.lesson.bags.batches(self.lesson.train, self.recipe.batch, self.rng):
            loss = self._learn(rows)
            loss_sum += loss * len(rows)
            report(len(rows), loss)
        entry = {"loss": loss_sum / max(len(self.lesson.train), 1), "seconds": time.monotonic() - began}
        if len(self.lesson.validation):
            scores = score(logits(self.model, self.lesson.bags, self.lesson.validation), self.truth)
            entry |= {"validation_loss": scores.log_loss, "validation_accuracy": scores.accuracy}
        self.history.append(entry)
        if not len(self.lesson.validation) or self._is_best():
            self.best = {name: value.clone() for name, value in self.model.state_dict().items()}

    @property
    def truth(self) -> NDArray[np.float32]:
        return self.lesson.target[self.lesson.validation]

    @property
    def done(self) -> bool:
        losses = [entry["validation_loss"] for entry in self.history if "validation_loss" in entry]
        stale = len(losses) - 1 - int(np.argmin(losses)) if losses else 0
        return len(self.history) >= self.recipe.epochs or stale >= PATIENCE

    def _is_best(self) -> bool:
        return self.history[-1]["validation_loss"] == min(entry["validation_loss"] for entry in self.history)

    def _learn(self, rows: Ids) -> float:
        self.step += 1
        slope = min(self.step / WARM_UP, 1.0) * max(1.0 - self.step / self.steps, _SLOWEST)
        for optimiser in self.optimisers:
            optimiser.param_groups[0]["lr"] = self.recipe.rate * slope
            optimiser.zero_grad()
        # word dropout: no review shall be known by one of its words
        tokens, counts = self.lesson.bags.padded(rows, self.rng, self.recipe.dropout)
        logit = self.model(torch.from_numpy(tokens), torch.from_numpy(counts))
        loss = nn.functional.binary_cross_entropy_with_logits(
            logit, torch.from_numpy(self.lesson.target[rows])
        )
        loss.backward()  # type: ignore[no-untyped-call]
        for optimiser in self.optimisers:
            optimiser.step()
        return float(loss.detach())

    def state(self) -> dict[str, Any]:
        return {
            "recipe": asdict(self.recipe), "model": self.model.state_dict(), "best": self.best,
            "step": self.step,
            "optimisers": [o.state_dict() for o in self.optimisers], "history": self.history,
            "numpy": self.rng.bit_generator.state, "torch": torch.get_rng_state(),
        }  # fmt: skip

    def restore(self, state: dict[str, Any]) -> None:
        if state["recipe"] != asdict(self.recipe):
            raise InvalidInput(
                "checkpoint.pt is of another recipe: choose another --out or say --fresh", param="out"
            )
        self.model.load_state_dict(state["model"])
        for optimiser, kept in zip(self.optimisers, state["optimisers"], strict=True):
            optimiser.load_state_dict(kept)
        self.best, self.step, self.history = state["best"], state["step"], state["history"]
        self.rng.bit_generator.state = state["numpy"]
        torch.set_rng_state(state["torch"])


@torch.no_grad()
def logits(model: HardmaxTransformer, bags: Bags, rows: Ids, batch: int = 64) -> NDArray[np.float32]:
    """The model's logit for some of the texts, in the order of `rows`."""
    model.eval()
    answer = np.zeros(len(bags), dtype=np.float32)
    for some in bags.batches(rows, batch):
        tokens, counts = bags.padded(some)
        answer[some] = model(torch.from_numpy(tokens), torch.from_numpy(counts)).numpy()
    return answer[rows]


def fit(recipe: Recipe, lesson: Lesson, vocabulary: int, out: Path, *, fresh: bool = False) -> Fit:
    """Epochs with a progress bar and a checkpoint after each, until the last or until nothing improves."""
    work = Fit(recipe, lesson, vocabulary)
    checkpoint = out / "checkpoint.pt"
    if checkpoint.exists() and not fresh:
        work.restore(torch.load(checkpoint, weights_only=True))
    while not work.done:
        title = f"{recipe.name} {len(work.history) + 1}/{recipe.epochs}"
        with tqdm(total=len(lesson.train), desc=title, unit="text") as bar:

            def report(texts: int, loss: float, bar: tqdm[Any] = bar) -> None:
                bar.update(texts)
                bar.set_postfix(loss=f"{loss:.3f}", refresh=False)

            work.epoch(report)
            bar.set_postfix({k: f"{v:.4f}" for k, v in work.history[-1].items() if k != "seconds"})
        torch.save(work.state(), checkpoint)
    assert work.best is not None
    work.model.load_state_dict(work.best)
    return work


# and keep


@torch.no_grad()
def cluster_share(model: HardmaxTransformer, bags: Bags, rows: Ids, batch: int = 64) -> dict[str, float]:
    """How many clusters (different final C_i) and distinct tokens a text has on average."""
    model.eval()
    clusters: list[int] = []
    for some in bags.batches(rows, batch):
        tokens, _ = bags.padded(some)
        Z = model.states(torch.from_numpy(tokens))[-2]
        leader = model.attend(Z).numpy()
        clusters += [len(np.unique(line[:size])) for line, size in zip(leader, bags.sizes[some], strict=True)]
    tokens_mean = float(bags.sizes[rows].mean())
    return {
        "clusters": float(np.mean(clusters)),
        "tokens": tokens_mean,
        "share": float(np.mean(clusters)) / tokens_mean,
    }
