"""Train the pretrained encoder and its sentiment head, from the data to two bundles. `make models` runs it.

    data -> texts -> teach -> targets -> finetune -> harden -> fit_head -> tune_jointly -> bundles

With --continue, the last stage alone runs, from a released encoder and its head.

The result of every stage is stored in OUT under a digest of all its inputs: an interrupted run resumes, and a
changed recipe does not reuse the results of another. Choices are made on the validation split, figures are
measured on the test split.
"""

import argparse
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from model_export.data import corpora, names
from model_export.data.corpora import Rows
from model_export.data.everyday import read_everyday
from model_export.data.training_set import TrainingSet
from model_export.encoder.layer import EncoderConfig
from model_export.encoder.model import Encoder
from model_export.encoder.mpnet import MPNet
from model_export.encoder.published import FIRST_WORDPIECE, from_mpnet, take_layers
from model_export.head.leader_head import LeaderHead
from model_export.publish import write_models
from model_export.recipe import (
    PRETRAINED,
    PRETRAINED_SMALL,
    Recipe,
    continued_recipe,
    gpu_recipe,
    make_review_set,
    make_short_set,
    select_texts,
)
from model_export.restore import initialize, released_outputs, restore
from model_export.stage_cache import StageCache, digest
from model_export.teacher import Float16Array, TeacherModel
from model_export.training import Report
from model_export.training_model import TrainingModel
from model_export.training_run import label_with, plan_stages, run_stages, teach_and_label
from service.errors import InvalidInput
from service.runtime.bundle import read_bundle
from service.text.tokenizer import RATING_STEPS, Vocabulary, WordPieceTokenizer

CASED_SETS = ("reviews", "amazon", "tweets")  # written with the usual capitals
SINK_TEXTS = 48  # over which the states of <s> in the published layers are averaged
LICENSES = {
    "encoder": "all-mpnet-base-v2 and all-MiniLM-L6-v2, Apache 2.0", "everyday": "Apache 2.0",
    "wordnet": "WordNet 3.1 license, Princeton University", "cldr": "Unicode License v3",
}  # fmt: skip
RATING_WORDS = (  # from the worst to the best
    ("terrible", "awful", "worst", "bad"), ("average", "okay", "mediocre"),
    ("excellent", "perfect", "great", "best"),
)  # fmt: skip


def train(
    recipe: Recipe, data: Path, teacher: Path, out: Path, device: torch.device, report: Report,
    released: Path | None = None, name: str = PRETRAINED,
) -> None:  # fmt: skip
    """Run all stages, or the last one on `released` bundles; write both bundles into OUT/models."""
    out.mkdir(parents=True, exist_ok=True)
    sets = corpora.read_all(data) | {"everyday": read_everyday()}
    vocabulary = make_vocabulary(sets, teacher)
    short, long = make_texts(recipe, sets, WordPieceTokenizer(vocabulary))
    published = make_teacher(teacher, vocabulary, sets).to(device)
    cache = StageCache(out, report)
    if released:
        model, logits, means = continue_released(published, recipe, released, name, short + long)
        short, long = label_with(logits, means, recipe, short, long)
    else:
        short, long = teach_and_label(published, recipe, short, long, cache, report)
        torch.manual_seed(recipe.seed)
        model = TrainingModel(take_layers(published.encoder, recipe.layers), LeaderHead(recipe.head))
    model.to(device)
    stages = plan_stages(recipe, short, short + long)[-1 if released else 0 :]
    run_stages(stages, model, recipe, published, cache, report)
    provenance = {
        "data": corpora.count_rows(sets), "licenses": LICENSES, "recipe": digest(recipe),
    }  # fmt: skip
    if released:
        provenance["continued_from"] = read_bundle(released / name).card["encoder"]["sha256"]
    write_models(model.cpu(), name, vocabulary, sets, out / "models", provenance, report)


