"""Whether a text is unlike the rows that a head learnt from: a measure on its words' mean states.

    u = max over others of <w, x> - threshold,    w = (S + ridge)^-1 (mean of others - mean of rows)

The others are ordinary English sentences of many subjects (ordinary.txt) and sentences of other languages
(languages.txt). They have a direction each (Fisher 1936), in which S is the usual spread of rows and others:
one direction for both tells neither from the rows. The thresholds, alike for each, let a share of held-out
rows be unlike the rest. In the graph u is the largest of these linear maps (stored.unlike).
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files

import numpy as np
from numpy.typing import NDArray

from model_export.data.lessons import Ints
from model_export.heads.states import States
from model_export.heads.stored import unlike
from model_export.reader.stored import Array

Floats = NDArray[np.float64]
Means = NDArray[np.float32]

RIDGE = 0.3  # share of the mean spread of a state
MOST = 4_000  # rows that a direction is learnt from, at most


def ordinary() -> list[str]:
    """English sentences of many subjects."""
    return _lines("ordinary.txt")


def languages() -> list[str]:
    """Sentences that are not English."""
    return _lines("languages.txt")


def _lines(name: str) -> list[str]:
    return files("model_export.heads").joinpath(name).read_text(encoding="utf-8").split("\n")[:-1]


def calibrated(
    states: States, others: Sequence[States], parts: Sequence[Ints], held_out: float
) -> tuple[dict[str, Array], Floats, float]:
    """The measure of all rows; u of each row by one that has not seen it; the share of `others` above 0.

    `held_out`: the share of rows that may be called unlike those that the measure has seen.
    """
    rows, apart = states.means(), [each.means() for each in others]
    held = np.zeros((len(states), len(apart)))
    for part in parts:
        learnt = np.setdiff1d(np.arange(len(states)), part)
        weight, bias = directions(rows[learnt], apart)
        held[part] = rows[part] @ weight + bias
    weight, bias = directions(rows, apart)
    threshold = _thresholds(held[np.concatenate([*parts])], held_out)
    found = _whole(weight, bias - threshold)
    foreign = [told(found, each) > 0 for each in others]
    return found, (held - threshold).max(1), float(np.concatenate(foreign).mean())


def directions(rows: Means, others: Sequence[Means]) -> tuple[Floats, Floats]:
    """[2W, k] and [k]: linear in mean states, 0 at the mean of the rows and 1 at that of the others."""
    rows = rows[:: -(-len(rows) // MOST)]
    middle = rows.mean(0)
    found = []
    for each in others:
        away = each.mean(0) - middle
        spread = (np.cov(rows.T, bias=True) + np.cov(each.T, bias=True)) / 2
        spread[np.diag_indices_from(spread)] += RIDGE * spread.trace() / len(spread)
        weight = np.linalg.solve(spread, away)
        found.append(weight / (weight @ away))
    weights = np.stack(found, 1)
    return weights, -middle @ weights


def told(weights: dict[str, Array], states: States) -> Floats:
    return np.array(
        [unlike(weights, x[:, 0], x[:, 1], states.members(i)) for i, x in enumerate(states.found)]
    )


def _thresholds(held: Floats, share: float) -> Floats:
    """[k], the same quantile of each, so that this share of the rows [n, k] is above one of them."""
    ranks = held.argsort(0).argsort(0).max(1)  # of each row, where it is most unlike
    rank = int(np.quantile(ranks, 1 - share, method="higher"))
    found: Floats = np.sort(held, axis=0)[rank]
    return found


def _whole(weight: Floats, bias: Floats) -> dict[str, Array]:
    unit = np.abs(weight).max(0) / 127
    return {
        "near": np.round(weight / unit).astype(np.int8),
        "near_unit": unit.astype(np.float32),
        "near_bias": bias.astype(np.float32),
    }
