"""The data sets of the pretrained models: parsers, three splits, and the removal of near-duplicates.

    train        the weights are trained on it
    validation   choices are made on it: epochs, averaging, calibration, the neutral threshold
    test         figures are measured on it, once

A validation or test text is left out if a training text is nearly the same: if more than a fifth of its runs
of eight words occur there (the whole text, if it is shorter). IMDb's archive does not say which movie a
review is about; its reviews are numbered by movie, so whole blocks of neighbouring numbers are held out.
"""

from __future__ import annotations

import gzip
import hashlib
import html
import re
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from service.errors import InvalidInput, NotFound

SPLITS = ("train", "validation", "test")
DUPLICATE_RUN_WORDS, MAX_DUPLICATE_SHARE = 8, 0.2
REVIEWS_PER_BLOCK = 50  # neighbouring IMDb reviews that stay together
VALIDATION_SHARE, TEST_SHARE = 0.06, 0.10  # of the texts of a data set
_VALUES = {"0": 0.0, "1": 1.0, "negative": 0.0, "neutral": 0.5, "positive": 1.0}
_MEMBER = re.compile(r"train/(pos|neg|unsup)/(\d+)_\d+\.txt$")
_SPLIT_CONTRACTION = re.compile(r" (n't|'(?:s|m|d|re|ve|ll)\b)")
_MARKUP = re.compile(r"<[^<>]{0,99}>")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")
MIN_SENTENCE_WORDS, MAX_SENTENCE_WORDS = 3, 30  # in a sentence
_ALPHANUMERIC = re.compile(r"[^\W_]+")


@dataclass(frozen=True)
class Row:
    """A text, the probability that it is positive (None: unlabelled), and the split it belongs to."""

    text: str
    target: float | None
    split: str = "train"


Rows = list[Row]


def read_all(data: Path) -> dict[str, Rows]:
    """Return the data sets in the folder `data` by name, split and without near-duplicates."""
    sst = read_table(data / "sst2/train.tsv", "sst")
    dev = [Row(row.text, row.target, "test") for row in read_table(data / "sst2/dev.tsv", "sst")]
    sst = [Row(row.text, row.target, "validation" if row.split == "test" else row.split) for row in sst]
    sets = {
        "reviews": read_reviews(data / "aclImdb_train.tar.gz"),
        "sst": sst + dev,
        "phrases": _phrases(read_table(data / "sst2/phrases.tsv.gz", ""), sst + dev),
        "yelp": read_table(data / "yelp/sentences.tsv.gz", "yelp"),
        "tweets": read_table(data / "tweets/semeval2017.tsv.gz", "tweets"),
        "amazon": read_table(data / "amazon/reviews.tsv.gz", "amazon"),
        "electronics": read_table(data / "amazon/electronics.tsv.gz", "electronics"),
        "mpqa": read_table(data / "mpqa/phrases.tsv.gz", "mpqa"),
        "wordnet": read_examples(data / "wordnet/examples.txt.gz"),
    }
    return {name: without_near_duplicates(rows) for name, rows in sets.items()}


def read_table(path: Path, salt: str) -> Rows:
    """Read a file of text<TAB>label. The split of a row is drawn from its text, so equal texts share it."""
    if not path.exists():
        raise NotFound(f"{path}: there is no such file", param="data")
    rows = []
    with (
        gzip.open(path, "rt", encoding="utf-8")
        if path.suffix == ".gz"
        else path.open(encoding="utf-8") as file
    ):
        for line in file:
            text, _, label = line.rstrip("\n").rpartition("\t")
            if label in _VALUES:
                rows.append(Row(clean(text), _VALUES[label], _draw(salt + text) if salt else "train"))
    return rows


def read_examples(path: Path) -> Rows:
    """Read a file with one text per line, without labels."""
    if not path.exists():
        raise NotFound(f"{path}: there is no such file", param="data")
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [Row(clean(line.strip()), None) for line in file if line.strip()]


def read_reviews(archive: Path) -> Rows:
    """Read IMDb in file order, labelled and unlabelled; whole blocks of labelled reviews are held out."""
    if not archive.exists():
        raise NotFound(f"{archive}: there is no such file", param="data")
    rows = []
    for part, number, text in sorted(_members(archive)):
        if part == "unsup":
            rows.append(Row(clean(text), None))
        else:
            rows.append(Row(clean(text), float(part == "pos"), _draw(f"{part}{number // REVIEWS_PER_BLOCK}")))
    if not rows:
        raise InvalidInput(f"{archive} holds no reviews", param="data")
    return rows


def _members(archive: Path) -> Iterator[tuple[str, int, str]]:
    with tarfile.open(archive) as opened:
        for member in opened:
            match = _MEMBER.search(member.name)
            if match and (stream := opened.extractfile(member)):
                yield match[1], int(match[2]), stream.read().decode()


def clean(text: str) -> str:
    """Undo the markup of a data set: entities, contractions written apart, "_num_"."""
    return _SPLIT_CONTRACTION.sub(r"\1", html.unescape(text).replace("_num_", "5").replace("’", "'"))


def sentences(texts: Iterable[str]) -> list[str]:
    """Return the distinct sentences of the texts that have a usual length."""
    found = (one.strip() for text in texts for one in _SENTENCE_END.split(_MARKUP.sub(". ", text)))
    return list(
        dict.fromkeys(one for one in found if MIN_SENTENCE_WORDS <= len(one.split()) <= MAX_SENTENCE_WORDS)
    )


def _draw(key: str) -> str:
    share = int.from_bytes(hashlib.sha256(key.encode()).digest()[:4], "big") / 2**32
    return (
        "validation"
        if share < VALIDATION_SHARE
        else "test"
        if share < VALIDATION_SHARE + TEST_SHARE
        else "train"
    )


def _phrases(phrases: Rows, sentences: Rows) -> Rows:
    """Return the phrases that are no part of a held-out sentence."""
    held = " | ".join(" ".join(_words(row.text)) for row in sentences if row.split != "train")
    return [row for row in phrases if " ".join(_words(row.text)) not in held]


def _words(text: str) -> list[str]:
    return _ALPHANUMERIC.findall(text.lower())


def _runs(text: str) -> set[int]:
    words = _words(text)
    return {
        hash(tuple(words[i : i + DUPLICATE_RUN_WORDS]))
        for i in range(max(1, len(words) - DUPLICATE_RUN_WORDS + 1))
    }


def without_near_duplicates(rows: Rows) -> Rows:
    """Return the rows without held-out ones that nearly repeat a row of an earlier split."""
    seen: set[int] = set()
    unique = []
    for split in SPLITS:
        part = [(row, _runs(row.text)) for row in rows if row.split == split]
        if split != "train":
            part = [(row, runs) for row, runs in part if len(runs & seen) <= MAX_DUPLICATE_SHARE * len(runs)]
        unique += [row for row, _ in part]
        for _, runs in part:
            seen |= runs
    return unique


def sizes(sets: Mapping[str, Rows]) -> dict[str, dict[str, int]]:
    """Return the number of rows of each split of each data set, for the card."""
    return {
        name: {split: sum(row.split == split for row in rows) for split in SPLITS}
        for name, rows in sets.items()
    }
