"""Find the names among the words of a corpus. Groups of people that are written in lower case are listed.

A name is a word that nearly always has a capital inside sentences: people, countries and cities, nations,
religions.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence

from service.text.tokenizer import Vocabulary, normalize_word, scan_words

LATIN = 0x250  # code points below are of Latin letters
NAME_SHARE, AMBIGUOUS_NAME_SHARE = 0.85, 0.3  # of the occurrences inside sentences that have a capital
MIN_OCCURRENCES = 3  # of a name

# Written in lower case, or in both ways: orientations, origins, religions.
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


def is_english_token(token_id: int, token: str) -> bool:
    """Return whether a token of BERT's vocabulary may occur in English: Latin letters, digits and marks.

    Tokens of two digits or more do not: the tokenizer replaces every number by one special token. Single
    digits stay, for emoticons such as "<3".
    """
    text = token.removeprefix("##")
    if token_id < FIRST_WORD or token.startswith("[unused") or not text:
        return token_id < FIRST_WORD
    if text.isdigit() and len(text) > 1:
        return False
    return all(ord(c) < LATIN or unicodedata.category(c)[0] in "PS" for c in text)


def make_vocabulary(cased: Iterable[str], tokens: Sequence[str]) -> Vocabulary:
    """Return the vocabulary: the tokens, and the names found in texts with the usual capitals."""
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
    names = {word for word, often in share.items() if often > NAME_SHARE}
    ambiguous = {word for word, often in share.items() if AMBIGUOUS_NAME_SHARE < often <= NAME_SHARE}
    return Vocabulary(tokens, names - GROUPS, ambiguous, GROUPS)
