"""Write model bundles, which the service reads with service/runtime/bundle.py.

    NAME/model.onnx   NAME/pieces.json (encoders)   NAME/card.json

This module handles files and versions of any kind of model.
"""

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import onnx
from onnx.external_data_helper import set_external_data

from hardmax import __version__
from service.errors import InvalidInput
from service.runtime.bundle import Bundle, read_bundle
from service.runtime.card import FORMAT, FORMAT_WITH_NAMES, KINDS

DEFAULT_LICENSE = "Apache-2.0"
MIN_SHARED_BYTES = 1_024  # of an initializer; smaller ones are copied
RECORDED_PACKAGES = ("onnx", "onnxscript", "torch", "numpy")


def write_bundle(
    models_dir: Path,
    kind: str,
    card: Mapping[str, Any],
    model: onnx.ModelProto,
    vocabulary: str | None = None,
    float_model: onnx.ModelProto | None = None,
) -> Bundle:
    """Write models_dir/NAME atomically, and read it back.

    Args:
        models_dir: the folder of models; it is created if necessary.
        kind: one of the kinds that the service knows.
        card: at least a name and a description; format, kind, digest, versions and date are added.
        model: the graph.
        vocabulary: of an encoder, as JSON.
        float_model: the graph for GPUs; its large weights stay in the file of `model`.

    Raises:
        InvalidInput: the kind or the name is invalid, or the folder cannot be written.
    """
    name = str(card.get("name", ""))
    if kind not in KINDS or not name or name.startswith(".") or Path(name).name != name:
        raise InvalidInput(f"no bundle can be kind {kind!r} with the name {name!r}", param="name")
    graph = model.SerializeToString(deterministic=True)
    full_card = {
        "format": FORMAT if card.get("fold_names", True) else FORMAT_WITH_NAMES,
        "kind": kind,
        "license": DEFAULT_LICENSE,
        "created": _creation_time(),
        "versions": _package_versions(),
        **card,
        "model_sha256": hashlib.sha256(graph).hexdigest(),
    }
    files = {"model.onnx": graph}
    if float_model is not None:
        shared = _share_weights(float_model, graph).SerializeToString(deterministic=True)
        files["model.float.onnx"] = shared
        full_card["float_model_sha256"] = hashlib.sha256(shared).hexdigest()
    files["card.json"] = _to_json(full_card)
    if vocabulary is not None:
        files["pieces.json"] = vocabulary.encode()
    try:
        return _write_files(models_dir, name, files)
    except OSError as error:
        problem = f"{models_dir / name} cannot be written: {error.strerror or error}"
        raise InvalidInput(problem, param="models_dir") from error


def _share_weights(model: onnx.ModelProto, file: bytes) -> onnx.ModelProto:
    """Return the model with its large initializers as external data in `file`, a model that has them too.

    Raises:
        ValueError: The file has other weights.
    """
    shared, end = onnx.ModelProto(), 0
    shared.CopyFrom(model)
    for tensor in shared.graph.initializer:
        data = tensor.raw_data
        if len(data) < MIN_SHARED_BYTES:
            continue
        offset = file.find(data, end)
        if offset < 0 and (offset := file.find(data)) < 0:
            raise ValueError(f"the file has no initializer like {tensor.name}")
        end = offset + len(data)
        set_external_data(tensor, "model.onnx", offset, len(data))
        tensor.ClearField("raw_data")
    return shared


def _write_files(models_dir: Path, name: str, files: Mapping[str, bytes]) -> Bundle:
    models_dir.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=".writing-", dir=models_dir))
    try:
        folder = draft / name
        folder.mkdir()
        for file, content in files.items():
            (folder / file).write_bytes(content)
        bundle = read_bundle(folder)
        _move_into_place(folder, models_dir / name)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return bundle


def _move_into_place(new: Path, target: Path) -> None:
    """Move the files of a bundle into its folder.

    subtle: the card is moved last, since a service that watches the folder waits for a card that fits.
    """
    if not target.exists():
        new.rename(target)
        return
    for name in ("pieces.json", "model.onnx", "model.float.onnx", "card.json"):
        if (new / name).exists():
            os.replace(new / name, target / name)


def _to_json(card: Mapping[str, Any]) -> bytes:
    return (json.dumps(card, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode()


def _creation_time() -> str:
    """Return SOURCE_DATE_EPOCH, or else the current time.

    subtle: with it, equal data give equal bytes. Exact classifiers need PYTHONHASHSEED too, because
    onnxscript orders the variables of a loop by their hashes.
    """
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    time = datetime.fromtimestamp(int(epoch), UTC) if epoch else datetime.now(UTC)
    return time.isoformat(timespec="seconds")


def _package_versions() -> dict[str, str]:
    return {"hardmax": __version__} | {package: version(package) for package in RECORDED_PACKAGES}
