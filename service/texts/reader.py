"""From a text to the words a model knows, and where each stands. Training and serving read with this alone.

One expression finds the tokens in a single pass: words of any script, numbers, marks, emoticons, emoji. Every
branch is linear. Markup, links and @handles make no token. Contractions come out in one form however they are
written: "isn't", "is n't", "isnt" and "is not" are all [is, not].

What must not change a verdict is folded: a name is NAME, a number NUMBER, a group of people GROUP, and a run
of the same one is a single token. A word that is not known is read as a near one, then as its ending.
"""

from __future__ import annotations

import re
import threading
import unicodedata
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice, repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.texts.near import LONGEST, NearWords, squeezed

PAD, UNKNOWN, NAME, NUMBER, GROUP = range(5)
ENDINGS = (
    "ingly", "ness", "less", "ful", "able", "ible", "ment", "tion", "ious", "ous", "ish", "ist", "ism", "ity",
    "ive", "est", "ing", "ly", "ed", "er", "al", "ic", "y", "s",
)  # fmt: skip
SPECIAL = ("<pad>", "<unknown>", "<name>", "<number>", "<group>", *(f"<~{ending}>" for ending in ENDINGS))
MOST = 2560  # tokens of a text that are read
LONGEST_WORD = 64  # letters; a longer run of letters is no word
PIECES = 1 << 17  # that are remembered; then all are forgotten
NOTHING, OPEN, CLOSED = range(3)  # what a piece does to the sentence: nothing, goes on with it, ends it

