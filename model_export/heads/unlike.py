"""Whether a text is unlike the rows: a measure on its words' mean states, calibrated while training.

    u = log p(x | ordinary) - log p(x | rows) - threshold    both normal, in a few directions

Ordinary sentences (ordinary.txt) are of many subjects and some languages. Their spread is widened: what is
far from both is nearer to them. The threshold lets 5 % of held-out rows be unlike the rest. In the
graph u is a
quadratic form of a few linear maps (stored.unlike).
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files

import numpy as np
from numpy.typing import NDArray

from model_export.heads.states import States
from model_export.heads.stored import unlike
from model_export.reader.stored import Array

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

HELD_OUT = 0.05
DIRECTIONS = 24
PRIOR = 40.0  # rows that say the usual spread, beside the rows
WIDER = 2.0  # ordinary sentences are not all that is not a row


def ordinary() -> list[str]:
    return files("model_export.heads").joinpath("ordinary.txt").read_text(encoding="utf-8").split("\n")[:-1]


def measure(rows: Floats, others: Floats) -> dict[str, Array]:
    """The stored numbers of u, threshold 0. `rows`, `others` [n, 2W] mean states around 0, last and first."""
    both = np.concatenate([rows, others])
    middle = both.mean(0)
    _, size, along = np.linalg.svd(both - middle, full_matrices=False)
    k = int(min(DIRECTIONS, len(rows) - 1, (size > 1e-6 * size[0]).sum()))
    basis = along[:k] * (np.sqrt(len(both)) / size[:k, None])
    ours, theirs = (rows - middle) @ basis.T, (others - middle) @ basis.T
    usual = np.eye(k)  # the spread of both together, in this basis
    spread = _spread(ours, usual)
    wide = WIDER * _spread(theirs, usual)
    a, b = np.linalg.inv(spread), np.linalg.inv(wide)
    square, turn = np.linalg.eigh((a - b) / 2)
    straight = turn.T @ (b @ theirs.mean(0) - a @ ours.mean(0))
    offset = (ours.mean(0) @ a @ ours.mean(0) - theirs.mean(0) @ b @ theirs.mean(0)) / 2
    offset += (np.linalg.slogdet(spread)[1] - np.linalg.slogdet(wide)[1]) / 2
    weight = turn.T @ basis
    unit = np.abs(weight).max(1) / 127
    return {
        "near": np.round(weight / unit[:, None]).T.astype(np.int8),
        "near_unit": unit.astype(np.float32),
        "near_bias": (-weight @ middle).astype(np.float32),
        "square": square,
        "straight": straight,
        "offset": np.array(offset),
    }


def calibrated(
    states: States, others: States, parts: Sequence[Ints]
) -> tuple[dict[str, Array], Floats, float]:
    """The measure of all rows; u of each row by one that has not seen it; the share of `others` above 0."""
    rows, apart = states.means(), others.means()
    held = np.zeros(len(states))
    for part in parts:
        learnt = np.setdiff1d(np.arange(len(states)), part)
        held[part] = told(measure(rows[learnt], apart), states.take(part))
    seen = np.concatenate([*parts])
    threshold = float(np.quantile(held[seen], 1 - HELD_OUT, method="higher"))
    found = measure(rows, apart)
    found["offset"] = found["offset"] - threshold
    return found, held - threshold, float((told(found, others) > 0).mean())


def told(weights: dict[str, Array], states: States) -> Floats:
    return np.array(
        [unlike(weights, x[:, 0], x[:, 1], states.members(i)) for i, x in enumerate(states.found)]
    )


def _spread(x: Floats, usual: Floats) -> Floats:
    apart = x - x.mean(0)
    spread: Floats = (apart.T @ apart + PRIOR * usual) / (len(x) + PRIOR)
    return spread
