"""Which words are names: counted, not listed. The groups of people that are written small are listed.

A name is a word that is written with a capital inside sentences nearly always: people, places, peoples,
faiths.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence

from service.text.tokenizer import Vocabulary, normalize_word, scan_words

LATIN = 0x250  # code points below are of Latin letters
ALWAYS, SOMETIMES = 0.85, 0.3  # share of capitals inside sentences
MIN_OCCURRENCES = 3  # times a name is seen

# Written small, or in both ways: orientations, origins, faiths.
GROUPS = frozenset(
    """gay gays lesbian lesbians bisexual bisexuals homosexual homosexuals heterosexual heterosexuals
    straight queer asexual transgender transsexual trans cisgender nonbinary black blacks white whites
    asian asians hispanic hispanics latino latina latinos latinas caucasian caucasians african
    arab arabs jew jews jewish christian christians muslim muslims moslem islamic hindu hindus buddhist
    buddhists sikh sikhs catholic catholics protestant protestants mormon mormons atheist atheists
    agnostic agnostics baptist evangelical orthodox secular immigrant immigrants refugee refugees
    foreigner foreigners gypsy gypsies aboriginal indigenous""".split()
)


FIRST_WORD = 106  # what comes before in BERT's vocabulary are special and unused tokens


def is_kept(token_id: int, token: str) -> bool:
    """Whether a token of BERT's vocabulary may occur in English: Latin letters, digits and marks."""
    text = token.removeprefix("##")
    if token_id < FIRST_WORD or token.startswith("[unused") or not text:
        return token_id < FIRST_WORD
    return all(ord(c) < LATIN or unicodedata.category(c)[0] in "PS" for c in text)


def lists(cased: Iterable[str], pieces: Sequence[str]) -> Vocabulary:
    """What a reader folds, from texts written with the usual capitals."""
    upper: Counter[str] = Counter()
    lower: Counter[str] = Counter()
    for text in cased:
        inside = False
        for surface, _, _, kind in scan_words(text):
            if kind == "word" and inside and not (len(surface) > 1 and surface.isupper()):
                (upper if surface[0].isupper() else lower)[normalize_word(surface)] += 1
            inside = surface[-1] not in ".!?:…"
    share = {
        word: times / (times + lower[word])
        for word, times in upper.items()
        if times >= MIN_OCCURRENCES and len(word) > 1 and "'" not in word
    }
    names = {word for word, often in share.items() if often > ALWAYS}
    sometimes = {word for word, often in share.items() if SOMETIMES < often <= ALWAYS}
    return Vocabulary(pieces, names - GROUPS, sometimes, GROUPS)
