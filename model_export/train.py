"""Training, top to bottom: hold out, teach, choose tokens, fit, keep the best.

Writes a run: weights.npz, tokenizer.json, meta.json, curves.png and, while it lasts, checkpoint.pt. A run
stopped half-way goes on where it was. Knows nothing of ONNX; `export` reads what is written here.
"""

from __future__ import annotations

import argparse
import json
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from model_export import corpus, phrases, recipes, teacher
from model_export.corpus import Corpus, split_validation
from model_export.fit import Fit, Lesson, cluster_share, fit, logits
from model_export.lessons import lessons
from model_export.model import HardmaxTransformer, Weights
from model_export.polish import polish
from model_export.recipes import RECIPES, Recipe
from model_export.scores import score, sigmoid, temperature
from model_export.tokens import Ids, Vocabulary, WordIds, frequent_words, tokenizer_of, word_ids
from service.errors import InvalidInput

# Chosen on the validation reviews: what the two opinions weigh, both calibrated logits.
TRUST_TEACHER, TRUST_STUDENT = 0.6, 0.45
SURE = 0.97  # the target for a labelled review: reviewers and their stars do not always agree


@dataclass(frozen=True)
class Material:
    """Everything that is prepared before the first step."""

    lesson: Lesson
    vocabulary: Vocabulary
    data: dict[str, Any]  # for the card
    unseen: Sequence[str]  # the validation texts

    def read_by(self, vocabulary: Vocabulary) -> Material:
        """The same for measuring alone, with other tokens."""
        rows = np.arange(len(self.unseen))
        target = self.lesson.target[self.lesson.validation]
        return replace(
            self, lesson=Lesson(vocabulary.bags(self.unseen), target, rows[:0], rows), vocabulary=vocabulary
        )


def prepare(
    recipe: Recipe,
    reviews: Corpus,
    sentences: Corpus | None,
    *,
    hold_out: bool = True,
    labels: Path | None = None,
) -> Material:
    """Split, teach and tokenise. `hold_out` keeps a fifth of the labelled reviews for validation; without it
    all are learnt from.

    `labels` keeps the teacher's soft labels between recipes: read if it is there, written if not.
    """
    train, validation = reviews.labelled, np.zeros(0, dtype=np.int64)
    if hold_out:
        train, validation = split_validation(reviews)
    extra = sentences if recipe.sentences else None
    corpus = reviews + extra if extra else reviews
    written = lessons() if recipe.lessons else []
    texts = (*corpus.texts, *(lesson.text for lesson in written))
    seen = np.setdiff1d(np.arange(len(corpus)), validation)
    names = frequent_words([texts[i] for i in seen], 3)
    words = word_ids(tokenizer_of(names), texts)

    target = np.concatenate(
        [np.maximum(corpus.labels, 0), [lesson.probability for lesson in written]]
    ).astype(np.float32)
    target[train] = np.where(target[train] > 0, SURE, 1 - SURE)
    rows = train
    if recipe.teacher and len(reviews.unlabelled):
        rows = np.concatenate([train, reviews.unlabelled])
        target[reviews.unlabelled] = _soft_labels(words.take(np.arange(len(reviews))), reviews, train, labels)
    reading = rows  # the tokens are chosen on reviews: they are what phrases are frequent in
    if extra:
        rows = np.concatenate([rows, np.arange(len(reviews), len(corpus))])
    chosen = phrases.choose(
        names, words.take(reading), target[reading], size=recipe.vocabulary, least=recipe.least,
        longest=recipe.longest_phrase, drop_frequent=recipe.drop_frequent,
    )  # fmt: skip
    vocabulary = Vocabulary.of(chosen)
    known = set(chosen)
    usable = [len(corpus) + i for i, one in enumerate(written) if one.phrase is None or one.phrase in known]
    short = np.tile(np.array(usable, dtype=np.int64), recipe.lessons)
    bags = vocabulary.bags(texts)
    data = {
        "source": corpus.source, "labelled": len(train), "validation": len(validation),
        "unlabelled": len(reading) - len(train), "sentences": len(rows) - len(reading),
        "lessons": len({texts[i] for i in usable}),
    }  # fmt: skip
    lesson = Lesson(bags, target, np.concatenate([rows, short]), validation)
    return Material(lesson, vocabulary, data, [texts[i] for i in validation])


