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
from functools import cached_property
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
    bias: Ints  # [C, B]
    contribution: Ints  # [C, T]
    target: Ints  # [T] a place of the same text, -1 for a tie
    since: Ints  # [T]
    states: Sequence[Array]  # a text [K+1, d, N]

    @cached_property
    def bounds(self) -> Ints:
        """Text b has the places bounds[b] to bounds[b + 1]."""
        return np.cumsum([0, *map(len, self.texts)])

    @cached_property
    def text(self) -> Ints:
        """The text of each place."""
        return np.repeat(np.arange(len(self.texts)), np.diff(self.bounds))

    @cached_property
    def ids(self) -> Ints:
        return np.concatenate([tokens.ids for tokens in self.texts])

    @cached_property
    def starts(self) -> Ints:
        return np.concatenate([tokens.starts for tokens in self.texts])

    @cached_property
    def ends(self) -> Ints:
        return np.concatenate([tokens.ends for tokens in self.texts])

    def sums(self) -> Ints:
        """The sum of contributions of each text, [C, B]."""
        total = np.zeros((len(self.contribution), len(self.ids) + 1), np.int64)
        np.cumsum(self.contribution, axis=1, out=total[:, 1:])
        return total[:, self.bounds[1:]] - total[:, self.bounds[:-1]]

    def count(self, marked: NDArray[np.bool_]) -> list[int]:
        """How many places of each text are marked."""
        return list(map(int, np.bincount(self.text, marked, len(self.texts)).tolist()))


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
        root, self._ties = resolve(cloud)
        n = len(root)
        weight = np.stack([_sums(root, part, n) for part in cloud.contribution])  # [C, T]
        size = np.bincount(root, minlength=n)
        leads = np.flatnonzero(size)
        leads = leads[np.lexsort((-_force(weight[:, leads]), cloud.text[leads]))]
        self._root, self._size = leads, size[leads]
        self._weight = weight[:, leads]
        self._first = np.searchsorted(cloud.text[leads], np.arange(len(cloud.texts) + 1))  # cluster of a text
        number = np.zeros(n, np.int64)
        number[leads] = np.arange(len(leads))
        self._number = number[root]
        self._is_root = root == np.arange(n)
        place = np.minimum(_force(cloud.contribution), _HEAVIEST - 1)
        self._members = np.argsort((2 * self._number + ~self._is_root) * _HEAVIEST + _HEAVIEST - 1 - place)
        self._starts, self._ends = _offsets(cloud, spans)

    def tell_leaders(self, answers: Sequence[dict[str, Any]]) -> None:
        """Adds `leaders` and `clusters` to every answer."""
        cloud, size, root = self._cloud, self._size, self._root
        count = np.minimum(size, WORDS)
        rank = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
        words = iter(self._words(self._members[np.repeat(np.cumsum(size) - size, count) + rank]))
        clusters = zip(
            root.tolist(),
            size.tolist(),
            count.tolist(),
            (size / np.diff(cloud.bounds)[cloud.text[root]]).tolist(),
            values_of(self._weight, self._labels),
            self._leaders(),
            strict=True,
        )
        for answer, (begin, end) in zip(answers, pairwise(self._first.tolist()), strict=True):
            leaders: list[dict[str, Any]] = []
            told: list[dict[str, Any]] = []
            for number in range(end - begin):
                first, places, named, share, total, leader = next(clusters)
                heaviest = list(dict.fromkeys(islice(words, named)))
                tied = self._ties.get(first)
                told.append(
                    {
                        "id": number,
                        "kind": "leader" if tied is None else "tie",
                        "leaders": heaviest[:1] if tied is None else self._words(np.array(tied)),
                        "words": heaviest,
                        "size": places,
                        "share": round(share, 7),
                        "contribution": total,
                    }
                )
                if tied is None:
                    leaders.append({"word": heaviest[0], "cluster": number, **leader})
            answer["leaders"], answer["clusters"] = leaders, told

    def _leaders(self) -> Iterator[dict[str, Any]]:
        """What is said of each cluster's leader and of nobody else; its twins are the leader too."""
        cloud, root = self._cloud, self._root
        twins = np.flatnonzero((cloud.since >= 0) | self._is_root)
        twins = twins[np.argsort(self._number[twins], kind="stable")]
        number = self._number[twins]
        count = np.bincount(number, minlength=len(root))
        own = np.stack([_sums(number, part[twins], len(root)) for part in cloud.contribution])
        spans = self._spans(twins, twins)
        columns = zip(
            np.maximum(cloud.since[root], 0).tolist(),
            (self._size - count).tolist(),
            values_of(own, self._labels),
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
        for answer, tokens, states in zip(answers, cloud.texts, cloud.states, strict=True):
            ends = _rounded(states[[0, -1], :, : len(tokens)].swapaxes(1, 2))
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
                    *ends, islice(columns, len(tokens)), strict=True
                )
            ]

    def tell_trajectory(self, answers: Sequence[dict[str, Any]]) -> None:
        """Adds `trajectory`: every word's place at every layer."""
        for answer, tokens, states in zip(answers, self._cloud.texts, self._cloud.states, strict=True):
            answer["trajectory"] = _rounded(states[:, :, : len(tokens)].swapaxes(1, 2))

    def _spans(self, first: Ints, last: Ints) -> Iterator[list[int]]:
        """From the beginning of one place to the end of another, for each pair of them."""
        return map(list, zip(self._starts[first].tolist(), self._ends[last].tolist(), strict=True))

    def _words(self, places: Ints) -> list[str]:
        """The word at each place as it is written, in lower case."""
        cloud = self._cloud
        cuts = zip(
            cloud.text[places].tolist(),
            cloud.starts[places].tolist(),
            cloud.ends[places].tolist(),
            strict=True,
        )
        texts = [tokens.text for tokens in cloud.texts]
        return [texts[b][start:end].lower() for b, start, end in cuts]

    def _readings(self, places: Ints) -> Iterator[dict[str, Any]]:
        """What the word at each place was read together with, and what it was read as where that differs."""
        cloud = self._cloud
        begin, end = cloud.bounds[cloud.text[places]], cloud.bounds[cloud.text[places] + 1]
        low, high = np.maximum(places + self._window[0], begin), np.minimum(places + self._window[1], end - 1)
        contexts = self._spans(low, high)
        ids = cloud.ids[places].tolist()
        for word, number, context in zip(self._words(places), ids, contexts, strict=True):
            spelt = self._spelt[number]
            if word == spelt or plain(word) == spelt:
                yield {"context": context}
            else:
                yield {"context": context, "read_as": spelt}


