"""Reviews of exact lengths, joined from those of examples/reviews.csv."""

import csv
import random
from itertools import chain, islice, repeat

from benchmarks.record import ROOT


def reviews(words: int, count: int, seed: int = 0) -> list[str]:
    """Return `count` texts of exactly `words` words each, the same for the same seed."""
    rng = random.Random(f"{words}/{seed}")
    with open(ROOT / "examples/reviews.csv", encoding="utf-8") as file:
        rows = [row["review"].split() for row in csv.DictReader(file)]
    return [" ".join(islice(chain.from_iterable(map(rng.choice, repeat(rows))), words)) for _ in range(count)]
