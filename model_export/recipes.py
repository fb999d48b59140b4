"""The models that this project trains, as data. A recipe says everything that `train` chooses; nothing here
runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from service.errors import NotFound


@dataclass(frozen=True)
class Recipe:
    """Shape, vocabulary, teaching and optimisation of one model."""

    name: str
    description: str
    # shape (see model.Shape)
    dimension: int
    layers: int = 2
    alpha: float = 1.0
    weighted: bool = True
    pseudo_weight: float = 0.0
    spread: float = 0.2
    lean: float = 0.3  # how far tokens start from the origin, by what naive Bayes knows of them
    reach: int = 64
    # tokens
    longest_phrase: int = 3  # 1: single words only
    vocabulary: int = 150_000  # words first, then the most telling phrases
    least: int = 5  # a token occurs in so many training texts
    drop_frequent: int = 0  # leave out so many of the most frequent words, as the paper's cleaning does
    # what is learnt from
    teacher: bool = True  # soft labels for the unlabelled reviews
    lessons: int = 0  # how often an epoch repeats the short texts written for training (lessons.py)
    sentences: bool = True  # short labelled sentences (SST-2) beside the reviews, if given
    # optimisation
    epochs: int = 4
    rate: float = 1.5e-3
    batch: int = 64
    dropout: float = 0.4  # share of the distinct tokens left out of each text
    seed: int = 0


def _paper(dimension: int) -> Recipe:
    return Recipe(
        name=f"paper-{dimension}",
        description=f"The paper's read-out, a plain mean over single words, in dimension {dimension}.",
        dimension=dimension,
        weighted=False,
        longest_phrase=1,
        sentences=False,
    )


_ALL = (
    _paper(2),
    _paper(4),
    _paper(8),
    _paper(16),
    Recipe(
        name="sentiment-2d",
        description="Reviews in the plane: every step of the model can be drawn.",
        dimension=2,
        vocabulary=100_000,
        pseudo_weight=5.0,
        lessons=2,
        rate=2e-3,
    ),
    Recipe(
        name="sentiment-16d",
        description="The largest dimension of the paper, with phrases.",
        dimension=16,
        vocabulary=120_000,
        pseudo_weight=5.0,
        lessons=2,
    ),
    Recipe(
        name="sentiment",
        description="Positive or negative, for reviews and single sentences.",
        dimension=24,
        vocabulary=280_000,
        pseudo_weight=5.0,
        lessons=2,
    ),
)
RECIPES = {recipe.name: recipe for recipe in _ALL}


def recipe(name: str, **changes: object) -> Recipe:
    """A recipe by name, with some choices changed."""
    if name not in RECIPES:
        raise NotFound(f"there is no recipe {name!r}; there are {', '.join(RECIPES)}", param="recipe")
    return replace(RECIPES[name], **changes)  # type: ignore[arg-type]


def expand(names: Sequence[str]) -> list[str]:
    """`all` and `bundled` stand for several recipes."""
    bundled = [name for name in RECIPES if name.startswith("sentiment")]
    groups = {"all": list(RECIPES), "bundled": bundled}
    return list(dict.fromkeys(one for name in names for one in groups.get(name, [name])))
