"""Read model bundles, the only interface between training and serving.

    NAME/model.onnx       the graph, with the hardmax attention functions in it
    NAME/model.float.onnx the same for GPUs, with the weights in model.onnx; encoders and heads since 0.4
    NAME/pieces.json      the vocabulary of an encoder
    NAME/card.json        name, kind, figures, license, and the digest of the graph

A head (kind "text-classification") uses an encoder, which its card names by the digest of its graph. With
versions mine@1 and mine@2, the bare name mine is the newest one.

A bundle that breaks this contract raises a `BundleError` that names the field.
"""

import hashlib
import json
import logging
import re
import shutil
import tempfile
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hardmax.formatting import describe_os_error
from service.errors import BundleError, NotFound
from service.runtime.card import ENCODER, HEAD, card_of, decode, has_card, read_card, read_file
from service.settings import PRETRAINED_FOLDER

log = logging.getLogger(__name__)

PRETRAINED_DEFAULT = "sentiment"
PRETRAINED_ENCODER = "encoder"  # the encoder of that model, and of custom models
VERSION = re.compile("[1-9][0-9]{0,8}")


@dataclass(frozen=True)
class Bundle:
    """A checked bundle, held in memory: replacing its files later does not change it."""

    name: str
    kind: str
    card: Mapping[str, Any]
    model: bytes
    vocabulary: str | None  # pieces.json of an encoder
    digest: str  # of all its files: two bundles with the same digest are equal
    float_model: bytes | None = None  # of an encoder or a head: a graph for GPUs
    is_pretrained: bool = False  # in the folder of the pretrained models, which belong to the code

    def graph_for(self, provider: str) -> bytes:
        """Return the graph that a provider runs."""
        if provider != "cuda":
            return self.model
        if self.float_model is None:
            log.warning("%s has no graph for GPUs; its integer products run on the CPU", self.name)
        return self.float_model or self.model


def read_bundle(folder: Path) -> Bundle:
    """Read the bundle in a folder.

    Raises:
        BundleError: A file or a field is missing, wrong or too large; `param` names it.
    """
    card = read_card(folder / "card.json")
    model = read_file(folder / "model.onnx")
    model_digest = hashlib.sha256(model)
    if model_digest.hexdigest() != card["model_sha256"]:
        problem = f"{folder.name}: model.onnx is not the file its card describes"
        raise BundleError(problem, param="model_sha256")
    vocabulary = read_file(folder / "pieces.json") if card["kind"] == ENCODER else None
    float_model = _read_float_model(folder, card)
    others = vocabulary or b"", json.dumps(card, sort_keys=True).encode()
    digests = [model_digest, *map(hashlib.sha256, others)]
    digest = hashlib.sha256(b"".join(part.digest() for part in digests)).hexdigest()
    return Bundle(
        name=card["name"],
        kind=card["kind"],
        card=card,
        model=model,
        vocabulary=None if vocabulary is None else decode(vocabulary, folder / "pieces.json"),
        digest=digest,
        float_model=float_model,
        is_pretrained=folder.parent == PRETRAINED_FOLDER,
    )


def _read_float_model(folder: Path, card: Mapping[str, Any]) -> bytes | None:
    """Return the graph for GPUs if the card has its digest; bundles before 0.4 have none."""
    sha256 = card.get("float_model_sha256")
    if sha256 is None:
        return None
    model = read_file(folder / "model.float.onnx")
    if hashlib.sha256(model).hexdigest() != sha256:
        problem = f"{folder.name}: model.float.onnx is not the file its card describes"
        raise BundleError(problem, param="float_model_sha256")
    return model


def find_bundles(folders: Iterable[Path]) -> dict[str, Path]:
    """Return the bundles in some folders by name; those of later folders win.

    A bundle that is being written has no card yet and is left out.
    """
    bundles = {
        bundle.name: bundle
        for folder in folders
        for bundle in folder.iterdir()
        if not bundle.name.startswith(".") and has_card(bundle)
    }
    return dict(sorted(bundles.items()))


