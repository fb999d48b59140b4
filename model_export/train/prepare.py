"""Everything that is made of the data before the first step, kept in a file between runs."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model_export.train import augment, corpora, lexicon, teacher, vocabulary
from model_export.train.corpora import Rows
from model_export.train.fit import ending
from model_export.train.material import Texts
from model_export.train.reach import lean, reach
from model_export.train.recipes import Recipe
from service.texts.reader import SPECIAL, Lists, Reader

CASED = ("reviews", "amazon", "tweets")  # written with the usual capitals
SHORT_WEIGHT = 5  # how much more a word of a short text counts than one of a review
LEANS = {"reviews": 1.0, "sst": 1.0, "yelp": 1.0, "amazon": 1.0, "tweets": 0.5}
WHOLE = 1_000  # words of a held-out text


@dataclass(frozen=True)
class Prepared:
    """Texts of each data set and rule, cut for training; held-out ones whole; what a model starts from."""

    lists: Lists
    train: dict[str, Texts]
    held: dict[str, dict[str, Texts]]  # split -> data set -> texts with targets 0, 0.5, 1
    vectors: NDArray[np.float32]  # [V, 100]
    reach: NDArray[np.float32]  # [V]
    ratings: dict[str, float]
    sizes: dict[str, dict[str, int]]

    def with_held_rows(self, longest: int) -> Prepared:
        """The same with the held-out rows among those to train on."""
        train = dict(self.train)
        for sets in self.held.values():
            for name, texts in sets.items():
                whole = (texts.text(i) for i in range(len(texts)))
                train[name] = train[name] + Texts.of(whole, texts.targets, longest)
        return replace(self, train=train)


def prepare(
    data: Path, recipe: Recipe, keep: Path | None = None, say: Callable[[str], None] = print
) -> Prepared:
    """Reads, folds, teaches and writes; `keep` is a file where the result waits for the next run."""
    if keep is not None and keep.exists():
        return _load(keep)
    say("reading the data")
    sets = corpora.read_all(data)
    ratings = lexicon.ratings()
    known, glove = _glove(data / "glove")
    say("counting words")
    lists = vocabulary.choose(_count(sets), known, ratings, recipe.words)
    reader = Reader(lists)
    say("reading texts as words")
    train, held = _encode(sets, reader, recipe)
    say("asking the teacher about the unlabelled reviews")
    train["unlabelled"] = _taught(train["reviews"], train["unlabelled"])
    leaning = lean(((train[name], weight) for name, weight in LEANS.items()), len(lists.words))
    say("writing sentences")
    train |= augment.written(train, lists.words, ratings, leaning, random.Random(recipe.seed))
    vectors = _vectors(lists, known, glove)
    may_lead = reach(lists.words, leaning, ratings)
    found = Prepared(lists, train, held, vectors, may_lead, ratings, corpora.sizes(sets))
    if keep is not None:
        keep.parent.mkdir(parents=True, exist_ok=True)
        with keep.open("wb") as file:
            pickle.dump(found, file)
    return found


def _load(path: Path) -> Prepared:
    """subtle: a pickle runs what it holds; this file was written by `prepare`, into a folder of the run."""
    with path.open("rb") as file:
        found: Any = pickle.load(file)
    assert isinstance(found, Prepared)
    return found


def _glove(folder: Path) -> tuple[list[str], NDArray[np.float32]]:
    words = (folder / "words.txt").read_text(encoding="utf-8").splitlines()
    return words, np.load(folder / "vectors.npy").astype(np.float32)


def _count(sets: dict[str, Rows]) -> vocabulary.Count:
    count = vocabulary.Count()
    for name, rows in sets.items():
        texts = (row.text for row in rows if row.split == "train")
        count.add(texts, cased=name in CASED, weight=1 if name == "reviews" else SHORT_WEIGHT)
    return count


def _encode(
    sets: dict[str, Rows], reader: Reader, recipe: Recipe
) -> tuple[dict[str, Texts], dict[str, dict[str, Texts]]]:
    def texts(rows: Rows, longest: int) -> Texts:
        targets = [0.5 if row.target is None else row.target for row in rows]
        return Texts.read(reader, [row.text for row in rows], targets, longest)

    train: dict[str, Texts] = {}
    held: dict[str, dict[str, Texts]] = {split: {} for split in corpora.SPLITS[1:]}
    for name, rows in sets.items():
        learn = [row for row in rows if row.split == "train"]
        train[name] = texts([row for row in learn if row.target is not None], recipe.longest)
        if any(row.target is None for row in learn):
            train["unlabelled"] = texts([row for row in learn if row.target is None], recipe.longest)
        for split in held:
            if some := [row for row in rows if row.split == split]:
                held[split][name] = texts(some, WHOLE)
    return train, held


def _taught(labelled: Texts, unlabelled: Texts) -> Texts:
    both = labelled + unlabelled
    train = np.arange(len(labelled))
    p = teacher.label(both, train, np.arange(len(labelled), len(both)))
    return Texts(unlabelled.ids, unlabelled.starts, p)


def _vectors(lists: Lists, known: list[str], glove: NDArray[np.float32]) -> NDArray[np.float32]:
    """Pretrained vectors; a row for an ending starts as the mean of the rarer words that end so."""
    row = {word: i for i, word in enumerate(known)}
    rng = np.random.default_rng(0)
    found = rng.normal(size=(len(lists.words), glove.shape[1])).astype(np.float32) * 0.2
    for i, word in enumerate(lists.words):
        if word in row:
            found[i] = glove[row[word]]
    endings = np.array([ending(word) for word in lists.words])
    for special in range(1, len(SPECIAL)):
        rare = np.flatnonzero((endings == special) & (np.arange(len(endings)) > 8_000))[:3_000]
        if len(rare):
            found[special] = found[rare].mean(0)
    found[0] = 0.0
    return found
