"""Ablations of a served model: its accuracy without word order, without attention, and on leaders alone.

    hardmax-export ablations MODELS --data DATA

    ordinary                  the accuracy of the service
    shuffled                  with the words of each text in random order
    without attention         with every token encoded alone, so that its heads attend to the null key
    same label from leaders   the share of texts that keep their label if only leaders and two words on either
                              side of each remain
    read                      the median receptive field of a word, as a share of its chunk

Figures are measured on the test split, with the two bundles in MODELS as the service loads them.
"""

import argparse
import csv
import random
from pathlib import Path
from typing import Any

import numpy as np

from model_export.data import corpora
from model_export.measure import behaviour
from model_export.measure.scores import balanced_accuracy, score, sigmoid, three_labels
from model_export.measure.served import ServedModel
from service.text.encoder import EncodedText
from service.text.head import Head, run_heads
from service.text.tokenizer import Ints, TokenizedText

IMPLICIT_SENTIMENT = Path(__file__).with_name("implicit_sentiment.tsv")
ABLATED_TEXTS_PER_SET = 400  # of each data set
LEADER_CONTEXT_WORDS = 2  # on either side of a leader


def single_token_chunks(tokenized: TokenizedText) -> list[tuple[Ints, Ints]]:
    """Return a chunk of each token, at its position."""
    return list(zip(tokenized.token_ids[:, None], tokenized.position_ids[:, None], strict=True))


def shuffle_words(text: str, rng: random.Random) -> str:
    """Return the words of a text in random order."""
    words = text.split()
    rng.shuffle(words)
    return " ".join(words)


def receptive_shares(encoded: EncodedText) -> list[float]:
    """Return the share of its chunk that each token has read."""
    shares: list[float] = []
    for output in encoded.outputs:
        assert output.receptive_fields is not None
        fields, size = output.receptive_fields[-1].tolist(), output.receptive_fields.shape[1]
        shares += [int(field).bit_count() / size for field in fields]
    return shares


def leader_context(head: Head, encoded: EncodedText) -> str:
    """Return the words near the leaders of a text."""
    text = encoded.tokenized
    ((_, _, outputs),) = run_heads([head], [encoded], explain=True)
    assert outputs.target is not None
    near_leader = np.zeros(len(text), bool)
    for leader in np.unique(outputs.target[outputs.target >= 0]).tolist():
        near_leader[max(0, leader - LEADER_CONTEXT_WORDS) : leader + LEADER_CONTEXT_WORDS + 1] = True
    words = np.flatnonzero(near_leader).tolist()
    return " ".join(text.text[text.starts[i] : text.ends[i]] for i in words)


def ablate(served: ServedModel, rows: corpora.Rows) -> dict[str, float]:
    """Return the figures of a data set, by name."""
    rng = random.Random(0)
    rows = [row for row in rows if row.split == "test" and row.target is not None]
    rng.shuffle(rows)
    rows = rows[:ABLATED_TEXTS_PER_SET]
    texts, targets = [row.text for row in rows], np.array([row.target for row in rows])
    polar = targets != 0.5
    truth = targets[polar] > 0.5
    ordinary = served.logits(texts)
    encoded = [served.encode(text) for text in texts]
    shares = [share for text in encoded for share in receptive_shares(text)]
    leader_logits = served.logits([leader_context(served.head, text) for text in encoded])
    ablated = {
        "shuffled": served.logits([shuffle_words(text, rng) for text in texts]),
        "without attention": served.logits(texts, single_token_chunks),
    }
    figures = {
        "texts": float(polar.sum()),
        "ordinary": balanced_accuracy(ordinary[polar] > 0, truth),
        **{name: balanced_accuracy(logits[polar] > 0, truth) for name, logits in ablated.items()},
        "same label from leaders": float(((leader_logits > 0) == (ordinary > 0)).mean()),
        "read": float(np.median(shares)),
        "calibration error": score(ordinary[polar], truth).calibration_error,
    }
    if not polar.all():
        figures["three labels"] = balanced_accuracy(
            three_labels(sigmoid(ordinary), served.neutral_margin), targets
        )
    return figures


def predict_implicit_sentiment(served: ServedModel) -> list[dict[str, Any]]:
    """Return one hundred sentences without opinion words, with their labels and predictions.

    They were written before any model of this project was evaluated on them.
    """
    with IMPLICIT_SENTIMENT.open(encoding="utf-8") as file:
        rows: list[dict[str, Any]] = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    for row, logit in zip(rows, served.logits([row["text"] for row in rows]).tolist(), strict=True):
        row["predicted"] = "positive" if logit > 0 else "negative"
        row["p"] = float(sigmoid(logit))
    return rows


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.add_argument("models", type=Path, help="the folder of the bundles")
    parser.add_argument("--head", default="sentiment", help="the head to measure (default: sentiment)")
    parser.add_argument("--data", type=Path, help="the folder of the data sets")


def run(arguments: argparse.Namespace) -> int:
    """Measure and print; return 0."""
    served = ServedModel(arguments.models, arguments.head)
    rows = predict_implicit_sentiment(served)
    for label in ("negative", "positive"):
        labelled = [row for row in rows if row["label"] == label]
        correct = sum(row["predicted"] == label for row in labelled)
        print(f"implicit sentiment, {label}: {correct} of {len(labelled)} correct")
    for row in rows:
        if row["predicted"] != row["label"]:
            print(f"  {row['label']:8} predicted {row['predicted']:8} {row['p']:.2f}  {row['text']}")
    rates = behaviour.failure_rates(lambda texts: sigmoid(served.logits(texts)), served.neutral_margin)
    print(f"behaviour: mean failure {np.mean(list(rates.values())):.3f}")
    for name, rate in rates.items():
        print(f"  {rate:.2f}  {name}")
    if arguments.data is not None:
        for name, data in corpora.read_all(arguments.data).items():
            if any(row.split == "test" and row.target is not None for row in data):
                print(name, {key: round(value, 3) for key, value in ablate(served, data).items()}, flush=True)
    return 0
