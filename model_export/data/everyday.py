"""The everyday sentences of this project: three labels, and for some of them the words that decide.

Neighbouring lines of a file are near twins, so blocks of lines share a split; the files of everyday/training
are of the train split alone. Files and limits are described in everyday/README.md.
"""

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from model_export.data.corpora import Row, Rows

FOLDER = Path(__file__).parent / "everyday"
BLOCK_LINES = 12  # neighbouring lines that stay together
BLOCKS_PER_ROUND, VALIDATION_BLOCK, TEST_BLOCK = 12, 11, 5
TARGETS = {"negative": 0.0, "neutral": 0.5, "positive": 1.0}
SIDES = NEGATIVE, POSITIVE = -1, 1
MARKS = RATIONALES, TWO_SIDED = "rationales.tsv", "two_sided.tsv"
NO_WORDS = "-"  # in place of a list of words


@dataclass(frozen=True)
class Sentence(Row):
    """A labelled sentence, what kind it is, and the words that decide, if they are marked."""

    kind: str = ""
    marks: Mapping[int, tuple[str, ...]] = field(default_factory=dict)  # the words of each side


def read_everyday(folder: Path = FOLDER) -> Rows:
    """Return all sentences of the folder, with their splits."""
    marks = dict(_read_marks(folder))
    files = [path for path in sorted(folder.glob("*.tsv")) if path.name not in MARKS]
    return [
        Sentence(text, TARGETS[label], split, kind, marks.get(text, {}))
        for path in (*files, *sorted(folder.glob("training/*.tsv")))
        for line, (text, label, kind) in enumerate(_read_lines(path))
        for split in [_split_of(line) if path.parent == folder else "train"]
    ]


def _split_of(line: int) -> str:
    block = line // BLOCK_LINES % BLOCKS_PER_ROUND
    return {VALIDATION_BLOCK: "validation", TEST_BLOCK: "test"}.get(block, "train")


def _read_marks(folder: Path) -> Iterator[tuple[str, Mapping[int, tuple[str, ...]]]]:
    """Yield each text whose deciding words are marked, with the words of each side."""
    for text, label, words in _read_lines(folder / RATIONALES):
        yield text, {POSITIVE if label == "positive" else NEGATIVE: tuple(words.split())}
    for text, _, positive, negative in _read_lines(folder / TWO_SIDED):
        sides = {POSITIVE: positive, NEGATIVE: negative}
        yield text, {side: tuple(words.split()) for side, words in sides.items() if words != NO_WORDS}


def _read_lines(path: Path) -> list[list[str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
