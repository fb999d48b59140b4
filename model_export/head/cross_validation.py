"""Train a head on labelled rows by cross-validation, and measure it on rows that it was not trained on.

    folds by near-duplicates -> number of steps, temperature -> the head of all rows -> OOD threshold

This module handles encoded texts and labels; train.py handles files and the command line.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from evaluation.baseline import BASELINE_NAME, cross_validated_accuracy
from evaluation.folds import N_FOLDS, stratified_folds
from evaluation.label_errors import find_label_errors
from evaluation.labels import Rows
from evaluation.metrics import N_ERRORS, Prediction, describe_prediction, evaluate
from evaluation.near_duplicates import NearDuplicates, find_near_duplicates
from model_export.data.training_set import Ints
from model_export.encoder.quantization import Weights
from model_export.head import graph, ood, quantization
from model_export.head.encoded import EncodedTexts
from model_export.head.fitting import (
    CHECKPOINTS,
    Floats,
    Task,
    fit,
    fit_logit_scale,
    fixed_scales,
    predict_logits,
    scale_logits,
)
from model_export.head.leader_head import LeaderHead
from service.errors import InvalidInput
from service.runtime.session import Runtime, Session

ONE_FOLD_ROWS = 2_000  # with at least as many rows, a single fold is held out
OUT_OF_DISTRIBUTION = "out_of_distribution"

Thresholds = tuple[float, ...]  # of each label, the probability from which it is predicted
Log = Callable[[str], None]


@dataclass(frozen=True)
class HeldOutPredictions:
    """Predictions of heads for rows that they were not trained on."""

    rows: Ints
    logits: Floats  # [n, C]
    sessions: list[Session]  # the head that predicted each row
    steps: int
    factor: float


@dataclass(frozen=True)
class TrainedHead:
    """A head, fields of its card, and the report of its cross-validation."""

    head: LeaderHead
    weights: dict[str, Any]
    report: dict[str, Any]
    thresholds: Thresholds | None
    ood: dict[str, float]


def train(
    rows: Rows, texts: EncodedTexts, contrasts: Sequence[EncodedTexts], *, seed: int = 0, log: Log = print
) -> TrainedHead:
    """Train a head and measure it.

    Args:
        rows: labelled texts that have words.
        texts: the same texts, encoded.
        contrasts: encoded texts that are unlike the rows, for the OOD score.
        seed: of the random numbers.
        log: called with a line after each fold.

    Raises:
        InvalidInput: the rows are too few or too alike for two folds.
    """
    truth = [frozenset(labels) for labels in rows.truth]
    duplicates = find_near_duplicates(rows.texts)
    folds = stratified_folds(truth, duplicates.groups)
    if len(folds) < 2:
        raise InvalidInput("too few different texts to train on some and measure on others: add rows")
    head, held_out = cross_validate(rows, texts, folds, seed=seed, log=log)
    thresholds, row_thresholds = (
        _f1_thresholds(held_out, rows) if rows.multi_label else (None, [None] * len(held_out.rows))
    )
    predictions = _make_predictions(rows, texts, held_out, row_thresholds)
    correct = np.full(len(rows.texts), np.nan)
    correct[held_out.rows] = [prediction.correct for prediction in predictions]
    score = ood.calibrate(texts, contrasts, folds, correct)
    predictions = [
        prediction if score.held_out[row] <= 0 else replace(prediction, abstain_reason=OUT_OF_DISTRIBUTION)
        for row, prediction in zip(held_out.rows.tolist(), predictions, strict=True)
    ]
    weights = {**quantization.quantize(head, fixed_scales(texts.width)), **score.weights}
    report = _report(rows, predictions, held_out, folds, duplicates)
    return TrainedHead(head, weights, report, thresholds, {"held_out": score.rate, "others": score.detected})


def cross_validate(
    rows: Rows, texts: EncodedTexts, folds: Sequence[Ints], *, seed: int = 0, log: Log = lambda line: None
) -> tuple[LeaderHead, HeldOutPredictions]:
    """Return a head trained on all rows, with the steps chosen on the folds, and the held-out predictions."""
    torch.set_num_threads(1)  # small products gain nothing from a second thread
    task = Task(len(rows.labels), rows.multi_label)
    measured = folds[:1] if len(rows.texts) >= ONE_FOLD_ROWS else folds
    held_out = _predict_folds(texts, rows.targets, task, measured, seed, log)
    head = fit(texts, rows.targets, task, held_out.steps, seed=seed)
    scale_logits(head, held_out.factor)
    return head, held_out


def _predict_folds(
    texts: EncodedTexts, targets: NDArray[np.float32], task: Task, folds: Sequence[Ints], seed: int, log: Log
) -> HeldOutPredictions:
    """Predict each fold by a head trained on the other rows, for the number of steps with the least loss."""
    max_steps = max(steps for steps in CHECKPOINTS if steps <= max(60, 2 * len(texts)))
    results: dict[int, list[tuple[Floats, Weights]]] = {}
    for number, fold in enumerate(folds, 1):
        start_s = time.monotonic()
        train_rows, test = np.setdiff1d(np.arange(len(texts)), fold), texts.take(fold)

        def checkpoint(steps: int, head: LeaderHead, test: EncodedTexts = test) -> None:
            weights = quantization.quantize(head, fixed_scales(test.width))
            results.setdefault(steps, []).append((predict_logits(head, test), weights))

        fit(texts.take(train_rows), targets[train_rows], task, max_steps, seed=seed, checkpoint=checkpoint)
        sizes = f"trained on {len(train_rows):,}, held out {len(fold):,}"
        log(f"fold {number} of {len(folds)}: {sizes} ({time.monotonic() - start_s:.1f} s)")
    rows = np.concatenate(folds)
    y = targets[rows]

    def loss_at(steps: int) -> tuple[float, float, Floats]:
        logits = np.concatenate([fold_logits for fold_logits, _ in results[steps]])
        factor = fit_logit_scale(logits, y, task)
        loss = task.loss(torch.from_numpy(logits * factor), torch.from_numpy(y).double())
        return float(loss), factor, logits * factor

    best = min(results, key=lambda steps: loss_at(steps)[0])
    _, factor, logits = loss_at(best)
    sessions: list[Session] = []
    for fold, (_, weights) in zip(folds, results[best], strict=True):
        sessions += [Runtime("cpu", 1).open(graph.to_onnx(weights).SerializeToString())] * len(fold)
    return HeldOutPredictions(rows, logits, sessions, best, factor)


# ---- several labels of one text


def _f1_thresholds(held_out: HeldOutPredictions, rows: Rows) -> tuple[Thresholds, list[Thresholds]]:
    """Return the thresholds of the best F1: for the model on all rows, for each row on the other folds."""
    probs = torch.from_numpy(held_out.logits).sigmoid().numpy()
    truth = rows.targets[held_out.rows] > 0
    model_thresholds = _best_f1(probs, truth)
    row_thresholds = [model_thresholds] * len(probs)
    labels = [frozenset(rows.truth[i]) for i in held_out.rows]
    for fold in stratified_folds(labels, np.arange(len(labels))):
        train_rows = np.setdiff1d(np.arange(len(probs)), fold)
        best = _best_f1(probs[train_rows], truth[train_rows])
        for i in fold:
            row_thresholds[i] = best
    return model_thresholds, row_thresholds


def _best_f1(probs: Floats, truth: NDArray[np.bool_]) -> Thresholds:
    candidates = np.linspace(0.2, 0.8, 25)

    def score(label: int, threshold: float) -> tuple[float, float]:
        predicted = probs[:, label] >= threshold
        f1 = 2 * (predicted & truth[:, label]).sum() / max(1, predicted.sum() + truth[:, label].sum())
        return float(f1), -abs(threshold - 0.5)

    return tuple(round(max(candidates, key=partial(score, label)), 3) for label in range(probs.shape[1]))


# ---- predictions and the report


def _make_predictions(
    rows: Rows, texts: EncodedTexts, held_out: HeldOutPredictions, thresholds: Sequence[Thresholds | None]
) -> list[Prediction]:
    """Return the held-out predictions, with leaders only for errors, which the report lists."""
    predictions = []
    fields = zip(held_out.rows.tolist(), held_out.logits, held_out.sessions, thresholds, strict=True)
    for row, logits, session, limits in fields:
        probs = dict(zip(rows.labels, _probabilities(logits, limits is not None).tolist(), strict=True))
        if limits is None:
            predicted = frozenset([max(probs, key=probs.__getitem__)])
        else:
            above = zip(probs.items(), limits, strict=True)
            predicted = frozenset(label for (label, p), limit in above if p >= limit)
        truth = frozenset(rows.truth[row])
        leaders = () if predicted == truth else _leaders(rows.texts[row], texts, row, session)
        number = rows.numbers[row] if rows.numbers else row + 1
        predictions.append(Prediction(rows.texts[row], truth, predicted, probs, None, leaders, number))
    return predictions


def _probabilities(logits: Floats, multi_label: bool) -> Floats:
    x = torch.from_numpy(logits)
    if len(x) == 1 and not multi_label:
        x = torch.stack([torch.zeros_like(x[0]), x[0]])
    return np.asarray((x.sigmoid() if multi_label else x.softmax(0)).numpy())


def _leaders(text: str, texts: EncodedTexts, row: int, session: Session) -> tuple[str, ...]:
    """Return the leaders of a text, sorted by the contribution of their clusters."""
    tokenized, outputs = texts.tokenized[row], session.run(texts.feeds([row]), ("contribution", "target"))
    contribution, target = (output.reshape(-1, len(tokenized)) for output in outputs)  # [C, N], [1, N]
    size = {
        leader: float(np.abs(contribution[:, target[0] == leader].sum(1)).max())
        for leader in set(target[0].tolist()) - {-1}
    }
    order = sorted(size, key=lambda leader: -size[leader])
    return tuple(text[tokenized.starts[i] : tokenized.ends[i]].lower() for i in order)


def _report(
    rows: Rows,
    predictions: Sequence[Prediction],
    held_out: HeldOutPredictions,
    folds: Sequence[Ints],
    duplicates: NearDuplicates,
) -> dict[str, Any]:
    metrics = evaluate(predictions, rows.labels, multi_label=rows.multi_label)
    measured = folds if len(held_out.rows) == len(rows.texts) else folds[:1]
    truth = [frozenset(labels) for labels in rows.truth]
    baseline = cross_validated_accuracy(
        rows.texts, truth, rows.labels, [fold.tolist() for fold in measured], multi_label=rows.multi_label
    )
    method = (
        f"{len(measured)} folds"
        if len(measured) > 1
        else f"{len(predictions):,} rows held out of {N_FOLDS} parts"
    )
    return {
        "title": "Custom model",
        "source": f"cross-validation: {method}; no row was predicted by a head that was trained on it",
        "models": {"custom": metrics},
        "baseline": {"name": BASELINE_NAME, "accuracy": baseline, "source": "same folds"}
        if baseline
        else None,
        "label_errors": [] if rows.multi_label else _label_errors(rows, predictions),
        "warnings": [*_duplicate_warnings(rows, duplicates), *_quality_warnings(metrics, baseline)],
    }


def _label_errors(rows: Rows, predictions: Sequence[Prediction]) -> list[dict[str, Any]]:
    probs = np.array([[row.probs[label] for label in rows.labels] for row in predictions])
    labels = [rows.labels.index(next(iter(row.truth))) for row in predictions]
    return [describe_prediction(predictions[i]) for i in find_label_errors(probs, labels)[:N_ERRORS]]


def _duplicate_warnings(rows: Rows, duplicates: NearDuplicates) -> list[str]:
    share = duplicates.n_duplicates / len(rows.texts)
    if share < 0.1:
        return []
    return [
        f"{duplicates.n_duplicates:,} of {len(rows.texts):,} rows are near-duplicates of others (they share "
        f"{duplicates.similarity:.0%} of their words or more). They are held out together; texts in other "
        "words may still be harder than these figures say: measure some with hardmax evaluate"
    ]


def _quality_warnings(metrics: dict[str, Any], baseline: float | None) -> list[str]:
    warnings = [
        f"the label {label['label']!r} is never predicted: it has too few rows, or they resemble the others"
        for label in metrics["labels"]
        if not label["predicted"]
    ]
    if baseline is not None and baseline > metrics["accuracy"] + 0.5 / metrics["rows"] ** 0.5:
        warnings.append(
            f"{BASELINE_NAME} is better on the same folds: {baseline:.1%}, "
            f"this model {metrics['accuracy']:.1%}"
        )
    if metrics["accuracy"] <= metrics["majority_class"]:
        warnings.append("no better than always predicting the most frequent label: more rows are needed")
    return warnings
