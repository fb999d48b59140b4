"""Reading model bundles, all that the two sides share; knows nothing of what models mean.

    NAME/model.onnx       the graph, with the hardmax attention functions in it
    NAME/tokenizer.json   kind "sentiment" only
    NAME/card.json        name, kind, figures, licence, and the digest of the graph

A bundle that breaks this contract is a `BundleError` that names the field.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from service.errors import BundleError

FORMAT = 1
KINDS = ("sentiment", "dynamics", "sequences")
REQUIRED = {"format": int, "name": str, "kind": str, "description": str, "licence": str, "model_sha256": str}


@dataclass(frozen=True)
class Bundle:
    """One checked bundle, wholly in memory: replacing its files later does not touch it."""

    name: str
    kind: str
    card: Mapping[str, Any]
    model: bytes
    tokenizer: str | None
    version: str  # digest over all its files: two bundles are the same when their versions are


def read_bundle(folder: Path) -> Bundle:
    """The bundle in `folder`, or a `BundleError` that names the file or field at fault."""
    card = _read_card(folder / "card.json")
    model = _read(folder / "model.onnx")
    digest = hashlib.sha256(model).hexdigest()
    if digest != card["model_sha256"]:
        raise BundleError(
            f"{folder.name}: model.onnx is not the file its card describes", param="model_sha256"
        )
    tokenizer = _read(folder / "tokenizer.json") if card["kind"] == "sentiment" else None
    files = (model, tokenizer or b"", json.dumps(card, sort_keys=True).encode())
    version = hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in files)).hexdigest()
    return Bundle(
        name=card["name"],
        kind=card["kind"],
        card=MappingProxyType(card),
        model=model,
        tokenizer=None if tokenizer is None else _decode(tokenizer, folder / "tokenizer.json"),
        version=version,
    )


def list_bundles(models_dir: Path) -> Iterator[Path]:
    """The folders in `models_dir` that hold a bundle, by name; one still being written has no card yet."""
    for folder in sorted(models_dir.iterdir()):
        if not folder.name.startswith(".") and (folder / "card.json").is_file():
            yield folder


def _read_card(path: Path) -> dict[str, Any]:
    try:
        card = json.loads(_decode(_read(path), path))
    except json.JSONDecodeError as invalid:
        raise BundleError(f"{path.parent.name}/card.json is not JSON: {invalid}", param="card.json") from None
    if not isinstance(card, dict):
        raise BundleError(f"{path.parent.name}/card.json is not an object", param="card.json")
    for field, kind in REQUIRED.items():
        if not isinstance(card.get(field), kind):
            raise BundleError(f"{path.parent.name}: card.json needs {field} ({kind.__name__})", param=field)
    if card["format"] != FORMAT:
        problem = f"{path.parent.name}: bundle format {card['format']}, this service reads {FORMAT}"
        raise BundleError(problem, param="format")
    if card["kind"] not in KINDS:
        problem = f"{path.parent.name}: kind {card['kind']!r} is none of {', '.join(KINDS)}"
        raise BundleError(problem, param="kind")
    if card["name"] != path.parent.name:
        problem = f"{path.parent.name}: its card calls it {card['name']!r}; a bundle's folder bears its name"
        raise BundleError(problem, param="name")
    return card


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as failure:
        problem = f"{path.parent.name}/{path.name} cannot be read: {failure.strerror}"
        raise BundleError(problem, param=path.name) from None


def _decode(raw: bytes, path: Path) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        raise BundleError(f"{path.parent.name}/{path.name} is not UTF-8", param=path.name) from None
