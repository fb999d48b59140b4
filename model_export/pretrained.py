"""Train the pretrained encoder and its sentiment head, from the data to two bundles. `make models` runs it.

    data, teachers -> training set -> finetune -> harden -> fit_head -> tune_jointly -> bundles

With --continue, the last stage alone runs, from released bundles, which are the teacher; with --head-only,
only the head is trained, and the encoder stays as released.

The result of every stage is stored in OUT under a digest of all its inputs: an interrupted run resumes, and a
changed recipe does not reuse the results of another. Choices are made on the validation split, figures are
measured on the test split.
"""

import argparse
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from model_export.data import corpora, names
from model_export.data.corpora import Rows
from model_export.data.training_set import TrainingSet
from model_export.encoder.model import Encoder
from model_export.encoder.published import FIRST_WORDPIECE, from_mpnet
from model_export.head.encoded import encode_packed
from model_export.head.leader_head import LeaderHead
from model_export.measure.scores import sigmoid
from model_export.measure.served import ServedModel
from model_export.publish import write_encoder, write_head
from model_export.recipe import (
    Recipe,
    continued_recipe,
    find_neutral,
    gpu_recipe,
    make_review_set,
    make_short_set,
    select_texts,
)
from model_export.restore import restore
from model_export.stage_cache import StageCache, digest, save
from model_export.stages import (
    StageConfig,
    StageRun,
    State,
    finetune,
    fit_head,
    harden,
    refit_head,
    tune_jointly,
)
from model_export.teacher.apply import Float16Array, apply_teacher
from model_export.teacher.encoder import Teacher
from model_export.teacher.fit import fit_teacher, positive_probs
from model_export.teacher.zero_shot import zero_shot_axis, zero_shot_scores
from model_export.training import Report
from model_export.training_model import TrainingModel
from service.errors import InvalidInput
from service.runtime.bundle import read_bundle
from service.text.encoder import read_vocabulary
from service.text.tokenizer import Vocabulary, WordPieceTokenizer

CASED_SETS = ("reviews", "amazon", "tweets")  # written with the usual capitals
SINK_TEXTS = 48  # over which the states of <s> in the published layers are averaged
Stage = Callable[[StageRun, Path], State]  # the second is the checkpoint to resume from
PlannedStage = tuple[str, Stage, TrainingSet, StageConfig]


def train(
    recipe: Recipe, data: Path, teacher: Path, out: Path, device: torch.device, report: Report,
    released: Path | None = None, *, head_only: bool = False,
) -> None:  # fmt: skip
    """Run all stages, or one on `released` bundles; write both bundles into OUT/models."""
    out.mkdir(parents=True, exist_ok=True)
    sets = corpora.read_all(data)
    vocabulary = (
        read_vocabulary(read_bundle(released / "encoder")) if released else make_vocabulary(sets, teacher)
    )
    tokenizer = WordPieceTokenizer(vocabulary)
    short, long = make_training_sets(recipe, sets, teacher, tokenizer, out, device, report, released)
    model = make_model(recipe, teacher, vocabulary, sets)
    if released:
        restore(model, released, short)
    model.to(device)
    all_texts = short + long
    stages = plan_stages(recipe, short, all_texts)
    if released and head_only:
        states = encode_packed(ServedModel(released, "sentiment").encoder, all_texts.packed)
        stages = [("refit_head", partial(refit_head, states=states), all_texts, recipe.fit_head)]
    elif released:
        stages = stages[-1:]
    run_stages(stages, model, recipe.seed, StageCache(out, report), report)
    provenance = {
        "data": corpora.count_rows(sets),
        "licenses": {
            "encoder": "all-mpnet-base-v2, Apache 2.0", "teacher": "all-mpnet-base-v2, Apache 2.0",
            "wordnet": "WordNet 3.0 license, Princeton University",
        },
        "recipe": digest(recipe),
    }  # fmt: skip
    if released:
        provenance["continued_from"] = read_bundle(released / "encoder").card["model_sha256"]
    model.cpu()
    models = out / "models"
    if released and head_only:
        shutil.copytree(released / "encoder", models / "encoder", dirs_exist_ok=True)
    else:
        write_encoder(model.encoder, vocabulary, sets, models, provenance)
    sets["wordnet"] = label_neutral(sets["wordnet"], recipe, teacher, out, device, report)
    encoder, scales = read_bundle(models / "encoder"), model.encoder.output_scales
    write_head(model.head, scales, encoder, sets, models, provenance, report)


