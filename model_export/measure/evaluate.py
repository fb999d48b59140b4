"""What a trained run is worth on texts it has not seen: quality, calibration, behaviour, attention, leaders.

    hardmax-export evaluate runs/sentiment --twin runs/twin --data DATA

Everything is measured on the split `report`. `--twin` is the same recipe trained without layers.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from model_export.measure import behaviour
from model_export.measure.reasons import alone, reasons
from model_export.sentiment.model import HardmaxTransformer, Weights
from model_export.sentiment.scores import balanced, score, sigmoid, three_labels
from model_export.train import corpora, lexicon
from model_export.train.fit import logits
from model_export.train.material import Texts
from model_export.train.reach import function_words
from service.texts.reader import Lists, Reader

HEAVIEST = 3  # clusters of a review whose leaders are counted
SURE = 0.9
SHORT = 64  # tokens: calibration is told apart below and from here on


class Trained:
    """A run's folder: weights, reader, card. Answers are calibrated."""

    def __init__(self, folder: Path) -> None:
        self.weights = Weights.load(folder / "weights.npz")
        lists = json.loads((folder / "words.json").read_text(encoding="utf-8"))
        self.reader = Reader(Lists(**lists))
        self.card: dict[str, Any] = json.loads((folder / "meta.json").read_text(encoding="utf-8"))
        self.model = HardmaxTransformer.of(self.weights)

    def read(self, texts: Sequence[str], targets: Sequence[float] | None = None) -> Texts:
        return Texts.read(self.reader, texts, targets or [0.5] * len(texts), 2_500)

    def logits(self, texts: Texts, layers: int | None = None) -> NDArray[np.float64]:
        s = self.weights.calibration
        return logits(self.model, texts, layers)[:, 0] * s[np.minimum(texts.lengths, len(s) - 1)]

    def say(self, texts: Sequence[str]) -> NDArray[np.float64]:
        return sigmoid(self.logits(self.read(texts)))


def evaluate(run: Trained, sets: Mapping[str, Texts], twin: Trained | None = None) -> dict[str, Any]:
    """All figures of a run; `sets` hold texts with targets 0, 0.5, 1."""
    found: dict[str, Any] = {"sets": {}}
    for name, texts in sets.items():
        some = texts.sided()
        found["sets"][name] = _quality(run, twin, some)
        if len(some) < len(texts):
            said = three_labels(sigmoid(run.logits(texts)), float(run.card["even"]))
            found["sets"][name]["three_way_balanced_accuracy"] = balanced(said, texts.targets)
    found["calibration"] = _by_length(run, sets)
    found["behaviour"] = behaviour.failures(run.say, float(run.card["even"]))
    found["behaviour_mean"] = float(np.mean(list(found["behaviour"].values())))
    found["leaders"] = count_leaders(run, sets["reviews"])
    return found


def _quality(run: Trained, twin: Trained | None, texts: Texts) -> dict[str, float]:
    answers, truth = run.logits(texts), texts.targets > 0.5
    without = run.logits(texts, 0)
    measured = score(answers, truth)
    found = {
        "texts": measured.texts,
        "accuracy": measured.accuracy,
        "balanced_accuracy": balanced(answers > 0, truth),
        "log_loss": measured.log_loss,
        "calibration_error": measured.calibration_error,
        "without_layers": balanced(without > 0, truth),
        "labels_changed_without_layers": float(((answers > 0) != (without > 0)).mean()),
    }
    if twin is not None:
        found["twin_without_layers"] = balanced(twin.logits(texts) > 0, truth)
    return found


def _by_length(run: Trained, sets: Mapping[str, Texts]) -> dict[str, float]:
    """The calibration error of short and of long texts, all sets together."""
    whole = [texts.sided() for texts in sets.values()]
    answers = np.concatenate([run.logits(texts) for texts in whole])
    truth = np.concatenate([texts.targets > 0.5 for texts in whole])
    short = np.concatenate([texts.lengths for texts in whole]) < SHORT
    sides = {"short": short, "long": ~short}
    return {
        name: score(answers[side], truth[side]).calibration_error
        for name, side in sides.items()
        if side.any()
    }


def count_leaders(run: Trained, reviews: Texts) -> dict[str, Any]:
    """Who leads the heaviest clusters of a review, and what the leaders alone would say."""
    words, ratings = run.weights.words, lexicon.ratings()
    stop = function_words(ratings)
    rows = np.arange(len(reviews))
    why = reasons(run.model, reviews, rows)
    led = [
        (words[reviews.ids[reviews.starts[row] + place]], reason.evidence[place])
        for row, reason in zip(rows, why, strict=True)
        for place in reason.heaviest[:HEAVIEST]
    ]
    charged = [(ratings[word] > 0) == (evidence > 0) for word, evidence in led if ratings.get(word)]
    whole = np.array([reason.logit for reason in why])
    few = logits(run.model, alone(run.model, reviews))[:, 0]
    sure = sigmoid(np.abs(run.logits(reviews))) > SURE
    right = (whole > 0) == (reviews.targets > 0.5)
    who = Counter(
        words[reviews.ids[reviews.starts[row] + place]]
        for row in rows[sure & right]
        for place in np.unique(why[row].leader)
    )
    return {
        "reviews": len(reviews),
        "leaders_a_review": float(np.mean([len(np.unique(reason.leader)) for reason in why])),
        "clusters_for_90_percent_median": float(np.median([len(reason.carriers()) for reason in why])),
        "function_words": float(np.mean([word in stop or not word[0].isalnum() for word, _ in led])),
        "charged_words": len(charged) / len(led),
        "sign_agrees": float(np.mean(charged)),
        "leaders_alone_agree": float(((few > 0) == (whole > 0)).mean()),
        "leaders_alone_accuracy": float(((few > 0) == (reviews.targets > 0.5)).mean()),
        "words_kept_share": float(np.mean([len(r.kept()) / len(r.leader) for r in why])),
        "most_frequent": dict(who.most_common(60)),
    }


# ---- command line


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", type=Path, help="the folder that training wrote")
    parser.add_argument("--data", type=Path, required=True, help="the folder of the data sets")
    parser.add_argument("--twin", type=Path, help="the run of the recipe `twin`")
    parser.add_argument("--split", default="report", choices=corpora.SPLITS[1:])
    parser.add_argument("--threads", type=int, default=1)


def run(arguments: argparse.Namespace) -> int:
    torch.set_num_threads(arguments.threads)
    trained = Trained(arguments.run)
    twin = Trained(arguments.twin) if arguments.twin else None
    sets = {
        name: trained.read([row.text for row in rows], [float(row.target or 0.0) for row in rows])
        for name, all_rows in corpora.read_all(arguments.data).items()
        if (rows := [row for row in all_rows if row.split == arguments.split])
    }
    print(json.dumps(evaluate(trained, sets, twin), indent=1))
    return 0
