"""Bundles for tests: tiny sentiment models whose answers are known by hand.

The plane model: "superb" and "awful" are the two far words and lead; all others are closer to the origin.

    word       place        weight     attends to (layer 0)
    superb     ( 4,  0)     1          itself
    awful      (-4,  0)     1          itself
    good       ( 1,  0)     1          superb if there, awful never
    bad        (-1,  0)     1          awful if there
    the        ( 0,  1)     2          itself beside superb and awful only: <the, superb> = 0 < 1
    film       ( 0, .5)     1          the if there
    not good   (-2,  1)     1          where "good" stands behind "not"

With v = (1, 0), b = 0.5, W0 = 0, alpha = 1 and 2 layers, a follower ends at leader + (start - leader) / 4.
Words that are not known stand near the origin and weigh nothing.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from model_export.sentiment.export import write_sentiment_bundle
from model_export.sentiment.model import PAIR, Weights, clause_of, sentence_of
from paths import MODELS

from model_export.exact.construct import make, write
from model_export.exact.data import make_examples
from service.engine.bundle import Bundle
from service.engine.runtime import Runtime
from service.texts.reader import SPECIAL, Lists
from service.texts.sentiment import Sentiment

Place = tuple[float, float, float]  # x, y, weight

PLACES: dict[str, Place] = {
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
    ".": (0, -0.0625, 1),
    "!": (0.0625, 0, 1),
}
PAIRS: dict[tuple[str, str], Place] = {("not", "good"): (-2, 1, 1)}
SCALE, ROWS, ALPHA, LAYERS, BIAS = 8.0, 1 << 12, 1.0, 2, 0.5


def plane_weights(
    places: Mapping[str, Place] = PLACES, pairs: Mapping[tuple[str, str], Place] = PAIRS, **changes: Any
) -> Weights:
    """Weights that put each word at its place, whatever its window; `changes` are fields of `Weights`."""
    near_origin = [(0.0, 0.0, 0.0), *((0.001, 0.0005 * i, 0.0) for i in range(1, len(SPECIAL)))]
    own = np.array([_output(place) for place in (*near_origin, *places.values())])
    words = (*SPECIAL, *places)
    phrases = np.zeros((ROWS, 3))
    for (before, word), place in pairs.items():
        if word in places and before in places:
            ids = words.index(before), words.index(word)
            phrases[(ids[0] * PAIR[0] + ids[1] * PAIR[1]) % ROWS] = _output(place) - own[ids[1]]
    fields: dict[str, Any] = {
        "words": words,
        "offsets": (-2, -1, 0, 1, 2),
        "clause": clause_of(words),
        "sentence": sentence_of(words),
        "tables": np.zeros((6, len(words), 4), np.float32),
        "hidden_bias": np.zeros(4, np.float32),
        "out": np.zeros((4, 3), np.float32),
        "out_bias": np.zeros(3, np.float32),
        "own": own.astype(np.float32),
        "pairs": phrases.astype(np.float32),
        "triples": np.zeros((ROWS, 3), np.float32),
        "reach": np.array([0, *[1] * (len(words) - 1)], np.float32),
        "readout": np.array([[1, 0]], np.float32),
        "bias": np.array([BIAS], np.float32),
        "alpha": ALPHA,
        "layers": LAYERS,
        "scale": SCALE,
        "pseudo_weight": 0.0,
        "concession": 0.0,
        "calibration": np.ones(1, np.float32),
    }
    return Weights(**(fields | changes))


def _output(place: Place) -> np.ndarray[Any, Any]:
    """The numbers o = (r, u) that become this place and weight."""
    x, y, weight = place
    u = np.array([x, y]) / SCALE
    return np.append(u / np.sqrt(1 - u @ u), np.log(np.expm1(weight)) if weight else -100.0)


def random_weights(vocabulary: Sequence[str], seed: int = 0, **changes: Any) -> Weights:
    """A cloud of lengths that differ widely, so that few places lead; windows, pairs and triples all count.

    `hidden`, `dimension` and `outputs` set the shape, the rest are fields of `Weights`.
    """
    shape = {"hidden": 8, "dimension": 2, "outputs": 1} | changes
    h, d, C = shape.pop("hidden"), shape.pop("dimension"), shape.pop("outputs")
    rng = np.random.default_rng(seed)
    words = (*SPECIAL, *vocabulary)

    def draw(*sizes: int) -> np.ndarray[Any, Any]:
        return rng.standard_normal(sizes).astype(np.float32)

    reach = np.clip(np.exp(rng.standard_normal(len(words)) - 1), 0.05, 1).astype(np.float32)
    reach[0] = 0
    tables = 0.5 * draw(6, len(words), h)
    tables[:, 0] = 0
    fields: dict[str, Any] = {
        "words": words,
        "offsets": (-2, -1, 0, 1, 2),
        "clause": rng.choice(3, len(words), p=(0.7, 0.1, 0.2)).astype(np.int8),
        "sentence": rng.choice(3, len(words), p=(0.8, 0.1, 0.1)).astype(np.int8),
        "tables": tables,
        "hidden_bias": draw(h),
        "out": draw(h, d + 1),
        "out_bias": draw(d + 1),
        "own": draw(len(words), d + 1),
        "pairs": 0.3 * draw(ROWS, d + 1),
        "triples": 0.3 * draw(ROWS, d + 1),
        "reach": reach,
        "readout": 3 * draw(C, d),
        "bias": draw(C),
        "alpha": 1.5,
        "layers": 3,
        "scale": 3.0,
        "pseudo_weight": 0.75,
        "concession": -0.8,
        "calibration": np.linspace(0.5, 1.5, 100).astype(np.float32),
    }
    return Weights(**(fields | shape))


def write_sentiment(models_dir: Path, weights: Weights | None = None, **card: Any) -> Bundle:
    """Writes a sentiment bundle (default: the plane model, named "tiny"); `card` changes its card."""
    weights = plane_weights() if weights is None else weights
    whole = {
        "name": "tiny",
        "description": "A plane one can check by hand.",
        "labels": ["negative", "positive"],
        "seed": None,
        "data": {},
        "figures": {},
    }
    lists = Lists(weights.words, {"paris"}, {"grace"}, {"martians"})
    return write_sentiment_bundle(models_dir, weights, lists, whole | card)


def open_sentiment(models_dir: Path, weights: Weights | None = None, **card: Any) -> Sentiment:
    """The model of `write_sentiment`, loaded as the service loads it."""
    return Sentiment.load(write_sentiment(models_dir, weights, **card), Runtime("cpu", 1))


PLAIN_CARD = {
    "format": 2,
    "name": "tiny",
    "kind": "dynamics",
    "description": "nothing inside",
    "licence": "Apache-2.0",
    "model_sha256": hashlib.sha256(b"graph").hexdigest(),
}


def write_folder(folder: Path, model: bytes = b"graph", **changes: Any) -> Path:
    """A bundle whose graph is none, for what reads bundles and runs no models; None leaves a field out."""
    folder.mkdir(parents=True)
    (folder / "model.onnx").write_bytes(model)
    card = {name: value for name, value in {**PLAIN_CARD, **changes}.items() if value is not None}
    (folder / "card.json").write_text(json.dumps(card))
    return folder


def write_models(folder: Path) -> Path:
    """The models that these tests know by heart: tiny (default), dynamics and scenes (sequences)."""
    write_sentiment(folder)
    shutil.copytree(MODELS / "dynamics", folder / "dynamics")
    rows = [([[0, 0], [1, 1]], "calm"), ([[0, 0], [5, 5]], "storm"), ([[2, 1]], "calm")]
    examples = make_examples([{"sequence": sequence, "label": label} for sequence, label in rows])
    write(make(examples), folder / "scenes", description="Scenes.", licence="Apache-2.0")
    return folder
