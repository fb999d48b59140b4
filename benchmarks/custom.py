"""Custom models of a few rows, compared with TF-IDF, a softmax encoder with a linear head, and SetFit.

    python -m benchmarks.custom --data ../shared/data --encoder ENCODER [--quick]

Models are measured on the test split and trained on other rows; the pretrained encoder was trained on
neither. The tasks are the corpus that a text comes from, sentiment
of some corpora and, on a Debian system, the section of the package that a text describes. Every seed draws
other rows. Accuracy, costs and SetFit, which is slow, have a results file each; costs need an idle machine.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier

from benchmarks.models import Floats
from benchmarks.record import ROOT, Record, Table, argument_parser, run_times, timed
from benchmarks.rows import PACKAGES, SEVERAL, SUBJECTS, TEST_TEXTS, TEXT_LENGTHS, TextsByLabels, read_tasks
from benchmarks.set_fit import MAX_STEPS, PAIRS_PER_ROW, PAIRS_PER_STEP, fit_set_fit, predict_set_fit
from evaluation.baseline import new_baseline
from evaluation.folds import stratified_folds
from evaluation.labels import Rows
from model_export.data.corpora import read_table
from model_export.data.training_set import Ints
from model_export.head import ood
from model_export.head.cross_validation import cross_validate
from model_export.head.encoded import EncodedTexts, encode_texts
from model_export.head.fitting import predict_logits
from model_export.head.train import open_encoder
from service.runtime.bundle import PRETRAINED_ENCODER
from service.settings import PRETRAINED_FOLDER
from service.text.encoder import Encoder

SoftEncoder = Callable[[Sequence[str]], Floats]  # texts -> mean hidden states
SIZES = (8, 32, 128)  # training rows per label
SET_FIT = "SetFit"
HAS_SET_FIT = find_spec("setfit") is not None  # with its sentence-transformers
TF_IDF, SOFT = "TF-IDF + logistic regression", "published encoder, soft + logistic regression"
SET_FIT_SEEDS = 2
SET_FIT_TASKS = (SUBJECTS, "sentiment of electronics, 2 labels")  # of all sizes; of others the smallest
LANGUAGES = Path(__file__).with_name("languages.txt")
TRAINING_ROWS = (3_000, 10_000)  # whose training is timed
LIBRARIES = ("onnxruntime", "numpy", "scikit-learn", "torch")


@dataclass(frozen=True)
class Task:
    """Texts with labels, encoded by our encoder and, if it can be installed, by the published one."""

    rows: Rows
    is_test: NDArray[np.bool_]
    states: EncodedTexts
    soft: Floats | None

    @property
    def test(self) -> Ints:
        return np.flatnonzero(self.is_test)

    def draw(self, size: int, seed: int) -> Ints:
        """Draw `size` training rows of each label, or as many in all where a text may have several."""
        order = np.random.default_rng(seed).permutation(np.flatnonzero(~self.is_test))
        if self.rows.multi_label:
            return order[: size * len(self.rows.labels)]
        truth = self.rows.targets.argmax(1)
        return np.concatenate([order[truth[order] == c][:size] for c in range(len(self.rows.labels))])

    def select(self, rows: Ints) -> Rows:
        texts, truth = [self.rows.texts[i] for i in rows], [self.rows.truth[i] for i in rows]
        return Rows(texts, truth, self.rows.labels, self.rows.multi_label, [])


def load_soft_encoder(encoder: Path) -> SoftEncoder:
    """Load the published encoder with its own tokenizer: ours replaces names by a token that it never saw."""
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(encoder), device="cpu")
    return lambda texts: model.encode(list(texts), normalize_embeddings=True, show_progress_bar=False)


def encode_task(texts_by_labels: TextsByLabels, encoder: Encoder, soft: SoftEncoder | None) -> Task:
    texts, truth, is_test = [], [], []
    for labels, train_test in texts_by_labels.items():
        for part, part_texts in enumerate(train_test):
            texts += part_texts
            truth += [labels] * len(part_texts)
            is_test += [part == 1] * len(part_texts)
    states, encoded = encode_texts(encoder, texts, fold_names=False)  # those with a word
    names = tuple(sorted({label for labels in texts_by_labels for label in labels}))
    multi_label = any(len(labels) > 1 for labels in texts_by_labels)
    rows = Rows([texts[i] for i in encoded], [truth[i] for i in encoded], names, multi_label, [])
    return Task(rows, np.array(is_test)[encoded], states, soft(rows.texts) if soft else None)


# ---- accuracy


def measure_accuracy(
    task: Task, table: Table, case: str, sizes: Sequence[int], seeds: int, encoder: Path | None = None
) -> None:
    """Add the micro F1 of each subject: where a text has a single label, this is the accuracy."""
    truth = task.rows.targets[task.test] > 0
    for size in sizes:
        f1: dict[str, list[float]] = {}
        for seed in range(seeds):
            train = task.draw(size, seed)
            for subject, predicted in predict(task, train, seed, encoder).items():
                score = 2 * (predicted & truth).sum() / (predicted.sum() + truth.sum())
                f1.setdefault(subject, []).append(100 * float(score))
        for subject, samples in f1.items():
            table.add(subject, {"data": case, "rows per label": size}, samples)


def predict(task: Task, train: Ints, seed: int, encoder: Path | None) -> dict[str, NDArray[np.bool_]]:
    """Return [n, C] the labels of the test texts by each subject; by SetFit if its encoder is given."""
    rows, test, multi_label = task.select(train), task.select(task.test), task.rows.multi_label
    truth = rows.targets.astype(int) if multi_label else rows.targets.argmax(1)
    head, _ = cross_validate(rows, task.states.take(train), make_folds(rows), seed=seed)
    logits = predict_logits(head, task.states.take(task.test))
    ours = logits > 0
    if not multi_label:
        ours = ours[:, 0].astype(int) if logits.shape[1] == 1 else logits.argmax(1)
    predictions = {"ours": ours, TF_IDF: new_baseline(multi_label).fit(rows.texts, truth).predict(test.texts)}
    if task.soft is not None:
        classifier = LogisticRegression(C=10, max_iter=500)
        classifier = OneVsRestClassifier(classifier) if multi_label else classifier
        predictions[SOFT] = classifier.fit(task.soft[train], truth).predict(task.soft[task.test])
    if encoder:
        model = fit_set_fit(encoder, rows.texts, truth, seed)
        predictions[SET_FIT] = predict_set_fit(model, test.texts)
    labels = np.arange(len(rows.labels))
    return {name: y > 0 if multi_label else y[:, None] == labels for name, y in predictions.items()}


def make_folds(rows: Rows) -> list[Ints]:
    return stratified_folds([frozenset(labels) for labels in rows.truth], np.arange(len(rows.truth)))


def measure_ood(
    tasks: dict[str, Task], encoder: Encoder, table: Table, sizes: Sequence[int], seeds: int
) -> None:
    """Add the shares of test texts, packages and texts of other languages that heads flag."""
    encode = partial(encode_texts, encoder, fold_names=False)
    others = [encode(texts)[0] for texts in (ood.english_sentences(), ood.foreign_sentences())]
    foreign, _ = encode(LANGUAGES.read_text(encoding="utf-8").split("\n")[:-1])
    for case, task in tasks.items():
        for size in sizes:
            shares: dict[str, list[float]] = {}
            for seed in range(seeds):
                train = task.draw(size, seed)
                folds, correct = make_folds(task.select(train)), np.full(len(train), np.nan)
                weights = ood.calibrate(task.states.take(train), others, folds, correct).weights
                subjects = {"rows of its own": task.states.take(task.test)}
                if case != PACKAGES and PACKAGES in tasks:
                    subjects["packages"] = tasks[PACKAGES].states.take(tasks[PACKAGES].test)
                for name, states in {**subjects, "other languages": foreign}.items():
                    share = float((ood.ood_scores(weights, states) > 0).mean())
                    shares.setdefault(name, []).append(100 * share)
            for name, samples in shares.items():
                table.add(name, {"data": case, "rows per label": size}, samples)


# ---- costs


def train_once(file: Path) -> None:
    """Run `hardmax-export train`, with the start of Python and torch."""
    with tempfile.TemporaryDirectory() as folder:
        train = ("model_export.cli", "train", str(file), "--models-dir", folder, "--name", "mine")
        subprocess.run([sys.executable, "-m", *train], check=True, stdout=subprocess.DEVNULL, cwd=ROOT)


def measure_training(data: Path, table: Table, sizes: Sequence[int]) -> None:
    file = ROOT / "examples/reviews.csv"
    n_rows = len(file.read_text().splitlines()) - 1
    table.add("ours", {"rows": n_rows}, run_times(lambda: train_once(file), 3 if sizes else 0))
    rows = read_table(data / "yelp/sentences.tsv.gz", "")
    random.Random(0).shuffle(rows)  # the file has them by label
    for size in sizes:
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as jsonl:
            jsonl.writelines(
                json.dumps({"text": row.text, "label": row.target}) + "\n" for row in rows[:size]
            )
            jsonl.flush()
            table.add("ours", {"rows": size}, [timed(partial(train_once, Path(jsonl.name)))[1]])


def main() -> None:
    options = argument_parser(__doc__, with_data=True, seeds=(5, "draws of rows")).parse_args()
    record_costs(options)
    _, encoder = open_encoder(PRETRAINED_FOLDER / PRETRAINED_ENCODER)
    soft = load_soft_encoder(options.encoder) if HAS_SET_FIT else None
    texts = read_tasks(options.data, SIZES[0] if options.quick else max(SIZES))
    if options.quick:
        texts = {name: texts[name] for name in (SUBJECTS, SEVERAL)}
    tasks = {name: encode_task(texts[name], encoder, soft) for name in texts}
    record_accuracy(tasks, encoder, options)
    if HAS_SET_FIT:
        record_set_fit(tasks, options)


def record_accuracy(tasks: dict[str, Task], encoder: Encoder, options: argparse.Namespace) -> None:
    sizes, seeds = (SIZES[:1], 1) if options.quick else (SIZES, options.seeds)
    libraries = (*LIBRARIES, "sentence-transformers") if HAS_SET_FIT else LIBRARIES
    record = Record("custom", "Custom models", libraries, [PRETRAINED_ENCODER])
    record.note(
        f"Texts have {TEXT_LENGTHS.start} to {TEXT_LENGTHS.stop - 1} characters; figures are of {TEST_TEXTS} "
        f"texts per label of the test split. Each sample is another draw of rows. Where a text "
        "may have several labels, the figure is micro F1 with a threshold of one half, and the number of "
        "rows is the same. The softmax encoder is all-MiniLM-L6-v2 as published, with its own tokenizer and "
        "a logistic regression on its mean hidden state."
    )
    if not HAS_SET_FIT:
        record.note("The softmax encoder and SetFit were left out: they are not installed.")
    record.note(
        "The pretrained encoder was trained on none of these texts. Sentiment is no new task for it: it was "
        "trained on labels of other texts of the same corpora. The corpus of a text is a new task, and so "
        "are packages."
    )
    if PACKAGES not in tasks:
        record.note("Packages were left out: this system has no list of Debian's packages.")
    accuracy = record.table("Accuracy", unit="%", better="higher")
    for name, task in tasks.items():
        measure_accuracy(task, accuracy, name, sizes, seeds)
    flagged = record.table("Texts flagged as out of distribution", unit="%")
    measure_ood(tasks, encoder, flagged, sizes[:2], seeds)
    record.write(quick=options.quick)


def record_set_fit(tasks: dict[str, Task], options: argparse.Namespace) -> None:
    sizes, seeds = (SIZES[:1], 1) if options.quick else (SIZES, SET_FIT_SEEDS)
    record = Record(
        "custom-setfit", "Custom models compared with SetFit", (*LIBRARIES, "setfit"), [PRETRAINED_ENCODER]
    )
    record.note(
        f"Data sets as in the chapter before; {seeds} draws of rows, the same for all. SetFit tunes the "
        f"published encoder (all-MiniLM-L6-v2, soft) on {PAIRS_PER_ROW} pairs a row, {PAIRS_PER_STEP} a "
        f"step, for {MAX_STEPS} steps at most; then it fits a logistic regression."
    )
    table = record.table("Accuracy", unit="%", better="higher")
    for name, task in tasks.items():
        task_sizes = sizes if name in SET_FIT_TASKS else sizes[:1]
        measure_accuracy(task, table, name, task_sizes, seeds, options.encoder)
    record.write(quick=options.quick)


def record_costs(options: argparse.Namespace) -> None:
    record = Record("custom-costs", "Cost of custom models", LIBRARIES, [PRETRAINED_ENCODER])
    table = record.table("Training and export", unit="s", better="lower")
    measure_training(options.data, table, () if options.quick else TRAINING_ROWS)
    record.write(quick=options.quick)


if __name__ == "__main__":
    main()
