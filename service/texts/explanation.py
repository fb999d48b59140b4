"""Turns what the graph says of several texts into what a person reads: leaders, clusters, words.

The cluster of a word is the leader that it reaches by following C at the last layer: a word attends to a
place, that one perhaps to another, until one attends to itself. Norms grow along the way, so there is an
end. A word that attends to several places at once (a tie) and through them reaches more than one leader is
in a cluster of kind "tie", named by those leaders. Every word is in exactly one cluster.
All numbers are whole, in units of 1e-7.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.texts.reader import Tokens, plain

Array = NDArray[Any]
Ints = NDArray[np.int64]
UNITS = 10_000_000  # of a logit
WORDS = 5  # of a cluster that are named
_LONGEST_CHAIN = 16  # doublings
_HEAVIEST = 1 << 40


@dataclass(frozen=True)
class Cloud:
    """What the graph says of B texts, place after place (T in all)."""

    texts: Sequence[Tokens]
    bounds: Ints  # [B+1]: text b has the places bounds[b] to bounds[b + 1]
    text: Ints  # [T] the text of each place
    ids: Ints  # [T]
    contribution: Ints  # [C, T]
    target: Ints  # [T] a place, counted from the beginning of its text; -1 for a tie
    since: Ints  # [T]
    negator: Ints  # [T] like `target`: the negator that the place is under, read too; -1 for none
    states: Array | None  # [K+1, B, d, N]


def values_of(units: Ints, labels: Sequence[str]) -> list[Any]:
    """[C, n] as n values: numbers, or where there are several logits a number for each label."""
    numbers = (units / UNITS).tolist()
    if len(units) == 1:
        return list(numbers[0])
    return [dict(zip(labels, each, strict=True)) for each in zip(*numbers, strict=True)]


class Explanation:
    """Clusters are numbered through all texts, in each text the weightiest first."""

    def __init__(
        self, cloud: Cloud, labels: Sequence[str], words: Sequence[str], window: tuple[int, int], spans: str
    ) -> None:
        self._cloud = cloud
        self._labels = labels
        self._spelt = words
        self._window = window
        self._cuts = _offsets(cloud.texts, "codepoints")
        self._offsets = self._cuts if spans == "codepoints" else _offsets(cloud.texts, spans)
        root, self._ties = resolve(cloud)
        every = np.arange(len(root))
        total = _sums(root, cloud.contribution, len(root))  # [C, T]
        leads = np.flatnonzero(np.bincount(root))
        leads = leads[np.lexsort((-_force(total[:, leads]), cloud.text[leads]))]
        self._root = leads  # of each cluster
        self._total = total[:, leads]
        self._first = cloud.text[leads].searchsorted(np.arange(len(cloud.texts) + 1))  # cluster of a text
        every[leads] = np.arange(len(leads))
        self._number = every[root]  # of the cluster of each place

    def tell_leaders(self, answers: Sequence[dict[str, Any]]) -> None:
        """Adds `leaders` and `clusters` to every answer."""
        cloud, root = self._cloud, self._root
        size = np.bincount(self._number, minlength=len(root))
        heaviest = self._heaviest(size)
        texts = cloud.text[root]
        clusters = zip(
            root.tolist(),
            size.tolist(),
            (size / (cloud.bounds[texts + 1] - cloud.bounds[texts])).tolist(),
            values_of(self._total, self._labels),
            self._leaders(size),
            strict=True,
        )
        for answer, (begin, end) in zip(answers, pairwise(self._first.tolist()), strict=True):
            leaders: list[dict[str, Any]] = []
            told: list[dict[str, Any]] = []
            for number in range(end - begin):
                first, places, share, total, leader = next(clusters)
                words = list(dict.fromkeys(islice(heaviest, min(places, WORDS))))
                tied = self._ties.get(first)
                told.append(
                    {
                        "id": number,
                        "kind": "leader" if tied is None else "tie",
                        "leaders": words[:1] if tied is None else self._words(np.array(tied)),
                        "words": words,
                        "size": places,
                        "share": round(share, 7),
                        "contribution": total,
                    }
                )
                if tied is None:
                    leaders.append({"word": words[0], "cluster": number, **leader})
            answer["leaders"], answer["clusters"] = leaders, told

    def _heaviest(self, size: Ints) -> Iterator[str]:
        """Of each cluster up to WORDS words: its root's, then those that weigh most."""
        cloud, number = self._cloud, self._number
        follows = np.ones(len(number), np.int64)
        follows[self._root] = 0
        force = np.minimum(_force(cloud.contribution), _HEAVIEST - 1)
        # equal weights stand in the order of reading
        members = ((2 * number + follows) * _HEAVIEST - force).argsort(kind="stable")
        begin = size.cumsum() - size
        return iter(self._words(members[np.arange(len(members)) - begin[number[members]] < WORDS]))

    def _leaders(self, size: Ints) -> Iterator[dict[str, Any]]:
        """What is said of each cluster's leader and of nobody else; its twins are the leader too."""
        cloud, root = self._cloud, self._root
        twins = np.flatnonzero(cloud.since >= 0)
        twins = twins[self._number[twins].argsort(kind="stable")]
        number = self._number[twins]
        count = np.bincount(number, minlength=len(root))
        spans = self._spans(twins, twins)
        columns = zip(
            cloud.since[root].tolist(),
            (size - count).tolist(),
            values_of(_sums(number, cloud.contribution[:, twins], len(root)), self._labels),
            count.tolist(),
            self._readings(root),
            strict=True,
        )
        for since, followers, contribution, places, reading in columns:
            yield {
                "since_layer": since,
                "followers": followers,
                "contribution": contribution,
                "spans": list(islice(spans, places)),
                **reading,
            }

    def tell_words(self, answers: Sequence[dict[str, Any]]) -> None:
        """Adds `words`, every place in the order of reading."""
        cloud = self._cloud
        every = np.arange(len(cloud.text))
        columns = zip(
            self._words(every),
            self._spans(every, every),
            (self._number - self._first[cloud.text]).tolist(),
            (cloud.since >= 0).tolist(),
            values_of(cloud.contribution, self._labels),
            self._readings(every),
            strict=True,
        )
        for b, (answer, tokens) in enumerate(zip(answers, cloud.texts, strict=True)):
            answer["words"] = [
                {
                    "text": text,
                    "spans": [span],
                    "cluster": cluster,
                    "leader": leader,
                    "contribution": contribution,
                    "start": start,
                    "end": end,
                    **reading,
                }
                for start, end, (text, span, cluster, leader, contribution, reading) in zip(
                    *self._states(b, [0, -1]), islice(columns, len(tokens)), strict=True
                )
            ]

    def tell_trajectory(self, answers: Sequence[dict[str, Any]]) -> None:
        """Adds `trajectory`: every word's place at every layer."""
        for b, answer in enumerate(answers):
            answer["trajectory"] = self._states(b, slice(None))

    def _states(self, b: int, layers: Any) -> Any:
        """Where the words of text b are at some layers."""
        assert self._cloud.states is not None
        states = self._cloud.states[layers, b, :, : len(self._cloud.texts[b])].swapaxes(1, 2)
        return np.round(states.astype(np.float64), 7).tolist()

    def _spans(self, first: Ints, last: Ints) -> Iterator[list[int]]:
        """From the beginning of one place to the end of another, for each pair of them."""
        starts, ends = self._offsets
        return map(list, zip(starts[first].tolist(), ends[last].tolist(), strict=True))

    def _words(self, places: Ints) -> list[str]:
        """The word at each place as it is written, in lower case."""
        starts, ends = self._cuts
        texts = [tokens.text for tokens in self._cloud.texts]
        of = self._cloud.text[places].tolist()
        cuts = zip(of, starts[places].tolist(), ends[places].tolist(), strict=True)
        return [texts[b][start:end].lower() for b, start, end in cuts]

    def _readings(self, places: Ints) -> Iterator[dict[str, Any]]:
        """What the word at each place was read together with, and what it was read as where that differs."""
        cloud = self._cloud
        text = cloud.text[places]
        negator, begin = cloud.negator[places], cloud.bounds[text]
        low = np.maximum(places + self._window[0], begin)
        low = np.where(negator < 0, low, np.minimum(low, begin + negator))
        high = np.minimum(places + self._window[1], cloud.bounds[text + 1] - 1)
        contexts = self._spans(low, high)
        for word, number, context in zip(
            self._words(places), cloud.ids[places].tolist(), contexts, strict=True
        ):
            spelt = self._spelt[number]
            if word == spelt or plain(word) == spelt:
                yield {"context": context}
            else:
                yield {"context": context, "read_as": spelt}