def continue_released(
    published: TeacherModel, recipe: Recipe, released: Path, name: str, texts: TrainingSet
) -> tuple[TrainingModel, NDArray[np.float32], Float16Array]:  # fmt: skip
    """Return the released model NAME, the logits of `sentiment`, and the mean states of NAME."""
    torch.manual_seed(recipe.seed)
    main = TrainingModel(take_layers(published.encoder, recipe.layers), LeaderHead(Recipe().head))
    restore(main, released, PRETRAINED)
    logits, means = released_outputs(main, texts)
    if name == PRETRAINED:
        return main, logits, means
    model = TrainingModel(
        Encoder(EncoderConfig(vocabulary=published.encoder.config.vocabulary)), LeaderHead(recipe.head)
    )
    initialize(model.encoder)
    restore(model, released, name)
    return model, logits, released_outputs(model, texts)[1]


def make_texts(
    recipe: Recipe, sets: Mapping[str, Rows], tokenizer: WordPieceTokenizer
) -> tuple[TrainingSet, TrainingSet]:
    """Return the short texts, each once, and the whole reviews, with their labels."""
    short = make_short_set(select_texts(sets, recipe), tokenizer, recipe)
    return short, make_review_set(sets, tokenizer, recipe)


def make_vocabulary(sets: Mapping[str, Rows], teacher: Path) -> Vocabulary:
    """Return the vocabulary: those of BERT's tokens that may occur in English, and the names in the texts."""
    tokens = [token for i, token in enumerate(_published_tokens(teacher)) if names.is_english_token(i, token)]
    cased = (row.text for name in CASED_SETS for row in sets[name] if row.split == "train")
    return names.make_vocabulary(cased, tokens)


def _published_tokens(teacher: Path) -> list[str]:
    return (teacher / "vocab.txt").read_text(encoding="utf-8").splitlines()[FIRST_WORDPIECE:]


def make_teacher(teacher: Path, vocabulary: Vocabulary, sets: Mapping[str, Rows]) -> TeacherModel:
    """Return the published layers on our vocabulary."""
    texts = [row.text for row in sets["yelp"] if row.split == "train"][:SINK_TEXTS]
    row_of = {token: i + FIRST_WORDPIECE for i, token in enumerate(_published_tokens(teacher))}
    encoder = from_mpnet(MPNet(teacher).eval(), [row_of[token] for token in vocabulary.tokens], texts)
    set_special_tokens(encoder, vocabulary)
    return TeacherModel(encoder)


@torch.no_grad()
def set_special_tokens(encoder: Encoder, vocabulary: Vocabulary) -> None:
    """Initialize each special token with the mean embedding of words that it replaces or resembles."""
    ids, special = {token: i for i, token in enumerate(vocabulary.tokens)}, vocabulary.special

    def mean_of(words: Sequence[str]) -> torch.Tensor:
        return encoder.words.weight[[ids[word] for word in words if word in ids]].mean(0)

    for token_id, words in {
        special.name: sorted(vocabulary.names), special.group: sorted(vocabulary.groups),
        special.number: list("123456789"),
        special.handle: ["user", "someone", "friend"], special.link: ["link", "website", "page"],
    }.items():  # fmt: skip
        encoder.words.weight[token_id] = mean_of(words)
    worst, middle, best = map(mean_of, RATING_WORDS)
    for step in range(RATING_STEPS + 1):
        share = abs(2 * step / RATING_STEPS - 1)
        extreme = worst if 2 * step < RATING_STEPS else best
        encoder.words.weight[special.worst_rating + step] = share * extreme + (1 - share) * middle


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
        "--model", choices=[PRETRAINED, PRETRAINED_SMALL], default=PRETRAINED,
        help=f"the model to train; {PRETRAINED_SMALL} with --continue only (default: {PRETRAINED})",
    )  # fmt: skip
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="of torch (default: cpu)")
    parser.add_argument(
        "--threads", type=int, default=torch.get_num_threads(), help="threads of torch (default: all cores)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Train the encoder and its head, and write their bundles; return 0."""
    torch.set_num_threads(arguments.threads)
    start_s = time.monotonic()
    recipe = gpu_recipe() if arguments.device == "cuda" else Recipe()
    if arguments.released:
        recipe = continued_recipe(arguments.model)
    elif arguments.model != PRETRAINED:
        raise InvalidInput(f"{arguments.model} is trained with --continue only", param="model")
    train(
        recipe, arguments.data, arguments.teacher, arguments.out, torch.device(arguments.device),
        lambda line: print(f"{(time.monotonic() - start_s) / 60:5.1f} min  {line}", flush=True),
        arguments.released, arguments.model,
    )  # fmt: skip
    return 0
