"""Format text and numbers for people, in terminals and in notebooks."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

# control characters, marks that change the direction of writing, and lone surrogates
UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
# Colours of clusters, the largest first, on the page, in notebooks and in plots.
CLUSTER_COLORS = ("#2f86cf", "#d96920", "#1f9d7c", "#c0549c", "#a98300", "#7a70d8", "#cc4b50", "#4b97b0")


def printable(text: str) -> str:
    """Return the text with U+FFFD in place of characters that control a terminal, and plain line ends."""
    return UNPRINTABLE.sub("\ufffd", text.replace("\r\n", "\n"))


def describe_os_error(error: OSError) -> str:
    """Return the file and the reason of an error, without its number."""
    reason = error.strerror or str(error)
    return f"{error.filename}: {reason}" if error.filename else reason


def naming_words(words: Iterable[str]) -> list[str]:
    """Return the words of a cluster, each once, without punctuation marks unless there is nothing else."""
    distinct = list(dict.fromkeys(words))
    return [word for word in distinct if not _is_punctuation(word)] or distinct


def _is_punctuation(word: str) -> bool:
    return all(unicodedata.category(letter).startswith("P") for letter in word)


def format_signed(value: float) -> str:
    """Return a number with its sign and three decimals; never -0.000."""
    return f"{round(value, 3) + 0.0:+.3f}"


def shorten(text: str, length: int) -> str:
    """Return the text, cut to `length` characters with an ellipsis."""
    return text if len(text) <= length else text[: length - 1] + "…"


def pluralize(number: int, noun: str) -> str:
    """Return the number with its noun: 1 leader, 2 leaders."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
