"""A model of one's own: from rows of (text, label) to weights, figures and plain warnings.

Two labels give one logit, more labels one logit each. Where rows are few, the figures come from folds: each
row is answered by a model that has not seen it. The weights are then learnt from all rows. TF-IDF with
logistic regression is measured on the same folds, so that a user sees whether a linear model does better.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from model_export.sentiment.model import HardmaxTransformer, Shape, Weights, clause_of, sentence_of
from model_export.sentiment.scores import balanced, calibrate
from model_export.train.fit import Optimisation, blur_of, fit, logits
from model_export.train.material import Texts
from model_export.train.reach import shares
from service.errors import InvalidInput
from service.texts.reader import SPECIAL, Lists, Reader, pieces, plain, scan

FOLDS, MANY = 5, 4_000  # from so many rows on, one fold is measured
WIDTH, HIDDEN = 32, 24
WORDS = 40_000
SMOOTH = 2.0  # rows that say the usual, beside those of a label
STEPS = 250  # at least, however few the rows are
ORDER = ("negative", "neg", "bad", "no", "false", "0")  # labels that come first of two

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Trained:
    """What export needs, and what a person wants to know."""

    weights: Weights
    lists: Lists
    labels: tuple[str, ...]
    figures: dict[str, Any]
    warnings: tuple[str, ...]


def train(
    rows: Sequence[tuple[str, str]],
    *,
    seed: int = 0,
    say: Callable[[str], None] = lambda _: None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Trained:
    """Learns from all rows; raises InvalidInput where they cannot teach anything.

    `progress` is told how many rows are learnt of those of all folds together. subtle: small batches
    gain nothing from a second thread and lose much where the machine is busy, so one thread is used.
    """
    torch.set_num_threads(1)
    labels = _labels(rows)
    truth = np.array([labels.index(label) for _, label in rows])
    lists = _lists([text for text, _ in rows])
    texts = Texts.read(Reader(lists), [text for text, _ in rows], _targets(truth, len(labels)), 1_000)
    parts = folds(truth, seed)
    answers = np.full((len(rows), len(labels) if len(labels) > 2 else 1), np.nan)
    linear = np.full(len(rows), -1)
    work = _Work(progress, sum(len(rows) - len(held) for held in parts) + len(rows))
    for number, held in enumerate(parts, start=1):
        say(f"fold {number} of {len(parts)}: {len(rows) - len(held)} rows to learn, {len(held)} to measure")
        learn = np.setdiff1d(np.arange(len(rows)), held)
        answers[held] = logits(_fit(texts.take(learn), lists, seed, work), texts.take(held))
        linear[held] = _linear(rows, learn, held, labels)
    say(f"all {len(rows)} rows")
    model = _fit(texts, lists, seed, work)
    seen = np.flatnonzero(linear >= 0)
    factors = calibrate(answers[seen], texts.lengths[seen], truth[seen])
    figures, warnings = _figures(answers[seen], linear[seen], truth[seen], labels, len(parts))
    weights = replace(model.weights(tuple(lists.words)), calibration=factors)
    return Trained(weights, lists, labels, {"rows": len(rows), **figures}, warnings)


@dataclass
class _Work:
    """How many rows are learnt of those of all fits together."""

    tell: Callable[[int, int], None]
    rows: int  # of all fits together
    epochs: int = 1  # of the fit that runs
    done: float = 0.0  # rows, each counted once a fit

    def did(self, rows: int) -> None:
        self.done += rows / self.epochs
        self.tell(round(self.done), self.rows)


def folds(truth: Ints, seed: int) -> list[Ints]:
    """Which rows are measured together: each label spread evenly; one part only where rows are many."""
    rng = np.random.default_rng(seed)
    part = np.zeros(len(truth), np.int64)
    for label in np.unique(truth):
        rows = rng.permutation(np.flatnonzero(truth == label))
        part[rows] = np.arange(len(rows)) % FOLDS
    return [np.flatnonzero(part == number) for number in range(1 if len(truth) >= MANY else FOLDS)]


def _labels(rows: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    count = Counter(label for _, label in rows)
    if len(count) < 2:
        raise InvalidInput(f"the rows have {len(count)} label; a model needs two or more", param="label")
    rare = [label for label, times in count.items() if times < 2]
    if rare:
        raise InvalidInput(f"the label {rare[0]!r} has a single row; each needs two or more", param="label")
    return tuple(sorted(count, key=lambda label: (label.lower() not in ORDER, label)))


def _lists(texts: Sequence[str]) -> Lists:
    """Nothing is folded but numbers: in another task names may matter."""
    count = Counter(
        piece
        for text in texts
        for surface, _, _, kind in scan(text)
        if kind != "number"
        for piece, _, _ in (pieces(plain(surface)) if kind == "word" else [(surface, 0, 0)])
    )
    least = 1 if len(texts) < 500 else 2
    known = [word for word, times in count.most_common(WORDS) if times >= least]
    return Lists((*SPECIAL, *known), frozenset(), frozenset(), frozenset())


def _targets(truth: Ints, labels: int) -> NDArray[np.float32]:
    return truth.astype(np.float32) if labels == 2 else np.eye(labels, dtype=np.float32)[truth]


def _rows_of(texts: Texts) -> NDArray[np.float64]:
    """[C]: how many rows each label has."""
    if texts.targets.ndim == 2:
        return np.asarray(texts.targets.sum(0), np.float64)
    positive = float(texts.targets.sum())
    return np.array([len(texts) - positive, positive])


def _fit(texts: Texts, lists: Lists, seed: int, work: _Work) -> HardmaxTransformer:
    """Words start from how they lean in these texts: what naive Bayes knows, in the plane."""
    words = len(lists.words)
    outputs = 1 if texts.targets.ndim == 1 else texts.targets.shape[1]
    torch.manual_seed(seed)
    each = _rows_of(texts)  # [C]
    count = shares(texts, words) / 10_000 * each[:, None]  # [C, V], texts with the word
    usual = (count.sum(0) + 0.5) / (len(texts) + 1)  # [V]; a label of few rows says little against it
    share = (count + SMOOTH * usual) / (each[:, None] + SMOOTH)
    rest = (count.sum(0) - count + SMOOTH * usual) / (len(texts) - each[:, None] + SMOOTH)
    ratio = np.log(share) - np.log(rest)  # [C, V]
    strength = np.abs(ratio).max(0)
    reach = np.clip(strength / 1.0, 0.1, 1.0).astype(np.float32)
    reach[0] = 0.0
    vectors = np.random.default_rng(seed).normal(size=(words, WIDTH)).astype(np.float32) * 0.3
    vectors[0] = 0.0
    shape = Shape(hidden=HIDDEN, bits=16, outputs=outputs)
    model = HardmaxTransformer(vectors, reach, clause_of(lists.words), sentence_of(lists.words), shape)
    with torch.no_grad():
        along = model.v / model.v.norm(dim=1, keepdim=True)  # [C, d]
        lean = torch.from_numpy(ratio[-1:] if outputs == 1 else ratio).float()  # [C, V]
        model.own[:, :-1] = 0.5 * (lean.T @ along)
        model.own[:, -1] = torch.from_numpy(strength).float() - 0.5
        model.own[0] = 0.0
        prior = torch.from_numpy(np.log(each / len(texts))).float()
        model.b.copy_(prior[1:] - prior[0] if outputs == 1 else prior - prior.mean())
    epochs = int(np.clip(np.ceil(STEPS / max(len(texts) / 32, 1)), 4, 200))
    how = Optimisation(epochs=epochs, texts=32, places=8_192, warm_up=20, average=0.5, seed=seed)
    work.epochs = epochs
    plan, blur = [np.arange(len(texts))] * epochs, blur_of(lists.words)
    return fit(model, texts, plan, how, blur, say=lambda _: work.did(len(texts)))


def _linear(rows: Sequence[tuple[str, str]], learn: Ints, held: Ints, labels: Sequence[str]) -> Ints:
    """What TF-IDF of words and pairs with logistic regression answers."""
    peer = make_pipeline(
        TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, token_pattern=r"(?u)\b\w+\b"),
        LogisticRegression(C=10.0, max_iter=1000),
    )
    peer.fit([rows[i][0] for i in learn], [labels.index(rows[i][1]) for i in learn])
    return np.asarray(peer.predict([rows[i][0] for i in held]), dtype=np.int64)


def _figures(
    answers: NDArray[np.float64], linear: Ints, truth: Ints, labels: Sequence[str], parts: int
) -> tuple[dict[str, Any], tuple[str, ...]]:
    said = (answers[:, 0] > 0).astype(np.int64) if answers.shape[1] == 1 else answers.argmax(1)
    ours, theirs = float((said == truth).mean()), float((linear == truth).mean())
    figures = {
        "measured": len(truth),
        "folds": parts,
        "accuracy": ours,
        "balanced_accuracy": balanced(said, truth),
        "most_frequent_label": float(np.bincount(truth).max() / len(truth)),
        "linear_accuracy": theirs,
        "labels": {
            label: {"rows": int((truth == c).sum()), "answered": int((said == c).sum())}
            for c, label in enumerate(labels)
        },
    }
    warnings = [
        f"the label {label!r} is never answered: it has too few rows, or they read like the others"
        for c, label in enumerate(labels)
        if not (said == c).any()
    ]
    if theirs > ours + 0.5 / len(truth) ** 0.5:
        warnings.append(
            f"a linear model (TF-IDF with logistic regression) is better on the same rows: "
            f"{100 * theirs:.1f} % against {100 * ours:.1f} %"
        )
    if (said == truth).sum() <= np.bincount(truth).max():
        warnings.append("no better than always answering the most frequent label: more rows are needed")
    return figures, tuple(warnings)
