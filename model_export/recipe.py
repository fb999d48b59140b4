"""The recipe of the pretrained models: the texts, their targets, and the length of each stage.

The logit of a short text is the sum of two teachers: the fitted teacher, mixed with the label if there is
one, and the zero-shot score of the published encoder. Everyday sentences have only the second; where it is
near zero, they are labelled neutral. The targets of whole reviews are their labels.
"""

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
from model_export.teacher.apply import Float16Array
from model_export.teacher.fit import GPU_TEACHER, THREE_LABEL_SETS, TeacherConfig
from service.text.tokenizer import WordPieceTokenizer

UNLIMITED = 10**9
MIN_TARGET = 0.03  # targets are at least this, and at most 1 minus this
NEUTRAL_LOGIT = 1.5  # of the zero-shot score, up to which a text without a teacher is labelled neutral


@dataclass(frozen=True)
class SourceConfig:
    """The texts of some data sets that are used, and the weights of their labels and scores."""

    sets: tuple[str, ...]
    max_texts: int = UNLIMITED
    words: tuple[int, int] = (1, UNLIMITED)  # minimum and maximum per text
    split_sentences: bool = False  # use single sentences, without labels
    balance: bool = False  # use as many positive as negative texts
    label_weight: float = 0.5  # the teacher has the rest
    teacher: bool = True  # use the fitted teacher, not the zero-shot score alone
    zero_shot_weight: float = 20.0  # logits per unit of the zero-shot score
    repeats: int = 1  # per epoch


@dataclass(frozen=True)
class Recipe:
    """The texts, stages and seed of a training run; the defaults take four hours of two cores."""

    sources: Mapping[str, SourceConfig] = field(
        default_factory=lambda: {
            # the label of a sentence is that of its review
            "yelp": SourceConfig(("yelp",), 60_000, (2, 22), balance=True, label_weight=0.35),
            "labelled": SourceConfig(("sst", "tweets", "mpqa"), repeats=2),
            "film": SourceConfig(("reviews",), 30_000, (2, 16), split_sentences=True, zero_shot_weight=30.0),
            "shop": SourceConfig(("amazon",), 12_000, (2, 22), split_sentences=True, zero_shot_weight=30.0),
            "electronics": SourceConfig(("electronics",), 6_000, (2, 40)),
            "phrases": SourceConfig(("phrases",), 9_000, balance=True),
            "everyday": SourceConfig(("wordnet",), teacher=False, zero_shot_weight=30.0, repeats=2),
        }
    )
    reviews: Mapping[str, int] = field(default_factory=lambda: {"amazon": 500, "reviews": 1_200})  # per label
    finetune: StageConfig = field(default_factory=lambda: StageConfig(epochs=0.5))
    harden: StageConfig = field(default_factory=lambda: StageConfig(epochs=1.0, lr=1.6e-4, anneal=0.01))
    fit_head: StageConfig = field(default_factory=lambda: StageConfig(epochs=0.1, head_lr=3e-3))
    tune_jointly: StageConfig = field(
        default_factory=lambda: StageConfig(
            epochs=1.0, tokens_per_batch=3_000, lr=1.2e-4, head_lr=5e-4, embedding_weight=3.0
        )
    )
    head: LeaderHeadConfig = field(default_factory=lambda: LeaderHeadConfig(width=768))
    teacher: TeacherConfig = field(default_factory=TeacherConfig)
    seed: int = 3


def gpu_recipe() -> Recipe:
    """Return the recipe for a GPU: twice the texts, thirty times the tokens, in larger batches."""
    default = Recipe()
    changes: dict[str, dict[str, Any]] = {
        "yelp": {"max_texts": UNLIMITED}, "labelled": {"repeats": 4},
        "film": {"max_texts": 150_000, "words": (2, 30)}, "shop": {"max_texts": UNLIMITED, "words": (2, 30)},
        "electronics": {"max_texts": UNLIMITED}, "phrases": {"max_texts": UNLIMITED, "balance": False},
        "everyday": {"repeats": 3},
    }  # fmt: skip
    large = {"tokens_per_batch": 12_000, "warm_up": 100}
    return replace(
        default,
        sources={name: replace(source, **changes[name]) for name, source in default.sources.items()},
        reviews={"amazon": 3_000, "reviews": 6_000},
        finetune=replace(default.finetune, epochs=1.4, lr=1e-4, **large),
        harden=replace(default.harden, epochs=4.4, lr=2e-4, **large),
        fit_head=replace(default.fit_head, epochs=0.15, **large),
        tune_jointly=replace(default.tune_jointly, epochs=2.7, lr=1.5e-4, head_lr=1e-3, **large),
        teacher=GPU_TEACHER,
    )


