"""Turns what a head says of several texts into what a person reads: leaders, clusters, words.

The cluster of a word is the leader that it reaches by following C at the last layer: a word attends to a
place, that one perhaps to another, until one attends to itself. Norms grow along the way, so there is an end.
Twins, words at the very same place, are one place here. A word that attends to several places at once (a tie)
is in a cluster of kind "tie", named by the leaders that it reaches. Every word is in exactly one cluster. All
numbers are whole, in units of 1e-7.
"""

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import islice, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.text.encoder import Ancestry, Read
from service.text.head import HeadOutputs, values_of
from service.text.tokenizer import SPECIAL, UNKNOWN, Ints

WORDS = 5  # how many words of a cluster are named
READ = 8  # how many of the words that a leader has read are named, unless everything is asked for
READ_AS = {**SPECIAL, UNKNOWN: "<unknown>"}
_LONGEST_CHAIN = 16  # doublings
_HEAVIEST = 1 << 40


class Reasons:
    """Clusters are numbered through all texts, in each text the weightiest first."""

    def __init__(self, outputs: HeadOutputs, spans: str) -> None:
        assert outputs.since is not None
        self._outputs = outputs
        self._logits = np.array([max(1, len(names)) for names in outputs.labels])  # of each text
        self._cuts = _offsets(outputs.texts, "codepoints")
        self._offsets = self._cuts if spans == "codepoints" else _offsets(outputs.texts, spans)
        root, self._ties = resolve(outputs)
        every = np.arange(len(root))
        # [C, M] as floats: exact below 2^53
        total = np.array([np.bincount(root, part, len(root)) for part in outputs.contribution])
        leads = np.flatnonzero(np.bincount(root))
        leads = leads[np.lexsort((-self._force(total, leads), outputs.text[leads]))]
        self._root = leads  # of each cluster
        self._total = total[:, leads]
        self._first = outputs.text[leads].searchsorted(np.arange(len(outputs.texts) + 1))  # cluster of a text
        every[leads] = np.arange(len(leads))
        self._number = every[root]  # of the cluster of each word
        self._leads = outputs.since >= 0
        self._ancestry = list(map(cache(Ancestry), outputs.texts))

    def tell_leaders(self, answers: Sequence[dict[str, Any]], most_read: int | None = READ) -> None:
        """Adds `leaders` and `clusters` to every answer."""
        outputs, root = self._outputs, self._root
        size = np.bincount(self._number, minlength=len(root))
        heaviest = self._heaviest(size)
        texts = outputs.text[root]
        clusters = zip(
            root.tolist(),
            size.tolist(),
            (size / (outputs.bounds[texts + 1] - outputs.bounds[texts])).tolist(),
            values_of(self._total, [outputs.labels[b] for b in texts.tolist()]),
            self._leaders(size, most_read),
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
                    leaders.append({"word": words[0], "cluster": number, "contribution": total, **leader})
            answer["leaders"], answer["clusters"] = leaders, told

    def _heaviest(self, size: Ints) -> Iterator[str]:
        """Of each cluster up to WORDS words: its root's, then those that weigh most."""
        outputs, number = self._outputs, self._number
        follows = np.ones(len(number), np.int64)
        follows[self._root] = 0
        force = np.minimum(self._force(outputs.contribution, np.arange(len(number))), _HEAVIEST - 1)
        # equal weights stand in the order of reading
        members = ((2 * number + follows) * _HEAVIEST - force).argsort(kind="stable")
        begin = size.cumsum() - size
        return iter(self._words(members[np.arange(len(members)) - begin[number[members]] < WORDS]))

    def _leaders(self, size: Ints, most_read: int | None) -> Iterator[dict[str, Any]]:
        """What is said of each cluster's leader and of nobody else; its twins are the leader too."""
        root, since = self._root, self._outputs.since
        assert since is not None
        twins = np.flatnonzero(self._leads)
        twins = twins[self._number[twins].argsort(kind="stable")]
        count = np.bincount(self._number[twins], minlength=len(root))
        spans = self._spans(twins)
        columns = zip(
            root.tolist(), (size - count).tolist(), count.tolist(), self._read(root, most_read), strict=True
        )
        for word, followers, places, read in columns:
            yield {
                "since_layer": int(since[word]),
                "followers": followers,
                "spans": list(islice(spans, places)),
                "read": read,
                **self._read_as(word),
            }

    def _read(self, leaders: Ints, most: int | None) -> Iterator[list[dict[str, Any]]]:
        """Of each leader the other words of which its state was made, first read first."""
        texts = self._outputs.text[leaders].tolist()
        begins = self._outputs.bounds[texts].tolist()
        found = [
            [(begin + other, layer) for other, layer in self._ancestry[b].of(leader - begin)[:most]]
            for leader, b, begin in zip(leaders.tolist(), texts, begins, strict=True)
        ]
        every = np.array([word for read in found for word, _ in read], np.int64)
        told = zip(self._words(every), self._spans(every), strict=True)
        for read in found:
            named = zip(islice(told, len(read)), read, strict=True)
            yield [{"word": word, "spans": [span], "layer": layer} for (word, span), (_, layer) in named]

    def tell_words(self, answers: Sequence[dict[str, Any]]) -> None:
        """Adds `words`, every one in the order of reading."""
        outputs = self._outputs
        every = np.arange(len(outputs.text))
        columns = zip(
            self._words(every),
            self._spans(every),
            (self._number - self._first[outputs.text]).tolist(),
            self._leads.tolist(),
            values_of(outputs.contribution, [outputs.labels[b] for b in outputs.text.tolist()]),
            map(self._read_as, every.tolist()),
            strict=True,
        )
        for b, (answer, text) in enumerate(zip(answers, outputs.texts, strict=True)):
            starts, ends = self._plane(b, [0, -1])
            mine = islice(columns, len(text.reading))
            answer["words"] = [
                {
                    "text": word,
                    "spans": [span],
                    "cluster": cluster,
                    "leader": leads,
                    "contribution": contribution,
                    "start": start,
                    "end": end,
                    "follows": follows,
                    **read_as,
                }
                for start, end, follows, (word, span, cluster, leads, contribution, read_as) in zip(
                    starts, ends, self._ancestry[b].followed(), mine, strict=True
                )
            ]

    def tell_trajectory(self, answers: Sequence[dict[str, Any]]) -> None:
        """Adds `trajectory`: every word's place at every layer."""
        for b, answer in enumerate(answers):
            answer["trajectory"] = self._plane(b, slice(None))

    def _plane(self, b: int, layers: Any) -> Any:
        """Where the words of text b are at some layers."""
        return np.round(self._outputs.plane[b][layers], 7).tolist()

    def _force(self, units: Ints, words: Ints) -> Ints:
        """How much what words contribute matters: its size, or how far apart it pulls several labels."""
        units, logits = units[:, words], self._logits[self._outputs.text[words]]
        theirs = np.arange(len(units))[:, None] >= len(units) - logits
        apart = units.max(0, where=theirs, initial=-_HEAVIEST) - units.min(0, where=theirs, initial=_HEAVIEST)
        return np.asarray(np.where(logits == 1, np.abs(units[-1]), apart))

    def _spans(self, words: Ints) -> Iterator[list[int]]:
        starts, ends = self._offsets
        return map(list, zip(starts[words].tolist(), ends[words].tolist(), strict=True))

    def _words(self, words: Ints) -> list[str]:
        """Each as it is written, in lower case."""
        starts, ends = self._cuts
        texts = [text.reading.text for text in self._outputs.texts]
        of = self._outputs.text[words].tolist()
        cuts = zip(of, starts[words].tolist(), ends[words].tolist(), strict=True)
        return [texts[b][start:end].lower() for b, start, end in cuts]

    def _read_as(self, word: int) -> dict[str, str]:
        """What was read in place of a word, if anything was."""
        b = int(self._outputs.text[word])
        reading = self._outputs.texts[b].reading
        piece = int(reading.pieces[reading.bounds[word - int(self._outputs.bounds[b])]])
        return {"read_as": READ_AS[piece]} if piece in READ_AS else {}


def resolve(outputs: HeadOutputs) -> tuple[Ints, dict[int, list[int]]]:
    """The word that names each word's cluster, and of a tie's the leaders that it reaches."""
    assert outputs.target is not None
    tied = outputs.target < 0
    root = np.where(tied, np.arange(len(tied)), outputs.target + outputs.bounds[outputs.text])
    for _ in range(_LONGEST_CHAIN):
        further = root[root]
        if (further == root).all():
            break
        root = further
    ties: dict[int, list[int]] = {}
    for b in np.unique(outputs.text[tied]).tolist():
        ends: dict[int, int] = {}
        first: dict[tuple[int, ...], int] = {}
        for i, leaders in sorted(_reached(outputs, b, tied, root).items()):
            ends[i] = leaders[0] if len(leaders) == 1 else first.setdefault(leaders, i)
        ties |= {i: list(leaders) for leaders, i in first.items()}
        begin, end = outputs.bounds[b : b + 2].tolist()
        root[begin:end] = [ends.get(i, i) for i in root[begin:end].tolist()]
    return root, ties


def _reached(outputs: HeadOutputs, b: int, tied: NDArray[np.bool_], root: Ints) -> dict[int, tuple[int, ...]]:
    """The leaders that each tied word of text b reaches.

    Whom a place attends to is at least as long as it is, so the longest go first. Places lie on a grid: their
    products are exact.
    """
    begin, end = outputs.bounds[b : b + 2].tolist()
    z = outputs.plane[b][-1]  # [N, d]
    norm = np.square(z).sum(axis=1)
    mine = begin + np.flatnonzero(tied[begin:end])
    found: dict[int, tuple[int, ...]] = {}
    for i in mine[np.argsort(-norm[mine - begin], kind="stable")].tolist():
        scores = z @ z[i - begin]
        leaders: set[int] = set()
        for j in begin + np.flatnonzero(scores == scores.max()):
            last = int(root[j])
            leaders |= set(found.get(last, () if tied[last] else (last,)))
        found[i] = tuple(sorted(leaders)) or (i,)
    return found


def _offsets(texts: Sequence[Read], spans: str) -> tuple[Ints, Ints]:
    """Where each word begins and ends in its text: in code points, or in units of UTF-16."""
    offsets = [(text.reading.starts, text.reading.ends) for text in texts]
    if spans == "utf16":
        units = list(map(cache(utf16), [text.reading.text for text in texts]))
        offsets = [(unit[starts], unit[ends]) for unit, (starts, ends) in zip(units, offsets, strict=True)]
    starts, ends = zip(*offsets, strict=True)
    return np.concatenate(starts), np.concatenate(ends)


def utf16(text: str) -> Ints:
    """Where each code point of a text, and its end, stands in UTF-16."""
    points = np.frombuffer(text.encode("utf-32-le"), np.uint32)
    return np.cumsum(np.append(0, 1 + (points > 0xFFFF)))
