"""What a head learns of labelled rows, and how good it is on rows that it had not seen.

    folds -> how long a plane learns, how sure it may be -> the plane of all rows -> what it does not know

It handles states and labels; train.py handles files and the command line.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from evaluation.labels import Rows
from model_export.data.training_set import Ints
from model_export.encoder.quantized import Stored
from model_export.head import ood, quantized
from model_export.head.encoded import EncodedTexts
from model_export.head.fitting import CHECKS, Floats, Task, fit, fixed_scales, logits, temperature, tempered
from model_export.head.leader_head import LeaderHead
from service.errors import InvalidInput
from service.report.figures import FOLDS, Judged, folds, linear, measure, repeated

OOD_FALSE_POSITIVE_RATE = 0.05  # share of the rows that may be called unlike the others
MANY = 2_000  # from so many rows on, one fold is measured: a third of the time

Thresholds = tuple[float, ...]  # of each label the probability from which on it is said


@dataclass(frozen=True)
class Held:
    """What planes said of rows that they had not seen."""

    rows: Ints
    logits: Floats  # [n, C]
    weights: list[Stored]  # the plane of each row
    steps: int
    factor: float


@dataclass(frozen=True)
class Trained:
    weights: dict[str, Any]
    report: dict[str, Any]
    thresholds: Thresholds | None
    unlike: dict[str, float]


def train(
    rows: Rows,
    states: EncodedTexts,
    others: Sequence[EncodedTexts],
    *,
    seed: int = 0,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Trained:
    """`states` of `rows`, which all have words; `others`: of sentences that are not rows."""
    truth = [frozenset(have) for have in rows.truth]
    parts = [np.array(part) for part in folds(truth, rows.texts)]
    if len(parts) < 2:
        raise InvalidInput("too few different texts to learn from some and measure others: add rows")
    near, apart, foreign = ood.calibrate(states, others, parts, OOD_FALSE_POSITIVE_RATE)
    plane, held = fitted(rows, states, parts, seed=seed, progress=progress)
    thresholds, chosen = _thresholds(held, rows) if rows.several else (None, [None] * len(held.rows))
    weights = {**quantized.quantize(plane, fixed_scales(states.width)), **near}
    judged = _judged(rows, states, held, chosen, apart)
    report = _report(rows, judged, held)
    return Trained(weights, report, thresholds, {"held_out": OOD_FALSE_POSITIVE_RATE, "others": foreign})


def fitted(
    rows: Rows,
    states: EncodedTexts,
    parts: Sequence[Ints],
    *,
    seed: int = 0,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> tuple[LeaderHead, Held]:
    """The plane of all rows, as the folds `parts` would have it, and what theirs said."""
    torch.set_num_threads(1)  # small products gain nothing from a second thread
    task = Task(len(rows.labels), rows.several)
    held = _held_out(states, rows, task, parts[:1] if len(rows.texts) >= MANY else parts, seed, progress)
    plane = fit(states, rows.targets, task, held.steps, seed=seed)
    tempered(plane, held.factor)
    return plane, held


def _held_out(
    states: EncodedTexts,
    rows: Rows,
    task: Task,
    parts: Sequence[Ints],
    seed: int,
    progress: Callable[[int, int], None],
) -> Held:
    """Each part answered by a plane of the others; how long it learns is what tells the truth best."""
    most = max(each for each in CHECKS if each <= max(60, 2 * len(states)))
    seen: dict[int, list[tuple[Floats, Stored]]] = {}
    for number, part in enumerate(parts):
        progress(number, len(parts))
        learnt, held = np.setdiff1d(np.arange(len(states)), part), states.take(part)

        def look(steps: int, plane: LeaderHead, held: EncodedTexts = held) -> None:
            weights = quantized.quantize(plane, fixed_scales(states.width))
            seen.setdefault(steps, []).append((logits(plane, held), weights))

        fit(states.take(learnt), rows.targets[learnt], task, most, seed=seed, look=look)
    every = np.concatenate(parts)
    targets = rows.targets[every]

    def surprise(steps: int) -> tuple[float, float, Floats]:
        said = np.concatenate([found for found, _ in seen[steps]])
        factor = temperature(said, targets, task)
        loss = task.loss(torch.from_numpy(said * factor), torch.from_numpy(targets).double())
        return float(loss), factor, said * factor

    best = min(seen, key=lambda steps: surprise(steps)[0])
    _, factor, said = surprise(best)
    planes = [weights for part, (_, weights) in zip(parts, seen[best], strict=True) for _ in part]
    return Held(every, said, planes, best, factor)


def _thresholds(held: Held, rows: Rows) -> tuple[Thresholds, list[Thresholds]]:
    """Those of all held-out rows, for the model; of each row those of the other folds, to measure with."""
    probs, truth = 1 / (1 + np.exp(-held.logits)), rows.targets[held.rows] > 0
    whole = _best(probs, truth)
    each = [whole] * len(probs)
    for part in folds([frozenset(rows.truth[i]) for i in held.rows], [rows.texts[i] for i in held.rows]):
        others = np.setdiff1d(np.arange(len(probs)), part)
        best = _best(probs[others], truth[others])
        for i in part:
            each[i] = best
    return whole, each


def _best(probs: Floats, truth: NDArray[np.bool_]) -> Thresholds:
    """Those of the best F1, label by label."""
    tried = np.linspace(0.2, 0.8, 25)

    def score(label: int, threshold: float) -> tuple[float, float]:
        said = probs[:, label] >= threshold
        f1 = 2 * (said & truth[:, label]).sum() / max(1, said.sum() + truth[:, label].sum())
        return float(f1), -abs(threshold - 0.5)

    return tuple(round(max(tried, key=partial(score, label)), 3) for label in range(probs.shape[1]))


def _judged(
    rows: Rows, states: EncodedTexts, held: Held, chosen: Sequence[Thresholds | None], apart: Floats
) -> list[Judged]:
    """`chosen`: thresholds, row by row. subtle: leaders only of wrong rows; the report shows no others."""
    found = []
    whole = zip(held.rows.tolist(), held.logits, held.weights, chosen, strict=True)
    for row, said, weights, thresholds in whole:
        probs = dict(zip(rows.labels, _probabilities(said, thresholds is not None).tolist(), strict=True))
        if thresholds is None:
            answer = frozenset([max(probs, key=probs.__getitem__)])
        else:
            answer = frozenset(
                label for (label, p), least in zip(probs.items(), thresholds, strict=True) if p >= least
            )
        truth = frozenset(rows.truth[row])
        leaders = () if answer == truth else _leaders(rows.texts[row], states, row, weights)
        undecided = "unlike the rows" if apart[row] > 0 else None
        found.append(Judged(rows.texts[row], truth, answer, probs, undecided, leaders))
    return found


def _probabilities(said: Floats, several: bool) -> Floats:
    if len(said) == 1 or several:
        p = 1 / (1 + np.exp(-said))
        return np.array([1 - p[0], p[0]]) if len(said) == 1 else p
    power = np.exp(said - said.max())
    return np.asarray(power / power.sum())


def _leaders(text: str, states: EncodedTexts, row: int, weights: Stored) -> tuple[str, ...]:
    """The words that the others end with, those of the heaviest clusters first."""
    reading, both = states.readings[row], states.states[row]
    told = quantized.run(weights, both[:, 0], both[:, 1], states.members(row))
    worth = {
        int(leader): float(np.abs(told.contribution[:, told.target == leader].sum(1)).max())
        for leader in set(told.target.tolist()) - {-1}
    }
    order = sorted(worth, key=lambda leader: -worth[leader])
    return tuple(text[reading.starts[i] : reading.ends[i]].lower() for i in order)


def _report(rows: Rows, judged: Sequence[Judged], held: Held) -> dict[str, Any]:
    found = measure(judged, rows.labels, several=rows.several)
    every = len(held.rows) == len(rows.texts)
    truth, parts = [frozenset(have) for have in rows.truth], [] if every else [held.rows.tolist()]
    beside = linear(rows.texts, truth, rows.labels, parts)
    folded = f"{FOLDS} folds of the rows" if every else f"{len(judged):,} rows, held out"
    again = repeated(rows.texts)
    together = f"; {again:,} rows repeat the text of another and are held out with it" if again else ""
    warnings = [
        f"the label {each['label']!r} is never answered: it has too few rows, or they read like the others"
        for each in found["labels"]
        if not each["said"]
    ]
    if beside is not None and beside > found["accuracy"] + 0.5 / len(judged) ** 0.5:
        warnings.append(
            f"TF-IDF with logistic regression is better on the same rows: {beside:.1%} against "
            f"{found['accuracy']:.1%}"
        )
    if found["accuracy"] <= found["most_frequent_label"]:
        warnings.append("no better than always answering the most frequent label: more rows are needed")
    return {
        "title": "A model of one's own",
        "source": f"measured on {folded}, each by a plane that had not seen it{together}",
        "models": {"this model": found},
        "linear": beside,
        "warnings": warnings,
    }
