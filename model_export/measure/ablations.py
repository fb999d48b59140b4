"""What a served model reads: with whole sentences, without their order, without anybody to follow.

    hardmax-export ablations MODELS --data DATA

    ordinary    as the service answers
    shuffled    the words of each text in any order: a reader of order must lose
    alone       every piece read by itself: its heads can follow nobody
    leaders     the text cut to its leaders with two words on either side
    read        the share of its passage that a word has read, at the median

All on the split `report`, from the two bundles in MODELS, as the service loads them.
"""

from __future__ import annotations

import argparse
import csv
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model_export.data import corpora
from model_export.measure import behaviour
from model_export.measure.scores import balanced, neutral_band, score, sigmoid, three_labels
from service.runtime.bundle import read_bundle
from service.runtime.session import Runtime
from service.text.decision import UNITS_PER_LOGIT
from service.text.encoder import EncodedText, Encoder
from service.text.head import Head, run_heads
from service.text.tokenizer import Ints, TokenizedText

EVERYDAY = Path(__file__).with_name("everyday.tsv")
ABLATED_TEXTS_PER_SET = 400  # of each data set
AROUND = 2  # words on either side of a leader

Cut = Callable[[TokenizedText], list[tuple[Ints, Ints]]]


class Served:
    """A reader and a head as the service loads them, and what passages of a text are shown to them."""

    def __init__(self, models: Path, head: str) -> None:
        runtime = Runtime("cpu", 2)
        bundle = read_bundle(models / head)
        self.reader = Encoder.load(read_bundle(models / bundle.card["encoder"]["name"]), runtime)
        self.head = Head.load(bundle, runtime, self.reader)
        threshold = bundle.card.get("neutral_threshold")
        self.even = float(bundle.card["even"]) if threshold is None else neutral_band(threshold)

    def logits(self, texts: Sequence[str], cut: Cut = TokenizedText.chunks) -> NDArray[np.float64]:
        return served_logits(self.reader, self.head, texts, cut)


def served_logits(
    reader: Encoder, head: Head, texts: Sequence[str], cut: Cut = TokenizedText.chunks
) -> NDArray[np.float64]:
    """Of a head of two labels."""
    read = []
    for text in texts:
        reading = reader.tokenize(text)
        read.append(EncodedText(reading, reader.encode(cut(reading), output_attentions=False)))
    found = np.full(len(texts), head.bias[0, 0] / UNITS_PER_LOGIT)
    for _, places, outputs in run_heads([head], read, explain=False):
        found[places] = outputs.logit[0] / UNITS_PER_LOGIT
    return found


def pieces_alone(reading: TokenizedText) -> list[tuple[Ints, Ints]]:
    return list(zip(reading.token_ids[:, None], reading.position_ids[:, None], strict=True))


def shuffled(text: str, draw: random.Random) -> str:
    words = text.split()
    draw.shuffle(words)
    return " ".join(words)


def read_and_led(served: Served, texts: Sequence[str]) -> tuple[list[float], list[str]]:
    """The share of its passage that each word has read; each text cut to its leaders and their neighbours."""
    shares: list[float] = []
    cuts: list[str] = []
    for text in texts:
        reading = served.reader.tokenize(text)
        seen = served.reader.encode(reading.chunks(), output_attentions=True)
        for each in seen:
            assert each.receptive_fields is not None
            size = each.receptive_fields.shape[1]
            shares += [int(read).bit_count() / size for read in each.receptive_fields[-1].tolist()]
        ((_, _, outputs),) = run_heads([served.head], [EncodedText(reading, seen)], explain=True)
        assert outputs.target is not None
        leaders = np.unique(outputs.target[outputs.target >= 0])
        kept = np.zeros(len(reading), bool)
        for leader in leaders.tolist():
            kept[max(0, leader - AROUND) : leader + AROUND + 1] = True
        cuts.append(
            " ".join(text[reading.starts[i] : reading.ends[i]] for i in np.flatnonzero(kept).tolist())
        )
    return shares, cuts


def of_set(served: Served, rows: corpora.Rows) -> dict[str, float]:
    draw = random.Random(0)
    rows = [row for row in rows if row.split == "report" and row.target is not None]
    draw.shuffle(rows)
    rows = rows[:ABLATED_TEXTS_PER_SET]
    texts, targets = [row.text for row in rows], np.array([row.target for row in rows])
    sided = targets != 0.5
    truth = targets[sided] > 0.5
    ordinary = served.logits(texts)
    shares, cuts = read_and_led(served, texts)
    others = {
        "shuffled": served.logits([shuffled(text, draw) for text in texts]),
        "alone": served.logits(texts, pieces_alone),
    }
    led = served.logits(cuts)
    found = {
        "texts": float(sided.sum()),
        "ordinary": balanced(ordinary[sided] > 0, truth),
        **{name: balanced(logits[sided] > 0, truth) for name, logits in others.items()},
        "same verdict from leaders": float(((led > 0) == (ordinary > 0)).mean()),
        "read": float(np.median(shares)),
        "calibration error": score(ordinary[sided], truth).calibration_error,
    }
    if not sided.all():
        found["three labels"] = balanced(three_labels(sigmoid(ordinary), served.even), targets)
    return found


def everyday(served: Served) -> list[dict[str, Any]]:
    """One hundred sentences without a charged word, written before any model of this kind had read them."""
    with EVERYDAY.open(encoding="utf-8") as file:
        rows: list[dict[str, Any]] = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    for row, logit in zip(rows, served.logits([row["text"] for row in rows]).tolist(), strict=True):
        row["says"] = "positive" if logit > 0 else "negative"
        row["p"] = float(sigmoid(logit))
    return rows


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("models", type=Path, help="the folder of the bundles")
    parser.add_argument("--head", default="sentiment", help="the head that is asked (default: sentiment)")
    parser.add_argument("--data", type=Path, help="the folder of the data sets")


def run(arguments: argparse.Namespace) -> int:
    served = Served(arguments.models, arguments.head)
    rows = everyday(served)
    for label in ("negative", "positive"):
        mine = [row for row in rows if row["label"] == label]
        right = sum(row["says"] == label for row in mine)
        print(f"everyday, {label}: {right} of {len(mine)}")
    for row in rows:
        if row["says"] != row["label"]:
            print(f"  {row['label']:8} told {row['says']:8} {row['p']:.2f}  {row['text']}")
    failed = behaviour.failures(lambda texts: sigmoid(served.logits(texts)), served.even)
    print(f"behaviour: mean failure {np.mean(list(failed.values())):.3f}")
    for name, share in failed.items():
        print(f"  {share:.2f}  {name}")
    if arguments.data is not None:
        for name, data in corpora.read_all(arguments.data).items():
            if any(row.split == "report" and row.target is not None for row in data):
                print(name, {key: round(value, 3) for key, value in of_set(served, data).items()}, flush=True)
    return 0