def resolve(cloud: Cloud) -> tuple[Ints, dict[int, list[int]]]:
    """The place that names each place's cluster, and of a tie's the leaders that it reaches."""
    tied = cloud.target < 0
    root = np.where(tied, np.arange(len(tied)), cloud.target + cloud.bounds[cloud.text])
    for _ in range(_LONGEST_CHAIN):
        further = root[root]
        if (further == root).all():
            break
        root = further
    ties: dict[int, list[int]] = {}
    if not tied.any():
        return root, ties
    for b in np.unique(cloud.text[tied]).tolist():
        ends: dict[int, int] = {}
        first: dict[tuple[int, ...], int] = {}
        for i, leaders in sorted(_reached(cloud, b, tied, root).items()):
            ends[i] = leaders[0] if len(leaders) == 1 else first.setdefault(leaders, i)
        ties |= {i: list(leaders) for leaders, i in first.items()}
        begin, end = cloud.bounds[b], cloud.bounds[b + 1]
        root[begin:end] = [ends.get(i, i) for i in root[begin:end].tolist()]
    return root, ties


def _reached(cloud: Cloud, b: int, tied: NDArray[np.bool_], root: Ints) -> dict[int, tuple[int, ...]]:
    """The leaders that each tied place of text b reaches.

    Whom a place attends to is at least as long as it is, so the longest go first. Members are found by the
    numbers that the graph compared: products and sums of d numbers, each rounded alone.
    """
    assert cloud.states is not None
    begin, end = cloud.bounds[b : b + 2].tolist()
    z = cloud.states[-2, b, :, : end - begin]  # [d, N]
    norm = np.square(z.astype(np.float64)).sum(axis=0)
    mine = (begin + np.flatnonzero(tied[begin:end])).tolist()
    found: dict[int, tuple[int, ...]] = {}
    for i in sorted(mine, key=lambda i: -norm[i - begin]):
        scores = sum(coordinate[i - begin] * coordinate for coordinate in z)
        leaders: set[int] = set()
        for j in begin + np.flatnonzero(scores == np.max(scores)):
            last = int(root[j])
            leaders |= set(found.get(last, () if last in mine else (last,)))
        found[i] = tuple(sorted(leaders)) or (i,)
    return found


