"""The figures and tables of the paper (arXiv 2407.01602) from our models, with a page, in docs/paper.

Everything is measured on the validation reviews, which no model here has learnt from. `figures` draws.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from model_export import corpus, figures
from model_export.corpus import Corpus
from model_export.model import Weights
from model_export.scores import score
from model_export.tokens import Bags, Vocabulary
from model_export.trace import Trace, trace, traces
from service.errors import NotFound

DIMENSIONS = (2, 4, 8, 16)
TEMPERATURES = (0.0, 0.001, 0.01, 0.03, 0.1, 0.3, 1.0)
CONFIDENT = 0.9
# Counted by the authors over confident and correct test reviews, d = 2.
THEIR_WORDS = (
    "great 1247, worst 677, waste 670, love 561, awful 532, money 457, year 414, amazing 391, boring 380, "
    "perfect 335, left 308, enjoyed 293, people 273, found 250, poor 244"
)
FIGURE_2 = {
    "triangle": [
        (1, 1), (0.5, -0.5), (-1, -1), (0.3, -0.2), (0.1, -0.2), (0.8776, 0.9785), (0.0989, 0.4935),
        (-0.2030, -0.9591), (-0.3824, -0.9242),
    ],
    "emerging leader": [
        (1, 1 / 3), (-1 / 12, 1 / 12), (-1, -1), (0, 0.25), (-0.3, -0.7), (-0.6, -0.9), (0.8, 0.1),
        (0.6, 0.15),
    ],
}  # fmt: skip
REVIEW = (
    "The opening is slow and the plot is predictable, but the acting is superb and the ending is wonderful: "
    "a moving film, not boring for a minute, and one I would love to see again."
)


@dataclass(frozen=True)
class Run:
    """A trained model of one dimension and what it makes of the validation reviews."""

    weights: Weights
    vocabulary: Vocabulary
    accuracy: float  # of the epoch that was kept, for its log-loss
    history: list[float]  # accuracy after each epoch
    bags: Bags
    traces: list[Trace]
    truth: NDArray[np.int8]

    @classmethod
    def load(cls, folder: Path, reviews: Corpus) -> Run:
        if not (folder / "weights.npz").exists():
            raise NotFound(f"{folder} holds no trained model: hardmax-export train --recipe {folder.name}")
        weights, vocabulary = Weights.load(folder / "weights.npz"), Vocabulary.load(folder / "tokenizer.json")
        meta = json.loads((folder / "meta.json").read_text(encoding="utf-8"))
        bags = vocabulary.bags(reviews.texts)
        rows = np.flatnonzero(bags.sizes > 0)
        return cls(
            weights=weights,
            vocabulary=vocabulary,
            accuracy=meta["figures"]["validation"]["accuracy"],
            history=[entry["validation_accuracy"] for entry in meta["history"]],
            bags=bags,
            traces=traces(weights, bags, rows),
            truth=reviews.labels[rows],
        )

    def losses(self) -> dict[float, float]:
        """The log-loss when attention is softmax at each temperature; 0 is hardmax."""
        rows = np.flatnonzero(self.bags.sizes > 0)
        return {
            t: score([x.logit for x in traces(self.weights, self.bags, rows, t)], self.truth).log_loss
            for t in TEMPERATURES
        }

    def leader_row(self, dimension: int) -> str:
        """A line of the leaders table."""
        number = np.array([len(t.leaders) for t in self.traces])
        initial = sum(int((t.since == 0).sum()) for t in self.traces) / max(int(number.sum()), 1)
        tokens = np.mean([len(t.tokens) for t in self.traces])
        return (
            f"| {dimension} | {number.mean():.2f} | {number.std():.2f} | {number.min()} | {number.max()} "
            f"| {initial:.3f} | {tokens:.0f} |"
        )

    def leader_words(self, number: int = 15) -> list[tuple[str, int]]:
        """The words that lead most often in confident, correct reviews."""
        found: Counter[str] = Counter()
        for t, truth in zip(self.traces, self.truth, strict=True):
            confident = abs(t.logit) > np.log(CONFIDENT / (1 - CONFIDENT))
            if confident and (t.logit > 0) == bool(truth):
                found.update(self.vocabulary.names[i] for i in t.tokens[t.leaders])
        return found.most_common(number)


def reproduce(runs: Path, data: Path, out: Path, reviews: int = 1000) -> None:
    out.mkdir(parents=True, exist_ok=True)
    whole = corpus.read(data, unlabelled=False)
    held = corpus.split_validation(whole)[1]
    some = whole.take(np.random.default_rng(0).permutation(held)[:reviews])
    models = {d: Run.load(runs / f"paper-{d}", some) for d in DIMENSIONS}
    losses = {d: run.losses() for d, run in models.items()}
    figures.accuracy({d: run.history for d, run in models.items()}, out / "accuracy.svg")
    figures.softmax_losses(losses, out / "softmax.svg")
    words = models[2].leader_words()
    figures.leader_words(words, out / "leaders.svg")
    _draw_review(models[2], out)
    golden = {title: golden_cloud(points) for title, points in FIGURE_2.items()}
    figures.clouds(golden, out / "figure2.svg")
    (out / "README.md").write_text(_page(models, losses, words, golden, len(some)), encoding="utf-8")


def golden_cloud(points: list[tuple[float, float]]) -> Trace:
    """Figure 2: A = I, alpha = 0.5, 30 layers, every point once."""
    Z = np.array([(0.0, 0.0), *points], dtype=np.float64)
    weights = Weights(Z, np.ones(len(Z)), np.zeros(2), 0.0, alpha=0.5, layers=30)  # type: ignore[arg-type]
    tokens = np.arange(1, len(Z))
    return trace(weights, tokens, np.ones(len(tokens), dtype=np.float32))


def _draw_review(run: Run, out: Path) -> None:
    bag = run.vocabulary.bags([REVIEW])
    moving = trace(run.weights, bag.tokens, bag.counts, layers=4)
    names, v, b = run.vocabulary.names, run.weights.readout, run.weights.bias
    figures.review(moving, names, v, b, out / "review.png")
    figures.review_film(moving, names, v, b, out / "review.gif")


def _page(
    models: dict[int, Run],
    losses: dict[int, dict[float, float]],
    words: list[tuple[str, int]],
    golden: dict[str, Trace],
    reviews: int,
) -> str:
    best = [
        f"| {d} | {figures.AUTHORS_BEST[d]:.2f} | {100 * run.accuracy:.2f} |" for d, run in models.items()
    ]
    rows = [run.leader_row(d) for d, run in models.items()]
    header = "| d | " + " | ".join("hardmax" if t == 0 else f"{t:g}" for t in TEMPERATURES) + " |"
    table = [f"| {d} | " + " | ".join(f"{x:.4f}" for x in by.values()) + " |" for d, by in losses.items()]
    emerging = golden["emerging leader"]
    place = ", ".join(f"{x:.4f}" for x in emerging.states[1][1])
    return f"""# The paper's figures, from our models

