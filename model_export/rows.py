"""How the table of tokens is stored: small in the file, and exactly what the served model computes with.

A row of a wide embedding is eight-bit integers times one scale; a narrow one stays float, for the plane has
too few directions to round. The stored model *is* the model: what is verified or measured uses `Rows.apply`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model_export.model import Weights
from service.errors import InvalidInput

NARROW = 8  # dimensions up to which rows stay float32
_CODES = 127


@dataclass(frozen=True)
class Rows:
    """Token i starts at codes[i] * scale[i] and weighs weights[i] in the read-out."""

    codes: NDArray[Any]  # [V, d] int8 or float32
    scale: NDArray[np.float16]  # [V, 1]
    weights: NDArray[np.float16] | NDArray[np.float32]  # [V]

    def apply(self, weights: Weights) -> Weights:
        """The model as it will be served."""
        embedding = self.codes.astype(np.float32) * self.scale.astype(np.float32)
        return replace(weights, embedding=embedding, word_weights=self.weights.astype(np.float32))


def store(weights: Weights) -> Rows:
    """Rows for `weights`: distinct and nonzero, as the theory asks."""
    E = np.array(weights.embedding, np.float32)
    E[0] = 0.0
    w = np.asarray(weights.word_weights, np.float32)
    if E.shape[1] <= NARROW:
        rows = Rows(E, np.ones((len(E), 1), np.float16), w)
    else:
        largest = np.abs(E).max(axis=1, keepdims=True)
        scale = (largest / _CODES).astype(np.float16)
        step = np.where(scale > 0, scale, 1).astype(np.float32)
        codes = np.clip(np.rint(E / step), -_CODES, _CODES).astype(np.int8)
        rows = Rows(codes, scale, w.astype(np.float16))
    _check(rows)
    return rows


def _check(rows: Rows) -> None:
    """subtle: rows 0 (padding) and 1 (unknown) never are tokens of a text."""
    served = rows.codes[2:].astype(np.float32) * rows.scale[2:].astype(np.float32)
    if not (np.isfinite(served).all() and np.isfinite(rows.weights[2:]).all()):
        raise InvalidInput("a token's embedding or weight is not finite", param="embedding")
    if len(np.unique(served, axis=0)) < len(served):
        raise InvalidInput("two tokens have the same embedding", param="embedding")
    if not np.abs(served).max(axis=1, initial=0.0).all():
        raise InvalidInput("a token's embedding is zero", param="embedding")
    if not (rows.weights[2:] > 0).all():
        raise InvalidInput("a token's weight is not positive", param="word_weights")
