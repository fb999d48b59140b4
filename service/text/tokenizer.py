"""From a text to the pieces of words that the reader knows. Training and serving read with this alone.

    text -> words (its places) -> pieces (WordPiece ids of each word) -> passages (whole sentences)

One expression finds the words in a single pass: words of any script, numbers, marks, emoticons, emoji. Every
branch is linear. What must not change a verdict is one piece each: a name, a number, a group of people, a
@handle, a link; a run of the same one is a single word. Markup is no word.

Positions begin anew in each passage, so the cost of a text is linear in its length.
"""

import re
import unicodedata
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

MOST = 2_560  # words that are read of a text
PASSAGE = 64  # pieces in a passage
MOST_PIECES = 8  # in a word; one of more is UNKNOWN, like a run of more than LONGEST_WORD letters
LONGEST_WORD = 64
LEAST_DOUBLED = 7  # letters: in a word so long one letter may be written twice by mistake
MOST_MARKS = 3  # that are read of a run of the same mark, and of an emoticon
REMEMBERED = 1 << 16  # so many words are remembered; then all are forgotten

# Places of the published vocabulary that its authors left free, and its own piece for what it does not know.
NAME, NUMBER, GROUP, HANDLE, LINK = range(1, 6)
SPECIAL = {NAME: "<name>", NUMBER: "<number>", GROUP: "<group>", HANDLE: "<handle>", LINK: "<link>"}
UNKNOWN = 100

_LETTERS = r"[^\W\d_](?:[^\W\d_]|[\u0300-\u036f])*+"  # subtle: *+ keeps no way back, which takes memory
_WORD = re.compile(
    rf"""
      (?P<markup> </?[a-z!][^<>]{{0,300}}> | &(?:\#\d{{1,7}}|[a-z]{{2,8}}); )
    | (?P<link> (?:https?://|www\.)\S+ )
    | (?P<handle> @\w+ )
    | (?P<face> (?<!\w)[:;=]['’]?[-^o]?(?:[)(\]\[}}{{/\\|*]+|[DPpO3](?!\w)) | </?3(?!\w) )
    | (?P<word> {_LETTERS}(?:['’]{_LETTERS})*+ | ['’](?:s|m|d|re|ve|ll)\b )
    | (?P<number> \d+(?:[.,:/]\d+)*+(?:(?:st|nd|rd|th|s)\b)? )
    | (?P<break> \n )
    | (?P<mark> (?P<one>[^\w\s])(?P=one)* )
    """,
    re.VERBOSE | re.IGNORECASE,
)
_FOLDED = {"number": NUMBER, "handle": HANDLE, "link": LINK}
_ENDS = frozenset(".!?…")  # of a sentence
_BEGINS = _ENDS | {":"}  # behind them a capital letter tells nothing
_DRAWN_OUT = re.compile(r"(.)\1{2,}")
# "hopped", "furry" and "needless" are other words than with one letter
_DOUBLED = re.compile(r"(.)\1(?![eiy]|$)")
_AUXILIARIES = (
    "is are was were do does did has have had can could will would shall should might must need".split()
)
_SHORTENED = {"can": "ca", "will": "wo", "shall": "sha"}  # in front of n't
CONTRACTED = {f"{_SHORTENED.get(word, word)}n{mark}t": word for word in _AUXILIARIES for mark in ("'", "")}


@dataclass(frozen=True, slots=True)
class Lists:
    """What pieces.json keeps. `pieces` in the order of their ids."""

    pieces: Sequence[str]
    names: Collection[str]  # written with a capital nearly always: NAME in either case
    sometimes: Collection[str]  # often a name: NAME when written with a capital inside a sentence
    groups: Collection[str]


@dataclass(frozen=True, slots=True, eq=False)
class Reading:
    """The words of one text: word i is read from the code points [starts[i], ends[i]) and has the pieces
    [bounds[i], bounds[i+1]). Each piece has its place in its passage, from 0 on.
    """

    text: str
    starts: Ints  # [M]
    ends: Ints
    bounds: Ints  # [M+1]
    pieces: Ints  # [T]
    places: Ints  # [T]
    passages: Ints  # [T], which passage of the text
    truncated: bool  # whether the text has more

    def __len__(self) -> int:
        return len(self.starts)

    def without(self, gone: NDArray[np.bool_]) -> "Reading":
        """The same with some words left out in place: all others stay where they are."""
        sizes = np.diff(self.bounds)
        kept, pieces = ~gone, np.repeat(~gone, sizes)
        return Reading(
            self.text,
            self.starts[kept],
            self.ends[kept],
            np.concatenate(([0], np.cumsum(sizes[kept]))),
            self.pieces[pieces],
            self.places[pieces],
            self.passages[pieces],
            self.truncated,
        )

    def split(self) -> list[tuple[Ints, Ints]]:
        """(pieces, places) of each passage that has any, in order."""
        cuts = np.flatnonzero(np.diff(self.passages)) + 1
        if not len(self.pieces):
            return []
        return list(zip(np.split(self.pieces, cuts), np.split(self.places, cuts), strict=True))


def plain(surface: str) -> str:
    """Lower case, no accents, one kind of apostrophe."""
    if surface.isascii():
        return surface.lower()
    split = unicodedata.normalize("NFKD", surface.replace("’", "'").lower())
    return "".join(c for c in split if not unicodedata.combining(c))


def _slips(word: str) -> Iterator[str]:
    """What may have been meant by a word with a letter written too often."""
    if _DRAWN_OUT.search(word):
        yield from (_DRAWN_OUT.sub(by, word) for by in (r"\1\1", r"\1"))
    for match in _DOUBLED.finditer(word if len(word) >= LEAST_DOUBLED else ""):
        yield word[: match.start()] + word[match.start() + 1 :]


