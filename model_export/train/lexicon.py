"""What people said single words, emoticons and emoji are worth: VADER's list (Hutto and Gilbert 2014, MIT).

It is read from the installed package vaderSentiment; ten people rated each entry from -4 to 4. Only the two
lists are used: none of the package's rules or code.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from service.errors import NotFound, needs
from service.texts.reader import face, pieces, plain, scan

WORDS, EMOJI = "vaderSentiment/vader_lexicon.txt", "vaderSentiment/emoji_utf8_lexicon.txt"


def ratings() -> dict[str, float]:
    """Each rated word, emoticon and emoji as the reader spells it, from -4 to 4."""
    rated: dict[str, list[float]] = {}
    for line in _lines(WORDS):
        entry, rating, *_ = line.split("\t")
        for surface, start, end, kind in scan(entry):
            if (start, end) == (0, len(entry)):
                spelt = face(surface) if kind == "face" else plain(surface)
                if kind == "face" or (kind == "word" and len(pieces(spelt)) == 1):
                    rated.setdefault(spelt, []).append(float(rating))
    words = {word: sum(some) / len(some) for word, some in rated.items()}
    for line in _lines(EMOJI):
        emoji, _, said = line.partition("\t")
        found = [words[w] for w in said.replace("-", " ").split() if w in words]
        if len(emoji) == 1 and found:
            words[emoji] = max(found, key=abs)
    return words


def _lines(name: str) -> list[str]:
    try:
        path = Path(str(distribution("vaderSentiment").locate_file(name)))
    except PackageNotFoundError:
        raise NotFound(
            needs("the list of rated words", "vaderSentiment", "export"), param="lexicon"
        ) from None
    return [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
