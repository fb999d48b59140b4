"""`python -m benchmarks.figures`: puts what was measured into the sentences and tables that quote it.

The documents below are written by hand, but no figure of theirs that a program measured is: each
stands in quotes.py as the text around it, with {} where the figure goes. A test holds that the
documents quote results/*.json as they are. It changes no word, and knows no figure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.quotes import operations, readme, reliability, scale
from benchmarks.record import read_results
from benchmarks.values import Results

ROOT = Path(__file__).parents[1]
DOCUMENTS = {
    "README.md": readme,
    "docs/operations.md": operations,
    "docs/scale.md": scale,
    "docs/reliability.md": reliability,
}


@dataclass(frozen=True)
class Missing(Exception):
    """A sentence that the document no longer has, or has twice."""

    template: str
    times: int

    def __str__(self) -> str:
        return f"stands {self.times} times in the document, not once: {self.template}"


def filled(document: str, quotes: Iterator[tuple[str, tuple[str, ...]]]) -> str:
    """The document with the figures of every quote in their places."""
    for template, figures in quotes:
        found = list(pattern(template).finditer(document))
        if len(found) != 1:
            raise Missing(template, len(found))
        [place] = found
        for number in range(len(figures), 0, -1):
            start, end = place.span(number)
            document = document[:start] + figures[number - 1] + document[end:]
    return document


def pattern(template: str) -> re.Pattern[str]:
    """The template as it may be broken into lines; a figure never is."""
    words = (r"([^\n|]+?)".join(map(re.escape, word.split("{}"))) for word in template.split())
    return re.compile(r"\s+".join(words))


def main(root: Path = ROOT) -> None:
    results = Results(read_results(root / "results"))
    for name, quotes in DOCUMENTS.items():
        path = root / name
        path.write_text(filled(path.read_text(), quotes(results)))


if __name__ == "__main__":
    main()
