"""Measure a model on the everyday sentences of this repository: labels, kinds of sentences, and leaders.

    hardmax-export measure [MODELS] [--json] [--floor 0.7]

No other data is needed: anybody can check these figures of the model card. The model is used as everybody
uses it, through `hardmax.Local`.
"""

import argparse
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hardmax import Local
from model_export.data.everyday import SIDES, Sentence, read_everyday
from model_export.data.training_set import MARKED_PARTS
from service.errors import InvalidInput

TEXTS_PER_CALL = 64
SURE = 0.9  # score from which a wrong label is a serious error
MIN_TEXTS_PER_KIND = 10
PRETRAINED = Path(__file__).parents[2] / "service/pretrained"
LABELS = {0.0: "negative", 0.5: "neutral", 1.0: "positive"}

Document = dict[str, Any]


def measure(models: Path, model: str, split: str) -> Document:
    """Return the figures of a model on a split of the everyday sentences."""
    rows = [row for row in read_everyday() if isinstance(row, Sentence) and row.split == split]
    answers = list(_classify(models, model, [row.text for row in rows]))
    return {
        "model": model, "split": split, "texts": len(rows),
        **label_figures(rows, answers), "leaders": leader_figures(rows, answers),
    }  # fmt: skip


def _classify(models: Path, model: str, texts: Sequence[str]) -> Iterator[Document]:
    with Local(models_dir=models, default_model=model, pretrained_models=False) as local:
        for start in range(0, len(texts), TEXTS_PER_CALL):
            for answer in local.classify(list(texts[start : start + TEXTS_PER_CALL]), explain="full"):
                yield answer.model_dump()


def label_figures(rows: Sequence[Sentence], answers: Sequence[Document]) -> Document:
    """Return recall by label, the share on the right side, and accuracy by kind."""
    truth = np.array([LABELS[row.target or 0.0] for row in rows])
    labels = np.array([answer["label"] for answer in answers])
    scores = np.array([answer["score"] for answer in answers])
    is_positive = np.array([answer["logit"] > 0 for answer in answers])
    recall = {label: float((labels[truth == label] == label).mean()) for label in LABELS.values()}
    polar = truth != "neutral"
    opposite = polar & (labels != truth) & (labels != "neutral") & (scores > SURE)
    by_kind = defaultdict(list)
    for row, is_right in zip(rows, (labels == truth).tolist(), strict=True):
        by_kind[row.kind].append(is_right)
    return {
        "three_labels": float(np.mean(list(recall.values()))),
        "side": float((is_positive == (truth == "positive"))[polar].mean()),
        "recall": recall,
        "wrong_and_sure": float(opposite.mean()),
        "kinds": {
            kind: {"texts": len(right), "accuracy": float(np.mean(right))}
            for kind, right in sorted(by_kind.items()) if len(right) >= MIN_TEXTS_PER_KIND
        },
    }  # fmt: skip


def leader_figures(rows: Sequence[Sentence], answers: Sequence[Document]) -> Document:
    """Return how often leaders are the words that decide, where these are marked."""
    of_one_side, of_both, sides = [], [], []
    for row, answer in zip(rows, answers, strict=True):
        contributions = [leader["contribution"] for leader in answer["leaders"]]
        if not row.marks or not contributions:
            continue
        if len(row.marks) == len(SIDES):
            of_both.append(min(contributions) < 0 < max(contributions))
        else:
            heaviest = max(answer["leaders"], key=lambda leader: abs(leader["contribution"]))
            (side,) = row.marks
            of_one_side.append((_side_of(heaviest["word"], row) != 0, heaviest["contribution"] * side > 0))
        marked = [(_side_of(word["word"], row), word["contribution"]) for word in answer["words"]]
        sides += [side * contribution > 0 for side, contribution in marked if side]
    is_marked, has_sign = np.array(of_one_side).reshape(-1, 2).T
    return {
        "texts": len(of_one_side), "marked": float(np.mean(is_marked)), "sign": float(np.mean(has_sign)),
        "two_sided_texts": len(of_both), "both_signs": float(np.mean(of_both)),
        "marked_words_of_their_sign": float(np.mean(sides)),
    }  # fmt: skip


def _side_of(word: str, row: Sentence) -> int:
    """Return the side that a word of a text is marked for, or 0."""
    parts = set(MARKED_PARTS.findall(word.lower()))
    for side, words in row.marks.items():
        if parts & set(MARKED_PARTS.findall(" ".join(words).lower())):
            return side
    return 0


def describe(figures: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of a report."""
    yield f"{figures['model']} on {figures['texts']:,} everyday sentences ({figures['split']} split)"
    yield f"three labels, mean recall  {figures['three_labels']:.3f}"
    yield f"positive or negative       {figures['side']:.3f}"
    yield f"wrong and sure             {figures['wrong_and_sure']:.1%}"
    leaders = figures["leaders"]
    yield f"heaviest leader is a marked word {leaders['marked']:.2f}, its sign is right {leaders['sign']:.2f}"
    yield f"two-sided texts with leaders of both signs {leaders['both_signs']:.2f}"
    yield f"marked words with a contribution of their sign {leaders['marked_words_of_their_sign']:.2f}"
    for kind, entry in figures["kinds"].items():
        yield f"  {kind:24} {entry['accuracy']:.2f} of {entry['texts']}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.add_argument("models", type=Path, nargs="?", default=PRETRAINED, help="a folder of bundles")
    parser.add_argument("--model", default="sentiment", help="the model to measure (default: sentiment)")
    parser.add_argument(
        "--split", choices=["validation", "test"], default="test", help="of the sentences (default: test)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--floor", type=float, help="fail if the mean recall over three labels is lower")


def run(arguments: argparse.Namespace) -> int:
    """Print the figures; return 1 if they are below the floor."""
    if not (arguments.models / arguments.model).is_dir():
        raise InvalidInput(f"{arguments.models} has no model {arguments.model}", param="models")
    figures = measure(arguments.models, arguments.model, arguments.split)
    print(json.dumps(figures) if arguments.json else "\n".join(describe(figures)))
    return int(arguments.floor is not None and figures["three_labels"] < arguments.floor)
