"""The bundled model, from the data to weights: prepare, fit the model, calibrate.

A run is a folder: model.pt, weights.npz, words.json, meta.json, and a checkpoint while it lasts. What is
prepared and the encoder stand beside it, for all recipes. A stopped run goes on where it was. Choices are
made on the split `choose`, figures on `report`.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from model_export.sentiment.model import HardmaxTransformer, Weights, clause_of, sentence_of
from model_export.sentiment.scores import balanced, calibrate, score, sigmoid, three_labels
from model_export.train import recipes
from model_export.train.fit import blur_of, fit, logits
from model_export.train.material import Ints, Texts
from model_export.train.prepare import Prepared, prepare
from model_export.train.recipes import Recipe
from service.texts.reader import Lists

CALIBRATED_ON = ("reviews", "sst", "amazon", "tweets")
NEARLY = 0.01  # as well: of balanced accuracy


def train(recipe: Recipe, data: Path, encoder: Path, out: Path) -> Weights:
    """One recipe from data to files."""
    began = time.monotonic()
    out.mkdir(parents=True, exist_ok=True)
    prepared = prepare(data, recipe, encoder, out.parent / "prepared.pkl")
    model = _fitted(recipe, prepared, out / "model")
    choose = prepared.held["choose"]
    answers = {name: logits(model, texts)[:, 0] for name, texts in choose.items()}
    calibration = calibrated(choose, answers)
    weights = replace(model.weights(tuple(prepared.lists.words)), calibration=calibration)
    weights.save(out / "weights.npz")
    write_lists(prepared.lists, out / "words.json")
    meta = {
        "name": recipe.name, "description": recipe.description, "labels": ["negative", "positive"],
        "even": even_band(choose, answers, calibration), "figures": figures(calibration, model, prepared),
        "data": prepared.sizes, "recipe": asdict(recipe),
        "seconds": round(time.monotonic() - began),
        "licences": {
            "rated words": "VADER, MIT", "word vectors": "GloVe 6B, public domain (PDDL)",
            "teacher": "all-MiniLM-L6-v2, Apache 2.0",
        },
        "versions": {"torch": torch.__version__, "numpy": np.__version__},
    }  # fmt: skip
    (out / "meta.json").write_text(json.dumps(meta, indent=1) + "\n", encoding="utf-8")
    return weights


def _fitted(recipe: Recipe, prepared: Prepared, out: Path) -> HardmaxTransformer:
    """A model fitted on what the recipe reads of the texts; kept as OUT.pt, on its way as OUT.checkpoint."""
    torch.manual_seed(recipe.seed)
    words = prepared.lists.words
    model = HardmaxTransformer(
        prepared.vectors, prepared.reach, clause_of(words), sentence_of(words), recipe.shape
    )
    lean(model, prepared)
    done, checkpoint, how = out.with_suffix(".pt"), out.with_suffix(".checkpoint"), recipe.learning
    if done.exists():
        model.load_state_dict(torch.load(done))
        return model.eval()
    whole, epochs = epochs_of(recipe, prepared.train, how.epochs)

    def measure(model: HardmaxTransformer) -> str:
        found = accuracies(model, prepared.held["choose"])
        return " ".join(f"{name} {100 * value:.1f}" for name, value in found.items())

    def say(line: str) -> None:
        print(line, flush=True)

    fit(model, whole, epochs, how, blur_of(words), measure=measure, checkpoint=checkpoint, say=say)
    say(f"averaged {measure(model)}")
    torch.save(model.state_dict(), done)
    checkpoint.unlink()
    return model


@torch.no_grad()
def lean(model: HardmaxTransformer, prepared: Prepared) -> None:
    """Rated words start where people said."""
    rating = torch.tensor([prepared.ratings.get(word, 0.0) for word in prepared.lists.words])
    model.own[:, 0] = 0.4 * rating


def epochs_of(recipe: Recipe, texts: Mapping[str, Texts], number: int) -> tuple[Texts, list[Ints]]:
    """All texts one after the other, and which of them each epoch reads."""
    names = [name for name in recipe.parts if name in texts]
    whole = texts[names[0]]
    for name in names[1:]:
        whole = whole + texts[name]
    sizes = {name: len(texts[name]) for name in names}
    return whole, recipes.drawn(recipe.parts, sizes, number, recipe.seed)


# ---- what is chosen, what is measured


def accuracies(model: HardmaxTransformer, sets: Mapping[str, Texts]) -> dict[str, float]:
    """Balanced accuracy of each data set, texts of no label left out."""
    found = {}
    for name, texts in sets.items():
        some = texts.sided()
        found[name] = balanced(logits(model, some)[:, 0] > 0, some.targets > 0.5)
    return found


def calibrated(sets: Mapping[str, Texts], answers: Mapping[str, NDArray[np.float64]]) -> NDArray[np.float32]:
    names = [name for name in CALIBRATED_ON if name in sets]
    targets = np.concatenate([sets[name].targets for name in names])
    lengths = np.concatenate([sets[name].lengths for name in names])
    sure = targets != 0.5
    return calibrate(
        np.concatenate([answers[name] for name in names])[sure], lengths[sure], targets[sure] > 0.5
    )


def even_band(
    sets: Mapping[str, Texts], answers: Mapping[str, NDArray[np.float64]], s: NDArray[np.float32]
) -> float:
    """Half the band around one half that is called even: the narrowest that tells three labels nearly as well
    as the best does, over the sets that have them."""
    best: dict[float, list[float]] = {}
    for name, texts in sets.items():
        if set(texts.targets.tolist()) != {0.0, 0.5, 1.0}:
            continue
        p = sigmoid(s[np.minimum(texts.lengths, len(s) - 1)] * answers[name])
        for half in np.arange(0.02, 0.31, 0.01).round(2).tolist():
            best.setdefault(half, []).append(balanced(three_labels(p, half), texts.targets))
    told = {half: float(np.mean(found)) for half, found in best.items()}
    return min(half for half, value in told.items() if value >= max(told.values()) - NEARLY)


def figures(s: NDArray[np.float32], model: HardmaxTransformer, prepared: Prepared) -> dict[str, Any]:
    """Measured on `report`, once."""
    found: dict[str, Any] = {}
    for name, texts in prepared.held["report"].items():
        some = texts.sided()
        answers = logits(model, some)[:, 0] * s[np.minimum(some.lengths, len(s) - 1)]
        truth = some.targets > 0.5
        found[name] = {
            **score(answers, truth).as_dict(),
            "balanced_accuracy": balanced(answers > 0, truth),
            "without_layers": balanced(logits(model, some, 0)[:, 0] > 0, truth),
        }
    return found


def write_lists(lists: Lists, path: Path) -> None:
    content = {
        "words": list(lists.words),
        **{k: sorted(getattr(lists, k)) for k in ("names", "sometimes", "groups")},
    }
    path.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")


# ---- command line


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--recipe", nargs="+", default=["sentiment"], metavar="NAME", help=", ".join(recipes.RECIPES)
    )
    parser.add_argument("--data", type=Path, required=True, help="the folder of the data sets")
    parser.add_argument(
        "--encoder", type=Path, required=True, help="the folder of all-MiniLM-L6-v2, as published"
    )
    parser.add_argument(
        "--out", type=Path, default=Path("runs"), help="each recipe writes to OUT/NAME (default: runs)"
    )
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())


def run(arguments: argparse.Namespace) -> int:
    torch.set_num_threads(arguments.threads)
    for name in arguments.recipe:
        train(recipes.recipe(name), arguments.data, arguments.encoder, arguments.out / name)
        print((arguments.out / name / "meta.json").read_text(encoding="utf-8"))
    return 0
