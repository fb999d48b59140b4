"""Fetching the public IMDb archive (Maas et al. 2011): resumable, and checked against the published file."""

from __future__ import annotations

import argparse
import hashlib
from pathlib import Path

import httpx
from tqdm import tqdm

from service.errors import MalformedInput, NotFound

URL = "https://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz"
SHA256 = "c40f74a18d3b61f90feba1e17730e0d38e8b97c05fe7008942e91923d1658fe7"
_CHUNK = 1 << 20


def download(path: Path, url: str = URL, sha256: str = SHA256, client: httpx.Client | None = None) -> Path:
    """The archive at `path`, whole and checked. What an earlier try left in PATH.part is gone on with."""
    if path.exists():
        _require(path, sha256)
        return path
    part = path.with_name(path.name + ".part")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with client or httpx.Client(follow_redirects=True, timeout=30.0) as connection:
            _fetch(connection, url, part)
    except httpx.HTTPError as failure:
        kept = part.stat().st_size if part.exists() else 0
        raise NotFound(
            f"cannot fetch {url}: {failure or type(failure).__name__}. "
            f"{kept / 1e6:.1f} MB are kept in {part}; try again, or put the file at {path} by hand",
            param="url",
        ) from failure
    _require(part, sha256)
    part.rename(path)
    return path


def _fetch(client: httpx.Client, url: str, part: Path) -> None:
    have = part.stat().st_size if part.exists() else 0
    with client.stream("GET", url, headers={"Range": f"bytes={have}-"} if have else {}) as answer:
        if answer.status_code == httpx.codes.REQUESTED_RANGE_NOT_SATISFIABLE:
            return  # nothing is missing; the checksum has the last word
        answer.raise_for_status()
        resumed = answer.status_code == httpx.codes.PARTIAL_CONTENT
        have = have if resumed else 0
        total = have + int(answer.headers.get("content-length", 0)) or None
        with part.open("ab" if resumed else "wb") as file, tqdm(
            total=total, initial=have, unit="B", unit_scale=True, desc=part.stem
        ) as bar:  # fmt: skip
            for piece in answer.iter_bytes(_CHUNK):
                file.write(piece)
                bar.update(len(piece))


def _require(path: Path, sha256: str) -> None:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(_CHUNK):
            digest.update(piece)
    if digest.hexdigest() != sha256:
        found = digest.hexdigest()
        raise MalformedInput(f"{path} is damaged: sha256 {found}, expected {sha256}. Remove it and try again")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", type=Path, default=Path("data/aclImdb_v1.tar.gz"))
    parser.add_argument("--url", default=URL, help="another place that has the same file")


def run(arguments: argparse.Namespace) -> int:
    print(download(arguments.out, arguments.url))
    return 0