def plan_stages(recipe: Recipe, short: TrainingSet, all_texts: TrainingSet) -> list[PlannedStage]:
    """Return the four stages of a recipe."""
    return [
        ("finetune", finetune, short, recipe.finetune),
        ("harden", harden, short, recipe.harden),
        ("fit_head", fit_head, all_texts, recipe.fit_head),
        ("tune_jointly", tune_jointly, all_texts, recipe.tune_jointly),
    ]


def run_stages(
    stages: Sequence[PlannedStage], model: TrainingModel, seed: int, cache: StageCache, report: Report
) -> None:
    """Run stages one after the other; results in the cache are not computed again."""
    inputs: list[Any] = [model, seed]
    for name, stage, texts, config in stages:
        run = partial(stage, StageRun(model, texts, config, seed, report))
        model.load_state_dict(cache.get_or_run(name, [*inputs, texts, config], run))
        inputs = []


def make_training_sets(
    recipe: Recipe,
    sets: Mapping[str, Rows],
    teacher: Path,
    tokenizer: WordPieceTokenizer,
    out: Path,
    device: torch.device,
    report: Report,
    released: Path | None = None,
) -> tuple[TrainingSet, TrainingSet]:
    """Return the short texts and the whole reviews. The teacher is the `released` model, if there is one."""
    selected = select_texts(sets, recipe)
    texts = [row.text for rows in selected.values() for row in rows]
    published = Teacher(teacher).to(device).eval()
    embeddings, scores = embed_and_score(published, texts, out, report)
    if released:
        report(f"{len(texts)} texts by the released model")
        teacher_probs = sigmoid(ServedModel(released, "sentiment").logits(texts)).astype(np.float32)
    else:
        key = digest([recipe.teacher, [sets[name] for name in recipe.teacher.parts]])[:12]
        fitted = _fitted_teacher(recipe, sets, published, out / f"teacher-{key}.pt", report)
        file = out / f"logits-{digest([texts, key])[:12]}.npy"
        teacher_probs = positive_probs(apply_teacher(fitted, fitted.forward, texts, file, report))
    short = make_short_set(selected, sets, teacher_probs, embeddings, scores, tokenizer, recipe)
    long = make_review_set(sets, tokenizer, recipe)
    for name, subset in (("short", short), ("long", long)):
        tokens, mean = subset.packed.sizes.sum(), subset.targets.mean()
        report(f"{len(subset)} {name} texts, {tokens} tokens, mean target {mean:.2f}")
    return short, long


def embed_and_score(
    published: Teacher, texts: list[str], out: Path, report: Report
) -> tuple[Float16Array, NDArray[np.float32]]:
    """Return the published embeddings of texts, stored in OUT, and their zero-shot scores."""
    file = out / f"embeddings-{digest(texts)[:12]}.npy"
    embeddings = apply_teacher(published, published.embed, texts, file, report)
    return embeddings, zero_shot_scores(embeddings, zero_shot_axis(published))


def label_neutral(
    rows: Rows, recipe: Recipe, teacher: Path, out: Path, device: torch.device, report: Report
) -> Rows:
    """Return the held-out everyday sentences, labelled neutral where their zero-shot score is near zero."""
    rows = [row for row in rows if row.split != "train"]
    published = Teacher(teacher).to(device).eval()
    _, scores = embed_and_score(published, [row.text for row in rows], out, report)
    is_neutral = find_neutral(scores - scores.mean(), recipe.sources["everyday"])
    return [
        replace(row, target=0.5 if neutral else None) for row, neutral in zip(rows, is_neutral, strict=True)
    ]


