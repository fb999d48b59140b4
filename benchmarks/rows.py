"""Labelled texts for custom models: training rows, and test texts that no model was trained on."""

import random
import subprocess
import zlib
from collections.abc import Iterable, Mapping
from itertools import combinations_with_replacement
from pathlib import Path

from model_export.data.corpora import Row, Rows, read_all
from model_export.recipe import Recipe, select_texts

TEST_TEXTS = 100  # per label
TEXT_LENGTHS = range(15, 301)  # characters
CORPORA = {"restaurants": "yelp", "films": "sst", "news": "mpqa", "electronics": "electronics",
           "tweets": "tweets"}  # fmt: skip
SENTIMENT_TARGETS = {"negative": 0.0, "neutral": 0.5, "positive": 1.0}
SECTIONS = ("games", "science", "sound", "graphics", "fonts", "mail", "database", "editors", "video", "web")
SUBJECTS, PACKAGES, SEVERAL = (
    "sources, 5 labels",
    "packages, 10 labels",
    "several sources at once, 5 labels",
)

TrainTest = tuple[list[str], list[str]]  # texts for training, texts to measure on
TextsByLabels = dict[tuple[str, ...], TrainTest]  # by the labels that a text has


def unseen_rows(sets: Mapping[str, Rows]) -> dict[str, Rows]:
    """Return the test rows of five corpora and, as training rows, others that no encoder was trained on."""
    seen = {row.text for rows in select_texts(sets, Recipe()).values() for row in rows}
    not_test = {row.text for rows in sets.values() for row in rows if row.split != "test"}
    return {
        name: [row for row in sets[corpus] if row.split == "test" and row.text not in not_test]
        + [Row(row.text, row.target) for row in sets[corpus] if row.split != "test" and row.text not in seen]
        for name, corpus in CORPORA.items()
    }


def split_texts(rows: Iterable[Row], max_rows: int) -> TrainTest:
    """Draw up to `2 * max_rows` texts for training, and up to `max_rows` of the test split."""
    usable = [row for row in rows if len(row.text) in TEXT_LENGTHS]
    random.Random(0).shuffle(usable)
    train, test = ([row.text for row in usable if row.split == part] for part in ("train", "test"))
    return train[: 2 * max_rows], test[: min(max_rows, TEST_TEXTS)]


def read_packages() -> dict[str, list[Row]]:
    """Return the descriptions of Debian packages by section; nothing where the system has no list of them."""
    try:
        listed = subprocess.run(["apt-cache", "dumpavail"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return {}
    rows: dict[str, list[Row]] = {}
    for block in listed.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.split("\n") if ": " in line)
        text = fields.get("Description-en") or fields.get("Description", "")
        if fields.get("Section") in SECTIONS and len(text.split()) >= 3:
            part = {0: "validation", 1: "test"}.get(zlib.crc32(text.encode()) % 4, "train")
            rows.setdefault(fields["Section"], []).append(Row(text, None, part))
    return rows


def read_tasks(data: Path, max_rows: int) -> dict[str, TextsByLabels]:
    """Return the texts of each task, for up to `max_rows` training rows per label."""
    sets = unseen_rows(read_all(data))
    subjects: TextsByLabels = {(name,): split_texts(rows, max_rows) for name, rows in sets.items()}
    tasks = {SUBJECTS: subjects}
    for name, labels in (
        ("restaurants", ("negative", "positive")),
        ("electronics", ("negative", "positive")),
        ("tweets", tuple(SENTIMENT_TARGETS)),
    ):
        tasks[f"sentiment of {name}, {len(labels)} labels"] = {
            (label,): split_texts([r for r in sets[name] if r.target == SENTIMENT_TARGETS[label]], max_rows)
            for label in labels
        }
    if sections := read_packages():
        tasks[PACKAGES] = {(name,): split_texts(rows, max_rows) for name, rows in sections.items()}
    tasks[SEVERAL] = join_pairs(subjects)
    return tasks


def join_pairs(texts: TextsByLabels) -> TextsByLabels:
    """Join two sentences for each pair of labels, and keep single ones. No sentence is in two texts: held-out
    texts would not be new.
    """
    pairs: TextsByLabels = {}
    n = len(texts)
    for (i, a), (j, b) in combinations_with_replacement(enumerate(texts), 2):
        part = slice((i + j) % n, None, n)  # another part of the sentences of a for each j
        train, test = (
            [x if i == j else f"{x} {y}" for x, y in zip(xs[part], ys[part], strict=False)]
            for xs, ys in zip(texts[a], texts[b], strict=True)
        )
        pairs[a if i == j else (*a, *b)] = train, test
    return pairs
