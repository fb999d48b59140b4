"""The reader: passages of pieces to their states, and what each state was made of.

Its heads are hard, so it is known which pieces a state was made of (docs/theory.md, section 7):

    R^0(i) = {i},  R^l(i) = R^(l-1)(i) and R^(l-1)(j) of every j that a head of layer l of i follows

A passage has 64 pieces at most: such a set is a number of 64 bits, and a union is an `or`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from hardmax.documents import Explain
from service.engine.bundle import Bundle
from service.engine.runtime import Runtime, Session
from service.errors import BundleError
from service.texts.pieces import LINK, UNKNOWN, Ints, Lists, Pieces, Reading

Sets = NDArray[np.uint64]

INPUTS = {"pieces": "int64", "places": "int64", "rows": "int64"}
OUTPUTS = {"states": "uint8", "words": "uint8", "follows": "uint8"}
FRAGMENT = 2  # letters of a piece that tells little about the word it is a part of


@dataclass(frozen=True, slots=True)
class Seen:
    """What the reader says of a passage of n pieces."""

    states: NDArray[np.uint8]  # [n, W]
    words: NDArray[np.uint8]  # [n, W] the first states
    follows: NDArray[np.uint8] | None = None  # [L, n, n] how many heads of piece i follow piece j
    read: Sets | None = None  # [L+1, n] R^l

    def kept(self, explain: Explain) -> Seen:
        """What an answer needs of it: who follows whom, by layer, is large."""
        if explain == "full" or self.follows is None:
            return self
        return Seen(self.states, self.words, None, None if explain == "none" else self.read)


class Reader:
    """One model. Thread-safe."""

    def __init__(self, session: Session, lists: Lists) -> None:
        self._session = session
        self.graphs: dict[str, Session] = {}  # of the heads that stand on it, one for each family
        self._pieces = Pieces(lists)
        self.spelt = lists.pieces
        bare = [piece.removeprefix("##") for piece in lists.pieces]
        self._has_letters = np.array([any(map(str.isalpha, piece)) for piece in bare])
        self._is_short = np.array([len(piece) <= FRAGMENT for piece in bare])

    @classmethod
    def load(cls, bundle: Bundle, runtime: Runtime) -> Reader:
        session = runtime.open(bundle.model)
        check_graph(bundle.name, session, INPUTS, OUTPUTS)
        return cls(session, _lists(bundle))

    def read(self, text: str) -> Reading:
        return self._pieces.read(text)

    def see(self, passages: Sequence[tuple[Ints, Ints]], *, reasons: bool) -> list[Seen]:
        """What is made of each passage (its pieces, their places); `reasons`: who follows whom as well."""
        sizes = np.array([len(pieces) for pieces, _ in passages])
        inside = np.arange(sizes.max()) < sizes[:, None]
        rows = np.full(inside.shape, sizes.sum())
        rows[inside] = np.arange(sizes.sum())
        feeds = {
            "pieces": np.concatenate([pieces for pieces, _ in passages]),
            "places": np.concatenate([places for _, places in passages]),
            "rows": rows,
        }
        states, words, *followed = self._session.run(
            feeds, tuple(OUTPUTS) if reasons else ("states", "words")
        )
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
