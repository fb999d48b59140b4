"""By how much does the model miss irony? It is asked about twenty ironic tweets and twenty plain ones.

They stand in irony.csv with the side that their writer means, and were written before the model had seen any
of them. The plain ones are about the same things, in the same words.

    python examples/irony.py [URL of a server]
"""

import csv
import sys
from collections.abc import Iterator
from pathlib import Path

from hardmax import Answer, Client, Local

TWEETS = Path(__file__).with_name("irony.csv")


def judged(url: str | None = None) -> list[tuple[dict[str, str], Answer]]:
    """Each row of the file with its answer."""
    with TWEETS.open(newline="") as file, Client(url) if url else Local() as hardmax:
        rows = list(csv.DictReader(file))
        return list(zip(rows, hardmax.classify([row["tweet"] for row in rows]), strict=True))


def report(found: list[tuple[dict[str, str], Answer]]) -> Iterator[str]:
    """How many of each kind are right, wrong and undecided; then what is wrong."""
    decided = [(row, answer) for row, answer in found if answer.abstain_reason is None]
    wrong = [(row, answer) for row, answer in decided if answer.label != row["label"]]
    share = {}
    for kind in ("plain", "ironic"):
        every, sure, off = (sum(row["kind"] == kind for row, _ in rows) for rows in (found, decided, wrong))
        share[kind] = (sure - off) / every
        yield f"{kind:7}{sure - off:3} of {every} right, {off} wrong, {every - sure} undecided"
    yield f"irony costs {100 * (share['plain'] - share['ironic']):.0f} points"
    for row, answer in wrong:
        yield f"  {answer.verdict}, means {row['label']}: {row['tweet']}"


if __name__ == "__main__":
    print("\n".join(report(judged(*sys.argv[1:2]))))
