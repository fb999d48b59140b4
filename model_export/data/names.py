"""Find the names among the words of a corpus: people, countries and cities, nations, religions.

A name is a word that is nearly always capitalized inside sentences, or that blind_words.py found in WordNet
and CLDR. Words for groups of people that are written in lower case are listed here.
"""

import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from service.text.tokenizer import Vocabulary, normalize_word, scan_words

LATIN_END = 0x250  # code points below are Latin letters
NAME_SHARE, AMBIGUOUS_NAME_SHARE = 0.85, 0.3  # capitalized occurrences, of those inside sentences
MIN_OCCURRENCES = 3  # of a name

# Orientations, genders, origins and beliefs, which are written in lower case too. Some have another meaning
# ("white wine", "a straight road"): they are folded all the same, since these rarely bear an opinion.
GROUPS = frozenset(
    """gay gays lesbian lesbians bisexual bisexuals homosexual homosexuals heterosexual heterosexuals
    straight queer queers asexual asexuals pansexual pansexuals intersex transgender transgendered transsexual
    transsexuals trans cisgender nonbinary lgbt lgbtq black blacks white whites caucasian caucasians
    asian asians hispanic hispanics latino latina latinos latinas african aborigine aborigines
    arab arabs jew jews jewish christian christians muslim muslims moslem moslems islamic hindu hindus
    buddhist buddhists sikh sikhs catholic catholics protestant protestants mormon mormons atheist atheists
    agnostic agnostics baptist baptists evangelical evangelicals orthodox secular quaker quakers
    pentecostal pentecostals immigrant immigrants refugee refugees
    foreigner foreigners gypsy gypsies gipsy gipsies aboriginal indigenous""".split()
)

FIRST_WORD = 106  # in BERT's vocabulary; special and unused tokens precede it


def is_english_token(token_id: int, token: str) -> bool:
    """Return whether a token of BERT's vocabulary may occur in English: Latin letters, digits and marks.

    Tokens of a digit and more may not, because the tokenizer replaces every word with a digit by one special
    token. Single digits may, for emoticons such as "<3". A mark is a word of its own, never the end of one.
    """
    text = token.removeprefix("##")
    if token_id < FIRST_WORD or token.startswith("[unused") or not text:
        return token_id < FIRST_WORD
    if len(text) > 1 and any(map(str.isdigit, text)):
        return False
    if token.startswith("##") and not any(map(str.isalnum, text)):
        return False
    return all(ord(c) < LATIN_END or unicodedata.category(c)[0] in "PS" for c in text)


def make_vocabulary(cased: Iterable[str], tokens: Sequence[str]) -> Vocabulary:
    """Return the vocabulary: the tokens, and the names in texts with the usual capitals."""
    upper: Counter[str] = Counter()
    lower: Counter[str] = Counter()
    for text in cased:
        inside_sentence = False
        for surface, _, _, kind in scan_words(text):
            if kind == "word" and inside_sentence and not (len(surface) > 1 and surface.isupper()):
                (upper if surface[0].isupper() else lower)[normalize_word(surface)] += 1
            inside_sentence = surface[-1] not in ".!?:…"
    shares = {
        word: count / (count + lower[word])
        for word, count in upper.items()
        if count >= MIN_OCCURRENCES and len(word) > 1 and "'" not in word
    }
    names = {word for word, share in shares.items() if share > NAME_SHARE} | _read_words("places")
    ambiguous = {word for word, share in shares.items() if AMBIGUOUS_NAME_SHARE < share <= NAME_SHARE}
    groups = GROUPS | _read_words("groups")
    ambiguous = (ambiguous | _read_words("ambiguous")) - groups
    return Vocabulary(tokens, names - groups - ambiguous, ambiguous, groups)


def _read_words(name: str) -> set[str]:
    """Return a list that blind_words.py made."""
    return set((Path(__file__).parent / f"{name}.txt").read_text(encoding="utf-8").split())