def scan(text: str) -> Iterator[tuple[str, int, int, str]]:
    """(surface, start, end, kind) of every match in `text`: words, markup and breaks of lines."""
    for match in _WORD.finditer(text):
        yield match[0], match.start(), match.end(), match.lastgroup or ""


class Pieces:
    """Reads texts with fixed lists. Thread-safe: what is remembered is only ever added to or forgotten."""

    def __init__(self, lists: Lists) -> None:
        self.spelt = lists.pieces
        self._id = {piece: i for i, piece in enumerate(lists.pieces)}
        self._folded = {**dict.fromkeys(lists.names, NAME), **dict.fromkeys(lists.groups, GROUP)}
        self._sometimes = frozenset(lists.sometimes)
        self._known: dict[tuple[str, bool], tuple[int, ...]] = {}

    def read(self, text: str, most: int = MOST) -> Reading:
        """The words of `text` in order, at most so many; linear in its length."""
        words: list[tuple[int, ...]] = []
        starts: list[int] = []
        ends: list[int] = []
        sentences = [0]  # the words with which they begin
        inside, ended, truncated = False, False, False
        for surface, start, end, kind in scan(text):
            if kind in ("markup", "break"):
                ended = ended or kind == "break" or surface.startswith("<")
                inside = inside and not ended
                continue
            found = self._pieces(surface, kind, inside)
            inside = surface[-1] not in _BEGINS
            if ended and surface[-1] not in _ENDS and sentences[-1] < len(words):
                sentences.append(len(words))
            ended = surface[-1] in _ENDS
            if words and found[0] <= LINK and words[-1] == found and sentences[-1] < len(words):
                ends[-1] = end  # a run of one folded class
                continue
            if len(words) == most:
                truncated = True
                break
            words.append(found)
            starts.append(start)
            ends.append(end)
        sizes = np.array([len(each) for each in words], np.int64)
        places, passages = _passages(sizes, [*sentences, len(words)])
        return Reading(
            text,
            np.array(starts, np.int64),
            np.array(ends, np.int64),
            np.concatenate(([0], np.cumsum(sizes))),
            np.array([piece for each in words for piece in each], np.int64),
            places,
            passages,
            truncated,
        )

    def _pieces(self, surface: str, kind: str, inside: bool) -> tuple[int, ...]:
        if kind in _FOLDED:
            return (_FOLDED[kind],)
        surface = surface[: LONGEST_WORD + 1]  # what comes behind changes nothing, and need not be remembered
        key = surface, inside
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= REMEMBERED:
                self._known = {}
            found = self._known[key] = self._word(surface, inside) if kind == "word" else self._drawn(surface)
        return found

    def _word(self, surface: str, inside: bool) -> tuple[int, ...]:
        if len(surface) > LONGEST_WORD:
            return (UNKNOWN,)
        word = plain(surface)
        bare = word.removesuffix("'s")
        if (folded := self._folded.get(bare)) is not None:
            return (folded,)
        if (auxiliary := CONTRACTED.get(word)) is not None:
            return self._cut(auxiliary) + self._cut("not")
        found = self._cut(word)
        capital = inside and surface[0].isupper() and not (len(surface) > 1 and surface.isupper())
        if capital and bare.isalpha() and (bare not in self._id or bare in self._sometimes):
            return (NAME,)
        if len(found) > 1 or found == (UNKNOWN,):
            found = next((cut for cut in map(self._cut, _slips(word)) if len(cut) == 1), found)
        return found

    def _drawn(self, surface: str) -> tuple[int, ...]:
        """A mark, an emoticon by its marks, an emoji by its name."""
        if len(surface) > 1:
            return tuple(self._id.get(each, UNKNOWN) for each in surface[:MOST_MARKS].lower())
        if surface in self._id:
            return (self._id[surface],)
        name = unicodedata.name(surface, "")
        if unicodedata.category(surface) != "So" or not name:
            return (self._id.get(unicodedata.normalize("NFKC", surface), UNKNOWN),)
        return tuple(piece for word in name.lower().split() for piece in self._cut(word))[:MOST_PIECES]

    def _cut(self, word: str) -> tuple[int, ...]:
        """WordPiece: the longest piece that fits, again and again, of each run of letters and each mark."""
        found: list[int] = []
        for part in re.findall(r"\w+|[^\w\s]", word):
            begin = 0
            while begin < len(part):
                for end in range(len(part), begin, -1):
                    piece = self._id.get(part[begin:end] if begin == 0 else "##" + part[begin:end])
                    if piece is not None:
                        break
                else:
                    return (UNKNOWN,)
                found.append(piece)
                begin = end
        return tuple(found) if 0 < len(found) <= MOST_PIECES else (UNKNOWN,)


def _passages(sizes: Ints, sentences: Sequence[int]) -> tuple[Ints, Ints]:
    """[T] the place of each piece in its passage, and which passage that is.

    A passage is as many whole sentences as fit; a sentence that does not fit into one is cut between words.
    """
    places: list[int] = []
    passages: list[int] = []
    passage, filled = 0, 0
    size = sizes.tolist()
    for begin, end in pairwise(sentences):
        if filled and filled + sum(size[begin:end]) > PASSAGE:
            passage, filled = passage + 1, 0
        for pieces in size[begin:end]:
            if filled + pieces > PASSAGE:
                passage, filled = passage + 1, 0
            places += range(filled, filled + pieces)
            passages += [passage] * pieces
            filled += pieces
    return np.array(places, np.int64), np.array(passages, np.int64)
