"""Read model bundles, the only interface between training and serving.

    NAME/model.onnx       the graph, with the hardmax attention functions in it
    NAME/model.float.onnx the same for GPUs, with the weights in model.onnx; encoders and heads since 0.4
    NAME/pieces.json      the vocabulary of an encoder
    NAME/card.json        name, kind, figures, license, and the digest of the graph

A head (kind "text-classification") uses an encoder, which its card names by the digest of its graph. A card
of 0.3 is read with the names of 0.4. Of a name with versions - mine@1, mine@2 - the bare name is the newest.

A bundle that breaks this contract is a `BundleError` that names the field. Only regular files up to
`MAX_FILE_BYTES` are read, so a pipe, a device or a huge file in their place cannot block the service.
"""

import hashlib
import json
import logging
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import orjson

from hardmax.formatting import describe_os_error
from service.errors import BundleError, NotFound

log = logging.getLogger(__name__)

ENCODER, HEAD = "encoder", "text-classification"
FORMAT = 3
FORMATS = {ENCODER: (3,), HEAD: (3,), "dynamics": (2, 3), "sequences": (2, 3)}  # of each kind, that are read
KINDS = tuple(FORMATS)
PRETRAINED_DEFAULT = "sentiment"
PRETRAINED_ENCODER = "encoder"  # the encoder of that model, and of custom models
# The largest graph that protobuf can hold is 2 GiB.
MAX_FILE_BYTES = {"card.json": 2**18, "model.onnx": 2**31}
MAX_OTHER_FILE_BYTES = 2**27
VERSION = re.compile("[1-9][0-9]{0,8}")
OLD_KINDS = {"reader": ENCODER, "sentiment": HEAD}  # of cards of 0.3
OLD_FIELDS = {
    "licence": "license",
    "licences": "licenses",
    "reader": "encoder",
    "unlike": "out_of_distribution",
    "even": "abstain_margin",
    "least_known": "min_known_share",
    "multi": "multi_label",
}
REQUIRED = {"format": int, "name": str, "kind": str, "description": str, "license": str, "model_sha256": str}


@dataclass(frozen=True)
class Bundle:
    """A checked bundle, held in memory: replacing its files later does not change it."""

    name: str
    kind: str
    card: Mapping[str, Any]
    model: bytes
    vocabulary: str | None  # pieces.json of an encoder
    digest: str  # of all its files: two bundles are equal if their digests are
    float_model: bytes | None = None  # of an encoder or a head: a graph for GPUs with the weights in `model`

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
    card = _read_card(folder / "card.json")
    model = _read(folder / "model.onnx")
    if hashlib.sha256(model).hexdigest() != card["model_sha256"]:
        problem = f"{folder.name}: model.onnx is not the file its card describes"
        raise BundleError(problem, param="model_sha256")
    vocabulary = _read(folder / "pieces.json") if card["kind"] == ENCODER else None
    float_model = _read_float_model(folder, card)
    files = (model, vocabulary or b"", json.dumps(card, sort_keys=True).encode())
    digest = hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in files)).hexdigest()
    return Bundle(
        name=card["name"],
        kind=card["kind"],
        card=MappingProxyType(card),
        model=model,
        vocabulary=None if vocabulary is None else _decode(vocabulary, folder / "pieces.json"),
        digest=digest,
        float_model=float_model,
    )


def _read_float_model(folder: Path, card: Mapping[str, Any]) -> bytes | None:
    """Return the graph for GPUs if the card has its digest; bundles before 0.4 have none."""
    sha256 = card.get("float_model_sha256")
    if sha256 is None:
        return None
    model = _read(folder / "model.float.onnx")
    if hashlib.sha256(model).hexdigest() != sha256:
        problem = f"{folder.name}: model.float.onnx is not the file its card describes"
        raise BundleError(problem, param="float_model_sha256")
    return model


