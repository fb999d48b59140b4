"""The definition in numpy, one text at a time: the formulas of model.py and nothing else.

Places are computed in float64. Attention can be asked for in float32, where it is the graph's to the bit: a
score is a sum of d products, each rounded alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model_export.sentiment.model import CONCEDED, CONCEDES, NEGATES, PAIR, SCOPE, TRIPLE, Weights

Array = NDArray[Any]


@dataclass(frozen=True)
class Answer:
    """One text of n words; `targets` are C of every layer, bool [K, n, n] over places, twins all members."""

    states: Array  # [K + 1, n, d]
    targets: Array
    weight: Array  # [n]
    contribution: Array  # [C, n]
    bias: Array  # [C]

    @property
    def logit(self) -> Array:
        return np.asarray(self.bias + self.contribution.sum(axis=1))


def places(weights: Weights, ids: Array) -> tuple[Array, Array]:
    """z [n, d] and w [n], in float64."""
    n, d = len(ids), weights.readout.shape[1]
    reach = max(2, *map(abs, weights.offsets))
    wide = np.concatenate((np.zeros(reach, np.int64), ids, np.zeros(reach, np.int64)))

    def shifted(offset: int) -> Array:
        return wide[reach + offset : reach + offset + n]

    *tables, table_under = weights.tables.astype(np.float64)
    total = weights.hidden_bias + sum(
        np.where(under(weights, ids)[:, None], table_under[ids], table[ids])
        if offset == 0
        else table[shifted(offset)]
        for offset, table in zip(weights.offsets, tables, strict=True)
    )
    pair = shifted(-1) * PAIR[0] + ids * PAIR[1]
    triple = pair + shifted(-2) * TRIPLE
    o = np.maximum(total, 0) @ weights.out.astype(np.float64) + weights.out_bias
    o = o + weights.own[ids] + weights.pairs[pair & (len(weights.pairs) - 1)]
    o = o + weights.triples[triple & (len(weights.triples) - 1)]
    r, u = o[:, :d], o[:, d] + weights.concession * conceded(weights, ids)
    z = weights.scale * weights.reach[ids][:, None] * r / np.sqrt(1 + (r * r).sum(axis=1, keepdims=True))
    return z, np.logaddexp(0, u)


def under(weights: Weights, ids: Array) -> Array:
    """Whether each place [n] is under a negator of its clause."""
    does, found = weights.clause[ids], np.zeros(len(ids), bool)
    for i in range(len(ids)):
        words = does[max(0, i - SCOPE) : i + 1]
        last = np.flatnonzero(words)[-1:]
        found[i] = bool((words[last] == NEGATES).any() and last < len(words) - 1)
    return found


def conceded(weights: Weights, ids: Array) -> Array:
    """Whether each place [n] comes before a word that concedes it, in its sentence."""
    does, found = weights.sentence[ids], np.zeros(len(ids), bool)
    for i in range(len(ids)):
        words = does[i : i + CONCEDED + 1]
        found[i] = bool((words[np.flatnonzero(words)[:1]] == CONCEDES).any())
    return found


def scores(z: Array) -> Array:
    """<z_i, z_j> [n, n], number by number and in this order."""
    return np.asarray(sum(np.multiply.outer(column, column) for column in z.T))


def attend(z: Array) -> Array:
    """C [n, n]."""
    s = scores(z)
    return np.asarray(s == s.max(axis=1, keepdims=True))


def step(z: Array, C: Array, gamma: float) -> Array:
    """z_i + gamma (mean of C_i - z_i); a mean over one point is that point, also where it has twins."""
    first = C.argmax(axis=1)
    mean = z[first]
    for i in np.flatnonzero(C.sum(axis=1) > 1):
        members = z[C[i]]
        if (members != members[0]).any():
            mean[i] = members.mean(axis=0)
    return np.asarray(z + z.dtype.type(gamma) * (mean - z))


def answer(weights: Weights, ids: Array) -> Answer:
    """The whole model on one text."""
    z, w = places(weights, ids)
    states, targets = [z], []
    for _ in range(weights.layers):
        targets.append(attend(states[-1]))
        states.append(step(states[-1], targets[-1], weights.alpha / (1 + weights.alpha)))
    s = float(weights.calibration[min(len(ids), len(weights.calibration) - 1)])
    part = (
        s
        * w
        * (weights.readout.astype(np.float64) @ states[-1].T)
        / max(weights.pseudo_weight + w.sum(), 1e-9)
    )
    return Answer(np.stack(states), np.stack(targets), w, part, s * weights.bias.astype(np.float64))