def _soft_labels(words: WordIds, reviews: Corpus, train: Ids, keep: Path | None) -> NDArray[np.float32]:
    """The teacher's probability of "positive" for every unlabelled review; remembered in the file `keep`."""
    if keep is not None and keep.exists():
        return _load_labels(keep, reviews)
    probability = teacher.label(words, reviews.labels, train, reviews.unlabelled)
    if keep is not None:
        _save_labels(keep, reviews, probability)
    return probability


def _load_labels(path: Path, reviews: Corpus) -> NDArray[np.float32]:
    with np.load(path) as file:
        if str(file["key"]) != _key(reviews):
            problem = f"{path} was made from other data ({file['key']}, not {_key(reviews)})"
            raise InvalidInput(problem, param="labels")
        return np.asarray(file["probability"], dtype=np.float32)


def _save_labels(path: Path, reviews: Corpus, probability: NDArray[np.float32]) -> None:
    np.savez(path, key=_key(reviews), probability=probability)


def _key(reviews: Corpus) -> str:
    return f"{reviews.source}/{len(reviews)}"


def teach(reviews: Corpus, sentences: Corpus | None, folder: Path, labels: Path) -> None:
    """Writes `labels`: what the teacher says of the unlabelled reviews, and what its first student makes of
    it.

    The student sees all reviews and generalises better than any view of the teacher alone; the two together
    teach the models that are kept. Neither has seen a validation label.
    """
    first = folder / "labels-first.npz"
    train(recipes.recipe("sentiment"), reviews, folder / "student", sentences=sentences, labels=first)
    student = HardmaxTransformer.of(Weights.load(folder / "student" / "weights.npz"))
    vocabulary = Vocabulary.load(folder / "student" / "tokenizer.json")
    bags = vocabulary.bags([reviews.texts[i] for i in reviews.unlabelled])
    p = np.clip(_load_labels(first, reviews), 1e-6, 1 - 1e-6).astype(np.float64)
    opinion = logits(student, bags, np.arange(len(bags)))
    together = sigmoid(TRUST_TEACHER * np.log(p / (1 - p)) + TRUST_STUDENT * opinion)
    _save_labels(labels, reviews, together.astype(np.float32))


@dataclass(frozen=True)
class Measured:
    """What validation found: the factor that calibrates the logits, and the figures with it."""

    temperature: float
    figures: dict[str, Any]

    @classmethod
    def of(cls, work: Fit, vocabulary: Vocabulary, sentences: Corpus | None) -> Measured:
        """On texts that were not trained on; `sentences` may be missing."""
        model, bags, rows = work.model, work.lesson.bags, work.lesson.validation
        if not len(rows):
            return cls(1.0, {})
        logit = logits(model, bags, rows)
        factor = temperature(logit, work.truth)
        figures: dict[str, Any] = {"validation": score(factor * logit, work.truth).as_dict()}
        figures["validation"] |= cluster_share(model, bags, rows)
        if sentences is not None:
            short = vocabulary.bags(sentences.texts)
            logit = factor * logits(model, short, np.arange(len(short)))
            figures["sentences"] = score(logit, sentences.labels).as_dict()
        return cls(factor, figures)

    @classmethod
    def load(cls, run: Path) -> Measured:
        meta = json.loads((run / "meta.json").read_text(encoding="utf-8"))
        return cls(meta["temperature"], meta["figures"])


def keep(work: Fit, material: Material, out: Path, measured: Measured) -> None:
    """The run as files, for `export` and for people."""
    recipe, weights = work.recipe, work.model.weights().sharpened(measured.temperature)
    weights.save(out / "weights.npz")
    material.vocabulary.tokenizer.save(str(out / "tokenizer.json"), pretty=False)
    meta = {
        "name": recipe.name, "description": recipe.description, "labels": ["negative", "positive"],
        "seed": recipe.seed, "alpha": weights.alpha, "layers": weights.layers, "dimension": recipe.dimension,
        "vocabulary": len(material.vocabulary), "pseudo_weight": weights.pseudo_weight,
        "readout": {"vector": [float(x) for x in weights.readout], "bias": weights.bias},
        "recipe": asdict(recipe), "data": material.data, "history": work.history,
        "figures": measured.figures, "temperature": measured.temperature,
        "versions": {
            "python": platform.python_version(), "torch": torch.__version__, "numpy": np.__version__,
        },
    }  # fmt: skip
    (out / "meta.json").write_text(json.dumps(meta, indent=1) + "\n", encoding="utf-8")
    _draw_curves(work.history, recipe.name, out / "curves.png")


