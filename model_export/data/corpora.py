"""The data the bundled model learns from: readers, three splits, a guard against texts nearly the same.

    train    what the weights are learnt from
    choose   what every choice is made on: epochs, averaging, calibration, the band called "even"
    report   what figures are measured on, once

A text of `choose` or `report` is left out when a training text says the same: when more than a fifth of its
runs of eight words occur there (the whole text, when it is shorter). IMDb's archive does not say which film a
review is of; its reviews are numbered by film, so whole blocks of neighbouring numbers are held out.
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

SPLITS = ("train", "choose", "report")
DUPLICATE_RUN_WORDS, DUPLICATE_SHARE = 8, 0.2
REVIEWS_PER_BLOCK = 50  # neighbouring IMDb reviews that stay together
HELD = 0.06, 0.10  # shares of a data set: choose, report
_VALUES = {"0": 0.0, "1": 1.0, "negative": 0.0, "neutral": 0.5, "positive": 1.0}
_MEMBER = re.compile(r"train/(pos|neg|unsup)/(\d+)_\d+\.txt$")
_APART = re.compile(r" (n't|'(?:s|m|d|re|ve|ll)\b)")
_MARKUP = re.compile(r"<[^<>]{0,99}>")
_END = re.compile(r"(?<=[.!?])\s+")
LEAST_WORDS, MOST_WORDS = 3, 30  # in a sentence
_ALPHANUMERIC = re.compile(r"[^\W_]+")


@dataclass(frozen=True)
class Row:
    """A text, the probability that it is positive (None: unlabelled), and the split it belongs to."""

    text: str
    target: float | None
    split: str = "train"


Rows = list[Row]


def read_all(data: Path) -> dict[str, Rows]:
    """Every data set in the folder `data`, split and guarded, by name."""
    sst = read_table(data / "sst2/train.tsv", "sst")
    dev = [Row(row.text, row.target, "report") for row in read_table(data / "sst2/dev.tsv", "sst")]
    sst = [Row(row.text, row.target, "choose" if row.split == "report" else row.split) for row in sst]
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
    return {name: guarded(rows) for name, rows in sets.items()}


def read_table(path: Path, salt: str) -> Rows:
    """A file of text<TAB>label. A row's split is drawn from its text: equal texts fall together."""
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
    """A file of a text a line, without labels."""
    if not path.exists():
        raise NotFound(f"{path}: there is no such file", param="data")
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [Row(clean(line.strip()), None) for line in file if line.strip()]


def read_reviews(archive: Path) -> Rows:
    """IMDb in file order, labelled and unlabelled; whole blocks of labelled reviews are held out."""
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
    """A data set's own marks are taken away: entities, contractions written apart, "_num_"."""
    return _APART.sub(r"\1", html.unescape(text).replace("_num_", "5").replace("’", "'"))


def sentences(texts: Iterable[str]) -> list[str]:
    """Single sentences of the texts, each once and of a usual length."""
    found = (one.strip() for text in texts for one in _END.split(_MARKUP.sub(". ", text)))
    return list(dict.fromkeys(one for one in found if LEAST_WORDS <= len(one.split()) <= MOST_WORDS))


def _draw(key: str) -> str:
    share = int.from_bytes(hashlib.sha256(key.encode()).digest()[:4], "big") / 2**32
    return "choose" if share < HELD[0] else "report" if share < sum(HELD) else "train"


def _phrases(phrases: Rows, sentences: Rows) -> Rows:
    """Phrases of held-out sentences are left out; they are parts of them."""
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


def guarded(rows: Rows) -> Rows:
    """Without the held-out rows that a row before their split nearly repeats."""
    seen: set[int] = set()
    kept = []
    for split in SPLITS:
        part = [(row, _runs(row.text)) for row in rows if row.split == split]
        if split != "train":
            part = [(row, runs) for row, runs in part if len(runs & seen) <= DUPLICATE_SHARE * len(runs)]
        kept += [row for row, _ in part]
        for _, runs in part:
            seen |= runs
    return kept


def sizes(sets: Mapping[str, Rows]) -> dict[str, dict[str, int]]:
    """How many rows each split of each data set has, for the card."""
    return {
        name: {split: sum(row.split == split for row in rows) for split in SPLITS}
        for name, rows in sets.items()
    }
