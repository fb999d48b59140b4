"""Everything that is made of the data before the first step, kept in a file between runs."""

from __future__ import annotations

import pickle
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model_export.sentiment.model import NEGATORS
from model_export.sentiment.scores import sigmoid
from model_export.train import augment, corpora, lexicon, linear, recipes, vocabulary
from model_export.train.corpora import Rows
from model_export.train.encoder import Encoder, fitted
from model_export.train.fit import ending
from model_export.train.material import Texts
from model_export.train.reach import lean, reach
from model_export.train.recipes import Recipe
from service.texts.reader import SPECIAL, Lists, Reader

Raw = tuple[list[str], NDArray[np.float32]]

CASED = ("reviews", "amazon", "tweets")  # written with the usual capitals
SHORT_WEIGHT = 5  # how much more a word of a short text counts than one of a review
LEANS = {"reviews": 1.0, "sst": 1.0, "yelp": 1.0, "amazon": 1.0, "tweets": 0.5}
WHOLE = 1_000  # words of a held-out text
PLAIN, MAYBE_PLAIN = 0.3, 0.7  # the charge that no word of a sentence reaches: the encoder judges the latter
EVEN = 1.0  # such a sentence is kept when the encoder's logit is no larger
WORD = re.compile(r"[^\W\d_]+")


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


def prepare(
    data: Path, recipe: Recipe, encoder: Path, keep: Path, say: Callable[[str], None] = print
) -> Prepared:
    """Reads, folds, asks the teachers, writes; `keep` is a file where the result waits for the next run."""
    if keep.exists():
        return _load(keep)
    say("reading the data")
    sets = corpora.read_all(data)
    ratings = lexicon.ratings()
    known, glove = _glove(data / "glove")
    say("counting words")
    lists = vocabulary.choose(_count(sets), known, ratings, recipe.words)
    say("reading texts as words")
    reader, vectors = Reader(lists), _vectors(lists, known, glove)
    raw = _raw(sets, recipe, ratings)
    train = {
        name: Texts.read(reader, texts, targets, recipe.longest) for name, (texts, targets) in raw.items()
    }
    held = {split: _held(sets, reader, split) for split in corpora.SPLITS[1:]}
    leaning = lean(((train[name], weight) for name, weight in LEANS.items()), len(lists.words))
    write = partial(augment.written, words=lists.words, ratings=ratings, leaning=leaning, seed=recipe.seed)
    say("fitting the encoder")
    lessons = write(train, plain_below=PLAIN).items()
    written = {name: (_spelt(texts, lists.words), texts.targets) for name, texts in lessons}
    teacher = _teacher(raw | written, recipe, encoder, keep.with_name("encoder.pt"), say)
    say("asking the encoder")
    answers = keep.with_name("answers")
    for name, (texts, _) in raw.items():
        if name in recipe.opinions:  # but not about denied blame: the encoder is wrong about most of that
            trusted = np.array([not denies_blame(text, ratings) for text in texts])
            share = np.float32(recipe.opinions[name]) * trusted
            train[name] = _taught(train[name], teacher.asked(texts, answers), share)
    says = linear.label(train["reviews"], train["unlabelled"])
    train["unlabelled"] = _taught(train["unlabelled"], says, np.ones_like(says))
    say("writing sentences")
    train |= write(train, plain_below=MAYBE_PLAIN)
    train["plain"] = _plain(train["plain"], lists.words, teacher, answers)
    may_lead = reach(lists.words, leaning, ratings)
    found = Prepared(lists, train, held, vectors, may_lead, ratings, corpora.sizes(sets))
    keep.parent.mkdir(parents=True, exist_ok=True)
    with keep.open("wb") as file:
        pickle.dump(found, file)
    return found


def denies_blame(text: str, ratings: Mapping[str, float]) -> bool:
    """Whether a text denies something and holds a word of blame: "the film never gets boring"."""
    words = set(WORD.findall(text.lower().replace("n't", " not")))
    denials = words & NEGATORS  # "no" is rated itself
    return bool(denials) and any(ratings.get(word, 0.0) < 0 for word in words - denials)


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


def _raw(sets: dict[str, Rows], recipe: Recipe, ratings: dict[str, float]) -> dict[str, Raw]:
    """Training texts as they are written, with their labels; 0.5 where nobody labelled."""
    rng = random.Random(recipe.seed)
    learn = {name: [row for row in rows if row.split == "train"] for name, rows in sets.items()}
    unlabelled = [row.text for row in learn["reviews"] if row.target is None]
    rng.shuffle(unlabelled)
    found: dict[str, Raw] = {}
    for name, rows in learn.items():
        labelled = [row for row in rows if row.target is not None]
        rng.shuffle(labelled)
        found[name] = _labels(labelled)
    said = corpora.sentences([*unlabelled, *found["amazon"][0]])
    rng.shuffle(said)
    said = list(islice((one for one in said if not denies_blame(one, ratings)), recipe.sentences))
    for name, texts in (("unlabelled", unlabelled[: recipe.unlabelled]), ("sentences", said)):
        found[name] = texts, np.full(len(texts), 0.5, np.float32)
    return found


def _labels(rows: Rows) -> Raw:
    targets = [0.5 if row.target is None else row.target for row in rows]
    return [row.text for row in rows], np.array(targets, np.float32)


def _held(sets: dict[str, Rows], reader: Reader, split: str) -> dict[str, Texts]:
    some = {name: [row for row in rows if row.split == split] for name, rows in sets.items()}
    return {name: Texts.read(reader, *_labels(rows), WHOLE) for name, rows in some.items() if rows}


def _teacher(
    raw: dict[str, Raw], recipe: Recipe, folder: Path, keep: Path, say: Callable[[str], None]
) -> Encoder:
    """The encoder, fitted to what is labelled and to what the rules write: they know what a denial does."""
    names = [name for name in recipe.encoder_parts if name in raw]
    texts = [text for name in names for text in raw[name][0]]
    targets = np.concatenate([raw[name][1] for name in names])
    sizes = {name: len(raw[name][0]) for name in names}
    epochs = recipes.drawn(recipe.encoder_parts, sizes, recipe.encoding.epochs, recipe.seed)
    return fitted(folder, texts, targets, epochs, recipe.encoding, keep, say)


def _taught(texts: Texts, logits: NDArray[np.float32], share: NDArray[np.float32]) -> Texts:
    """The texts with targets between their labels and what a teacher says of them."""
    says = sigmoid(logits).astype(np.float32)
    return replace(texts, targets=(1 - share) * texts.targets + share * says)


def _plain(texts: Texts, words: Sequence[str], teacher: Encoder, answers: Path) -> Texts:
    """Those that the encoder finds even."""
    logits = teacher.asked(_spelt(texts, words), answers)
    return texts.take(np.flatnonzero(np.abs(logits) < EVEN))


def _spelt(texts: Texts, words: Sequence[str]) -> list[str]:
    return [" ".join(words[j] for j in texts.text(i)) for i in range(len(texts))]


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