Beside arXiv 2407.01602. Written by `hardmax-export reproduce`, from the recipes `paper-2`, `paper-4`,
`paper-8` and `paper-16`: single words, the plain mean of the paper's read-out, hardmax in training and in
use, alpha = 1, two layers. Unlike the authors we also learn from the 50,000 unlabelled reviews, which a
teacher labels softly, and start each word from its naive-Bayes ratio. All figures of ours are of reviews
held out of the training half ({reviews} of them for the tables of leaders and losses); the authors'
accuracies are of their own test split, best epoch chosen on it.

## Accuracy

| d | authors, best epoch, % | ours, held-out, % |
|---|---|---|
{chr(10).join(best)}

![accuracy after each epoch](accuracy.svg)

## Softmax against hardmax

The authors train with softmax at temperature 0.001 and use hardmax. Ours are trained with hardmax; this is
the log-loss when the same weights attend with softmax instead.

{header}
|{"---|" * (len(TEMPERATURES) + 1)}
{chr(10).join(table)}

![log-loss by temperature](softmax.svg)

## Leaders a review

| d | average | deviation | minimum | maximum | fraction initial | distinct words |
|---|---|---|---|---|---|---|
{chr(10).join(rows)}

The paper has the same table; its values were not at hand.

## Which words lead

Over confident (p > {CONFIDENT}) and correct reviews, d = 2.

Ours, of {reviews} reviews: {", ".join(f"{word} {number}" for word, number in words)}.

Theirs, of 15,000: {THEIR_WORDS}.

![leader words](leaders.svg)

## A review moving through the layers

> {REVIEW}

Blue words start on the positive side of the dashed line, red ones on the negative. Four layers are drawn;
the model reads out after two.

![review, layer by layer](review.png)

![the same as a film](review.gif)

## Figure 2: leaders of small clouds

A = I, alpha = 0.5, 30 layers. Triangle: leaders {_list(golden["triangle"].leaders)}. Emerging leader: leaders
{_list(emerging.leaders)}; token 1 leads from layer {emerging.since[1]}, at ({place}). Both as in the paper.

![the two clouds](figure2.svg)
"""


def _list(numbers: NDArray[np.int64]) -> str:
    return ", ".join(str(i) for i in numbers)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--runs", type=Path, default=Path("runs"), help="folder of trained paper-2 .. paper-16"
    )
    parser.add_argument("--data", type=Path, required=True, help="IMDb's tar.gz or folder")
    parser.add_argument("--out", type=Path, default=Path("docs/paper"))
    parser.add_argument(
        "--reviews", type=int, default=1000, help="how many held-out reviews the tables are of"
    )


def run(arguments: argparse.Namespace) -> int:
    reproduce(arguments.runs, arguments.data, arguments.out, arguments.reviews)
    print(f"{arguments.out / 'README.md'}")
    return 0
