"""The data sets of the pretrained models: parsers, three splits, and the removal of near-duplicates.

    train        the weights are trained on it
    validation   choices are made on it: checkpoints, calibration, the neutral threshold
    test         figures are measured on it, once

A validation or test text is left out if more than a fifth of its sequences of eight words occur in the
training texts (a shorter text is one sequence). IMDb's archive does not say which movie a
review is about; its reviews are numbered by movie, so whole blocks of neighbouring numbers are held out.
"""

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
NGRAM_WORDS, MAX_SHARED_NGRAMS = 8, 0.2
REVIEWS_PER_BLOCK = 50  # neighbouring IMDb reviews that stay together
VALIDATION_SHARE, TEST_SHARE = 0.06, 0.10  # of the texts of a data set
_TARGETS = {"0": 0.0, "1": 1.0, "negative": 0.0, "neutral": 0.5, "positive": 1.0}
_MEMBER = re.compile(r"train/(pos|neg|unsup)/(\d+)_\d+\.txt$")
_SPLIT_CONTRACTION = re.compile(r" (n't|'(?:s|m|d|re|ve|ll)\b)")
_MARKUP = re.compile(r"<[^<>]{0,99}>")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")
MIN_SENTENCE_WORDS, MAX_SENTENCE_WORDS = 3, 30
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
        "phrases": _drop_held_out_phrases(read_table(data / "sst2/phrases.tsv.gz", ""), sst + dev),
        "yelp": read_table(data / "yelp/sentences.tsv.gz", "yelp"),
        "tweets": read_table(data / "tweets/semeval2017.tsv.gz", "tweets"),
        "amazon": read_table(data / "amazon/reviews.tsv.gz", "amazon"),
        "electronics": read_table(data / "amazon/electronics.tsv.gz", "electronics"),
        "mpqa": read_table(data / "mpqa/phrases.tsv.gz", "mpqa"),
        "wordnet": read_examples(data / "wordnet/examples.txt.gz", "wordnet"),
    }
    return {name: drop_near_duplicates(rows) for name, rows in sets.items()}


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
            if label in _TARGETS:
                rows.append(Row(clean(text), _TARGETS[label], _draw_split(salt + text) if salt else "train"))
    return rows


def read_examples(path: Path, salt: str) -> Rows:
    """Read a file with one text per line, without labels. The split is drawn as in `read_table`."""
    if not path.exists():
        raise NotFound(f"{path}: there is no such file", param="data")
    with gzip.open(path, "rt", encoding="utf-8") as file:
        texts = [line.strip() for line in file if line.strip()]
    return [Row(clean(text), None, _draw_split(salt + text)) for text in texts]


def read_reviews(archive: Path) -> Rows:
    """Read the labelled and unlabelled reviews of IMDb; hold out whole blocks of labelled ones."""
    if not archive.exists():
        raise NotFound(f"{archive}: there is no such file", param="data")
    rows = []
    for part, number, text in sorted(_read_members(archive)):
        if part == "unsup":
            rows.append(Row(clean(text), None))
        else:
            split = _draw_split(f"{part}{number // REVIEWS_PER_BLOCK}")
            rows.append(Row(clean(text), float(part == "pos"), split))
    if not rows:
        raise InvalidInput(f"{archive} holds no reviews", param="data")
    return rows


def _read_members(archive: Path) -> Iterator[tuple[str, int, str]]:
    with tarfile.open(archive) as tar:
        for member in tar:
            match = _MEMBER.search(member.name)
            if match and (stream := tar.extractfile(member)):
                yield match[1], int(match[2]), stream.read().decode()


def clean(text: str) -> str:
    """Undo the markup of a data set: entities, contractions written apart, "_num_"."""
    return _SPLIT_CONTRACTION.sub(r"\1", html.unescape(text).replace("_num_", "5").replace("’", "'"))


def split_sentences(texts: Iterable[str]) -> list[str]:
    """Return the distinct sentences of the texts, without very short and very long ones."""
    sentences = (part.strip() for text in texts for part in _SENTENCE_END.split(_MARKUP.sub(". ", text)))
    limits = range(MIN_SENTENCE_WORDS, MAX_SENTENCE_WORDS + 1)
    return list(dict.fromkeys(sentence for sentence in sentences if len(sentence.split()) in limits))


def _draw_split(key: str) -> str:
    """Return a pseudorandom split, always the same for a key."""
    share = int.from_bytes(hashlib.sha256(key.encode()).digest()[:4], "big") / 2**32
    if share < VALIDATION_SHARE:
        return "validation"
    return "test" if share < VALIDATION_SHARE + TEST_SHARE else "train"


def _drop_held_out_phrases(phrases: Rows, sentences: Rows) -> Rows:
    """Return the phrases that are not part of a held-out sentence."""
    held_out = " | ".join(" ".join(_words(row.text)) for row in sentences if row.split != "train")
    return [row for row in phrases if " ".join(_words(row.text)) not in held_out]


def _words(text: str) -> list[str]:
    return _ALPHANUMERIC.findall(text.lower())


def _ngrams(text: str) -> set[int]:
    words = _words(text)
    return {hash(tuple(words[i : i + NGRAM_WORDS])) for i in range(max(1, len(words) - NGRAM_WORDS + 1))}


def drop_near_duplicates(rows: Rows) -> Rows:
    """Return the rows without held-out ones that nearly repeat a row of an earlier split."""
    known: set[int] = set()
    unique = []
    for split in SPLITS:
        part = [(row, _ngrams(row.text)) for row in rows if row.split == split]
        if split != "train":
            part = [(row, new) for row, new in part if len(new & known) <= MAX_SHARED_NGRAMS * len(new)]
        unique += [row for row, _ in part]
        known.update(*(ngrams for _, ngrams in part))
    return unique


def count_rows(sets: Mapping[str, Rows]) -> dict[str, dict[str, int]]:
    """Return the number of rows of each split of each data set, for the card."""
    return {
        name: {split: sum(row.split == split for row in rows) for split in SPLITS}
        for name, rows in sets.items()
    }