Part = tuple[int, int, int]  # id, start, end
Learnt = tuple[list[Part], list[Part], int]
Ints = NDArray[np.int64]

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

    A text is cut at its blanks, and each piece is read once and remembered: what it says depends on the piece
    alone and on whether a sentence begins with it. So most of a text is read by looking pieces up, all at
    once.
    """

    def __init__(self, lists: Lists) -> None:
        self.words = lists.words
        self._id = {word: i for i, word in enumerate(lists.words) if i >= len(SPECIAL)}
        self._near = NearWords(["" if i < len(SPECIAL) else word for i, word in enumerate(lists.words)])
        self._endings = {ending: 5 + i for i, ending in enumerate(ENDINGS)}
        self._id.update(dict.fromkeys(lists.names, NAME))
        self._id.update(dict.fromkeys(lists.groups, GROUP))
        self._sometimes = frozenset(lists.sometimes)
        self._memory = Memory()

    def read(self, text: str, most: int = MOST) -> Tokens:
        """The tokens of `text` in order, at most so many; linear in its length."""
        return self.read_all([text], most)[0]

    def read_all(self, texts: Sequence[str], most: int = MOST) -> list[Tokens]:
        """The same for many texts, faster than one by one."""
        if not texts:
            return []
        parts = [_blanked(text).split(" ", most) for text in texts]
        pieces = list(chain.from_iterable(parts))
        memory, number = self._look_up(pieces, most)
        count = np.fromiter(map(len, parts), np.int64, len(parts))
        last = np.cumsum(count) - 1  # the last piece of each text
        first = last - count + 1

        state = memory.state[number]
        told = np.flatnonzero(state)  # pieces without a word or mark leave a sentence as it is
        opens = np.ones(len(told) + 1, np.int64)
        opens[1:-1] = state[told[:-1]] == CLOSED
        opens[np.searchsorted(told, first)] = 1
        row = 2 * number
        row[told] += opens[:-1]

        size = memory.size[row]
        end = np.cumsum(size)
        at = np.repeat(memory.first[row] - end + size, size) + np.arange(end[-1])
        ids, starts, ends = memory.tokens[at].T.astype(np.int64)
        length = memory.length[number] + 1
        begin = np.cumsum(length) - length  # where each piece begins in its text
        begin = np.repeat(begin - np.repeat(begin[first], count), size)
        return _tokens(texts, ids, begin + starts, begin + ends, end[last], most)

    def _look_up(self, pieces: list[str], most: int) -> tuple[Memory, Ints]:
        """The memory, and the number in it of every piece; those that are new are read first."""
        memory = self._memory
        if memory.is_full:
            memory = self._memory = Memory()
        number = memory.look_up(pieces)
        new = np.flatnonzero(number < 0)
        if len(new):
            unread = [pieces[i] for i in new.tolist()]
            memory.learn({piece: self._read_piece(piece, most) for piece in dict.fromkeys(unread)})
            number[new] = memory.look_up(unread)
        return memory, number

    def _read_piece(self, piece: str, most: int) -> Learnt:
        """What a piece says inside a sentence, and at the beginning of one; whether it ends a sentence."""
        word = piece.rstrip(MARKS)
        if not word.isalpha():
            found = list(islice(scan(piece), most + 1))
            inside = self._say(found, True)
            begins = inside if piece.islower() else self._say(found, False)
            return inside, begins, (CLOSED if found[-1][0] in _ENDS else OPEN) if found else NOTHING
        # most pieces: a word, and marks behind it
        known = None if word in _WHOLE else self._id.get(word)
        inside = [(known, 0, len(word))] if known is not None else self._read_word(word, 0, True)
        begins = inside if word.islower() else self._read_word(word, 0, False)
        if len(word) < len(piece):
            marks = [(self._id.get(piece[i], UNKNOWN), i, i + 1) for i in range(len(word), len(piece))][:most]
            inside, begins = inside + marks, inside + marks if begins is inside else begins + marks
        return inside, begins, CLOSED if piece[-1] in _ENDS else OPEN

    def _say(self, found: list[tuple[str, int, int, str]], inside: bool) -> list[Part]:
        parts: list[Part] = []
        for surface, start, end, kind in found:
            if kind == "number":
                parts.append((NUMBER, start, end))
            elif kind == "word":
                parts += self._read_word(surface, start, inside)
            else:
                spelt = face(surface) if kind == "face" else surface
                parts.append((self._id.get(spelt, UNKNOWN), start, end))
            inside = surface not in _ENDS
        return parts

    def _read_word(self, surface: str, start: int, inside: bool) -> list[Part]:
        """The tokens of one word: two for a contraction."""
        end = start + len(surface)
        if len(surface) > LONGEST_WORD:
            return [(UNKNOWN, start, end)]
        parts = []
        capital = inside and surface[0].isupper() and not (len(surface) > 1 and surface.isupper())
        for word, begin, stop in pieces(plain(surface)):
            number = self._id.get(word)
            if capital and begin == 0 and (number is None or word in self._sometimes):
                number = NAME
            if number is None:
                number = self.near(word)
            # subtle: some letters become several without their accents, so a part may seem to end later
            parts.append((number, min(start + begin, end), min(start + stop, end)))
        return parts

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


class Memory:
    """What pieces were read as, in arrays: piece p has the rows 2 p (inside a sentence) and 2 p + 1 (first
    in it).

    It only grows: who looked a number up finds its rows, whatever others learn meanwhile.
    """

    def __init__(self) -> None:
        self.number: dict[str, int] = {}
        self.state = np.zeros(0, np.int8)  # [pieces]
        self.length = np.zeros(0, np.int64)
        self.first = np.zeros(0, np.int64)  # [rows], where a row's tokens begin
        self.size = np.zeros(0, np.int64)
        self.tokens = np.zeros((0, 3), np.int32)  # id, start, end
        self._told = 0
        self._letters = 0
        self._learning = threading.Lock()

    @property
    def is_full(self) -> bool:
        return len(self.number) > PIECES or self._told > 4 * PIECES or self._letters > 16 * PIECES

    def look_up(self, pieces: Sequence[str]) -> Ints:
        """The number of each piece, -1 where it is new."""
        return np.fromiter(map(self.number.get, pieces, repeat(-1)), np.int64, len(pieces))

    def learn(self, found: Mapping[str, Learnt]) -> None:
        with self._learning:
            new = {piece: learnt for piece, learnt in found.items() if piece not in self.number}
            count = len(self.number)
            rows = [row for inside, begins, _ in new.values() for row in (inside, begins)]
            size = np.fromiter(map(len, rows), np.int64, len(rows))
            flat = chain.from_iterable(chain.from_iterable(rows))
            parts = np.fromiter(flat, np.int32, 3 * int(size.sum())).reshape(-1, 3)
            states = np.fromiter((state for _, _, state in new.values()), np.int8, len(new))
            length = np.fromiter(map(len, new), np.int64, len(new))
            self.first = _extended(self.first, 2 * count, self._told + np.cumsum(size) - size)
            self.size = _extended(self.size, 2 * count, size)
            self.state = _extended(self.state, count, states)
            self.length = _extended(self.length, count, length)
            self.tokens = _extended(self.tokens, self._told, parts)
            self._told += len(parts)
            self._letters += int(length.sum())
            self.number.update(zip(new, range(count, count + len(new)), strict=True))  # now all else is there


def _extended(array: NDArray[Any], length: int, values: NDArray[Any]) -> NDArray[Any]:
    """`array` with the values behind its first `length`; itself where it has room."""
    if length + len(values) > len(array):
        larger = np.empty((2 * (length + len(values)), *array.shape[1:]), array.dtype)
        larger[:length] = array[:length]
        array = larger
    array[length : length + len(values)] = values
    return array


def _blanked(text: str) -> str:
    """The same places, with blanks for every blank and for markup, which may hold blanks itself."""
    text = text.replace("\n", " ").replace("\t", " ").replace("\r", " ").replace("\xa0", " ")
    return _TAG.sub(lambda tag: " " * len(tag[0]), text) if "<" in text else text


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