def find_bundles(folders: Iterable[Path]) -> dict[str, Path]:
    """Return the bundles in some folders by name; those of later folders win.

    A bundle that is being written has no card yet and is left out.
    """
    found = {
        bundle.name: bundle
        for folder in folders
        for bundle in folder.iterdir()
        if not bundle.name.startswith(".") and _has_card(bundle)
    }
    return dict(sorted(found.items()))


def find_served(folders: Iterable[Path]) -> dict[str, Path]:
    """Return the same, and encoders hidden by a bundle of the same name: heads name them by digest."""
    listings = [find_bundles([folder]) for folder in folders]  # each once: a bundle may come between two
    found = dict(sorted({name: listing[name] for listing in listings for name in listing}.items()))
    for listing in listings:
        for name, bundle in listing.items():
            digest = _encoder_digest(bundle)
            if digest not in (None, _encoder_digest(found[name])):
                found[f"{name} ({str(digest)[:12]})"] = bundle
    return found


def versions_of(name: str, bundles: Iterable[str]) -> dict[int, str]:
    """Return the bundles NAME@1, NAME@2, ... by number."""
    parts = ((each, *each.rpartition("@")) for each in bundles)
    versions = ((each, number) for each, base, _, number in parts if base == name)
    return {int(number): each for each, number in versions if VERSION.fullmatch(number)}


def is_superseded(name: str, bundles: Collection[str]) -> bool:
    """Return whether a bundle is a version of which there is a newer one."""
    base, _, number = name.rpartition("@")
    return bool(VERSION.fullmatch(number)) and newest_version(base, bundles) != name


def newest_version(name: str, bundles: Iterable[str]) -> str:
    """Return the bundle that a name stands for: the one of that name, or else its newest version."""
    have = list(bundles)
    versions = versions_of(name, have)
    return versions[max(versions)] if versions and name not in have else name


def default_model(folders: Iterable[Path]) -> str:
    """Return the default model if the settings name none: the pretrained one, or else the only head.

    Adding a model never changes it.
    """
    bundles = find_bundles(folders).items()
    heads = {name.rpartition("@")[0] or name for name, folder in bundles if kind_of(folder) == HEAD}
    return heads.pop() if len(heads) == 1 else PRETRAINED_DEFAULT


def kind_of(folder: Path) -> str | None:
    """Return the kind of a bundle; None if its card cannot be read."""
    return _card_of(folder).get("kind")


def _encoder_digest(folder: Path) -> str | None:
    card = _card_of(folder)
    return card["model_sha256"] if card.get("kind") == ENCODER else None


def is_encoder_of(encoder: Path, head: Path) -> bool:
    """Return whether the card of a head names the graph of this encoder."""
    named = _card_of(head).get("encoder")
    return isinstance(named, dict) and named.get("sha256") == _encoder_digest(encoder)


def _card_of(folder: Path) -> dict[str, Any]:
    """Return the card of a bundle; empty if it cannot be read."""
    try:
        status = (folder / "card.json").stat()
    except OSError:
        return {}
    return _unchanged_card(folder / "card.json", (status.st_ino, status.st_size, status.st_mtime_ns))


@lru_cache(4_096)
def _unchanged_card(path: Path, status: tuple[int, int, int]) -> dict[str, Any]:
    """Return the card; it is parsed again when its status changes. Folders are checked twice a second."""
    with suppress(BundleError):
        return _read_card(path)
    return {}


def _has_card(folder: Path) -> bool:
    """True also for a card that cannot be read: `read_bundle` then says why the bundle is refused."""
    try:
        (folder / "card.json").lstat()
    except OSError as failure:
        return not isinstance(failure, FileNotFoundError | NotADirectoryError)
    return True


