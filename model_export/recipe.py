"""What the pretrained models are trained on, how each text is labelled, and for how long.

The target of a short text is the sum of two teachers, as logits: the fitted teacher, with the label where
there is one, and the zero-shot score of the published encoder. Everyday sentences have the second alone.
Whole reviews have their labels.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model_export.data import corpora
from model_export.data.corpora import Row, Rows
from model_export.data.training_set import TrainingSet
from model_export.head.leader_head import LeaderHeadConfig
from model_export.stages import StageConfig
from model_export.teacher.apply import Halves
from model_export.teacher.fit import GPU_TEACHER, THREE_LABEL_SETS, TeacherConfig, positive
from service.text.tokenizer import WordPieceTokenizer

UNLIMITED = 10**9
MIN_TARGET = 0.03  # no text is surer than this


@dataclass(frozen=True)
class SourceConfig:
    """Which texts of some data sets are used."""

    sets: tuple[str, ...]
    max_texts: int = UNLIMITED
    words: tuple[int, int] = (1, UNLIMITED)  # of a text
    split_sentences: bool = False  # whose labels are not known
    balance: bool = False  # as many of one side as of the other
    label_weight: float = 0.5  # of a label, next to the teacher
    teacher: bool = True  # its logits are used, not the zero-shot score alone
    zero_shot_weight: float = 20.0  # of the score, next to the logit
    repeats: int = 1  # in an epoch


@dataclass(frozen=True)
class Recipe:
    """The texts, stages and seed of a training run; the defaults take six hours of two cores."""

    sources: Mapping[str, SourceConfig] = field(
        default_factory=lambda: {
            # a label is the star of the whole review
            "yelp": SourceConfig(("yelp",), 60_000, (2, 22), balance=True, label_weight=0.35),
            "labelled": SourceConfig(("sst", "tweets", "mpqa"), repeats=2),
            "film": SourceConfig(("reviews",), 30_000, (2, 16), split_sentences=True, zero_shot_weight=30.0),
            "shop": SourceConfig(("amazon",), 12_000, (2, 22), split_sentences=True, zero_shot_weight=30.0),
            "electronics": SourceConfig(("electronics",), 6_000, (2, 40)),
            "phrases": SourceConfig(("phrases",), 9_000, balance=True),
            "everyday": SourceConfig(("wordnet",), teacher=False, zero_shot_weight=30.0, repeats=2),
        }
    )
    reviews: Mapping[str, int] = field(default_factory=lambda: {"amazon": 500, "reviews": 1_200})  # a side
    finetune: StageConfig = field(default_factory=lambda: StageConfig(epochs=0.5))
    harden: StageConfig = field(default_factory=lambda: StageConfig(epochs=1.8, lr=1.6e-4, anneal=0.01))
    fit_head: StageConfig = field(default_factory=lambda: StageConfig(epochs=0.1, head_lr=3e-3))
    tune_jointly: StageConfig = field(
        default_factory=lambda: StageConfig(
            epochs=2.2, tokens_per_batch=3_000, lr=1.2e-4, head_lr=5e-4, embedding_weight=3.0
        )
    )
    head: LeaderHeadConfig = field(default_factory=lambda: LeaderHeadConfig(width=768))
    teacher: TeacherConfig = field(default_factory=TeacherConfig)
    seed: int = 3


def gpu_recipe() -> Recipe:
    """Return the recipe for a GPU: twice the texts, thirty times the tokens, in larger batches."""
    usual = Recipe()
    changes: dict[str, dict[str, Any]] = {
        "yelp": {"max_texts": UNLIMITED}, "labelled": {"repeats": 4},
        "film": {"max_texts": 150_000, "words": (2, 30)}, "shop": {"max_texts": UNLIMITED, "words": (2, 30)},
        "electronics": {"max_texts": UNLIMITED}, "phrases": {"max_texts": UNLIMITED, "balance": False},
        "everyday": {"repeats": 3},
    }  # fmt: skip
    large = {"tokens_per_batch": 12_000, "warm_up": 100}
    return replace(
        usual,
        sources={name: replace(source, **changes[name]) for name, source in usual.sources.items()},
        reviews={"amazon": 3_000, "reviews": 6_000},
        finetune=replace(usual.finetune, epochs=1.4, lr=1e-4, **large),
        harden=replace(usual.harden, epochs=4.4, lr=2e-4, **large),
        fit_head=replace(usual.fit_head, epochs=0.15, **large),
        tune_jointly=replace(usual.tune_jointly, epochs=2.7, lr=1.5e-4, head_lr=1e-3, **large),
        teacher=GPU_TEACHER,
    )


def select_texts(sets: Mapping[str, Rows], recipe: Recipe) -> dict[str, Rows]:
    """Return the training texts of each source."""
    draw, found = random.Random(11), {}
    for name, source in recipe.sources.items():
        rows = [row for each in source.sets for row in sets[each] if row.split == "train"]
        if source.split_sentences:
            rows = [Row(sentence, None) for sentence in corpora.sentences(row.text for row in rows)]
        low, high = source.words
        rows = [row for row in rows if low <= len(row.text.split()) <= high]
        draw.shuffle(rows)
        found[name] = _balance(rows, source.max_texts) if source.balance else rows[: source.max_texts]
    return found


def _balance(rows: Rows, max_texts: int) -> Rows:
    sides = [[row for row in rows if row.target == side] for side in (0.0, 1.0)]
    few = min(max_texts // 2, *map(len, sides))
    return [row for side in sides for row in side[:few]]


def short_texts(
    selected: Mapping[str, Rows],
    sets: Mapping[str, Rows],
    logits: Halves,
    embeddings: Halves,
    scores: NDArray[np.float32],
    tokenizer: WordPieceTokenizer,
    recipe: Recipe,
) -> TrainingSet:
    """Return the selected texts of one chunk; `logits`, `embeddings` and `scores` are in their order.

    Of the scores the mean over texts without a teacher is subtracted: most of them have no sentiment.
    """
    three = {
        row.text: row.target for name in THREE_LABEL_SETS for row in sets[name] if row.target is not None
    }
    ends = np.cumsum([len(selection) for selection in selected.values()])
    index_of = {
        name: np.arange(end - len(selected[name]), end) for name, end in zip(selected, ends, strict=True)
    }
    if without := [index_of[name] for name in selected if not recipe.sources[name].teacher]:
        scores = scores - scores[np.concatenate(without)].mean()
    texts, targets, rows = [], [], []
    for name, selection in selected.items():
        source, part, index = recipe.sources[name], [row.text for row in selection], index_of[name]
        fitted = positive(logits[index]) if source.teacher else None
        target = sum_targets(selection, scores[index], fitted, source)
        texts += part * source.repeats
        targets += target.tolist() * source.repeats
        rows += index.tolist() * source.repeats
    labels = [np.nan if (label := three.get(text)) is None else label for text in texts]
    found = TrainingSet.from_texts(tokenizer, texts, targets, labels, embeddings[np.array(rows)])
    return found.single_chunk()


def sum_targets(
    rows: Rows, scores: NDArray[np.float32], teacher: NDArray[np.float32] | None, source: SourceConfig
) -> NDArray[np.float32]:
    """Return the probability that each text is positive, by the sum of the logits of both teachers."""
    logit = np.zeros(len(rows), np.float32)
    if teacher is not None:
        label = np.array([np.nan if row.target is None else row.target for row in rows], np.float32)
        mixed = (1 - source.label_weight) * teacher + source.label_weight * label
        p = np.where(np.isnan(label), teacher, mixed).clip(MIN_TARGET, 1 - MIN_TARGET)
        logit = np.log(p / (1 - p))
    p = 1 / (1 + np.exp(-(logit + source.zero_shot_weight * scores)))
    return np.asarray(p.clip(MIN_TARGET, 1 - MIN_TARGET), np.float32)


def whole_reviews(sets: Mapping[str, Rows], tokenizer: WordPieceTokenizer, recipe: Recipe) -> TrainingSet:
    """Return whole reviews, as many negative as positive ones."""
    draw = random.Random(recipe.seed)
    rows = []
    for name, per_side in recipe.reviews.items():
        train = [row for row in sets[name] if row.split == "train"]
        draw.shuffle(train)
        for target in (0.0, 1.0):
            rows += [row for row in train if row.target == target][:per_side]
    targets = np.array([row.target for row in rows], np.float32).clip(MIN_TARGET, 1 - MIN_TARGET)
    return TrainingSet.from_texts(tokenizer, [row.text for row in rows], targets.tolist())
