"""Writing model bundles, the only thing that the two sides share (service/runtime/bundle.py reads them).

    NAME/model.onnx   NAME/pieces.json (kind "reader")   NAME/card.json

It handles files and versions, and does not know what a model means.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import onnx

from service.errors import InvalidInput
from service.runtime.bundle import FORMAT, KINDS, Bundle, read_bundle

LICENCE = "Apache-2.0"
_TOOLS = ("hardmax", "onnx", "onnxscript", "torch", "numpy")


def write_bundle(
    models_dir: Path, kind: str, card: Mapping[str, Any], model: onnx.ModelProto, pieces: str | None = None
) -> Bundle:
    """Writes models_dir/NAME and reads it back as the service will; a reader never meets half of it.

    The card brings at least name and description; format, kind, digest, versions and date are added here.
    """
    name = str(card.get("name", ""))
    if kind not in KINDS or not name or name.startswith(".") or Path(name).name != name:
        raise InvalidInput(f"no bundle can be kind {kind!r} with the name {name!r}", param="name")
    graph = model.SerializeToString(deterministic=True)
    whole = {
        "format": FORMAT,
        "kind": kind,
        "licence": LICENCE,
        "created": _now(),
        "versions": _versions(),
        **card,
        "model_sha256": hashlib.sha256(graph).hexdigest(),
    }
    models_dir.mkdir(parents=True, exist_ok=True)
    place = Path(tempfile.mkdtemp(prefix=".writing-", dir=models_dir))
    try:
        folder = place / name
        folder.mkdir()
        (folder / "model.onnx").write_bytes(graph)
        if pieces is not None:
            (folder / "pieces.json").write_text(pieces, encoding="utf-8")
        text = json.dumps(whole, indent=1, ensure_ascii=False, allow_nan=False)
        (folder / "card.json").write_text(text + "\n", encoding="utf-8")
        bundle = read_bundle(folder)
        _replace(models_dir / name, folder)
    finally:
        shutil.rmtree(place)
    return bundle


def _replace(target: Path, new: Path) -> None:
    """subtle: file by file, the card last: a service that watches the folder waits for a card that fits."""
    if not target.exists():
        new.rename(target)
        return
    for name in ("pieces.json", "model.onnx", "card.json"):
        if (new / name).exists():
            os.replace(new / name, target / name)


def _now() -> str:
    """SOURCE_DATE_EPOCH, where set, makes a bundle reproducible to the byte."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    moment = datetime.fromtimestamp(int(epoch), UTC) if epoch else datetime.now(UTC)
    return moment.isoformat(timespec="seconds")


def _versions() -> dict[str, str]:
    found = {}
    for tool in _TOOLS:
        try:
            found[tool] = version(tool)
        except PackageNotFoundError:
            continue
    return found
