"""Reading labelled texts in the formats they are published in, and holding some back for validation.

IMDb (Maas et al. 2011) as its tar.gz or unpacked, SST-2 as tab-separated lines, and any csv, jsonl or
parquet file with a text and a label column. Knows nothing of tokens or models.
"""

from __future__ import annotations

import csv
import json
import re
import tarfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from service.errors import InvalidInput, MalformedInput, NotFound

UNLABELLED = -1
LABELS = {"0": 0, "neg": 0, "negative": 0, "1": 1, "pos": 1, "positive": 1}
TEXT_COLUMNS = ("text", "review", "sentence", "content")
LABEL_COLUMNS = ("label", "sentiment", "target", "class")
# IMDb numbers its reviews so that those of one film stand together; official train and test films are
# disjoint.
FILM_BLOCK = 50
_MEMBER = re.compile(r"(?:^|/)(train|test)/(pos|neg|unsup)/(\d+)_(\d+)\.txt$")


@dataclass(frozen=True)
class Corpus:
    """Texts in a fixed order; `labels` 1, 0 or UNLABELLED; `blocks` ties together what no split may
    separate.
    """

    texts: tuple[str, ...]
    labels: NDArray[np.int8]
    blocks: NDArray[np.int64]
    source: str

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def labelled(self) -> NDArray[np.int64]:
        return np.flatnonzero(self.labels != UNLABELLED)

    @property
    def unlabelled(self) -> NDArray[np.int64]:
        return np.flatnonzero(self.labels == UNLABELLED)

    def take(self, rows: NDArray[np.int64]) -> Corpus:
        return Corpus(tuple(self.texts[i] for i in rows), self.labels[rows], self.blocks[rows], self.source)

    def __add__(self, other: Corpus) -> Corpus:
        shift = int(self.blocks.max(initial=-1)) + 1
        return Corpus(
            self.texts + other.texts,
            np.concatenate([self.labels, other.labels]),
            np.concatenate([self.blocks, other.blocks + shift]),
            f"{self.source} + {other.source}",
        )


def read(path: str | Path, split: str = "train", *, unlabelled: bool = True) -> Corpus:
    """Any of the formats, by what `path` is. `split` chooses a part of IMDb; other files are one part."""
    path = Path(path)
    if not path.exists():
        raise NotFound(f"{path}: there is no such file or folder", param="data")
    if path.is_dir() or path.name.endswith((".tar.gz", ".tgz", ".tar")):
        corpus = _read_imdb(path, split, unlabelled)
    else:
        try:
            corpus = _read_rows(path)
        except (UnicodeDecodeError, csv.Error, json.JSONDecodeError) as damage:
            raise MalformedInput(f"{path} is damaged: {damage}", param="data") from damage
    _require_two_classes(corpus)
    return corpus


