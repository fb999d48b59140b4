"""Custom models of a few rows, compared with TF-IDF, a softmax encoder with a linear head, and SetFit.

    python -m benchmarks.own --data ../shared/data --encoder ENCODER [--quick] [--split validation]
    python -m benchmarks.own --data ../shared/data --encoder ENCODER --only costs
    python -m benchmarks.own --data ../shared/data --encoder ENCODER --only setfit

Figures are of the test split, which no model was trained on; models are trained on other rows that the
pretrained encoder was not trained on. For experiments use the validation split. The tasks are the corpus
that a text comes from and, on a Debian system, the section of the package that it describes. Every seed
draws other rows. Accuracy, costs and SetFit, which is slow, have a results file each; costs need an idle
machine.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier

from benchmarks.environments import fetched
from benchmarks.peers.set_fit import PAIRS, STEPS, TOGETHER, said, set_fit
from benchmarks.record import ROOT, Record, Table, arguments
from benchmarks.rows import LETTERS, PACKAGES, SEVERAL, SUBJECTS, TESTED, Parts, tasks
from benchmarks.soft_transformers import Floats
from evaluation.baseline import new_baseline
from evaluation.folds import stratified_folds
from evaluation.labels import Rows
from model_export.bundle import write_bundle
from model_export.data.corpora import read_table
from model_export.data.training_set import Ints
from model_export.head import graph, ood, quantized
from model_export.head.cross_validation import cross_validate
from model_export.head.encoded import EncodedTexts, encode_texts
from model_export.head.fitting import fixed_scales, predict_logits
from model_export.head.train import open_encoder
from service.runtime.bundle import PRETRAINED_ENCODER, Bundle
from service.runtime.card import HEAD
from service.runtime.session import Runtime
from service.settings import PRETRAINED_FOLDER
from service.text.encoder import Encoder
from service.text.head import Head
from service.text.pipeline import ClassifyOptions, classify_all, make_tasks

Soft = Callable[[Sequence[str]], Floats]
SIZES = (8, 32, 128)  # rows a label
SET_FIT = "SetFit"
TF_IDF, SOFT = "TF-IDF + logistic regression", "published encoder, soft + logistic regression"
TUNED_SEEDS = 2  # draws that SetFit learns from,
TUNED = (SUBJECTS, "verdicts on electronics, 2 labels")  # and what it learns from more rows than the fewest
LANGUAGES = Path(__file__).with_name("languages.txt")
TIMED, HEADS = (3_000, 100_000), 10
PROGRAMS = ("onnxruntime", "numpy", "scikit-learn", "torch")


@dataclass(frozen=True)
class Question:
    """Texts with labels, read once by our encoder and by the published encoder, where that can be had."""

    rows: Rows
    measured: NDArray[np.bool_]  # which are measured on
    states: EncodedTexts
    soft: Floats | None

    def few(self, size: int, seed: int) -> Ints:
        """`size` rows of each label, as many in all where a text may have several."""
        order = np.random.default_rng(seed).permutation(np.flatnonzero(~self.measured))
        if self.rows.multi_label:
            return order[: size * len(self.rows.labels)]
        truth = self.rows.targets.argmax(1)
        return np.concatenate([order[truth[order] == c][:size] for c in range(len(self.rows.labels))])

    def taken(self, some: Ints) -> Rows:
        texts, truth = [self.rows.texts[i] for i in some], [self.rows.truth[i] for i in some]
        return Rows(texts, truth, self.rows.labels, self.rows.multi_label, [])


def as_published(encoder: Path) -> Soft:
    """The encoder with the pieces that it was made for: ours take each name for one that it never saw."""
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(encoder), device="cpu")
    return lambda texts: model.encode(list(texts), normalize_embeddings=True, show_progress_bar=False)


def question(parts: Parts, encoder: Encoder, soft: Soft | None) -> Question:
    texts, truth, measured = [], [], []
    for labels, pair in parts.items():
        for half, some in enumerate(pair):
            texts += some
            truth += [labels] * len(some)
            measured += [half == 1] * len(some)
    states, kept = encode_texts(encoder, texts)
    names = tuple(sorted({label for labels in parts for label in labels}))
    rows = Rows([texts[i] for i in kept], [truth[i] for i in kept], names, any(len(x) > 1 for x in parts), [])
    return Question(rows, np.array(measured)[kept], states, soft(rows.texts) if soft else None)


# ---- what is right


def accuracy(
    task: Question, table: Table, case: str, sizes: Sequence[int], seeds: int, encoder: Path | None = None
) -> None:
    """Shares of texts that are right; F1 over all labels where a text may have several."""
    measured = np.flatnonzero(task.measured)
    true = task.rows.targets[measured] > 0
    for size in sizes:
        right: dict[str, list[float]] = {}
        for seed in range(seeds):
            some = task.few(size, seed)
            found = answers(task, some, measured, seed)
            if encoder:
                found[SET_FIT] = by_set_fit(task, some, measured, seed, encoder)
            for subject, predicted in found.items():
                hits = 2 * (predicted & true).sum() / (predicted.sum() + true.sum())
                right.setdefault(subject, []).append(100 * float(hits))
        for subject, samples in right.items():
            table.add(subject, {"data": case, "rows a label": size}, samples)


def answers(task: Question, some: Ints, measured: Ints, seed: int) -> dict[str, NDArray[np.bool_]]:
    """[n, C] which labels each says of the texts that are measured."""
    rows, several = task.taken(some), task.rows.multi_label
    parts = stratified_folds([frozenset(have) for have in rows.truth], np.arange(len(rows.truth)))
    plane, _ = cross_validate(rows, task.states.take(some), parts, seed=seed)
    score = predict_logits(plane, task.states.take(measured))
    truth = rows.targets.astype(int) if several else rows.targets.argmax(1)
    texts = [task.rows.texts[i] for i in measured]
    peer = new_baseline(several).fit(rows.texts, truth).predict(texts)
    ours = score > 0
    if not several:
        ours = ours[:, 0].astype(int) if score.shape[1] == 1 else score.argmax(1)
    found = {"ours": ours, TF_IDF: peer}
    if task.soft is not None:
        classifier = LogisticRegression(C=10, max_iter=500)
        classifier = OneVsRestClassifier(classifier) if several else classifier
        found[SOFT] = classifier.fit(task.soft[some], truth).predict(task.soft[measured])
    every = np.arange(len(rows.labels))
    return {name: each > 0 if several else each[:, None] == every for name, each in found.items()}


def by_set_fit(task: Question, some: Ints, measured: Ints, seed: int, encoder: Path) -> NDArray[np.bool_]:
    rows, several = task.taken(some), task.rows.multi_label
    truth = rows.targets.astype(int) if several else rows.targets.argmax(1)
    found = said(set_fit(encoder, rows.texts, truth, seed), [task.rows.texts[i] for i in measured])
    return found > 0 if several else found[:, None] == np.arange(len(rows.labels))


def apart(
    questions: dict[str, Question], encoder: Encoder, table: Table, sizes: Sequence[int], seeds: int
) -> None:
    """What heads call unlike their rows: other rows, packages, languages that nobody taught."""
    others = [encode_texts(encoder, each)[0] for each in (ood.english_sentences(), ood.foreign_sentences())]
    foreign, _ = encode_texts(encoder, LANGUAGES.read_text(encoding="utf-8").split("\n")[:-1])
    for case, task in questions.items():
        for size in sizes:
            shares: dict[str, list[float]] = {}
            for seed in range(seeds):
                some = task.few(size, seed)
                rows = task.taken(some)
                parts = stratified_folds([frozenset(have) for have in rows.truth], np.arange(len(rows.truth)))
                correct = np.full(len(some), np.nan)
                found = ood.calibrate(task.states.take(some), others, parts, correct).weights
                subjects = {"rows of its own": task.states.take(np.flatnonzero(task.measured))}
                if case != PACKAGES and PACKAGES in questions:
                    packed = questions[PACKAGES]
                    subjects["packages"] = packed.states.take(np.flatnonzero(packed.measured))
                for name, states in {**subjects, "other languages": foreign}.items():
                    share = float((ood.ood_scores(found, states) > 0).mean())
                    shares.setdefault(name, []).append(100 * share)
            for name, samples in shares.items():
                table.add(name, {"data": case, "rows a label": size}, samples)


# ---- what it costs


def trained_s(file: Path) -> float:
    """Seconds of `hardmax-export train`, the start of Python and torch included."""
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        train = ("model_export.cli", "train", str(file), "--models-dir", folder, "--name", "mine")
        subprocess.run([sys.executable, "-m", *train], check=True, stdout=subprocess.DEVNULL, cwd=ROOT)
        return time.perf_counter() - began


def training(data: Path, table: Table, sizes: Sequence[int]) -> None:
    table.add(
        "ours", {"rows": 57}, [trained_s(ROOT / "examples/reviews.csv") for _ in range(3 if sizes else 1)]
    )
    rows = read_table(data / "yelp/sentences.tsv.gz", "")
    random.Random(0).shuffle(rows)  # the file has them by label
    for size in sizes:
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
            file.writelines(json.dumps({"text": row.text, "label": row.target}) + "\n" for row in rows[:size])
            file.flush()
            table.add("ours", {"rows": size}, [trained_s(Path(file.name))])


def heads(task: Question, encoder: Bundle, pace: Table, rounds: int) -> None:
    """Ten heads beside one on the same encoder."""
    some = task.few(SIZES[0], 0)
    parts = [np.arange(len(some))[i::5] for i in range(5)]
    plane, _ = cross_validate(task.taken(some), task.states.take(some), parts)
    model = graph.to_onnx(quantized.quantize(plane, fixed_scales(task.states.width)))
    runtime = Runtime("cpu", 1)
    served = Encoder.load(encoder, runtime)
    texts = [task.rows.texts[i] for i in np.flatnonzero(task.measured)]
    loaded: list[Head] = []
    samples: dict[int, list[float]] = {1: [], HEADS: []}

    def round_ms(count: int) -> float:
        began = time.perf_counter()
        for text in texts:
            classify_all(make_tasks([text], ClassifyOptions(tuple(loaded[:count]))))
        return 1e3 * (time.perf_counter() - began) / len(texts)

    for count in samples:
        while len(loaded) < count:
            loaded.append(Head.load(bundle_of(model, task.rows, encoder), runtime, served))
        round_ms(count)
    for _ in range(rounds):  # in turn: what slows one down slows down the other
        for count, found in samples.items():
            found.append(round_ms(count))
    for count, found in samples.items():
        pace.add("ours", {"heads": count}, found)


def bundle_of(model: onnx.ModelProto, rows: Rows, encoder: Bundle) -> Bundle:
    card = {
        "name": "mine@1", "description": "A head of a benchmark.", "labels": list(rows.labels),
        "abstain_margin": 0.02,
        "encoder": {"name": encoder.name, "sha256": encoder.card["model_sha256"]},
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        return write_bundle(Path(folder), HEAD, card, model)


def main() -> None:
    parser = arguments(__doc__, learns=True, seeds=(5, "draws of rows"))
    parser.add_argument("--split", choices=["validation", "test"], default="test", help="what is measured on")
    parser.add_argument("--only", choices=["right", "costs", "setfit"], help="one of the three files")
    options = parser.parse_args()
    bundle, encoder = open_encoder(PRETRAINED_FOLDER / PRETRAINED_ENCODER)
    missing = fetched("setfit")
    soft = None if missing or options.only == "costs" else as_published(options.encoder)
    most = SIZES[0] if options.quick else max(SIZES)
    parts = tasks(options.data, options.split, most)
    if options.quick:
        parts = {name: parts[name] for name in (SUBJECTS, SEVERAL)}
    if options.only == "costs":
        parts = {SUBJECTS: parts[SUBJECTS]}
    questions = {name: question(each, encoder, soft) for name, each in parts.items()}
    if options.only in (None, "right"):
        what_is_right(questions, encoder, missing, options)
    if options.only in (None, "costs"):
        what_it_costs(questions[SUBJECTS], bundle, options)
    if options.only in (None, "setfit"):
        beside_set_fit(questions, missing, options)


def what_is_right(
    questions: dict[str, Question], encoder: Encoder, missing: str, options: argparse.Namespace
) -> None:
    sizes, seeds = (SIZES[:1], 1) if options.quick else (SIZES, options.seeds)
    programs = PROGRAMS if missing else (*PROGRAMS, "sentence-transformers")
    record = Record("own", "Custom models", programs, [PRETRAINED_ENCODER])
    record.note(
        f"Texts have {LETTERS.start} to {LETTERS.stop - 1} characters; figures are of {TESTED} texts per "
        f"label of the {options.split} split. Each sample is another draw of rows. Where a text may have "
        "several labels, the figure is micro F1 with a threshold of one half, and the number of rows is the "
        "same. The softmax encoder is all-MiniLM-L6-v2 as published, with its own tokenizer and a logistic "
        "regression on its mean hidden state."
    )
    if missing:
        record.note(f"The softmax encoder and SetFit were left out: {missing}")
    if options.split == "test":
        record.note(
            "The pretrained encoder was trained on none of these texts. Sentiment is no new task for it: it "
            "was trained on labels of other texts of the same corpora. The corpus of a text is a new task, "
            "and so are packages."
        )
    if PACKAGES not in questions:
        record.note("Packages were left out: this system has no list of Debian's packages.")
    right = record.table("Accuracy", unit="%", better="higher")
    for name, each in questions.items():
        accuracy(each, right, name, sizes, seeds)
    foreign = record.table("Texts flagged as out of distribution", unit="%")
    apart(questions, encoder, foreign, sizes[:2], seeds)
    record.write(quick=options.quick)


def beside_set_fit(questions: dict[str, Question], missing: str, options: argparse.Namespace) -> None:
    if missing:
        return
    sizes, seeds = (SIZES[:1], 1) if options.quick else (SIZES, TUNED_SEEDS)
    record = Record(
        "own-setfit", "Custom models compared with SetFit", (*PROGRAMS, "setfit"), [PRETRAINED_ENCODER]
    )
    record.note(
        f"Data sets as in the chapter before; {seeds} draws of rows, the same for all. SetFit tunes the "
        f"published encoder (all-MiniLM-L6-v2, soft) on {PAIRS} pairs a row, {TOGETHER} a step, for {STEPS} "
        "steps at most; then it fits a logistic regression."
    )
    table = record.table("Accuracy", unit="%", better="higher")
    for name, each in questions.items():
        accuracy(each, table, name, sizes if name in TUNED else sizes[:1], seeds, options.encoder)
    record.write(quick=options.quick)


def what_it_costs(some: Question, encoder: Bundle, options: argparse.Namespace) -> None:
    record = Record("own-costs", "Cost of custom models", PROGRAMS, [PRETRAINED_ENCODER])
    pace = record.table("One text on one core", unit="ms", better="lower")
    heads(some, encoder, pace, 1 if options.quick else 5)
    table = record.table("Training and export", unit="s", better="lower")
    training(options.data, table, () if options.quick else TIMED)
    record.write(quick=options.quick)


if __name__ == "__main__":
    main()