def _force(units: Ints) -> Ints:
    """How much a contribution [C, n] matters: its size, or for several labels how far apart it pulls them."""
    return np.asarray(np.abs(units[0]) if len(units) == 1 else units.max(axis=0) - units.min(axis=0))


def _sums(group: Ints, units: Ints, groups: int) -> Array:
    """The sum of each group's units [C, n], as floats: exact below 2^53."""
    return np.array([np.bincount(group, part, groups) for part in units])


def _offsets(texts: Sequence[Tokens], spans: str) -> tuple[Ints, Ints]:
    """Where each place begins and ends in its text: in code points, or in units of UTF-16."""
    offsets = [(tokens.starts, tokens.ends) for tokens in texts]
    if spans == "utf16":
        units = [_utf16(tokens.text) for tokens in texts]
        offsets = [(unit[starts], unit[ends]) for unit, (starts, ends) in zip(units, offsets, strict=True)]
    starts, ends = zip(*offsets, strict=True)
    return np.concatenate(starts), np.concatenate(ends)


def _utf16(text: str) -> Ints:
    """Where each code point of a text, and its end, stands in UTF-16."""
    points = np.frombuffer(text.encode("utf-32-le"), np.uint32)
    return np.cumsum(np.append(0, 1 + (points > 0xFFFF)))
