"""A trained model followed layer by layer in plain numpy: where a token is, and since when it leads.

For figures and tables about many texts; the served model says the same (`verify` compares them).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from model_export.model import Weights
from model_export.tokens import Bags, Ids


@dataclass(frozen=True)
class Trace:
    tokens: Ids  # [n]
    counts: NDArray[np.float32]  # [n]
    states: NDArray[np.float64]  # [K+1, n, d]
    since: Ids  # [n] the first layer with C_i = {i}, -1: never
    logit: float

    @property
    def leaders(self) -> Ids:
        """Positions, not token ids."""
        return np.flatnonzero(self.since >= 0)


def trace(
    weights: Weights,
    tokens: Ids,
    counts: NDArray[np.float32],
    temperature: float = 0.0,
    layers: int | None = None,
) -> Trace:
    """One text. A `temperature` above 0 uses the softmax that hardmax is the limit of."""
    Z = weights.embedding[tokens].astype(np.float64)
    gamma = weights.alpha / (1 + weights.alpha)
    states, since = [Z], np.full(len(tokens), -1)
    for layer in range(weights.layers if layers is None else layers):
        P = attention(Z if weights.metric is None else Z @ weights.metric, Z, counts, temperature)
        alone = (P > 0).sum(1) == 1
        since[alone & (P.argmax(1) == np.arange(len(tokens))) & (since < 0)] = layer
        Z = Z + gamma * (P @ Z - Z)
        states.append(Z)
    w = counts * weights.word_weights[tokens].astype(np.float64)
    total = weights.pseudo_weight + w.sum()
    logit = weights.bias + (w @ (Z @ weights.readout) / total if total > 0 else 0.0)
    return Trace(tokens, counts, np.stack(states), since, float(logit))


def attention(
    Y: NDArray[np.float64], Z: NDArray[np.float64], counts: NDArray[np.float32], temperature: float
) -> NDArray[np.float64]:
    """[n, n] how much of each token every token looks at; rows sum to one."""
    scores = Y @ Z.T
    gap = scores - scores.max(1, keepdims=True)
    P = counts * (np.exp(gap / temperature) if temperature > 0 else (gap >= 0).astype(np.float64))
    return np.asarray(P / P.sum(1, keepdims=True))


def traces(weights: Weights, bags: Bags, rows: Ids, temperature: float = 0.0) -> list[Trace]:
    """Many texts; those without a known word are left out."""
    found = []
    for i in rows:
        part = slice(bags.start[i], bags.start[i + 1])
        if part.start < part.stop:
            found.append(trace(weights, bags.tokens[part], bags.counts[part], temperature))
    return found
