"""Training, top to bottom: hold out, teach, choose tokens, fit, keep the best.

Writes a run: weights.npz, tokenizer.json, meta.json, curves.png and, while it lasts, checkpoint.pt. A run
stopped half-way goes on where it was. Knows nothing of ONNX; `export` reads what is written here.
"""

from __future__ import annotations

import json
import platform
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

from model_export import phrases, teacher
from model_export.corpus import Corpus, split_validation
from model_export.model import HardmaxTransformer, Shape
from model_export.recipes import Recipe
from model_export.scores import score
from model_export.tokens import Bags, Ids, Vocabulary, WordIds, frequent_words, tokenizer_of, word_ids
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


@dataclass(frozen=True)
class Material:
    """Everything that is prepared before the first step."""

    lesson: Lesson
    vocabulary: Vocabulary
    data: dict[str, Any]  # for the card


def prepare(
    recipe: Recipe,
    reviews: Corpus,
    sentences: Corpus | None,
    *,
    hold_out: bool = True,
    labels: Path | None = None,
) -> Material:
    """Split, teach and tokenise. `hold_out` keeps a fifth of the labelled reviews for validation; without it
    all are learnt from.

    `labels` keeps the teacher's soft labels between recipes: read if it is there, written if not.
    """
    train, validation = reviews.labelled, np.zeros(0, dtype=np.int64)
    if hold_out:
        train, validation = split_validation(reviews)
    extra = sentences if recipe.sentences else None
    corpus = reviews + extra if extra else reviews
    seen = np.setdiff1d(np.arange(len(corpus)), validation)
    names = frequent_words([corpus.texts[i] for i in seen], 3)
    words = word_ids(tokenizer_of(names), corpus.texts)

    target = np.maximum(corpus.labels, 0).astype(np.float32)
    rows = train
    if recipe.teacher and len(reviews.unlabelled):
        rows = np.concatenate([train, reviews.unlabelled])
        target[reviews.unlabelled] = _soft_labels(words.take(np.arange(len(reviews))), reviews, train, labels)
    reading = rows  # the tokens are chosen on reviews: they are what phrases are frequent in
    if extra:
        rows = np.concatenate([rows, np.arange(len(reviews), len(corpus))])
    chosen = phrases.choose(
        names, words.take(reading), target[reading], size=recipe.vocabulary, least=recipe.least,
        longest=recipe.longest_phrase, drop_frequent=recipe.drop_frequent,
    )  # fmt: skip
    vocabulary = Vocabulary.of(chosen)
    bags = vocabulary.bags(corpus.texts)
    data = {
        "source": corpus.source, "labelled": len(train), "validation": len(validation),
        "unlabelled": len(reading) - len(train), "sentences": len(rows) - len(reading),
    }  # fmt: skip
    return Material(Lesson(bags, target, rows, validation), vocabulary, data)


def _soft_labels(words: WordIds, reviews: Corpus, train: Ids, keep: Path | None) -> NDArray[np.float32]:
    """The teacher's probability of "positive" for every unlabelled review; remembered in the file `keep`."""
    key = f"{reviews.source}/{len(reviews)}/{len(train)}"
    if keep is not None and keep.exists():
        with np.load(keep) as file:
            if str(file["key"]) != key:
                raise InvalidInput(
                    f"{keep} was made from other data ({file['key']}, not {key})", param="labels"
                )
            return np.asarray(file["probability"], dtype=np.float32)
    probability = teacher.label(words, reviews.labels, train, reviews.unlabelled)
    if keep is not None:
        np.savez(keep, key=key, probability=probability)
    return probability


# -------------------------------------------------------------------------------------------------------
# fitting


class Fit:
    """One model being fitted: everything that a checkpoint must hold, and one epoch at a time."""

    def __init__(self, recipe: Recipe, lesson: Lesson, vocabulary: int) -> None:
        torch.manual_seed(recipe.seed)
        self.recipe, self.lesson = recipe, lesson
        self.model = HardmaxTransformer(
            Shape(
                vocabulary=vocabulary, dimension=recipe.dimension, layers=recipe.layers, alpha=recipe.alpha,
                weighted=recipe.weighted, pseudo_weight=recipe.pseudo_weight, spread=recipe.spread,
            )
        )  # fmt: skip
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


