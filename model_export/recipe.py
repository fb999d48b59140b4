"""The recipe of the pretrained models: the texts, their targets, and the length of each stage.

The target of a text is the probability that it is positive, by the teacher, mixed with its label if it has
one. The targets of whole reviews are made in the same way.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import add

import numpy as np
from numpy.typing import NDArray

from model_export.data import corpora
from model_export.data.corpora import Row, Rows
from model_export.data.everyday import SIDES, Sentence
from model_export.data.training_set import Ints, TrainingSet
from model_export.encoder.layer import EncoderConfig
from model_export.encoder.published import MPNET
from model_export.head.leader_head import LeaderHeadConfig
from model_export.stages import StageConfig
from model_export.teacher import Logits, positive_probs
from service.text.tokenizer import WordPieceTokenizer

UNLIMITED = 10**9
PRETRAINED, PRETRAINED_SMALL = "sentiment", "sentiment-small"
MIN_TARGET = 0.03  # targets are at least this, and at most 1 minus this
SURE = 0.85  # probability from which the label of an unlabelled text is the teacher's
MAX_PART_TOKENS = 30  # of a part of a joined text
LAYERS = {  # of the teacher, from which the encoder is made
    6: (0, 2, 4, 7, 9, 11),
    8: (0, 1, 3, 5, 7, 8, 10, 11),
    10: (0, 1, 2, 4, 5, 6, 8, 9, 10, 11),
    12: tuple(range(12)),
}


@dataclass(frozen=True)
class SourceConfig:
    """The texts of some data sets that are used, and the weights of their labels."""

    sets: tuple[str, ...]
    max_texts: int = UNLIMITED
    words: tuple[int, int] = (1, UNLIMITED)  # minimum and maximum per text
    split_sentences: bool = False  # use single sentences, without labels
    balance: bool = False  # use as many positive as negative texts
    two_sided: bool = False  # use the texts whose words of both sides are marked
    has_neutral: bool = False  # whether it has neutral texts
    noise: float = 0.05  # of its labels
    label_weight: float = 0.5  # the teacher has the rest
    teacher_repeats: int = 1  # per epoch of the teacher
    repeats: int = 1  # per epoch of the encoder


@dataclass(frozen=True)
class Recipe:
    """The texts, stages and seed of a training run; the defaults are for hours of two cores."""

    sources: Mapping[str, SourceConfig] = field(
        default_factory=lambda: {
            # the label of a sentence is that of its review
            "yelp": SourceConfig(("yelp",), 60_000, (2, 22), balance=True, noise=0.1, label_weight=0.35),
            "labelled": SourceConfig(("sst", "mpqa"), noise=0.03, repeats=2),
            "tweets": SourceConfig(("tweets",), has_neutral=True, repeats=2),
            "film": SourceConfig(("reviews",), 30_000, (2, 16), split_sentences=True, has_neutral=True),
            "shop": SourceConfig(("amazon",), 12_000, (2, 22), split_sentences=True, has_neutral=True),
            "electronics": SourceConfig(("electronics",), 6_000, (2, 40), has_neutral=True, noise=0.12),
            "phrases": SourceConfig(("phrases",), 9_000, balance=True),
            "wordnet": SourceConfig(("wordnet",), has_neutral=True),
            "everyday": SourceConfig(
                ("everyday",), has_neutral=True, noise=0.03, label_weight=0.7, teacher_repeats=3, repeats=4
            ),
            "two_sided": SourceConfig(
                ("everyday",), two_sided=True, has_neutral=True, noise=0.03, label_weight=0.7, repeats=20
            ),
        }
    )
    reviews: Mapping[str, int] = field(default_factory=lambda: {"amazon": 500, "reviews": 1_200})  # per label
    joined: int = 15_000  # texts made of two short ones
    layers: tuple[int, ...] = LAYERS[8]
    teach: StageConfig = field(default_factory=lambda: StageConfig(epochs=0.8, lr=5e-5, head_lr=1e-3))
    finetune: StageConfig = field(default_factory=lambda: StageConfig(epochs=0.2))
    harden: StageConfig = field(default_factory=lambda: StageConfig(epochs=1.0, lr=1.6e-4, anneal=0.01))
    fit_head: StageConfig = field(default_factory=lambda: StageConfig(epochs=0.1, head_lr=3e-3))
    tune_jointly: StageConfig = field(
        default_factory=lambda: StageConfig(
            epochs=1.0, tokens_per_batch=3_000, lr=1.2e-4, head_lr=5e-4, embedding_weight=3.0
        )
    )
    head: LeaderHeadConfig = field(default_factory=lambda: LeaderHeadConfig(width=768, use_embeddings=True))
    seed: int = 3


def gpu_recipe() -> Recipe:
    """Return the recipe for a GPU: all texts, ten times the tokens, in larger batches."""
    default = Recipe()
    changes: dict[str, dict[str, int | tuple[int, int] | bool]] = {
        "yelp": {"max_texts": UNLIMITED}, "labelled": {"repeats": 4}, "tweets": {"repeats": 3},
        "film": {"max_texts": 120_000, "words": (2, 30)}, "shop": {"max_texts": UNLIMITED, "words": (2, 30)},
        "electronics": {"max_texts": UNLIMITED}, "phrases": {"max_texts": UNLIMITED, "balance": False},
        "everyday": {"repeats": 6}, "two_sided": {"repeats": 40},
    }  # fmt: skip
    large = {"tokens_per_batch": 12_000, "warm_up": 100}
    sources = {
        name: replace(source, **changes.get(name, {}))  # type: ignore[arg-type]
        for name, source in default.sources.items()
    }
    return replace(
        default,
        sources=sources,
        reviews={"amazon": 2_500, "reviews": 6_000},
        joined=60_000,
        teach=replace(default.teach, epochs=1.6, lr=5e-5, **large),
        finetune=replace(default.finetune, epochs=0.4, lr=1e-4, **large),
        harden=replace(default.harden, epochs=1.6, lr=2e-4, **large),
        fit_head=replace(default.fit_head, epochs=0.1, **large),
        tune_jointly=replace(default.tune_jointly, epochs=1.2, lr=1.5e-4, head_lr=1e-3, **large),
    )


def continued_recipe(name: str) -> Recipe:
    """Return the recipe for further training of a released head and its encoder on two cores.

    More than half of the texts are everyday sentences. In place of the teacher, the released `sentiment`
    answers for the others.
    """
    default, lr = Recipe(), 1e-4 if name == PRETRAINED else 3e-4
    max_texts = {"yelp": 5_000, "tweets": 4_000, "film": 1_500, "shop": 1_000, "electronics": 2_000,
                 "phrases": 1_500, "wordnet": 3_000}  # fmt: skip
    repeats = {"everyday": 3, "two_sided": 4}
    return replace(
        default,
        sources={
            name: replace(
                source, max_texts=max_texts.get(name, UNLIMITED), repeats=repeats.get(name, 1),
                label_weight=0.7 if name in repeats else 0.4,
            )
            for name, source in default.sources.items()
        },
        reviews={"amazon": 80, "reviews": 170},
        joined=4_000,
        layers=LAYERS[6],
        head=replace(default.head, width=MPNET.width if name == PRETRAINED else EncoderConfig().width),
        tune_jointly=replace(
            default.tune_jointly, tokens_per_batch=1_500, lr=lr, head_lr=5 * lr, embedding_weight=2.0
        ),
    )  # fmt: skip


def select_texts(sets: Mapping[str, Rows], recipe: Recipe) -> dict[str, Rows]:
    """Return the training texts of each source."""
    rng, selected = random.Random(11), {}
    for name, source in recipe.sources.items():
        rows = [row for set_name in source.sets for row in sets[set_name] if row.split == "train"]
        if source.split_sentences:
            rows = [Row(sentence, None) for sentence in corpora.split_sentences(row.text for row in rows)]
        if source.two_sided:
            rows = [row for row in rows if isinstance(row, Sentence) and len(row.marks) == len(SIDES)]
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
    selected: Mapping[str, Rows], tokenizer: WordPieceTokenizer, recipe: Recipe
) -> TrainingSet:
    """Return the selected texts of one chunk with their labels, each once."""
    parts = [
        TrainingSet.from_texts(
            tokenizer,
            [row.text for row in rows],
            [np.nan if row.target is None else row.target for row in rows],
            has_neutral=source.has_neutral,
            source=number,
            marks=[row.marks if isinstance(row, Sentence) else {} for row in rows],
        ).single_chunk()
        for number, (rows, source) in enumerate(zip(selected.values(), recipe.sources.values(), strict=True))
    ]
    return reduce(add, parts)


def make_review_set(sets: Mapping[str, Rows], tokenizer: WordPieceTokenizer, recipe: Recipe) -> TrainingSet:
    """Return whole reviews, as many negative as positive ones."""
    rng = random.Random(recipe.seed)
    rows = []
    for name, per_label in recipe.reviews.items():
        train = [row for row in sets[name] if row.split == "train"]
        rng.shuffle(train)
        for target in (0.0, 1.0):
            rows += [row for row in train if row.target == target][:per_label]
    labels = [float(row.target or 0.0) for row in rows]
    return TrainingSet.from_texts(tokenizer, [row.text for row in rows], labels, source=-1)


def draw_pairs(texts: TrainingSet, n: int, seed: int) -> tuple[Ints, Ints]:
    """Return the rows of `n` pairs of texts that fit in one chunk."""
    rng = np.random.default_rng(seed)
    short = np.flatnonzero(texts.packed.sizes <= MAX_PART_TOKENS)
    first, second = rng.choice(short, (2, n))
    return first, second


def join_texts(texts: TrainingSet, first: Ints, second: Ints) -> TrainingSet:
    """Return texts made of two of the texts, whose targets are those of the parts; they have no labels."""
    n = len(first)
    return TrainingSet(
        texts.packed.join(first, second),
        np.full(n, np.nan, np.float32), np.ones(n, np.bool_), np.full(n, -1, np.int8),
        np.full(n, np.nan, np.float32),
        np.stack([texts.targets[first], texts.targets[second]], 1),
    )  # fmt: skip


def set_targets(texts: TrainingSet, logits: Logits, recipe: Recipe) -> TrainingSet:
    """Return the texts with targets by the teacher and the labels.

    Unlabelled texts whose data set may have neutral texts get the label that the teacher is sure of.
    """
    weights = np.array([source.label_weight for source in recipe.sources.values()] + [0.5], np.float32)
    weight = weights[texts.source]
    teacher = positive_probs(logits, texts.has_neutral)
    mixed = (1 - weight) * teacher + weight * texts.labels
    targets = np.where(np.isnan(texts.labels), teacher, mixed).clip(MIN_TARGET, 1 - MIN_TARGET)
    return replace(texts, targets=targets, labels=_three_labels(texts, logits))


def _three_labels(texts: TrainingSet, logits: Logits) -> NDArray[np.float32]:
    """Return the label of each text, out of three, or NaN where it is not known."""
    p = np.exp(logits - logits.max(1, keepdims=True))
    p = p / p.sum(1, keepdims=True)
    by_teacher = np.where(p.max(1) >= SURE, p.argmax(1) / 2, np.nan)
    known = np.where(np.isnan(texts.labels), by_teacher, texts.labels)
    return np.asarray(np.where(texts.has_neutral, known, np.nan), np.float32)


def repeat_texts(texts: TrainingSet, repeats: Mapping[int, int]) -> TrainingSet:
    """Return the texts, those of each source as often as `repeats` says."""
    times = np.array([repeats.get(source, 1) for source in texts.source.tolist()], np.int64)
    return texts.take(np.repeat(np.arange(len(texts)), times))
