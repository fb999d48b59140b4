"""Answers with leaders, compared to the bit: alone, in any batch, with two threads, after a reload.

python -m benchmarks.equality [--texts 20000] [--quick]
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from hashlib import sha256

import orjson

from benchmarks.peers.sentiment import Classifier
from benchmarks.record import PRETRAINED, Record, arguments
from benchmarks.reviews import reviews

LENGTHS = (1, 3, 6, 10, 15, 22, 22, 22, 30, 60)  # words; and one text in two hundred is long
LONG = 600
MOST = 64  # texts of a batch


def texts_of(count: int) -> list[str]:
    """Texts of many lengths, drawn so that all are different but the shortest."""
    each = count // len(LENGTHS) + 1
    texts = [text for i, words in enumerate(LENGTHS) for text in reviews(words, each, seed=i)]
    texts = texts[: count - count // 200] + reviews(LONG, count // 200)
    random.Random(0).shuffle(texts)
    return texts


def digests(model: Classifier, texts: Sequence[str]) -> list[bytes]:
    answers = model.classify(texts)
    return [sha256(orjson.dumps({**answer, "index": 0})).digest() for answer in answers]


def batches(count: int, seed: int) -> Iterator[list[int]]:
    """All texts, in an order and in batches of sizes drawn anew."""
    draw = random.Random(seed)
    order = list(range(count))
    draw.shuffle(order)
    while order:
        size = draw.randint(2, MOST)
        yield order[:size]
        del order[:size]


def differing(model: Classifier, texts: Sequence[str], alone: Sequence[bytes], seed: int) -> int:
    """How many answers are not the same as alone."""
    found = 0
    for batch in batches(len(texts), seed):
        again = digests(model, [texts[i] for i in batch])
        found += sum(alone[i] != digest for i, digest in zip(batch, again, strict=True))
    return found


def main() -> None:
    options = arguments(__doc__, texts=(20_000, "that are compared")).parse_args()
    texts = texts_of(200 if options.quick else options.texts)
    record = Record("equality", "Same answer in any batch", ["onnxruntime", "numpy"], PRETRAINED)
    table = record.table("differing", "Answers that depend on the batch", unit="answers", better="neither")
    first = Classifier()
    alone = [digest for text in texts for digest in digests(first, [text])]
    ways = {
        "in any batch": lambda: first,
        "two threads, in any batch": lambda: Classifier(threads=2),
        "loaded again, in any batch": Classifier,
    }
    for seed, (way, model) in enumerate(ways.items()):
        table.add("ours", {"texts": len(texts), "way": way}, [differing(model(), texts, alone, seed)])
    record.note(
        f"{len(set(alone)):,} different answers, whole as JSON. "
        f"Texts of 1 to {LONG} words, batches of 2 to {MOST}."
    )
    record.keep(quick=options.quick)


if __name__ == "__main__":
    main()