def _draw_curves(history: list[dict[str, float]], title: str, path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 3), layout="constrained")
    left, right = figure.subplots(1, 2)
    epoch = range(1, len(history) + 1)
    for key, label in (("loss", "training"), ("validation_loss", "validation")):
        if key in history[0]:
            left.plot(epoch, [entry[key] for entry in history], marker="o", label=label)
    left.set(title=f"{title}: loss", xlabel="epoch")
    left.legend(frameon=False)
    if "validation_accuracy" in history[0]:
        right.plot(epoch, [100 * entry["validation_accuracy"] for entry in history], marker="o")
    right.set(title="validation accuracy, %", xlabel="epoch")
    figure.savefig(path, dpi=110)


def train(
    recipe: Recipe,
    reviews: Corpus,
    out: Path,
    *,
    sentences: Corpus | None = None,
    unseen: Corpus | None = None,
    everything: bool = False,
    labels: Path | None = None,
    fresh: bool = False,
) -> Measured:
    """One recipe from data to files. `unseen` are sentences to measure on, never to train on.

    `everything` trains once more, on the validation reviews too, with the epochs and the calibration that
    validation found; the figures stay those of the first run, which OUT/validation keeps.
    """
    first = out / "validation" if everything else out
    if fresh or not (first / "meta.json").exists():
        _run(recipe, prepare(recipe, reviews, sentences, labels=labels), first, None, unseen, fresh)
    measured = Measured.load(first)
    if everything:
        whole = prepare(recipe, reviews, sentences, hold_out=False, labels=labels)
        _run(recipe, whole, out, measured, None, fresh)
    return measured


def _run(
    recipe: Recipe,
    material: Material,
    out: Path,
    measured: Measured | None,
    unseen: Corpus | None,
    fresh: bool,
) -> None:
    out.mkdir(parents=True, exist_ok=True)
    work = fit(recipe, material.lesson, len(material.vocabulary), out, fresh=fresh)
    if recipe.lessons:
        weights, vocabulary = polish(work.model.weights(), material.vocabulary)
        material = material.read_by(vocabulary)
        work.model, work.lesson = HardmaxTransformer.of(weights), material.lesson
    if measured is None:
        measured = Measured.of(work, material.vocabulary, unseen)
    else:
        material.data["figures"] = (
            "measured with a fifth of the labelled reviews held out, before learning from all"
        )
    keep(work, material, out, measured)
    (out / "checkpoint.pt").unlink()


# ---------------------------------------- command line


def add_arguments(parser: argparse.ArgumentParser) -> None:
    names = ", ".join(RECIPES)
    parser.add_argument("--recipe", nargs="+", required=True, metavar="NAME", help=f"{names}; all; bundled")
    parser.add_argument(
        "--data", type=Path, required=True, help="IMDb's tar.gz or folder, or a csv, jsonl, tsv, parquet"
    )
    parser.add_argument("--sst2", type=Path, help="folder with train.tsv and dev.tsv: short sentences")
    parser.add_argument(
        "--out", type=Path, default=Path("runs"), help="each recipe writes to OUT/NAME (default: runs)"
    )
    parser.add_argument(
        "--everything", action="store_true", help="then train again on the validation reviews too"
    )
    parser.add_argument(
        "--labels", type=Path, help="file that keeps the teacher's labels (default: OUT/labels.npz)"
    )
    parser.add_argument("--fresh", action="store_true", help="do not go on from a checkpoint")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())


def run(arguments: argparse.Namespace) -> int:
    torch.set_num_threads(arguments.threads)
    changes = {k: v for k in ("seed", "epochs") if (v := getattr(arguments, k)) is not None}
    chosen = [recipes.recipe(name, **changes) for name in recipes.expand(arguments.recipe)]
    reviews = corpus.read(arguments.data)
    sentences = corpus.read(arguments.sst2 / "train.tsv") if arguments.sst2 else None
    unseen = corpus.read(arguments.sst2 / "dev.tsv") if arguments.sst2 else None
    arguments.out.mkdir(parents=True, exist_ok=True)
    labels = arguments.labels or arguments.out / "labels.npz"
    if len(reviews.unlabelled) and any(recipe.teacher for recipe in chosen) and not labels.exists():
        teach(reviews, sentences, arguments.out, labels)
    for recipe in chosen:
        out = arguments.out / recipe.name
        measured = train(
            recipe, reviews, out, sentences=sentences, unseen=unseen, everything=arguments.everything,
            labels=labels, fresh=arguments.fresh,
        )  # fmt: skip
        print(f"{out}: {json.dumps(measured.figures)}")
    return 0
