"""Which words a model knows, and which are folded: names, groups of people.

A name is a word that is written with a capital inside sentences nearly always: people, places, peoples,
faiths. It is counted, not listed. The groups of people that are written small are listed below.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from service.texts.reader import SPECIAL, Lists, pieces, plain, scan

ALWAYS, SOMETIMES = 0.85, 0.3  # share of capitals inside sentences
LEAST = 3  # times a name is seen

# Written small, or in both ways: orientations, origins, faiths.
GROUPS = frozenset(
    """gay gays lesbian lesbians bisexual bisexuals homosexual homosexuals heterosexual heterosexuals
    straight queer asexual transgender transsexual trans cisgender nonbinary black blacks white whites
    asian asians hispanic hispanics latino latina latinos latinas caucasian caucasians african arab
    arabs jew jews jewish christian christians muslim muslims moslem islamic hindu hindus buddhist
    buddhists sikh sikhs catholic catholics protestant protestants mormon mormons atheist atheists
    agnostic agnostics baptist evangelical orthodox secular immigrant immigrants refugee refugees
    foreigner foreigners gypsy gypsies aboriginal indigenous""".split()
)


class Count:
    """How often words occur, and how often with a capital inside a sentence that is not all capitals."""

    def __init__(self) -> None:
        self.all: Counter[str] = Counter()
        self.upper: Counter[str] = Counter()
        self.lower: Counter[str] = Counter()

    def add(self, texts: Iterable[str], *, cased: bool, weight: int = 1) -> None:
        """`cased` texts are written with the usual capitals; those of others tell nothing of names."""
        surfaces: Counter[str] = Counter()
        for text in texts:
            inside = False
            for surface, _, _, kind in scan(text):
                if kind == "word":
                    surfaces[surface if inside and cased else surface.lower()] += 1
                    if inside and cased and not (len(surface) > 1 and surface.isupper()):
                        (self.upper if surface[0].isupper() else self.lower)[surface.lower()] += 1
                elif kind != "number":
                    surfaces[surface] += 1
                inside = surface not in ".!?:…"
        for surface, times in surfaces.items():
            for piece, _, _ in pieces(plain(surface)):
                self.all[piece] += weight * times

    def names(self, low: float, high: float) -> set[str]:
        """Words whose share of capitals is in (low, high]."""
        found = set()
        for word, times in self.upper.items():
            share = times / (times + self.lower[word])
            if times >= LEAST and low < share <= high and len(word) > 1 and "'" not in word:
                found.add(plain(word))
        return found


def choose(count: Count, known: Sequence[str], rated: Mapping[str, float], size: int) -> Lists:
    """The words a model knows, most frequent first: of the texts, rated ones, then the first of `known`."""
    names = {word for word in count.names(ALWAYS, 1.0) if abs(rated.get(word, 0.0)) < 1}
    sometimes = count.names(SOMETIMES, ALWAYS)
    out = names | GROUPS
    rank = {word: i for i, word in enumerate(known)}
    seen = [w for w, n in count.all.most_common() if w not in out and (n >= 4 or (n >= 2 and w in rated))]
    seen = [w for w in seen if w in rank or w in rated or count.all[w] >= 12]
    extra = [
        w
        for w in rated
        if w not in out and w not in set(seen) and (rank.get(w, 10**9) < 100_000 or not w.isalpha())
    ]
    more = [w for w in known if w.isalpha() and w.isascii() and w not in out and w not in count.all]
    room = max(0, size - len(SPECIAL) - len(extra))
    words = [*seen[:room], *extra]
    words += more[: max(0, size - len(SPECIAL) - len(words))]
    return Lists((*SPECIAL, *words), names - GROUPS, sometimes, GROUPS)
