"""Read the files of a bundle and its card.

Only regular files up to `MAX_FILE_BYTES` are read, so a pipe, a device or a huge file in their place cannot
block the service.
"""

import json
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

import orjson

from service.errors import BundleError

ENCODER, HEAD = "encoder", "text-classification"
FORMAT = 3
FORMAT_WITH_NAMES = 4  # of a head that does not fold names; releases up to 0.4.2 would fold them
FORMATS = {ENCODER: (3,), HEAD: (3, 4), "dynamics": (2, 3), "sequences": (2, 3)}  # readable, of each kind
KINDS = tuple(FORMATS)
# The largest graph that protobuf can hold is 2 GiB.
MAX_FILE_BYTES = {"card.json": 2**18, "model.onnx": 2**31}
MAX_OTHER_FILE_BYTES = 2**27
OPTIONAL = {"labels": list, "figures": dict}
REQUIRED = {"format": int, "name": str, "kind": str, "description": str, "license": str, "model_sha256": str}


def card_of(folder: Path) -> dict[str, Any]:
    """Return the card of a bundle; empty if it cannot be read."""
    try:
        status = (folder / "card.json").stat()
    except OSError:
        return {}
    return _unchanged_card(folder / "card.json", (status.st_ino, status.st_size, status.st_mtime_ns))


@lru_cache(4_096)
def _unchanged_card(path: Path, status: tuple[int, int, int]) -> dict[str, Any]:
    """Return the card, which is parsed again when its status changes: folders are checked twice a second."""
    with suppress(BundleError):
        return read_card(path)
    return {}


def has_card(folder: Path) -> bool:
    """Return True also for a card that cannot be read: `read_bundle` then says why it is refused."""
    try:
        (folder / "card.json").lstat()
    except OSError as error:
        return not isinstance(error, FileNotFoundError | NotADirectoryError)
    return True


def read_card(path: Path) -> dict[str, Any]:
    """Return the card in a file, or raise BundleError with the field at fault."""
    folder = path.parent.name
    try:
        card = json.loads(decode(read_file(path), path))
        orjson.dumps({"models": [card]})  # refuses a card that GET /models cannot show
    except (ValueError, RecursionError, orjson.JSONEncodeError) as error:
        raise BundleError(f"{folder}/card.json is not JSON: {error}", param="card.json") from None
    if not isinstance(card, dict):
        raise BundleError(f"{folder}/card.json is not an object", param="card.json")
    for field, kind in REQUIRED.items():
        if type(card.get(field)) is not kind:
            raise BundleError(f"{folder}: card.json needs {field} ({kind.__name__})", param=field)
    for field, problem in _card_problems(card, folder):
        raise BundleError(f"{folder}: {problem}", param=field)
    return card


def _card_problems(card: Mapping[str, Any], folder: str) -> Iterator[tuple[str, str]]:
    """Yield each field with a value that is not permitted, and the problem."""
    kind, encoder = card["kind"], card.get("encoder")
    if kind not in KINDS:
        yield "kind", f"kind {kind!r} is none of {', '.join(KINDS)}"
    if card["format"] not in FORMATS.get(kind, ()):
        readable = " and ".join(map(str, FORMATS.get(kind, (FORMAT,))))
        yield "format", f"bundle format {card['format']}, this service reads {readable}"
    for field, kind_of_value in OPTIONAL.items():
        if field in card and type(card[field]) is not kind_of_value:
            yield field, f"{field} in card.json should be of type {kind_of_value.__name__}"
    valid = isinstance(encoder, dict) and all(type(encoder.get(part)) is str for part in ("name", "sha256"))
    if kind == HEAD and not valid:
        yield "encoder", "card.json needs encoder (name and sha256)"
    if card["name"] != folder:
        yield "name", f"its card calls it {card['name']!r}; a bundle's folder bears its name"


def read_file(path: Path) -> bytes:
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
    except OSError as error:
        raise BundleError(f"{name} cannot be read: {error.strerror}", param=path.name) from None


def decode(raw: bytes, path: Path) -> str:
    """Return the text of a file, or raise BundleError if it is not UTF-8."""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        raise BundleError(f"{path.parent.name}/{path.name} is not UTF-8", param=path.name) from None