def find_served(folders: Iterable[Path]) -> dict[str, Path]:
    """Return the bundles by name, and encoders hidden by one of the same name: heads use them by digest."""
    listings = [find_bundles([folder]) for folder in folders]  # once each: a bundle may appear meanwhile
    bundles = dict(sorted({name: listing[name] for listing in listings for name in listing}.items()))
    for listing in listings:
        for name, bundle in listing.items():
            digest = _encoder_digest(bundle)
            if digest not in (None, _encoder_digest(bundles[name])):
                bundles[f"{name} ({str(digest)[:12]})"] = bundle
    return bundles


def versions_of(name: str, bundles: Iterable[str]) -> dict[int, str]:
    """Return the bundles NAME@1, NAME@2, ... by number."""
    parts = ((bundle, *bundle.rpartition("@")) for bundle in bundles)
    versions = ((bundle, number) for bundle, base, at, number in parts if at and base == name)
    return {int(number): bundle for bundle, number in versions if VERSION.fullmatch(number)}


def is_superseded(name: str, bundles: Collection[str]) -> bool:
    """Return whether a bundle is a version of which there is a newer one."""
    base, at, number = name.rpartition("@")
    return bool(at and VERSION.fullmatch(number)) and newest_version(base, bundles) != name


def newest_version(name: str, bundles: Iterable[str]) -> str:
    """Return the bundle that a name stands for: the one of that name, or else its newest version."""
    bundles = list(bundles)
    versions = versions_of(name, bundles)
    return versions[max(versions)] if versions and name not in bundles else name


def default_model(folders: Iterable[Path]) -> str:
    """Return the default model if the settings name none: the pretrained one, or else the only head.

    Adding a model never changes it.
    """
    bundles = find_bundles(folders).items()
    heads = {name.rpartition("@")[0] or name for name, folder in bundles if kind_of(folder) == HEAD}
    return heads.pop() if len(heads) == 1 else PRETRAINED_DEFAULT


def kind_of(folder: Path) -> str | None:
    """Return the kind of a bundle; None if its card cannot be read."""
    return card_of(folder).get("kind")


def _encoder_digest(folder: Path) -> str | None:
    card = card_of(folder)
    return card["model_sha256"] if card.get("kind") == ENCODER else None


def is_encoder_of(encoder: Path, head: Path) -> bool:
    """Return whether the card of a head names the graph of this encoder."""
    expected = card_of(head).get("encoder")
    return isinstance(expected, dict) and expected.get("sha256") == _encoder_digest(encoder)


def version_of(name: str) -> int:
    """Return the version that a bundle's name ends with; 1 if it has none."""
    base, _, number = name.rpartition("@")
    return int(number) if base and VERSION.fullmatch(number) else 1


def roll_back(models_dir: Path, name: str) -> tuple[str, str]:
    """Make the version before the newest one the newest again, as `kubectl rollout undo` does.

    Its bundle is copied under a new version number, so nothing is lost, and a second call undoes the first.

    Returns:
        The name of the version that is served again, and the name of its copy.

    Raises:
        NotFound: There is no earlier version.
        BundleError: A bundle cannot be read, or the copy cannot be written.
    """
    versions = versions_of(name, find_bundles([models_dir]))
    if len(versions) < 2:
        present = ", ".join(versions.values()) or "none"
        problem = f"{name} has no version to go back to in {models_dir}; there is {present}"
        raise NotFound(problem, param="model")
    *_, previous, newest = sorted(versions)
    source, new = versions[previous], f"{name}@{newest + 1}"
    card = dict(read_bundle(models_dir / source).card) | {"name": new, "again": source}
    with tempfile.TemporaryDirectory(prefix=".writing-", dir=models_dir) as draft:
        folder = Path(draft) / new
        shutil.copytree(models_dir / source, folder, copy_function=_copy)
        text = json.dumps(card, indent=1, ensure_ascii=False) + "\n"
        (folder / "card.json").write_text(text, encoding="utf-8")
        read_bundle(folder)
        try:
            folder.rename(models_dir / new)
        except OSError as error:
            if not (models_dir / new).exists():
                raise
            problem = f"another command has written {new} meanwhile: look at it, and try again"
            raise BundleError(problem, param="model") from error
    return source, new


def _copy(source: str, destination: str) -> None:
    """Copy a file. copytree would turn an OSError into a list of tuples."""
    try:
        shutil.copy2(source, destination)
    except OSError as error:
        raise BundleError(describe_os_error(error)) from error
