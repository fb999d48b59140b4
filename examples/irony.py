"""Measure how often `sentiment` misreads irony, by twenty ironic tweets and twenty plain ones.

The plain ones are about the same things. They are in irony.csv with the label that their writer means, and no
model was trained on them. A neutral answer counts as wrong.

    python examples/irony.py [URL of a server]
"""

import csv
import sys
from collections.abc import Iterator
from pathlib import Path

from hardmax import Answer, Client, Local

TWEETS = Path(__file__).with_name("irony.csv")


def classify_tweets(url: str | None = None) -> list[tuple[dict[str, str], Answer]]:
    """Return each row of the file with its answer."""
    with TWEETS.open(newline="") as file, Client(url) if url else Local() as hardmax:
        rows = list(csv.DictReader(file))
        return list(zip(rows, hardmax.classify([row["tweet"] for row in rows]), strict=True))


def report(answers: list[tuple[dict[str, str], Answer]]) -> Iterator[str]:
    """Yield the number of right, wrong and abstaining answers of each kind, then the wrong ones."""
    sure = [(row, answer) for row, answer in answers if answer.abstain_reason is None]
    wrong = [(row, answer) for row, answer in sure if answer.label != row["label"]]
    share = {}
    for kind in ("plain", "ironic"):
        n, n_sure, n_wrong = (sum(row["kind"] == kind for row, _ in rows) for rows in (answers, sure, wrong))
        share[kind] = (n_sure - n_wrong) / n
        yield f"{kind:7}{n_sure - n_wrong:3} of {n} right, {n_wrong} wrong, {n - n_sure} abstain"
    yield f"irony costs {100 * (share['plain'] - share['ironic']):.0f} points"
    for row, answer in wrong:
        yield f"  {answer.label}, means {row['label']}: {row['tweet']}"


if __name__ == "__main__":
    print("\n".join(report(classify_tweets(*sys.argv[1:2]))))
