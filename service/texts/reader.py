"""From a text to the words a model knows, and where each stands. Training and serving read with this alone.

One expression finds the tokens in a single pass: words of any script, numbers, marks, emoticons, emoji. Every
branch is linear. Markup, links and @handles make no token. Contractions come out in one form however they are
written: "isn't", "is n't", "isnt" and "is not" are all [is, not].

What must not change a verdict is folded: a name is NAME, a number NUMBER, a group of people GROUP, and a run
of the same one is a single token. A word that is not known is read as a near one, then as its ending.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice

import numpy as np
from numpy.typing import NDArray

from service.texts.chunks import CLOSED, NOTHING, OPEN, Chunks, Ints, Learnt, Token
from service.texts.near import LONGEST, NearWords, squeezed

PAD, UNKNOWN, NAME, NUMBER, GROUP = range(5)
ENDINGS = (
    "ingly", "ness", "less", "ful", "able", "ible", "ment", "tion", "ious", "ous", "ish", "ist", "ism", "ity",
    "ive", "est", "ing", "ly", "ed", "er", "al", "ic", "y", "s",
)  # fmt: skip
SPECIAL = ("<pad>", "<unknown>", "<name>", "<number>", "<group>", *(f"<~{ending}>" for ending in ENDINGS))
MOST = 2560  # tokens of a text that are read
LONGEST_WORD = 64  # letters; a longer run of letters is no word

_LETTERS = r"[^\W\d_](?:[^\W\d_]|[\u0300-\u036f])*"
_TOKEN = re.compile(
    rf"""
      (?P<skip> </?[a-z!][^<>]{{0,300}}> | (?:https?://|www\.)\S+ | @\w+ | &(?:\#\d{{1,7}}|[a-z]{{2,8}}); )
    | (?P<face> (?<!\w)[:;=]['’]?[-^o]?(?:[)(\]\[}}{{/\\|*]+|[DPpO3](?!\w)) | </?3(?!\w) )
    | (?P<word> ['’](?:s|m|d|re|ve|ll)\b | {_LETTERS}(?:['’]{_LETTERS})* )
    | (?P<number> \d+(?:[.,:/]\d+)*(?:(?:st|nd|rd|th|s)\b)? )
    | (?P<mark> [!?.,;:…] )
    | (?P<emoji> [\u2600-\u27bf\u2b50\u2b55\U0001f300-\U0001f3fa\U0001f400-\U0001faff] )
    """,
    re.VERBOSE | re.IGNORECASE,
)
_TAG = re.compile(r"</?[a-z!][^<>]{0,300}>", re.IGNORECASE)
MARKS = "!?.,;:…"
_ENDS = frozenset(".!?:…")

# Contractions. "'s" is "is" behind a pronoun and says nothing elsewhere.
_TAILS = {"'m": "am", "'re": "are", "'ve": "have", "'ll": "will", "'d": "would", "n't": "not"}
_HOSTS = frozenset("it that he she there here what who this how where".split())
_WHOLE = {
    "can't": "can not", "cannot": "can not", "cant": "can not", "won't": "will not", "wont": "will not",
    "shan't": "shall not", "ain't": "is not", "aint": "is not", "ca": "can", "wo": "will", "n't": "not",
    "let's": "let us",
    "im": "i am", "ive": "i have", "youre": "you are", "theyre": "they are", "thats": "that is",
}  # fmt: skip
_WHOLE |= {
    f"{verb}nt": f"{verb} not"
    for verb in "do does did is are was were has have had could would should need must".split()
}


def plain(surface: str) -> str:
    """Lower case, no accents, one kind of apostrophe."""
    if surface.isascii():
        return surface.lower()
    split = unicodedata.normalize("NFKD", surface.replace("’", "'").lower())
    return "".join(c for c in split if not unicodedata.combining(c))


def pieces(word: str) -> list[tuple[str, int, int]]:
    """A plain word as [(what it says, from, to)]: two for a contraction.

    >>> pieces("isn't")
    [('is', 0, 2), ('not', 2, 5)]
    """
    if whole := _WHOLE.get(word):
        first, *rest = whole.split()
        if not rest:
            return [(first, 0, len(word))]
        tail = next((tail for tail in ("n't", "nt") if word.endswith(tail)), word[len(first) :])
        cut = len(word) - len(tail)
        return [(first, 0, cut), (rest[0], cut, len(word))]
    if "'" not in word:
        return [(word, 0, len(word))]
    for tail, meaning in _TAILS.items():
        if word.endswith(tail):
            cut = len(word) - len(tail)
            return [*(pieces(word[:cut]) if cut else []), (meaning, cut, len(word))]
    if word.endswith("'s"):
        host, cut = word[:-2], len(word) - 2
        verb = [("is", cut, len(word))] if host in _HOSTS else []
        return [*(pieces(host) if host else []), *verb]
    return [(word, 0, len(word))]


def face(surface: str) -> str:
    """An emoticon without nose and repetition: ":-))" and "=]" are ":)"."""
    if "3" in surface and surface[0] == "<":
        return surface
    mouth = surface[-1].lower()
    mouth = {"]": ")", "}": ")", "[": "(", "{": "(", "\\": "/", "|": "/", "o": "/"}.get(mouth, mouth)
    return (";" if surface[0] == ";" else ":") + mouth


@dataclass(frozen=True, slots=True)
class Lists:
    """What a reader knows, as words.json keeps it. `words` in the order of their ids, SPECIAL first."""

    words: Sequence[str]
    names: Collection[str]  # written with a capital nearly always: read as NAME in either case
    sometimes: Collection[str]  # often a name: NAME when written with a capital inside a sentence
    groups: Collection[str]  # read as GROUP


def scan(text: str) -> Iterator[tuple[str, int, int, str]]:
    """(surface, start, end, kind) of every token of `text`."""
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup or ""
        if kind != "skip":
            yield match[0], match.start(), match.end(), kind


@dataclass(frozen=True, slots=True)
class Tokens:
    """The words of one text, and the code points [start, end) of the text that each was read from."""

    text: str
    ids: Ints
    starts: Ints
    ends: Ints
    truncated: bool  # whether the text has more

    def __len__(self) -> int:
        return len(self.ids)


class Reader:
    """Reads texts with fixed lists. Thread-safe.

    A text is cut at its blanks into chunks. How a chunk is read depends on the chunk alone and on whether a
    sentence begins with it. So each is read once and remembered, and most of a text is looked up at once.
    """

    def __init__(self, lists: Lists) -> None:
        self.words = lists.words
        self._id = {word: i for i, word in enumerate(lists.words) if i >= len(SPECIAL)}
        self._near = NearWords(["" if i < len(SPECIAL) else word for i, word in enumerate(lists.words)])
        self._endings = {ending: GROUP + 1 + i for i, ending in enumerate(ENDINGS)}
        self._id.update(dict.fromkeys(lists.names, NAME))
        self._id.update(dict.fromkeys(lists.groups, GROUP))
        self._sometimes = frozenset(lists.sometimes)
        self._chunks = Chunks()

    def read(self, text: str, most: int = MOST) -> Tokens:
        """The tokens of `text` in order, at most so many; linear in its length."""
        return self.read_all([text], most)[0]

    def read_all(self, texts: Sequence[str], most: int = MOST) -> list[Tokens]:
        """The same for many texts, faster than one by one."""
        if not texts:
            return []
        parts = [_blanked(text).split(" ", most) for text in texts]
        known, number = self._look_up(list(chain.from_iterable(parts)), most)
        count = np.fromiter(map(len, parts), np.int64, len(parts))
        last = np.cumsum(count) - 1  # the last chunk of each text
        first = last - count + 1

        row = 2 * number + _begins_sentence(known.state[number], first)
        size = known.size[row]
        end = np.cumsum(size)
        at = np.repeat(known.first[row] - end + size, size) + np.arange(end[-1])
        ids, starts, ends = known.tokens[at].T.astype(np.int64)
        length = known.length[number] + 1
        begin = np.cumsum(length) - length  # where each chunk begins in its text
        begin = np.repeat(begin - np.repeat(begin[first], count), size)
        return _tokens(texts, ids, begin + starts, begin + ends, end[last], most)

    def _look_up(self, chunks: list[str], most: int) -> tuple[Chunks, Ints]:
        """What is known, and the number in it of every chunk; those that are new are read first."""
        known = self._chunks
        if known.is_full:
            known = self._chunks = Chunks()
        number = known.look_up(chunks)
        new = np.flatnonzero(number < 0)
        if len(new):
            unread = [chunks[i] for i in new.tolist()]
            known.learn({chunk: self._read_chunk(chunk, most) for chunk in dict.fromkeys(unread)})
            number[new] = known.look_up(unread)
        return known, number

    def _read_chunk(self, chunk: str, most: int) -> Learnt:
        """The tokens of a chunk inside a sentence and at the beginning of one; what it does to a sentence."""
        word = chunk.rstrip(MARKS)
        if not word.isalpha():
            found = list(islice(scan(chunk), most + 1))
            inside = self._read_found(found, True)
            begins = inside if chunk.islower() else self._read_found(found, False)
            return inside, begins, (CLOSED if found[-1][0] in _ENDS else OPEN) if found else NOTHING
        # most chunks: a word, and marks behind it
        number = None if word in _WHOLE else self._id.get(word)
        inside = [(number, 0, len(word))] if number is not None else self._read_word(word, 0, True)
        begins = inside if word.islower() else self._read_word(word, 0, False)
        if len(word) < len(chunk):
            marks = [(self._id.get(chunk[i], UNKNOWN), i, i + 1) for i in range(len(word), len(chunk))][:most]
            inside, begins = inside + marks, inside + marks if begins is inside else begins + marks
        return inside, begins, CLOSED if chunk[-1] in _ENDS else OPEN

    def _read_found(self, found: list[tuple[str, int, int, str]], inside: bool) -> list[Token]:
        tokens: list[Token] = []
        for surface, start, end, kind in found:
            if kind == "number":
                tokens.append((NUMBER, start, end))
            elif kind == "word":
                tokens += self._read_word(surface, start, inside)
            else:
                spelt = face(surface) if kind == "face" else surface
                tokens.append((self._id.get(spelt, UNKNOWN), start, end))
            inside = surface not in _ENDS
        return tokens

    def _read_word(self, surface: str, start: int, inside: bool) -> list[Token]:
        """The tokens of one word: two for a contraction."""
        end = start + len(surface)
        if len(surface) > LONGEST_WORD:
            return [(UNKNOWN, start, end)]
        tokens = []
        capital = inside and surface[0].isupper() and not (len(surface) > 1 and surface.isupper())
        for word, begin, stop in pieces(plain(surface)):
            number = self._id.get(word)
            if capital and begin == 0 and (number is None or word in self._sometimes):
                number = NAME
            if number is None:
                number = self.near(word)
            # subtle: some letters become several without their accents, so a part may seem to end later
            tokens.append((number, min(start + begin, end), min(start + stop, end)))
        return tokens

    def near(self, word: str) -> int:
        """What a word that is not known is read as: squeezed, one edit away, its ending, UNKNOWN."""
        if len(word) <= LONGEST:
            for short in squeezed(word):
                if short != word and len(short) > 1 and short in self._id:
                    return self._id[short]
            number = self._near.find(word)
            if number is not None:
                return number
        if len(word) > 4:
            for ending, number in self._endings.items():
                if word.endswith(ending):
                    return number
        return UNKNOWN


def _blanked(text: str) -> str:
    """The same places, with blanks for every blank and for markup, which may hold blanks itself."""
    text = text.replace("\n", " ").replace("\t", " ").replace("\r", " ").replace("\xa0", " ")
    return _TAG.sub(lambda tag: " " * len(tag[0]), text) if "<" in text else text


def _begins_sentence(state: NDArray[np.int8], first: Ints) -> NDArray[np.bool_]:
    """[chunks] Whether a sentence begins with each. `first`: the chunks with which texts begin."""
    begins = np.zeros(len(state), np.bool_)
    told = np.flatnonzero(state)  # a chunk without a word or mark leaves a sentence as it is
    opens = np.ones(len(told) + 1, np.bool_)
    opens[1:-1] = state[told[:-1]] == CLOSED
    opens[np.searchsorted(told, first)] = True
    begins[told] = opens[:-1]
    return begins


def _tokens(
    texts: Sequence[str], ids: Ints, starts: Ints, ends: Ints, bounds: Ints, most: int
) -> list[Tokens]:
    """One `Tokens` a text, which end at `bounds`; a run of one folded class becomes a single token."""
    again = (ids[1:] == ids[:-1]) & (ids[1:] >= NAME) & (ids[1:] <= GROUP)
    if again.any():
        kept = np.concatenate(([True], ~again))
        kept[bounds[bounds < len(ids)]] = True
        places = np.flatnonzero(kept)
        ends = ends[np.append(places[1:], len(ids)) - 1]
        ids, starts = ids[places], starts[places]
        bounds = np.searchsorted(places, bounds)
    found, begin = [], 0
    for text, end in zip(texts, bounds.tolist(), strict=True):
        stop = min(end, begin + most)
        found.append(Tokens(text, ids[begin:stop], starts[begin:stop], ends[begin:stop], stop < end))
        begin = end
    return found
