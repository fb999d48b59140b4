"""Any sentiment bundle on any labelled texts: quality, calibration, speed, clusters, and its worst mistakes.

The bundle answers through the service's own classifier, in this process: what is measured is what is served.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model_export import corpus
from model_export.corpus import Corpus
from model_export.scores import Scores, score
from service.bundle import read_bundle
from service.errors import InvalidInput
from service.runtime import Runtime
from service.sentiment import Sentiment
from service.tokens import Words

BATCH = 32
EXCERPT = 160  # characters of a mistake that are shown


@dataclass(frozen=True)
class Counts:
    """Something counted in every text."""

    average: float
    deviation: float
    least: int
    most: int

    @classmethod
    def of(cls, numbers: NDArray[np.int64]) -> Counts:
        return cls(float(numbers.mean()), float(numbers.std()), int(numbers.min()), int(numbers.max()))


@dataclass(frozen=True)
class Mistake:
    text: str
    truth: int
    probability: float  # of "positive"
    leaders: tuple[str, ...]


@dataclass(frozen=True)
class Report:
    model: str
    data: str
    scores: Scores
    texts_per_second: float  # with leaders, one thread
    unknown_share: float  # of the words
    tokens: Counts  # distinct, a text
    clusters: Counts
    leaders: Counts
    initial_leaders: float  # the fraction of all leaders that lead from layer 0
    cluster_share: float  # clusters / distinct tokens
    mistakes: tuple[Mistake, ...]

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def evaluate(folder: Path, data: Corpus, *, threads: int = 1, mistakes: int = 10) -> Report:
    """`folder` is a bundle's. Unlabelled texts are left out."""
    bundle = read_bundle(folder)
    if bundle.card["kind"] != "sentiment":
        raise InvalidInput(
            f"{folder} holds a model of kind {bundle.card['kind']}, not sentiment", param="model"
        )
    model = Sentiment.load(bundle, Runtime("cpu", intra_op_threads=threads))
    labelled = data.take(data.labelled)
    began = time.perf_counter()
    words = model.tokenise_many(labelled.texts)
    answers = classify(model, words)
    seconds = time.perf_counter() - began
    logit = np.array([answer["logit"] for answer in answers])
    tokens = np.array([w.length for w in words])
    clusters = np.array([len(answer["clusters"]) for answer in answers])
    leaders = np.array([len(answer["leaders"]) for answer in answers])
    initial = sum(leader["since_layer"] == 0 for answer in answers for leader in answer["leaders"])
    read = sum(answer["tokens"] for answer in answers)
    return Report(
        model=bundle.name,
        data=data.source,
        scores=score(logit, labelled.labels),
        texts_per_second=len(words) / seconds,
        unknown_share=sum(answer["unknown"] for answer in answers) / max(read, 1),
        tokens=Counts.of(tokens),
        clusters=Counts.of(clusters),
        leaders=Counts.of(leaders),
        initial_leaders=initial / max(int(leaders.sum()), 1),
        cluster_share=float(clusters.mean() / max(tokens.mean(), 1.0)),
        mistakes=tuple(_worst(labelled, answers, logit, mistakes)),
    )


def classify(model: Sentiment, words: list[Words], batch: int = BATCH) -> list[dict[str, Any]]:
    """Answers with leaders, in the order of `words`; texts of similar length run together."""
    order = np.argsort([w.length for w in words], kind="stable")
    answers: list[dict[str, Any]] = [{}] * len(words)
    for at in range(0, len(order), batch):
        some = order[at : at + batch]
        for i, answer in zip(some, model.classify([words[i] for i in some], "leaders"), strict=True):
            answers[i] = answer
    return answers


def _worst(
    data: Corpus, answers: list[dict[str, Any]], logit: NDArray[np.float64], number: int
) -> list[Mistake]:
    """The answers that were surest and wrong."""
    regret = np.where(data.labels == 1, -logit, logit)
    return [
        Mistake(
            text=data.texts[i][:EXCERPT],
            truth=int(data.labels[i]),
            probability=float(1 / (1 + np.exp(-logit[i]))),
            leaders=tuple(leader["word"] for leader in answers[i]["leaders"][:5]),
        )
        for i in np.argsort(-regret)[:number]
        if regret[i] > 0
    ]


# ------------------------------------------------------------------------------------------------- command
# line


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("bundles", type=Path, nargs="*", help="bundles (default: service/models/sentiment*)")
    parser.add_argument(
        "--data", type=Path, required=True, help="IMDb archive or folder, tsv, csv, jsonl, parquet"
    )
    parser.add_argument("--split", default="test", help="part of IMDb: test (default), train, or validation")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--mistakes", type=int, default=10, help="how many of the worst to show")
    parser.add_argument("--json", action="store_true")


def run(arguments: argparse.Namespace) -> int:
    data = read_split(arguments.data, arguments.split)
    bundles = arguments.bundles or sorted(Path("service/models").glob("sentiment*"))
    reports = [evaluate(b, data, threads=arguments.threads, mistakes=arguments.mistakes) for b in bundles]
    if arguments.json:
        print(json.dumps([report.as_dict() for report in reports], indent=1))
    else:
        for report in reports:
            print(describe(report))
    return 0


def read_split(path: Path, split: str) -> Corpus:
    """`validation` is the part of IMDb's training half that `train` holds out."""
    if split != "validation":
        return corpus.read(path, split, unlabelled=False)
    whole = corpus.read(path, "train", unlabelled=False)
    return whole.take(corpus.split_validation(whole)[1])


def describe(report: Report) -> str:
    s, (tn, fp), (fn, tp) = report.scores, *report.scores.confusion
    lines = [
        f"{report.model} on {report.data}: {s.texts} texts",
        f"  accuracy {100 * s.accuracy:.2f} %   F1 {s.f1:.4f}   log-loss {s.log_loss:.4f}   "
        f"calibration error {s.calibration_error:.4f}",
        f"  negative: {tn} right, {fp} wrong   positive: {tp} right, {fn} wrong",
        f"  {report.texts_per_second:.0f} texts/s with leaders   "
        f"unknown words {100 * report.unknown_share:.2f} %",
        f"  {_spread('distinct tokens', report.tokens)}",
        f"  {_spread('clusters', report.clusters)}   {100 * report.cluster_share:.1f} % of the tokens",
        f"  {_spread('leaders', report.leaders)}   {100 * report.initial_leaders:.0f} % from layer 0",
    ]
    for m in report.mistakes:
        truth = "positive" if m.truth else "negative"
        lines.append(f"  {truth}, but p = {m.probability:.3f} ({', '.join(m.leaders)}): {m.text!r}")
    return "\n".join(lines)


def _spread(name: str, c: Counts) -> str:
    return f"{name} {c.average:.1f} ± {c.deviation:.1f} ({c.least} to {c.most})"
