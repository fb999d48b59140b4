"""Heads: planes on a reader. The places of the words of whole texts, whom they follow there, and what that
adds up to.

    logit = bias + sum of the words' contributions

where a word counts at the place of the leader that it ends with. All of these are counted in units of 1e-7,
and the logit is their sum: printed numbers add up to the last digit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.engine.batching import by_length
from service.engine.bundle import Bundle
from service.engine.runtime import Runtime, Session
from service.errors import BundleError
from service.texts.pieces import Ints, Reading
from service.texts.reader import Reader, Seen, check_graph

Array = NDArray[Any]

UNITS = 10_000_000  # of a logit
PAIRS = {"cpu": 1 << 22, "cuda": 1 << 26}  # of words that one run compares
INPUTS = {"states": "uint8", "words": "uint8", "members": "int64", "texts": "int64"}
JUDGED = {"bias": "double", "contribution": "double"}
UNLIKE = "unlike"  # of heads that know their rows: above 0 where a text is unlike them
EXPLAINED = {"target": "int64", "since": "int64", "plane": "double"}
PROBE = "A good film, and a bad one."


@dataclass(frozen=True, slots=True)
class Read:
    """A text as the reader left it: its words, and what was seen of each of its passages."""

    reading: Reading
    seen: Sequence[Seen]


@dataclass(frozen=True, slots=True)
class Cloud:
    """What a head says of B texts, word after word (M in all). Contributions are in units."""

    texts: Sequence[Read]
    bounds: Ints  # [B+1]: text b has the words bounds[b] to bounds[b + 1]
    text: Ints  # [M] the text of each word
    bias: Ints  # [C, B]
    contribution: Ints  # [C, M]
    unlike: NDArray[np.bool_]  # [B] whether it is unlike the rows that the head learnt from
    target: Ints | None = (
        None  # [M] the word it follows, in its text; -1 if several tie. None without reasons
    )
    since: Ints | None = None  # [M]
    plane: Array | None = None  # [K+1, B, N, d]

    @property
    def logit(self) -> Ints:
        """[C, B]"""
        sums = np.concatenate(([[0]] * len(self.bias), np.cumsum(self.contribution, axis=1)), axis=1)
        return np.asarray(self.bias + sums[:, self.bounds[1:]] - sums[:, self.bounds[:-1]])


@dataclass(frozen=True, slots=True)
class Rules:
    """What a card says of its labels, and when a verdict should not be acted upon."""

    labels: tuple[str, ...]
    even: float  # how near to one half a probability is even
    least_known: float  # the share of the words that must be known
    thresholds: tuple[float, ...] | None  # of each label, where they do not exclude each other


class Head:
    """One model. Thread-safe."""

    def __init__(self, name: str, session: Session, reader: Reader, card: Mapping[str, Any]) -> None:
        self.name = name
        self.reader = reader
        self.rules = rules_of(card)
        self._session = session
        self._knows_rows = UNLIKE in {spec.name for spec in session.outputs}
        probe = reader.read(PROBE)  # the first inference is slow, and no caller should wait for it
        seen = reader.see(probe.split(), reasons=True)
        self.bias = self._run([Read(probe, seen)], reasons=True).bias[:, :1]  # [C, 1] the same for every text
        if len(self.bias) != (1 if self._is_binary else len(self.rules.labels)):
            raise BundleError(f"{name}: its graph has {len(self.bias)} logits", param="labels")

    @property
    def _is_binary(self) -> bool:
        return len(self.rules.labels) == 2 and self.rules.thresholds is None

    @classmethod
    def load(cls, bundle: Bundle, runtime: Runtime, reader: Reader) -> Head:
        session = runtime.open(bundle.model)
        check_graph(bundle.name, session, INPUTS, JUDGED | EXPLAINED)
        return cls(bundle.name, session, reader, bundle.card)

    def told(self) -> dict[str, Any]:
        """What GET /models says beside the card."""
        numbers = (self.bias[:, 0] / UNITS).tolist()
        return {"bias": numbers[0] if self._is_binary else dict(zip(self.rules.labels, numbers, strict=True))}

    def run(self, texts: Sequence[Read], *, reasons: bool) -> list[tuple[list[int], Cloud]]:
        """Clouds of texts of similar length, each with the places of its texts. A text without words is in
        none.
        """
        lengths = [len(text.reading) for text in texts]
        some = [i for i, length in enumerate(lengths) if length]
        runs = by_length([lengths[i] for i in some], PAIRS[self._session.provider], power=2)
        together = [[some[i] for i in run] for run in runs]
        return [(places, self._run([texts[i] for i in places], reasons=reasons)) for places in together]

    def _run(self, texts: Sequence[Read], *, reasons: bool) -> Cloud:
        feeds, bounds, inside = assemble(texts)
        outputs = (*JUDGED, *(EXPLAINED if reasons else ()), *([UNLIKE] if self._knows_rows else []))
        values = dict(zip(outputs, self._session.run(feeds, outputs), strict=True))
        return Cloud(
            texts=texts,
            bounds=bounds,
            text=np.repeat(np.arange(len(texts)), np.diff(bounds)),
            bias=_units(values["bias"].T),
            contribution=_units(values["contribution"].swapaxes(0, 1)[:, inside]),
            unlike=values[UNLIKE] > 0 if self._knows_rows else np.zeros(len(texts), np.bool_),
            target=values["target"][inside] if reasons else None,
            since=values["since"][inside] if reasons else None,
            plane=values.get("plane"),
        )


def assemble(texts: Sequence[Read]) -> tuple[dict[str, Array], Ints, NDArray[np.bool_]]:
    """What the graph is fed, [B+1] where each text's words begin, and [B, N] where there is a word."""
    seen = [each for text in texts for each in text.seen]
    sizes = np.concatenate([np.diff(text.reading.bounds) for text in texts])  # pieces of each word
    lengths = np.array([len(text.reading) for text in texts])
    bounds = np.concatenate(([0], np.cumsum(lengths)))
    T, M = int(sizes.sum()), len(sizes)
    column = np.arange(sizes.max())
    members = np.where(column < sizes[:, None], (np.cumsum(sizes) - sizes)[:, None] + column, T)
    inside = np.arange(lengths.max()) < lengths[:, None]
    places = np.full(inside.shape, M)
    places[inside] = np.arange(M)
    feeds = {
        "states": np.concatenate([each.states for each in seen]),
        "words": np.concatenate([each.words for each in seen]),
        "members": members,
        "texts": places,
    }
    return feeds, bounds, inside