def fit(recipe: Recipe, material: Material, out: Path, *, fresh: bool = False, quiet: bool = False) -> Fit:
    """Epochs with a progress bar and a checkpoint after each, until the last or until nothing improves."""
    work = Fit(recipe, material.lesson, len(material.vocabulary))
    checkpoint = out / "checkpoint.pt"
    if checkpoint.exists() and not fresh:
        work.restore(torch.load(checkpoint, weights_only=True))
    while not work.done:
        title = f"{recipe.name} {len(work.history) + 1}/{recipe.epochs}"
        with tqdm(total=len(material.lesson.train), desc=title, unit="text", disable=quiet) as bar:

            def report(texts: int, loss: float, bar: tqdm[Any] = bar) -> None:
                bar.update(texts)
                bar.set_postfix(loss=f"{loss:.3f}", refresh=False)

            work.epoch(report)
            bar.set_postfix({k: f"{v:.4f}" for k, v in work.history[-1].items() if k != "seconds"})
        torch.save(work.state(), checkpoint)
    assert work.best is not None
    work.model.load_state_dict(work.best)
    return work


# ------------------------------------------------------------------------------------------------ measure
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


def figures(work: Fit, vocabulary: Vocabulary, sentences: Corpus | None) -> dict[str, Any]:
    """What the card says about quality, measured here on texts that were not trained on."""
    found: dict[str, Any] = {}
    rows = work.lesson.validation
    if len(rows):
        found["validation"] = score(logits(work.model, work.lesson.bags, rows), work.truth).as_dict()
        found["validation"] |= cluster_share(work.model, work.lesson.bags, rows)
    if sentences is not None:
        bags = vocabulary.bags(sentences.texts)
        found["sentences"] = score(logits(work.model, bags, np.arange(len(bags))), sentences.labels).as_dict()
    return found


def keep(work: Fit, material: Material, out: Path, measured: dict[str, Any]) -> None:
    """The run as files, for `export` and for people."""
    recipe, weights = work.recipe, work.model.weights()
    weights.save(out / "weights.npz")
    material.vocabulary.tokenizer.save(str(out / "tokenizer.json"), pretty=False)
    meta = {
        "name": recipe.name, "description": recipe.description, "labels": ["negative", "positive"],
        "seed": recipe.seed, "alpha": weights.alpha, "layers": weights.layers, "dimension": recipe.dimension,
        "vocabulary": len(material.vocabulary), "pseudo_weight": weights.pseudo_weight,
        "readout": {"vector": [float(x) for x in weights.readout], "bias": weights.bias},
        "recipe": asdict(recipe), "data": material.data, "figures": measured, "history": work.history,
        "versions": {
            "python": platform.python_version(), "torch": torch.__version__, "numpy": np.__version__,
        },
    }  # fmt: skip
    (out / "meta.json").write_text(json.dumps(meta, indent=1) + "\n", encoding="utf-8")
    _draw_curves(work.history, recipe.name, out / "curves.png")


def _draw_curves(history: list[dict[str, float]], title: str, path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 3), layout="constrained")
    left, right = figure.subplots(1, 2)
    epoch = range(1, len(history) + 1)
    for key, label in (("loss", "training"), ("validation_loss", "validation")):
        if key in history[0]:
            left.plot(epoch, [entry[key] for entry in history], marker="o", label=label)
    left.set(title=f"{title}: loss", xlabel="epoch")
    left.legend(frameon=False)
    if "validation_accuracy" in history[0]:
        right.plot(epoch, [100 * entry["validation_accuracy"] for entry in history], marker="o")
    right.set(title="validation accuracy, %", xlabel="epoch")
    figure.savefig(path, dpi=110)


def run(
    recipe: Recipe,
    reviews: Corpus,
    out: Path,
    *,
    sentences: Corpus | None = None,
    unseen: Corpus | None = None,
    hold_out: bool = True,
    labels: Path | None = None,
    fresh: bool = False,
) -> dict[str, Any]:
    """One recipe from data to files; the figures measured. `unseen` are sentences to measure on, never to
    train on.
    """
    out.mkdir(parents=True, exist_ok=True)
    material = prepare(recipe, reviews, sentences, hold_out=hold_out, labels=labels)
    work = fit(recipe, material, out, fresh=fresh)
    measured = figures(work, material.vocabulary, unseen)
    keep(work, material, out, measured)
    (out / "checkpoint.pt").unlink()
    return measured
