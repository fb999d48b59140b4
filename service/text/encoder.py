"""The reader: passages of pieces to their states, and what each state was made of.

Its heads are hard, so it is known which pieces a state was made of (docs/theory.md, section 7):

    R^0(i) = {i},  R^l(i) = R^(l-1)(i) and R^(l-1)(j) of every j that a head of layer l of i follows

A passage has 64 pieces at most: such a set is a number of 64 bits, and a union is an `or`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Self

import numpy as np
import orjson
from numpy.typing import NDArray

from hardmax.documents import Explain
from service.errors import BundleError
from service.runtime.batcher import groups_by_length
from service.runtime.bundle import Bundle
from service.runtime.session import Runtime, Session
from service.text.tokenizer import LINK, UNKNOWN, Ints, Lists, Pieces, Reading

Sets = NDArray[np.uint64]

INPUTS = {"pieces": "int64", "places": "int64", "rows": "int64"}
OUTPUTS = {"states": "uint8", "words": "uint8", "follows": "uint8"}
# Pieces that one inference sees, for each thread. More do not stay in a core's cache: 4,096 together take
# 1.3 times as long, 8,192 twice.
TOGETHER = 1_280
FRAGMENT = 2  # letters of a piece that tells little about the word it is a part of


@dataclass(frozen=True, slots=True)
class Seen:
    """What the reader says of a passage of n pieces."""

    states: NDArray[np.uint8]  # [n, W]
    words: NDArray[np.uint8]  # [n, W] the first states
    follows: NDArray[np.uint8] | None = None  # [L, n, n] how many heads of piece i follow piece j
    read: Sets | None = None  # [L+1, n] R^l

    def kept(self, explain: Explain) -> "Seen":
        """What an answer needs of it: who follows whom, by layer, is large."""
        if explain == "full" or self.follows is None:
            return self
        return Seen(self.states, self.words, None, None if explain == "none" else self.read)

    def alone(self) -> "Seen":
        """The same without the arrays of its run, of which it is a part: they hold every text of the run."""
        follows = None if self.follows is None else self.follows.copy()
        read = None if self.read is None else self.read.copy()
        return Seen(self.states.copy(), self.words.copy(), follows, read)


@dataclass(frozen=True, slots=True, eq=False)
class Read:
    """A text as the reader left it: its words, and what was seen of each of its passages."""

    reading: Reading
    seen: Sequence[Seen]


class Reader:
    """One model. Thread-safe."""

    def __init__(self, session: Session, lists: Lists, threads: int = 1) -> None:
        self._session = session
        self._most = TOGETHER * threads
        self.graphs: dict[str, Session] = {}  # of the heads that stand on it, one for each family
        self._pieces = Pieces(lists)
        bare = [piece.removeprefix("##") for piece in lists.pieces]
        self._has_letters = np.array([any(map(str.isalpha, piece)) for piece in bare])
        self._is_short = np.array([len(piece) <= FRAGMENT for piece in bare])

    @classmethod
    def load(cls, bundle: Bundle, runtime: Runtime) -> Self:
        session = runtime.open(bundle.model)
        check_graph(bundle.name, session, INPUTS, OUTPUTS)
        reader, one = cls(session, _lists(bundle), runtime.intra_op_threads), np.zeros(1, np.int64)
        reader.see([(one, one)], reasons=True)  # within the time that a bundle has: a graph may never end
        return reader

    def read(self, text: str) -> Reading:
        return self._pieces.read(text)

    def see(self, passages: Sequence[tuple[Ints, Ints]], *, reasons: bool) -> list[Seen]:
        """What is made of each passage (its pieces, their places); `reasons`: who follows whom as well."""
        found: dict[int, Seen] = {}
        for run in groups_by_length([len(pieces) for pieces, _ in passages], self._most):
            found |= zip(run, self._see([passages[i] for i in run], reasons=reasons), strict=True)
        return [found[i] for i in range(len(passages))]

    def _see(self, passages: Sequence[tuple[Ints, Ints]], *, reasons: bool) -> list[Seen]:
        """The same, in one inference."""
        sizes = np.array([len(pieces) for pieces, _ in passages])
        inside = np.arange(sizes.max()) < sizes[:, None]
        rows = np.full(inside.shape, sizes.sum())
        rows[inside] = np.arange(sizes.sum())
        feeds = {
            "pieces": np.concatenate([pieces for pieces, _ in passages]),
            "places": np.concatenate([places for _, places in passages]),
            "rows": rows,
        }
        wanted = tuple(OUTPUTS) if reasons else ("states", "words")
        states, words, *followed = self._session.run(feeds, wanted)
        cuts = np.cumsum(sizes)[:-1]
        whole = zip(np.split(states, cuts), np.split(words, cuts), strict=True)
        if not reasons:
            return [Seen(*each) for each in whole]
        (follows,) = followed
        read = sets_read(follows)
        return [
            Seen(*each, follows[:, b, :n, :n], read[:, b, :n])
            for b, (each, n) in enumerate(zip(whole, sizes.tolist(), strict=True))
        ]

    def known(self, reading: Reading) -> Ints:
        """[M] for each word: 1 if it is known, 0 if not, -1 if it says nothing either way.

        A word of which a piece is unknown, or that falls into fragments mostly, is not known. Marks say
        nothing unless several make an emoticon.
        """
        if not len(reading):
            return np.zeros(0, np.int64)
        first, pieces = reading.bounds[:-1], reading.pieces
        sizes = np.diff(reading.bounds)
        folded = pieces[first] <= LINK
        is_word = np.logical_or.reduceat(self._has_letters[pieces] | (pieces == UNKNOWN), first)
        emoticon = np.minimum.reduceat(pieces, first) < np.maximum.reduceat(pieces, first)
        fragments = np.add.reduceat(self._is_short[pieces], first, dtype=np.int64)
        broken = (sizes > 1) & (2 * fragments > sizes)
        lost = np.logical_or.reduceat(pieces == UNKNOWN, first) | broken
        return np.where(folded, 1, np.where(is_word, ~lost, np.where(emoticon, 1, -1)))


def sets_read(follows: NDArray[np.uint8]) -> Sets:
    """[L, B, N, N] -> [L+1, B, N]: R^l of each piece, a bit a piece of its passage."""
    _, B, N, _ = follows.shape
    read = np.broadcast_to(np.uint64(1) << np.arange(N, dtype=np.uint64), (B, N))
    found = [read]
    for layer in follows:
        read = read | np.bitwise_or.reduce(np.where(layer > 0, read[:, None, :], np.uint64(0)), axis=2)
        found.append(read)
    return np.stack(found)


def check_graph(name: str, session: Session, inputs: dict[str, str], outputs: dict[str, str]) -> None:
    """A graph that is not the one this service feeds is refused when it is loaded."""
    for specs, wanted in ((session.inputs, inputs), (session.outputs, outputs)):
        have: dict[str, Any] = {spec.name: spec.dtype for spec in specs}
        if not wanted.items() <= have.items() or (wanted is inputs and have != wanted):
            problem = f"{name}: its graph has {have}, expected {wanted}"
            raise BundleError(problem, param="model.onnx")


def _lists(bundle: Bundle) -> Lists:
    try:
        held = orjson.loads(bundle.pieces or "")
    except ValueError as damage:
        raise BundleError(f"{bundle.name}: pieces.json is not JSON: {damage}", param="pieces.json") from None
    lists: dict[str, Any] = {
        name: held.get(name) if isinstance(held, dict) else None for name in Lists.__slots__
    }
    for name, words in lists.items():
        if not isinstance(words, list) or not set(map(type, words)) <= {str}:
            problem = f"{bundle.name}: pieces.json needs {name} (a list of words)"
            raise BundleError(problem, param="pieces.json")
    if len(lists["pieces"]) <= UNKNOWN:
        problem = f"{bundle.name}: pieces.json needs the {UNKNOWN + 1} pieces with which every list begins"
        raise BundleError(problem, param="pieces.json")
    pieces = lists.pop("pieces")
    return Lists(pieces, **{name: frozenset(words) for name, words in lists.items()})


class Ancestry:
    def __init__(self, text: Read) -> None:
        self._bounds = text.reading.bounds
        self._seen = text.seen
        lengths = [len(seen.states) for seen in text.seen]
        self._starts = list(accumulate(lengths, initial=0))  # the first piece of each passage; the end
        self._word = _owners(np.diff(self._bounds))  # of each piece
        self._passage = _owners(lengths)
        # subtle: a `cache` of a method would be a cycle, which holds the states until the collector comes
        self._known: dict[int, list[tuple[int, int]]] = {}

    def of(self, word: int) -> list[tuple[int, int]]:
        """The other words that a word has read, each with the layer at which it entered, in that order."""
        if word not in self._known:  # several heads ask for the same words
            self._known[word] = self._of(word)
        return self._known[word]

    def _of(self, word: int) -> list[tuple[int, int]]:
        first, end = self._bounds[word : word + 2].tolist()
        k = self._passage[first]
        begin, read = self._starts[k], self._seen[k].read
        assert read is not None
        sets = np.bitwise_or.reduce(read[:, first - begin : end - begin], axis=1).tolist()
        entered, before = {word: 0}, 0
        for layer, pieces in enumerate(sets):
            for piece in _members(pieces & ~before):
                entered.setdefault(self._word[begin + piece], layer)
            before = pieces
        return list(entered.items())[1:]

    def followed(self) -> list[list[list[int]]]:
        """For each word and each layer the other words that its heads followed, most followed first."""
        found: list[list[list[int]]] = []
        for k, seen in enumerate(self._seen):
            begin = self._starts[k]
            words = self._word[begin : self._starts[k + 1]]
            first = np.flatnonzero(np.diff(words, prepend=-1))
            assert seen.follows is not None
            heads = np.add.reduceat(seen.follows, first, axis=1, dtype=np.int64)
            heads = np.add.reduceat(heads, first, axis=2)
            heads[:, range(len(first)), range(len(first))] = 0
            found += _ranked(heads, words[0])
        return found


def _owners(sizes: Sequence[int] | Ints) -> list[int]:
    """Of things that stand one behind the other, the number of the group that each is in."""
    return np.repeat(np.arange(len(sizes)), sizes).tolist()


def _ranked(heads: NDArray[np.int64], first: int) -> list[list[list[int]]]:
    """[L, m, m] as lists: for each word and layer whom it follows, counted from the word `first`."""
    order = np.argsort(-heads, axis=2, kind="stable")
    counts = (heads > 0).sum(axis=2)
    return [
        [(first + row[:n]).tolist() for row, n in zip(order[:, i], counts[:, i], strict=True)]
        for i in range(heads.shape[1])
    ]


def _members(pieces: int) -> Iterator[int]:
    """The numbers of the bits that are set."""
    while pieces:
        yield (pieces & -pieces).bit_length() - 1
        pieces &= pieces - 1
