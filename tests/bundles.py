"""Bundles for tests: tiny sentiment models whose answers are known by hand.

The plane model: "superb" and "awful" are the two far tokens and lead; all others are closer to the origin.

    token      place        weight     attends to (layer 0)
    superb     ( 4,  0)     1          itself
    awful      (-4,  0)     1          itself
    good       ( 1,  0)     1          superb if there, awful never
    bad        (-1,  0)     1          awful if there
    the        ( 0,  1)     2          itself beside superb and awful only: <the, superb> = 0 < 1
    film       ( 0, .5)     1          the if there
    not good   (-2,  1)     1          awful (8) before itself (5)
    waste of time (-3, -1)  1          awful (12) before itself (10)

With v = (1, 0), b = 0.5, alpha = 1 and 2 layers, a follower ends at leader + (start - leader) / 4.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from model_export.bundle import write_bundle
from model_export.model import Weights
from model_export.rows import store
from model_export.sentiment import to_onnx
from model_export.tokens import tokenizer_of
from service.bundle import Bundle
from service.runtime import Runtime
from service.sentiment import Sentiment

PLACES: dict[str, tuple[float, float, float]] = {  # x, y, weight
    "superb": (4, 0, 1),
    "awful": (-4, 0, 1),
    "good": (1, 0, 1),
    "bad": (-1, 0, 1),
    "the": (0, 1, 2),
    "film": (0, 0.5, 1),
    "not": (-0.5, 0.25, 1),
    "waste": (-0.25, -0.75, 1),
    "of": (0.125, -0.25, 1),
    "time": (0.25, -0.125, 1),
    "not good": (-2, 1, 1),
    "waste of time": (-3, -1, 1),
}
ALPHA, LAYERS, BIAS = 1.0, 2, 0.5


def plane_weights(places: dict[str, tuple[float, float, float]] = PLACES, **changes: Any) -> Weights:
    """The weights of the table above; `changes` are fields of `Weights`."""
    table = np.array([(0, 0, 1), (0, 0, 1), *places.values()], dtype=np.float32)
    fields: dict[str, Any] = {
        "embedding": np.ascontiguousarray(table[:, :2]),
        "word_weights": table[:, 2].copy(),
        "readout": np.array([1, 0], np.float32),
        "bias": BIAS,
        "alpha": ALPHA,
        "layers": LAYERS,
    }
    return Weights(**(fields | changes))


def random_weights(vocabulary: int, dimension: int, seed: int = 0, **changes: Any) -> Weights:
    """A cloud of norms that differ widely, so that few tokens lead."""
    rng = np.random.default_rng(seed)
    spread = np.exp(rng.standard_normal((vocabulary, 1)))
    fields: dict[str, Any] = {
        "embedding": (rng.standard_normal((vocabulary, dimension)) * spread).astype(np.float32),
        "word_weights": np.exp(rng.standard_normal(vocabulary)).astype(np.float32),
        "readout": rng.standard_normal(dimension).astype(np.float32),
        "bias": 0.125,
        "alpha": 1.5,
        "layers": 4,
        "pseudo_weight": 0.75,
    }
    return Weights(**(fields | changes))


def write_sentiment(
    models_dir: Path, weights: Weights | None = None, vocabulary: list[str] | None = None, **card: Any
) -> Bundle:
    """Writes a sentiment bundle (default: the plane model, named "tiny"); `card` changes its card."""
    weights = plane_weights() if weights is None else weights
    vocabulary = list(PLACES) if vocabulary is None else vocabulary
    rows = store(weights)
    served = rows.apply(weights)
    whole = {
        "name": "tiny",
        "description": "A plane one can check by hand.",
        "labels": ["negative", "positive"],
        "seed": None,
        "alpha": served.alpha,
        "layers": served.layers,
        "dimension": served.embedding.shape[1],
        "vocabulary": len(served.embedding),
        "readout": {"vector": [float(x) for x in served.readout], "bias": served.bias},
        "data": {},
        "figures": {},
    }
    return write_bundle(
        models_dir, "sentiment", whole | card, to_onnx(served, rows), tokenizer_of(vocabulary).to_str()
    )


def open_sentiment(models_dir: Path, weights: Weights | None = None, **options: Any) -> Sentiment:
    """The model of `write_sentiment`, loaded as the service loads it."""
    return Sentiment.load(write_sentiment(models_dir, weights, **options), Runtime("cpu", 1))
