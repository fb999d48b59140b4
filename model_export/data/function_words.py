"""Function words and punctuation, which do not explain a label, so that they should not be leaders."""

import numpy as np
from numpy.typing import NDArray

from service.text.tokenizer import TokenizedText

FUNCTION_WORDS = frozenset(
    """
    a an the this that these those of in on at to for from with by about into over after before between
    under above up down out off as than then so such and or if but because while when where which who
    whom whose what how why i me my mine we us our you your he him his she her it its they them their
    there here is are was were be been being am do does did done have has had having will would can
    could shall should may might must also just very really too all any each both few more most other
    some own same one two three get got go went made make it's i'm i've that's
    """.split()
)
PUNCTUATION = frozenset(".,;:!?-\"'()[]/&*~…–—“”‘’")


def is_function_word(word: str) -> bool:
    """Return whether a word is a function word other than a negation, or a repeated punctuation mark."""
    return word.lower() in FUNCTION_WORDS or (word[0] in PUNCTUATION and len(set(word)) == 1)


def function_words(text: TokenizedText) -> NDArray[np.bool_]:
    """Return for each word of a text whether it is a function word."""
    spans = zip(text.starts.tolist(), text.ends.tolist(), strict=True)
    return np.array([is_function_word(text.text[start:end]) for start, end in spans], bool)
