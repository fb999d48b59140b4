"""Texts with labels for models of one's own: rows to learn from, and texts that nobody has learnt from."""

from __future__ import annotations

import random
import subprocess
import zlib
from collections.abc import Iterable, Mapping
from itertools import combinations_with_replacement
from pathlib import Path

from model_export.data.corpora import Row, Rows, read_all
from model_export.recipe import Recipe, select_texts

TESTED = 100  # texts a label
LETTERS = range(15, 301)  # of a text
CORPORA = {"restaurants": "yelp", "films": "sst", "news": "mpqa", "electronics": "electronics",
           "tweets": "tweets"}  # fmt: skip
VERDICTS = {"negative": 0.0, "neutral": 0.5, "positive": 1.0}
SECTIONS = ("games", "science", "sound", "graphics", "fonts", "mail", "database", "editors", "video", "web")
SUBJECTS, PACKAGES, SEVERAL = (
    "subjects, 5 labels",
    "packages, 10 labels",
    "several subjects at once, 5 labels",
)

Halves = tuple[list[str], list[str]]  # texts to learn from, texts to measure on
Parts = dict[tuple[str, ...], Halves]  # by the labels that a text has


def unread(sets: Mapping[str, Rows]) -> dict[str, Rows]:
    """Return the test rows of five corpora and, as training rows, others that no encoder was trained on."""
    read = {row.text for rows in select_texts(sets, Recipe()).values() for row in rows}
    others = {row.text for rows in sets.values() for row in rows if row.split != "test"}
    return {
        name: [row for row in sets[corpus] if row.split == "test" and row.text not in others]
        + [Row(row.text, row.target) for row in sets[corpus] if row.split != "test" and row.text not in read]
        for name, corpus in CORPORA.items()
    }


def halves(rows: Iterable[Row], split: str, most: int) -> Halves:
    some = [row for row in rows if len(row.text) in LETTERS]
    random.Random(0).shuffle(some)
    learnt_from, measured = ([row.text for row in some if row.split == part] for part in ("train", split))
    return learnt_from[: 2 * most], measured[: min(most, TESTED)]


def packages() -> dict[str, list[Row]]:
    """What packages of Debian say of themselves, by section; nothing where there is no list of them."""
    try:
        listed = subprocess.run(["apt-cache", "dumpavail"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return {}
    found: dict[str, list[Row]] = {}
    for block in listed.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.split("\n") if ": " in line)
        text = fields.get("Description-en") or fields.get("Description", "")
        if fields.get("Section") in SECTIONS and len(text.split()) >= 3:
            part = {0: "validation", 1: "test"}.get(zlib.crc32(text.encode()) % 4, "train")
            found.setdefault(fields["Section"], []).append(Row(text, None, part))
    return found


def tasks(data: Path, split: str, most: int) -> dict[str, Parts]:
    """Of each question the halves of each label, or set of labels; `most` rows a label are learnt from."""
    every = read_all(data)
    sets = unread(every) if split == "test" else {name: every[of] for name, of in CORPORA.items()}
    alone: Parts = {(name,): halves(rows, split, most) for name, rows in sets.items()}
    found = {SUBJECTS: alone}
    for name, labels in (
        ("restaurants", ("negative", "positive")),
        ("electronics", ("negative", "positive")),
        ("tweets", tuple(VERDICTS)),
    ):
        found[f"verdicts on {name}, {len(labels)} labels"] = {
            (label,): halves([row for row in sets[name] if row.target == VERDICTS[label]], split, most)
            for label in labels
        }
    if sections := packages():
        found[PACKAGES] = {(name,): halves(rows, split, most) for name, rows in sections.items()}
    found[SEVERAL] = several(alone)
    return found


def several(alone: Parts) -> Parts:
    """Texts of one label and of each two: of two sentences. No sentence is in two texts: rows that are held
    out would not be new.
    """
    found: Parts = {}
    count = len(alone)
    for (i, one), (j, other) in combinations_with_replacement(enumerate(alone), 2):
        mine = slice((i + j) % count, None, count)  # another part of a label's sentences for each j
        learnt_from, measured = (
            [a if i == j else f"{a} {b}" for a, b in zip(x[mine], y[mine], strict=False)]
            for x, y in zip(alone[one], alone[other], strict=True)
        )
        found[one if i == j else (*one, *other)] = learnt_from, measured
    return found