def _read_card(path: Path) -> dict[str, Any]:
    folder = path.parent.name
    try:
        card = json.loads(_decode(_read(path), path))
        orjson.dumps({"models": [card]})  # what GET /models cannot show is refused here
    except (ValueError, RecursionError, orjson.JSONEncodeError) as invalid:
        raise BundleError(f"{folder}/card.json is not JSON: {invalid}", param="card.json") from None
    if not isinstance(card, dict):
        raise BundleError(f"{folder}/card.json is not an object", param="card.json")
    card = upgrade_card(card)
    for field, kind in REQUIRED.items():
        if type(card.get(field)) is not kind:
            raise BundleError(f"{folder}: card.json needs {field} ({kind.__name__})", param=field)
    for field, problem in _card_problems(card, folder):
        raise BundleError(f"{folder}: {problem}", param=field)
    return card


def _card_problems(card: Mapping[str, Any], folder: str) -> Iterator[tuple[str, str]]:
    """Yield each field that holds no permitted value, and why it does not."""
    kind, encoder = card["kind"], card.get("encoder")
    if kind not in KINDS:
        yield "kind", f"kind {kind!r} is none of {', '.join(KINDS)}"
    if card["format"] not in FORMATS.get(kind, ()):
        yield "format", f"bundle format {card['format']}, this service reads {FORMAT}"
    named = isinstance(encoder, dict) and all(type(encoder.get(part)) is str for part in ("name", "sha256"))
    if kind == HEAD and not named:
        yield "encoder", "card.json needs encoder (name and sha256)"
    if card["name"] != folder:
        yield "name", f"its card calls it {card['name']!r}; a bundle's folder bears its name"


def upgrade_card(card: Mapping[str, Any]) -> dict[str, Any]:
    """Return a card with the names of 0.4 in place of those of 0.3."""
    card = {OLD_FIELDS.get(name, name): value for name, value in card.items()}
    kind = card.get("kind")
    return card | ({"kind": OLD_KINDS[kind]} if isinstance(kind, str) and kind in OLD_KINDS else {})


def version_of(name: str) -> int:
    """Return the version that a bundle's name ends with; 1 if it has none."""
    base, _, number = name.rpartition("@")
    return int(number) if base and VERSION.fullmatch(number) else 1


def _read(path: Path) -> bytes:
    """Return the bytes of a regular file of a permitted size; a pipe without a writer does not block it."""
    name, max_bytes = f"{path.parent.name}/{path.name}", MAX_FILE_BYTES.get(path.name, MAX_OTHER_FILE_BYTES)
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise BundleError(f"{name} is not a regular file", param=path.name)
            if status.st_size > max_bytes:
                sizes = f"{status.st_size / 1e6:,.1f} MB; at most {max_bytes / 1e6:,.1f} MB are read"
                raise BundleError(f"{name} has {sizes}", param=path.name)
            return file.read(status.st_size)
    except OSError as failure:
        raise BundleError(f"{name} cannot be read: {failure.strerror}", param=path.name) from None


def _decode(raw: bytes, path: Path) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        raise BundleError(f"{path.parent.name}/{path.name} is not UTF-8", param=path.name) from None


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
        have = ", ".join(versions.values()) or "none"
        raise NotFound(f"{name} has no version to go back to in {models_dir}; there is {have}", param="model")
    *_, before, last = sorted(versions)
    again, new = versions[before], f"{name}@{last + 1}"
    card = dict(read_bundle(models_dir / again).card) | {"name": new, "again": again}
    with tempfile.TemporaryDirectory(prefix=".writing-", dir=models_dir) as draft:
        folder = Path(draft) / new
        shutil.copytree(models_dir / again, folder, copy_function=_copy)
        text = json.dumps(card, indent=1, ensure_ascii=False) + "\n"
        (folder / "card.json").write_text(text, encoding="utf-8")
        read_bundle(folder)
        try:
            folder.rename(models_dir / new)
        except OSError as failure:
            if not (models_dir / new).exists():
                raise
            problem = f"another command has written {new} meanwhile: look at it, and try again"
            raise BundleError(problem, param="model") from failure
    return again, new


def _copy(source: str, destination: str) -> None:
    """Copy a file. Of an OSError copytree would make a list of tuples."""
    try:
        shutil.copy2(source, destination)
    except OSError as failure:
        raise BundleError(describe_os_error(failure)) from failure
