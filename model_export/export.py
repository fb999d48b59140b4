"""`hardmax-export export`: trained weights become a bundle that the service can serve.

A folder of weights holds weights.npz, tokenizer.json and meta.json, as training leaves them.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from model_export.bundle import write_bundle
from model_export.model import Weights
from model_export.rows import store
from model_export.sentiment import to_onnx
from service.bundle import Bundle
from service.errors import InvalidInput, MalformedInput, NotFound
from service.tokens import Tokens

MAX_LENGTH = 2560  # words of a text that are read; the longest review of IMDb has 2,500


@dataclass(frozen=True)
class Trained:
    """A folder of weights, read and checked."""

    weights: Weights
    tokenizer: str
    meta: Mapping[str, Any]


def read_trained(folder: Path) -> Trained:
    """What training left in `folder`; the sizes of its parts must agree."""
    try:
        tokenizer = (folder / "tokenizer.json").read_text(encoding="utf-8")
        meta = json.loads((folder / "meta.json").read_text(encoding="utf-8"))
    except FileNotFoundError as missing:
        raise NotFound(f"{missing.filename}: no such file", param="weights") from None
    except ValueError as damage:
        raise MalformedInput(f"{folder}: {damage}", param="weights") from None
    weights = Weights.load(folder / "weights.npz")
    tokens = len(Tokens(tokenizer, MAX_LENGTH))
    if len(weights.embedding) != tokens:
        problem = f"{folder}: {len(weights.embedding)} embeddings for {tokens} tokens"
        raise InvalidInput(problem, param="weights")
    return Trained(weights, tokenizer, meta)


def export(folder: Path, models_dir: Path) -> Bundle:
    """Writes the bundle of the weights in `folder` to models_dir/NAME."""
    trained = read_trained(folder)
    rows = store(trained.weights)
    served = rows.apply(trained.weights)
    card = {
        **trained.meta,
        "alpha": served.alpha,
        "layers": served.layers,
        "dimension": served.embedding.shape[1],
        "vocabulary": len(served.embedding),
        "max_length": MAX_LENGTH,
        "pseudo_weight": served.pseudo_weight,
        "readout": {"vector": [float(x) for x in served.readout], "bias": served.bias},
        "rows": str(rows.codes.dtype),
    }
    return write_bundle(models_dir, "sentiment", card, to_onnx(served, rows), _compact(trained.tokenizer))


def _compact(tokenizer: str) -> str:
    """subtle: the library indents a line for each token, a third of the file."""
    return json.dumps(json.loads(tokenizer), ensure_ascii=False, separators=(",", ":"))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("weights", type=Path, nargs="+", help="folders that training wrote")
    parser.add_argument("--out", type=Path, default=Path("service/models"), help="folder of bundles")


def run(arguments: argparse.Namespace) -> int:
    for folder in arguments.weights:
        bundle = export(folder, arguments.out)
        size = sum(file.stat().st_size for file in (arguments.out / bundle.name).iterdir())
        print(f"{arguments.out / bundle.name}: {size / 1e6:.1f} MB, {bundle.card['vocabulary']:,} tokens")
    return 0