def _units(values: Array) -> Ints:
    return np.asarray(np.rint(values * UNITS).astype(np.int64))


def rules_of(card: Mapping[str, Any]) -> Rules:
    labels = card.get("labels")
    if (
        not isinstance(labels, list)
        or len(labels) < 2
        or not all(isinstance(label, str) for label in labels)
        or len(set(labels)) < len(labels)
    ):
        raise BundleError("card.json needs two labels or more; of two the negative one first", param="labels")
    return Rules(
        tuple(labels),
        _share(card, "even", 0.0),
        _share(card, "least_known", 0.5),
        _thresholds(card, len(labels)),
    )


def _share(card: Mapping[str, Any], field: str, default: float) -> float:
    value = card.get(field, default)
    if not _is_share(value):
        raise BundleError(f"card.json needs {field} (a number from 0 to 1)", param=field)
    return float(value)


def _thresholds(card: Mapping[str, Any], count: int) -> tuple[float, ...] | None:
    multi = card.get("multi")
    if multi is None:
        return None
    thresholds = multi.get("thresholds") if isinstance(multi, dict) else None
    if not isinstance(thresholds, list) or len(thresholds) != count or not all(map(_is_share, thresholds)):
        raise BundleError(
            "card.json needs multi.thresholds (a number from 0 to 1 for each label)", param="multi"
        )
    return tuple(map(float, thresholds))


def _is_share(value: object) -> bool:
    return isinstance(value, int | float) and type(value) is not bool and 0 <= value <= 1
