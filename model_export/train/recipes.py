"""What a training run chooses, as data; nothing here runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from model_export.sentiment.model import Shape
from model_export.train.fit import Optimisation
from service.errors import NotFound


@dataclass(frozen=True)
class Part:
    """How much of a data set, or of what a rule writes, an epoch sees."""

    most: int = 1_000_000  # texts, drawn again for each epoch
    times: int = 1  # how often each of them


@dataclass(frozen=True)
class Recipe:
    """One model: its words, its shape, what an epoch reads, how it is fitted.

    A teacher that nothing binds (no layers, any word may weigh) learns from labels; the model then learns
    from labels and from what the teacher says, of whole texts and of the words that carried them. It settles
    on texts cut down to its own leaders, which then say what the whole says.
    """

    name: str
    description: str
    parts: Mapping[str, Part]
    words: int = 44_000
    longest: int = 250  # words of a text that training reads: its two ends
    shape: Shape = field(default_factory=Shape)
    teacher: Shape = field(default_factory=lambda: Shape(layers=0, hidden=64, activation="gated"))
    teaching: Optimisation = field(default_factory=lambda: Optimisation(epochs=3, gain=0.0))
    learning: Optimisation = field(default_factory=lambda: Optimisation(epochs=5, skip=0.3))
    settling: Optimisation = field(
        default_factory=lambda: Optimisation(
            epochs=2, rate=7e-4, vectors_rate=7e-4, warm_up=50, skip=0.15, average=0.6
        )
    )
    opinion: float = 0.4  # what the teacher's opinion weighs beside a label
    everything: bool = False  # settle on the held-out rows too, once the same recipe was measured on them
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
        "negated": Part(20_000),
        "compared": Part(6_000),
        "doubly": Part(1_500),
        "joined": Part(7_000),
        "rated": Part(7_000),
        "plain": Part(4_000),
        "leaders": Part(),
    },
)
SHIPPED = replace(SENTIMENT, name="shipped", everything=True)
TWIN = replace(SENTIMENT, name="twin", description="The same without layers.", shape=Shape(layers=0))
RECIPES = {recipe.name: recipe for recipe in (SENTIMENT, SHIPPED, TWIN)}


def recipe(name: str) -> Recipe:
    if name not in RECIPES:
        raise NotFound(f"there is no recipe {name!r}; there are {', '.join(RECIPES)}", param="recipe")
    return RECIPES[name]