def split_validation(
    corpus: Corpus, folds: int = 5, fold: int = 1, seed: int = 0
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(rows to train on, rows to validate on): one of `folds` parts made of whole blocks, the same for each
    class.

    On IMDb the default fold is the typical one: the counts view of the teacher does on it as on the five
    together.
    """
    rng = np.random.default_rng(seed)
    held: list[NDArray[np.int64]] = []
    for label in (1, 0):
        rows = np.flatnonzero(corpus.labels == label)
        _, block = np.unique(corpus.blocks[rows], return_inverse=True)
        part = rng.permutation(int(block.max()) + 1) % folds
        held.append(rows[part[block] == fold])
    validation = np.sort(np.concatenate(held))
    return np.setdiff1d(corpus.labelled, validation), validation


# ---------------------------------------- IMDb


def _read_imdb(path: Path, split: str, unlabelled: bool) -> Corpus:
    parts = ("pos", "neg", "unsup") if unlabelled else ("pos", "neg")
    members = _folder_members(path) if path.is_dir() else _archive_members(path)
    found: list[tuple[int, int, str]] = []  # (part, number, text)
    try:
        for name, text in members:
            match = _MEMBER.search(name)
            if match and match[1] == split and match[2] in parts:
                found.append((parts.index(match[2]), int(match[3]), text()))
    except (tarfile.TarError, zlib.error, EOFError, OSError, UnicodeDecodeError) as damage:
        raise MalformedInput(f"{path} is damaged or no tar archive: {damage}", param="data") from damage
    if not found:
        raise InvalidInput(f"{path} holds no {split}/pos and {split}/neg reviews", param="data")
    found.sort()
    part = np.array([f[0] for f in found])
    rank = np.concatenate([np.arange(n) for n in np.bincount(part)])
    return Corpus(
        texts=tuple(f[2] for f in found),
        labels=np.array([1, 0, UNLABELLED], dtype=np.int8)[part],
        blocks=part * 1_000_000 + rank // FILM_BLOCK,
        source=f"{path.name}:{split}",
    )


def _folder_members(path: Path) -> Iterator[tuple[str, Callable[[], str]]]:
    for file in path.rglob("*.txt"):
        yield (
            "/" + file.relative_to(path.parent).as_posix(),
            partial(file.read_text, encoding="utf-8"),
        )


def _decoded(stream: IO[bytes]) -> str:
    return stream.read().decode("utf-8")


def _archive_members(path: Path) -> Iterator[tuple[str, Callable[[], str]]]:
    with tarfile.open(path) as archive:
        for member in archive:
            stream = archive.extractfile(member) if member.isfile() else None
            if stream is not None:
                yield member.name, partial(_decoded, stream)


# ---------------------------------------- flat files


def _read_rows(path: Path) -> Corpus:
    readers: dict[str, Callable[[Path], Iterator[tuple[str, str]]]] = {
        ".tsv": _tsv_rows, ".csv": _csv_rows, ".jsonl": _jsonl_rows, ".parquet": _parquet_rows,
    }  # fmt: skip
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise InvalidInput(f"{path}: the formats are a folder, tar.gz, {', '.join(readers)}", param="data")
    texts: list[str] = []
    labels: list[int] = []
    for number, (text, label) in enumerate(reader(path), start=1):
        if label.strip().lower() not in LABELS:
            raise InvalidInput(
                f"{path}, row {number}: unknown label {label!r}, expected one of {', '.join(LABELS)}"
            )
        texts.append(text)
        labels.append(LABELS[label.strip().lower()])
    return Corpus(tuple(texts), np.array(labels, dtype=np.int8), np.arange(len(texts)), path.name)


def _tsv_rows(path: Path) -> Iterator[tuple[str, str]]:
    """SST-2: sentence, tab, label; a first line "sentence<tab>label" is a heading."""
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            text, tab, label = line.rstrip("\r\n").rpartition("\t")
            if not tab:
                raise MalformedInput(f"{path}, line {number}: no tab between text and label")
            if not (number == 1 and label.lower() in LABEL_COLUMNS):
                yield text, label


def _csv_rows(path: Path) -> Iterator[tuple[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file)
        text, label = _columns(path, rows.fieldnames or ())
        for row in rows:
            yield row[text] or "", row[label] or ""


def _jsonl_rows(path: Path) -> Iterator[tuple[str, str]]:
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            row = json.loads(line)
            if not isinstance(row, dict):
                raise MalformedInput(f"{path}, line {number}: not an object")
            text, label = _columns(path, tuple(row))
            yield str(row[text]), str(row[label])


def _parquet_rows(path: Path) -> Iterator[tuple[str, str]]:
    try:
        from pyarrow import ArrowInvalid, parquet
    except ImportError as missing:
        raise NotFound("parquet needs pyarrow: pip install 'hardmax[export]'", param="data") from missing
    try:
        table = parquet.read_table(path)
    except (ArrowInvalid, OSError) as damage:
        raise MalformedInput(f"{path} is damaged or not parquet: {damage}", param="data") from damage
    text, label = _columns(path, tuple(table.column_names))
    for row_text, row_label in zip(table[text].to_pylist(), table[label].to_pylist(), strict=True):
        yield str(row_text), str(row_label)


def _columns(path: Path, names: Iterable[str]) -> tuple[str, str]:
    lower = {name.lower(): name for name in names}
    text = next((lower[c] for c in TEXT_COLUMNS if c in lower), None)
    label = next((lower[c] for c in LABEL_COLUMNS if c in lower), None)
    if text is None or label is None:
        raise InvalidInput(
            f"{path}: needs a text column ({', '.join(TEXT_COLUMNS)}) "
            f"and a label column ({', '.join(LABEL_COLUMNS)}); "
            f"it has {', '.join(lower.values()) or 'none'}"
        )
    return text, label


def _require_two_classes(corpus: Corpus) -> None:
    for name, label in (("positive", 1), ("negative", 0)):
        if not (corpus.labels == label).any():
            raise InvalidInput(f"{corpus.source}: the class {name} is empty", param="data")