def make_vocabulary(sets: Mapping[str, Rows], teacher: Path) -> Vocabulary:
    """Return the vocabulary: those of BERT's tokens that may occur in English, and the names in the texts."""
    tokens = [token for i, token in enumerate(_published_tokens(teacher)) if names.is_english_token(i, token)]
    cased = (row.text for name in CASED_SETS for row in sets[name] if row.split == "train")
    return names.make_vocabulary(cased, tokens)


def _published_tokens(teacher: Path) -> list[str]:
    return (teacher / "vocab.txt").read_text(encoding="utf-8").splitlines()[FIRST_WORDPIECE:]


def make_model(
    recipe: Recipe, teacher: Path, vocabulary: Vocabulary, sets: Mapping[str, Rows]
) -> TrainingModel:
    """Return the initial model of the first stage, which depends only on the recipe."""
    torch.manual_seed(recipe.seed)
    texts = [row.text for row in sets["yelp"] if row.split == "train"][:SINK_TEXTS]
    row_of = {token: i + FIRST_WORDPIECE for i, token in enumerate(_published_tokens(teacher))}
    encoder = from_mpnet(Teacher(teacher).eval(), [row_of[token] for token in vocabulary.tokens], texts)
    set_special_tokens(encoder, vocabulary)
    return TrainingModel(encoder, LeaderHead(recipe.head))


@torch.no_grad()
def set_special_tokens(encoder: Encoder, vocabulary: Vocabulary) -> None:
    """Initialize each special token that replaces words with the mean embedding of some of these words."""
    ids, special = {token: i for i, token in enumerate(vocabulary.tokens)}, vocabulary.special
    for token_id, words in {
        special.name: sorted(vocabulary.names), special.group: sorted(vocabulary.groups),
        special.number: list("123456789"),
        special.handle: ["user", "someone", "friend"], special.link: ["link", "website", "page"],
    }.items():  # fmt: skip
        word_ids = [ids[word] for word in words if word in ids]
        encoder.words.weight[token_id] = encoder.words.weight[word_ids].mean(0)


def _fitted_teacher(
    recipe: Recipe, sets: Mapping[str, Rows], teacher: Teacher, file: Path, report: Report
) -> Teacher:
    if not file.exists():
        fit_teacher(teacher, sets, recipe.teacher, file.with_suffix(".checkpoint"), report)
        save(teacher.state_dict(), file)
    teacher.load_state_dict(torch.load(file, map_location="cpu"))
    return teacher


# ---- command line


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.add_argument("--data", type=Path, required=True, help="the folder of the data sets")
    parser.add_argument(
        "--teacher", type=Path, required=True, help="the folder of all-mpnet-base-v2, as published"
    )
    parser.add_argument(
        "--out", type=Path, default=Path("runs"), help="bundles go to OUT/models (default: runs)"
    )
    parser.add_argument(
        "--continue", type=Path, dest="released", metavar="FOLDER",
        help="run the last stage alone, from the bundles in FOLDER",
    )  # fmt: skip
    parser.add_argument(
        "--head-only",
        action="store_true",
        help="with --continue: train the head; the encoder does not change",
    )
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="of torch (default: cpu)")
    parser.add_argument(
        "--threads", type=int, default=torch.get_num_threads(), help="threads of torch (default: all cores)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Train the encoder and its head, and write their bundles; return 0."""
    if arguments.head_only and not arguments.released:
        raise InvalidInput("--head-only goes with --continue FOLDER", param="head_only")
    torch.set_num_threads(arguments.threads)
    start_s = time.monotonic()
    recipe = gpu_recipe() if arguments.device == "cuda" else Recipe()
    recipe = continued_recipe() if arguments.released else recipe
    train(
        recipe, arguments.data, arguments.teacher, arguments.out, torch.device(arguments.device),
        lambda line: print(f"{(time.monotonic() - start_s) / 60:5.1f} min  {line}", flush=True),
        arguments.released, head_only=arguments.head_only,
    )  # fmt: skip
    return 0
