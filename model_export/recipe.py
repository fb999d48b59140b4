"""What the bundled models are made of: which texts are read, what is taught about each, and how long.

The teacher is asked about single sentences and short texts. Where somebody labelled one, or the review that
it is of, that counts beside the teacher. Whole reviews are taught by their labels alone.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from model_export.data import corpora
from model_export.data.corpora import Row, Rows
from model_export.data.training_set import Lessons
from model_export.head.leader_head import LeaderHeadConfig
from model_export.stages import Step
from model_export.teacher.fit import Fitting
from model_export.teacher.logits import Answers
from service.text.tokenizer import WordPieceTokenizer

ALL = 10**9


@dataclass(frozen=True)
class Asked:
    """Texts of some data sets that the teacher is asked about."""

    sets: tuple[str, ...]
    most: int = ALL
    words: tuple[int, int] = (1, ALL)  # that one has
    cut: bool = False  # into single sentences, whose labels are not known
    even: bool = False  # as many of one side as of the other
    label: float = 0.5  # what a label counts beside the teacher
    times: int = 1  # that it is read in a look


@dataclass(frozen=True)
class Recipe:
    asked: Mapping[str, Asked] = field(
        default_factory=lambda: {
            "yelp": Asked(("yelp",), 60_000, (2, 22), even=True, label=0.35),  # the star of its review
            "labelled": Asked(("sst", "tweets", "mpqa"), times=2),
            "film": Asked(("reviews",), 30_000, (2, 16), cut=True),
            "shop": Asked(("amazon",), 12_000, (2, 22), cut=True),
            "electronics": Asked(("electronics",), 6_000, (2, 40)),
            "phrases": Asked(("phrases",), 9_000, even=True),
        }
    )
    long: Mapping[str, int] = field(default_factory=lambda: {"amazon": 1_500, "reviews": 3_000})  # of a side
    soft: Step = field(default_factory=lambda: Step(looks=1.4))
    hard: Step = field(default_factory=lambda: Step(looks=1.2, rate=1.2e-4, follow=0.3))
    place: Step = field(default_factory=lambda: Step(looks=0.2, pieces=4_000, plane_rate=3e-3))
    settle: Step = field(default_factory=lambda: Step(looks=0.8, rate=6e-5, plane_rate=1e-3, follow=0.12))
    plane: LeaderHeadConfig = field(default_factory=LeaderHeadConfig)
    teacher: Fitting = field(default_factory=Fitting)
    seed: int = 3


def wanted(sets: Mapping[str, Rows], recipe: Recipe) -> dict[str, Rows]:
    """What the teacher is asked about."""
    draw, found = random.Random(11), {}
    for name, asked in recipe.asked.items():
        rows = [row for each in asked.sets for row in sets[each] if row.split == "train"]
        if asked.cut:
            rows = [Row(sentence, None) for sentence in corpora.sentences(row.text for row in rows)]
        low, high = asked.words
        rows = [row for row in rows if low <= len(row.text.split()) <= high]
        draw.shuffle(rows)
        found[name] = _even(rows, asked.most) if asked.even else rows[: asked.most]
    return found


def _even(rows: Rows, most: int) -> Rows:
    sides = [[row for row in rows if row.target == side] for side in (0.0, 1.0)]
    few = min(most // 2, *map(len, sides))
    return [row for side in sides for row in side[:few]]


def short_lessons(
    asked: Mapping[str, Rows], answers: Answers, pieces: WordPieceTokenizer, recipe: Recipe
) -> Lessons:
    """What was asked, of one passage."""
    texts: list[str] = []
    targets: list[float] = []
    for name, rows in asked.items():
        how = recipe.asked[name]
        says = answers.positive([row.text for row in rows]).tolist()
        told = [
            said if row.target is None else (1 - how.label) * said + how.label * row.target
            for said, row in zip(says, rows, strict=True)
        ]
        texts += [row.text for row in rows] * how.times
        targets += told * how.times
    return Lessons.of(pieces, texts, targets).short()


def long_lessons(sets: Mapping[str, Rows], pieces: WordPieceTokenizer, recipe: Recipe) -> Lessons:
    """Whole reviews, as many bad as good ones."""
    draw = random.Random(recipe.seed)
    rows = []
    for name, most in recipe.long.items():
        learn = [row for row in sets[name] if row.split == "train"]
        draw.shuffle(learn)
        for target in (0.0, 1.0):
            rows += [row for row in learn if row.target == target][:most]
    return Lessons.of(pieces, [row.text for row in rows], np.array([row.target for row in rows]).tolist())