def continued_recipe() -> Recipe:
    """Return the recipe for further training of released models, which are the teacher: fewer texts."""
    default = Recipe()
    max_texts = {"yelp": 10_000, "film": 6_000, "shop": 3_000, "electronics": 3_000, "phrases": 3_000,
                 "everyday": 16_000}  # fmt: skip
    sources = {
        name: replace(source, max_texts=max_texts.get(name, UNLIMITED), repeats=1)
        for name, source in default.sources.items()
    }
    return replace(
        default,
        sources={
            name: replace(source, label_weight=0.4, zero_shot_weight=0.0) if source.teacher else source
            for name, source in sources.items()
        },
        reviews={"amazon": 250, "reviews": 500},
        fit_head=replace(default.fit_head, epochs=3.0, tokens_per_batch=3_000, head_lr=1e-3),
        tune_jointly=replace(default.tune_jointly, epochs=1.0),
    )


def select_texts(sets: Mapping[str, Rows], recipe: Recipe) -> dict[str, Rows]:
    """Return the training texts of each source."""
    rng, selected = random.Random(11), {}
    for name, source in recipe.sources.items():
        rows = [row for set_name in source.sets for row in sets[set_name] if row.split == "train"]
        if source.split_sentences:
            rows = [Row(sentence, None) for sentence in corpora.split_sentences(row.text for row in rows)]
        low, high = source.words
        rows = [row for row in rows if low <= len(row.text.split()) <= high]
        rng.shuffle(rows)
        selected[name] = _balance(rows, source.max_texts) if source.balance else rows[: source.max_texts]
    return selected


def _balance(rows: Rows, max_texts: int) -> Rows:
    by_label = [[row for row in rows if row.target == target] for target in (0.0, 1.0)]
    n = min(max_texts // 2, *map(len, by_label))
    return [row for group in by_label for row in group[:n]]


def make_short_set(
    selected: Mapping[str, Rows],
    sets: Mapping[str, Rows],
    teacher_probs: NDArray[np.float32],
    embeddings: Float16Array,
    scores: NDArray[np.float32],
    tokenizer: WordPieceTokenizer,
    recipe: Recipe,
) -> TrainingSet:
    """Return the selected texts of one chunk with their targets.

    `teacher_probs`, `embeddings` and `scores` are in the order of the selected texts. The mean score of texts
    without a teacher, most of which are neutral, is subtracted from all scores.
    """
    three_labels = {
        row.text: row.target for name in THREE_LABEL_SETS for row in sets[name] if row.target is not None
    }
    ends = np.cumsum([len(selection) for selection in selected.values()])
    index_of = {
        name: np.arange(end - len(selected[name]), end) for name, end in zip(selected, ends, strict=True)
    }
    if neutral := [index_of[name] for name in selected if not recipe.sources[name].teacher]:
        scores = scores - scores[np.concatenate(neutral)].mean()
    texts, targets, labels, rows = [], [], [], []
    for name, selection in selected.items():
        source, index = recipe.sources[name], index_of[name]
        teacher = teacher_probs[index] if source.teacher else None
        target = sum_targets(selection, scores[index], teacher, source)
        label = np.array([three_labels.get(row.text, np.nan) for row in selection])
        label[find_neutral(scores[index], source)] = 0.5
        texts += [row.text for row in selection] * source.repeats
        targets += target.tolist() * source.repeats
        labels += label.tolist() * source.repeats
        rows += index.tolist() * source.repeats
    training_set = TrainingSet.from_texts(tokenizer, texts, targets, labels, embeddings[np.array(rows)])
    return training_set.single_chunk()


def find_neutral(scores: NDArray[np.float32], source: SourceConfig) -> NDArray[np.bool_]:
    """Return which texts are labelled neutral: those without a teacher whose zero-shot score is near zero."""
    near_zero = np.abs(source.zero_shot_weight * scores) <= NEUTRAL_LOGIT
    return near_zero if not source.teacher else np.zeros_like(near_zero)


def sum_targets(
    rows: Rows, scores: NDArray[np.float32], teacher: NDArray[np.float32] | None, source: SourceConfig
) -> NDArray[np.float32]:
    """Return the probability that each text is positive, from the sum of the logits of both teachers."""
    logit = np.zeros(len(rows), np.float32)
    if teacher is not None:
        label = np.array([np.nan if row.target is None else row.target for row in rows], np.float32)
        mixed = (1 - source.label_weight) * teacher + source.label_weight * label
        p = np.where(np.isnan(label), teacher, mixed).clip(MIN_TARGET, 1 - MIN_TARGET)
        logit = np.log(p / (1 - p))
    p = 1 / (1 + np.exp(-(logit + source.zero_shot_weight * scores)))
    return np.asarray(p.clip(MIN_TARGET, 1 - MIN_TARGET), np.float32)


def make_review_set(sets: Mapping[str, Rows], tokenizer: WordPieceTokenizer, recipe: Recipe) -> TrainingSet:
    """Return whole reviews, as many negative as positive ones."""
    rng = random.Random(recipe.seed)
    rows = []
    for name, per_label in recipe.reviews.items():
        train = [row for row in sets[name] if row.split == "train"]
        rng.shuffle(train)
        for target in (0.0, 1.0):
            rows += [row for row in train if row.target == target][:per_label]
    targets = np.array([row.target for row in rows], np.float32).clip(MIN_TARGET, 1 - MIN_TARGET)
    return TrainingSet.from_texts(tokenizer, [row.text for row in rows], targets.tolist())
