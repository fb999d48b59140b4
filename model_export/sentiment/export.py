"""`hardmax-export export`: trained weights become a bundle that the service can serve.

A folder of weights holds weights.npz, words.json and meta.json, as training leaves them.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from model_export.bundle import write_bundle
from model_export.sentiment.graph import to_onnx
from model_export.sentiment.model import Weights
from model_export.sentiment.rows import store
from service.engine.bundle import Bundle
from service.errors import InvalidInput, MalformedInput, NotFound
from service.texts.reader import MOST, SPECIAL, Lists

LISTS = ("words", "names", "sometimes", "groups")


def read_weights(folder: Path) -> tuple[Weights, Lists, dict[str, Any]]:
    """What training left in `folder`: weights, what they can read, and the beginning of a card."""
    weights = Weights.load(folder / "weights.npz")
    try:
        held = json.loads((folder / "words.json").read_text(encoding="utf-8"))
        meta = json.loads((folder / "meta.json").read_text(encoding="utf-8"))
        return weights, Lists(**{name: held[name] for name in LISTS}), meta
    except FileNotFoundError as missing:
        raise NotFound(f"{missing.filename}: no such file", param="weights") from None
    except (KeyError, ValueError) as damage:
        raise MalformedInput(f"{folder}: {damage}", param="weights") from None


def write_sentiment_bundle(
    models_dir: Path, weights: Weights, lists: Lists, card: Mapping[str, Any]
) -> Bundle:
    """Writes models_dir/NAME. The card brings name, description, labels (negative first of two), `even`."""
    if tuple(lists.words) != tuple(weights.words) or tuple(lists.words[: len(SPECIAL)]) != SPECIAL:
        raise InvalidInput("the reader's words are not the words of the weights", param="words")
    whole = {
        "alpha": weights.alpha,
        "layers": weights.layers,
        "dimension": weights.readout.shape[1],
        "vocabulary": len(weights.words),
        "max_length": MOST,
        "window": [min(weights.offsets), max(weights.offsets)],
        "readout": _readout(weights, card["labels"]),
        **card,
    }
    words = json.dumps(words_of(lists), ensure_ascii=False, separators=(",", ":"))
    return write_bundle(models_dir, "sentiment", whole, to_onnx(store(weights)), words)


def words_of(lists: Lists) -> dict[str, list[str]]:
    """The content of words.json: words in the order of their numbers, the other lists sorted."""
    sets = {name: sorted(getattr(lists, name)) for name in LISTS[1:]}
    return {"words": list(lists.words), **sets}


def _readout(weights: Weights, labels: list[str]) -> dict[str, Any]:
    vectors, biases = weights.readout.tolist(), weights.bias.tolist()
    if len(biases) == 1:
        return {"vector": vectors[0], "bias": biases[0]}
    if len(biases) != len(labels):
        raise InvalidInput(f"{len(biases)} logits for {len(labels)} labels", param="labels")
    return {
        "vectors": dict(zip(labels, vectors, strict=True)),
        "biases": dict(zip(labels, biases, strict=True)),
    }


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("weights", type=Path, nargs="+", help="folders that training wrote")
    parser.add_argument("--out", type=Path, default=Path("service/models"), help="folder of bundles")


def run(arguments: argparse.Namespace) -> int:
    for folder in arguments.weights:
        bundle = write_sentiment_bundle(arguments.out, *read_weights(folder))
        size = sum(file.stat().st_size for file in (arguments.out / bundle.name).iterdir())
        print(f"{arguments.out / bundle.name}: {size / 1e6:.1f} MB, {bundle.card['vocabulary']:,} words")
    return 0