def resolve(cloud: Cloud) -> tuple[Ints, dict[int, list[int]]]:
    """The place that names each place's cluster, and of a tie's the leaders that it reaches."""
    tied = np.flatnonzero(cloud.target < 0)
    root = np.where(cloud.target < 0, np.arange(len(cloud.target)), cloud.target)
    for _ in range(_LONGEST_CHAIN):
        further = root[root]
        if np.array_equal(further, root):
            break
        root = further
    ties: dict[int, list[int]] = {}
    if not len(tied):
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


def _reached(cloud: Cloud, b: int, tied: Ints, root: Ints) -> dict[int, tuple[int, ...]]:
    """The leaders that each tied place of text b reaches.

    Whom a place attends to is at least as long as it is, so the longest go first. Members are found by the
    numbers that the graph compared: products and sums of d numbers, each rounded alone.
    """
    begin, end = int(cloud.bounds[b]), int(cloud.bounds[b + 1])
    z = cloud.states[b][-2][:, : end - begin]  # [d, N]
    norm = np.square(z.astype(np.float64)).sum(axis=0)
    mine = [int(i) for i in tied[(tied >= begin) & (tied < end)]]
    found: dict[int, tuple[int, ...]] = {}
    for i in sorted(mine, key=lambda i: -norm[i - begin]):
        scores = sum(coordinate[i - begin] * coordinate for coordinate in z)
        leaders: set[int] = set()
        for j in begin + np.flatnonzero(scores == np.max(scores)):
            last = int(root[j])
            leaders |= set(found.get(last, () if last in mine else (last,)))
        found[i] = tuple(sorted(leaders)) or (i,)
    return found


def _sums(root: Ints, part: Ints, n: int) -> Ints:
    """subtle: bincount adds as floats, which is exact below 2^53 units."""
    return np.bincount(root, part, n).astype(np.int64)


def _force(units: Ints) -> Ints:
    """How much a contribution [C, n] matters: its size, or for several labels how far apart it pulls them."""
    return np.asarray(np.abs(units[0]) if len(units) == 1 else units.max(axis=0) - units.min(axis=0))


def _offsets(cloud: Cloud, spans: str) -> tuple[Ints, Ints]:
    """Where each place begins and ends in its text: in code points, or in units of UTF-16."""
    if spans != "utf16":
        return cloud.starts, cloud.ends
    starts, ends = zip(*map(_utf16, cloud.texts), strict=True)
    return np.concatenate(starts), np.concatenate(ends)


def _utf16(tokens: Tokens) -> tuple[Ints, Ints]:
    points = np.frombuffer(tokens.text.encode("utf-32-le"), np.uint32)
    unit = np.cumsum(np.append(0, 1 + (points > 0xFFFF)))
    return unit[tokens.starts], unit[tokens.ends]


def _rounded(values: Array) -> Any:
    return np.round(values.astype(np.float64), 7).tolist()
