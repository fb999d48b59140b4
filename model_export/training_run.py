"""The order of the stages: the teacher and the targets, then the encoder and its head."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model_export.data.training_set import TrainingSet
from model_export.recipe import Recipe, draw_pairs, join_texts, repeat_texts, set_targets
from model_export.stage_cache import StageCache
from model_export.stages import (
    StageConfig,
    StageRun,
    State,
    finetune,
    fit_head,
    harden,
    teach,
    tune_jointly,
)
from model_export.teacher import Float16Array, TeacherModel, embed, predict
from model_export.training import Report
from model_export.training_model import TrainingModel

Stage = Callable[[StageRun, Path], State]  # the second is the checkpoint to resume from
PlannedStage = tuple[str, Stage, TrainingSet, StageConfig]


def plan_stages(recipe: Recipe, short: TrainingSet, all_texts: TrainingSet) -> list[PlannedStage]:
    """Return the stages of a recipe after the teacher's."""
    return [
        ("finetune", finetune, short, recipe.finetune),
        ("harden", harden, short, recipe.harden),
        ("fit_head", fit_head, all_texts, recipe.fit_head),
        ("tune_jointly", tune_jointly, all_texts, recipe.tune_jointly),
    ]


def run_stages(
    stages: Sequence[PlannedStage],
    model: TrainingModel,
    recipe: Recipe,
    teacher: TeacherModel,
    cache: StageCache,
    report: Report,
) -> None:
    """Run stages one after the other; results in the cache are not computed again."""
    inputs: list[Any] = [model, recipe.seed]
    for name, stage, texts, config in stages:
        run = StageRun(model, texts, config, recipe.seed, report, teacher, recipe.layers)
        model.load_state_dict(cache.get_or_run(name, [*inputs, texts, config], partial(stage, run)))
        inputs = []


def label_with(
    logits: NDArray[np.float32],
    embeddings: Float16Array,
    recipe: Recipe,
    short: TrainingSet,
    long: TrainingSet,
) -> tuple[TrainingSet, TrainingSet]:
    """Return the texts of an epoch with targets by a released model; its mean states are the embeddings.

    A joined text gets the mean of the targets of its parts, which are everyday sentences or short texts.
    """
    as_three = np.stack([-logits / 2, np.full_like(logits, -np.inf), logits / 2], 1)
    n = len(short)
    short = replace(set_targets(short, as_three[:n], recipe), labels=_known(short), embeddings=embeddings[:n])
    long = replace(set_targets(long, as_three[n:], recipe), labels=_known(long))
    joined = join_texts(short, *draw_pairs(short, recipe.joined, recipe.seed))
    joined = replace(joined, targets=joined.part_targets.mean(1))
    repeats = {i: source.repeats for i, source in enumerate(recipe.sources.values())}
    return repeat_texts(short, repeats) + joined, long


def _known(texts: TrainingSet) -> NDArray[np.float32]:
    """Return the labels of texts whose data set may have neutral texts, else NaN."""
    return np.where(texts.has_neutral, texts.labels, np.nan).astype(np.float32)


def teach_and_label(
    teacher: TeacherModel, recipe: Recipe, short: TrainingSet, long: TrainingSet, cache: StageCache,
    report: Report,
) -> tuple[TrainingSet, TrainingSet]:  # fmt: skip
    """Fine-tune the teacher; return the texts of an epoch with targets, joined texts among the short ones.

    The embeddings of the texts are those of the teacher before it is fine-tuned.
    """
    embeddings = embed(teacher, short.packed)
    sources = list(recipe.sources.values())
    taught = repeat_texts(short, {i: source.teacher_repeats for i, source in enumerate(sources)}) + long
    taught = taught.take(np.flatnonzero(~np.isnan(taught.labels)))
    noise = np.array([*(source.noise for source in sources), 0.03], np.float32)[taught.source]
    inputs = [teacher, recipe.seed, taught, recipe.teach]
    run = partial(teach, teacher, taught, noise, recipe.teach, recipe.seed, report)
    state = cache.get_or_run("teach", inputs, run)
    teacher.load_state_dict(state)
    teacher.requires_grad_(False).eval()
    short = set_targets(short, predict(teacher, short.packed), recipe)
    joined = join_texts(short, *draw_pairs(short, recipe.joined, recipe.seed))
    joined = set_targets(joined, predict(teacher, joined.packed), recipe)
    long = set_targets(long, predict(teacher, long.packed), recipe)
    short = replace(short, embeddings=embeddings)
    short = repeat_texts(short, {i: source.repeats for i, source in enumerate(sources)}) + joined
    for name, texts in (("short", short), ("long", long)):
        tokens, mean = texts.packed.sizes.sum(), texts.targets.mean()
        report(f"{len(texts)} {name} texts, {tokens} tokens, mean target {mean:.2f}")
    return short, long
