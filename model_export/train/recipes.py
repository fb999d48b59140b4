"""What a training run chooses, as data, and the rows of each epoch that follow from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from model_export.sentiment.model import Shape
from model_export.train.encoder import Fitting
from model_export.train.fit import Optimisation
from model_export.train.material import Ints
from service.errors import NotFound


@dataclass(frozen=True)
class Part:
    """How much of a data set, or of what a rule writes, an epoch sees."""

    most: int = 1_000_000  # texts, drawn again for each epoch
    times: int = 1  # how often each of them


@dataclass(frozen=True)
class Recipe:
    """One model: its words, its shape, what an epoch reads, how it is fitted.

    An encoder learns from labels; the model then learns from labels and from what the encoder says, of
    labelled texts and of others.
    """

    name: str
    description: str
    parts: Mapping[str, Part]
    words: int = 44_000
    longest: int = 250  # words of a text that training reads: its two ends
    shape: Shape = field(default_factory=lambda: Shape(alpha=0.5))
    encoder_parts: Mapping[str, Part] = field(default_factory=dict)
    encoding: Fitting = field(default_factory=Fitting)
    opinions: Mapping[str, float] = field(default_factory=dict)  # what the encoder's weighs beside a label
    unlabelled: int = 30_000  # reviews that only the linear teacher labels
    sentences: int = 100_000  # of them, and of others: labelled by the encoder alone
    learning: Optimisation = field(
        default_factory=lambda: Optimisation(epochs=5, skip=0.3, vector_dropout=0.2, below=0.3)
    )
    seed: int = 0


SENTIMENT = Recipe(
    name="sentiment",
    description="Positive, negative or neither, for reviews, sentences and tweets.",
    parts={
        "reviews": Part(),
        "unlabelled": Part(25_000),
        "sst": Part(times=3),
        "phrases": Part(),
        "yelp": Part(60_000),
        "tweets": Part(times=2),
        "amazon": Part(times=2),
        "electronics": Part(),
        "mpqa": Part(times=2),
        "sentences": Part(),
        "negated": Part(30_000),
        "compared": Part(),
        "doubly": Part(4_000),
        "joined": Part(9_000),
        "rated": Part(),
        "plain": Part(15_000),
    },
    encoder_parts={
        "reviews": Part(2_000),
        "sst": Part(times=2),
        "phrases": Part(),
        "yelp": Part(20_000),
        "tweets": Part(),
        "amazon": Part(),
        "electronics": Part(6_000),
        "mpqa": Part(),
        "negated": Part(10_000),
        "compared": Part(2_000),
        "doubly": Part(1_500),
        "joined": Part(4_000),
        "rated": Part(6_000),
        "plain": Part(),
    },
    opinions={
        **dict.fromkeys(("sst", "phrases", "yelp", "tweets", "amazon", "electronics", "mpqa"), 0.6),
        "sentences": 1.0,
    },
)
TWIN = replace(SENTIMENT, name="twin", description="The same without layers.", shape=Shape(layers=0))
RECIPES = {recipe.name: recipe for recipe in (SENTIMENT, TWIN)}


def drawn(parts: Mapping[str, Part], sizes: Mapping[str, int], epochs: int, seed: int) -> list[Ints]:
    """Which rows each epoch reads, of all data sets of `sizes` one after the other."""
    rng = np.random.default_rng(seed)
    start, found = 0, [[np.zeros(0, np.int64)] for _ in range(epochs)]
    for name, size in sizes.items():
        part = parts[name]
        for epoch in found:
            some = start + rng.permutation(size)[: part.most]
            epoch.append(np.tile(some, part.times))
        start += size
    return [np.concatenate(epoch) for epoch in found]


def recipe(name: str) -> Recipe:
    if name not in RECIPES:
        raise NotFound(f"there is no recipe {name!r}; there are {', '.join(RECIPES)}", param="recipe")
    return RECIPES[name]
