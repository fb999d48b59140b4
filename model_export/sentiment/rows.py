"""How the weights are stored: small in the file, and exactly what the served model computes with.

The first layer is a sum of rows, one table an offset, in eight-bit integers. All rows share one scale a
column, so a sum of them is an integer: exact, on any device and in any order. The tables of pairs and triples
are eight-bit integers too. The stored model *is* the model: what is verified or measured uses
`Stored.weights`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model_export.sentiment.model import Weights
from service.errors import InvalidInput

CODES = 127
SEEN = 0.9999  # of a column's numbers, but for zeros, lie within its scale; the few beyond are cut
Array = NDArray[Any]
Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Codes:
    """codes * scale, with one scale a column."""

    codes: NDArray[np.int8]
    scale: Floats  # [columns]

    @classmethod
    def of(cls, values: Array) -> Codes:
        columns = np.abs(values.reshape(-1, values.shape[-1])).T
        largest = [np.quantile(c[c > 0], SEEN, method="higher") if c.any() else CODES for c in columns]
        scale = (np.array(largest) / CODES).astype(np.float32)
        return cls(np.clip(np.rint(values / scale), -CODES, CODES).astype(np.int8), scale)

    @property
    def values(self) -> Floats:
        return self.codes.astype(np.float32) * self.scale


@dataclass(frozen=True)
class Stored:
    """The parts of a model that are not stored as they were trained."""

    tables: Codes  # [O, V, H]
    pairs: NDArray[np.int8]  # [R, d + 1]
    triples: NDArray[np.int8]
    phrase_scale: Floats  # [d + 1] of both
    weights: Weights  # the model as it is served


def store(weights: Weights) -> Stored:
    _check(weights)
    tables = Codes.of(weights.tables)
    phrases = Codes.of(np.concatenate((weights.pairs, weights.triples)))
    pairs, triples = np.split(phrases.codes, [len(weights.pairs)])
    served = replace(
        weights,
        tables=tables.values,
        pairs=pairs * phrases.scale,
        triples=triples * phrases.scale,
    )
    return Stored(tables, pairs, triples, phrases.scale, served)


def _check(weights: Weights) -> None:
    """Row 0 is padding: it says nothing and reaches nothing. Every other word has a place off the origin."""
    for name in ("tables", "own", "pairs", "triples", "out", "reach", "readout", "bias", "calibration"):
        if not np.isfinite(getattr(weights, name)).all():
            raise InvalidInput(f"a number of {name} is not finite", param=name)
    if weights.reach[0] != 0 or not (weights.reach[1:] > 0).all():
        raise InvalidInput("reach must be 0 for <pad> and above 0 for every other word", param="reach")
    for name in ("pairs", "triples"):
        rows = len(getattr(weights, name))
        if rows & (rows - 1):
            raise InvalidInput(f"{name} has {rows} rows, which is no power of two", param=name)
