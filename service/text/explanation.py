"""Explain the outputs of heads for several texts: leaders, clusters, words.

The cluster of a word is the leader that it reaches by following `target` at the last layer: a word attends to
a position, which may attend to another, until one attends to itself. Norms grow along the chain, so it ends.
Words at the same position count as one. A word that attends to several positions at once (a tie) is in a
cluster of kind "tie", named by the leaders that it reaches. Every word is in exactly one cluster. All numbers
are integers, in units of 1e-7.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.text.decision import label_values
from service.text.encoder import EncodedText, ReceptiveFields
from service.text.head import HeadOutputs
from service.text.spans import utf16_offsets
from service.text.tokenizer import Ints

MAX_CLUSTER_WORDS = 5  # listed of a cluster
MAX_READ_WORDS = 8  # listed of a leader's receptive field, unless `explain` is full
_MAX_DOUBLINGS = 16  # of the length of a chain
_MAX_WEIGHT = 1 << 40  # in units


class Explainer:
    """Adds explanations to answers. Clusters are numbered through all texts, in each text by their weight."""

    def __init__(self, outputs: HeadOutputs, offset_unit: str, replacements: Mapping[int, str]) -> None:
        assert outputs.leader_since is not None
        self._outputs = outputs
        self._codepoints = _word_offsets(outputs.texts, "codepoints")
        self._offsets = (
            self._codepoints if offset_unit == "codepoints" else _word_offsets(outputs.texts, offset_unit)
        )
        self._is_leader = outputs.leader_since >= 0
        self._fields = ReceptiveFields(outputs.texts, outputs.sizes)
        tokens = np.concatenate([text.tokenized.token_ids for text in outputs.texts])
        first_tokens = tokens[np.cumsum(outputs.sizes) - outputs.sizes].tolist()
        self._read_as = {
            i: {"read_as": replacements[token]}
            for i, token in enumerate(first_tokens)
            if token in replacements
        }
        root, self._ties = resolve_clusters(outputs)
        self._number_clusters(root)

    def _number_clusters(self, root: Ints) -> None:
        """Enumerate the clusters, of which `root` names a word each, by text and weight."""
        outputs = self._outputs
        # [C, M] as floats: exact below 2^53
        total = np.array([np.bincount(root, part, len(root)) for part in outputs.contribution])
        roots = np.flatnonzero(np.bincount(root))
        self._root = roots[np.lexsort((-self._weights(total, roots), outputs.text[roots]))]
        self._total = total[:, self._root]
        # the first cluster of each text
        self._first_cluster = outputs.text[self._root].searchsorted(np.arange(len(outputs.texts) + 1))
        number = np.arange(len(root))
        number[self._root] = np.arange(len(self._root))
        self._cluster = number[root]  # of each word
        self._size = np.bincount(self._cluster, minlength=len(self._root))

    def add_leaders(
        self, answers: Sequence[dict[str, Any]], max_read_words: int | None = MAX_READ_WORDS
    ) -> None:
        """Add `leaders` and `clusters` to every answer."""
        clusters, leaders = self._describe_clusters(), self._describe_leaders(max_read_words)
        for answer, (begin, end) in zip(answers, pairwise(self._first_cluster.tolist()), strict=True):
            own = range(begin, end)
            answer["leaders"] = [
                {
                    "word": clusters[i]["leaders"][0],
                    "cluster": i - begin,
                    "contribution": clusters[i]["contribution"],
                    **leaders[i],
                }
                for i in own
                if clusters[i]["kind"] == "leader"
            ]
            answer["clusters"] = [{"id": i - begin, **clusters[i]} for i in own]

    def _describe_clusters(self) -> list[dict[str, Any]]:
        outputs, heaviest = self._outputs, self._heaviest_words()
        shares = self._size / np.diff(outputs.bounds)[outputs.text[self._root]]
        contributions = label_values(self._total, outputs.labels)
        columns = self._root.tolist(), self._size.tolist(), shares.tolist(), contributions
        clusters = []
        for root, size, share, contribution in zip(*columns, strict=True):
            words = list(dict.fromkeys(islice(heaviest, min(size, MAX_CLUSTER_WORDS))))
            tied = self._ties.get(root)
            clusters.append(
                {
                    "kind": "leader" if tied is None else "tie",
                    "leaders": words[:1] if tied is None else self._words(np.array(tied)),
                    "words": words,
                    "size": size,
                    "share": round(share, 7),
                    "contribution": contribution,
                }
            )
        return clusters

    def _describe_leaders(self, max_read_words: int | None) -> list[dict[str, Any]]:
        """Return the fields of each cluster's leader; words equal to the leader count as the leader."""
        assert self._outputs.leader_since is not None
        leading = np.flatnonzero(self._is_leader)
        leading = leading[self._cluster[leading].argsort(kind="stable")]
        counts, spans = np.bincount(self._cluster[leading], minlength=len(self._root)), self._spans(leading)
        columns = self._outputs.leader_since[self._root], self._size - counts, counts
        numbers = (column.tolist() for column in (self._root, *columns))
        read = self._read_words(leading, max_read_words)
        return [
            {
                "since_layer": since_layer,
                "followers": followers,
                "spans": list(islice(spans, count)),
                "read": words,
                "read_total": total,
                **self._read_as.get(root, {}),
            }
            for root, since_layer, followers, count, words, total in zip(*numbers, *read, strict=True)
        ]

    def _heaviest_words(self) -> Iterator[str]:
        """Yield up to MAX_CLUSTER_WORDS words of each cluster: its root, then by weight."""
        cluster = self._cluster
        is_follower = np.ones(len(cluster), np.int64)
        is_follower[self._root] = 0
        weights = self._weights(self._outputs.contribution, np.arange(len(cluster)))
        weights = np.minimum(weights, _MAX_WEIGHT - 1)
        # equal weights keep the order of reading
        members = ((2 * cluster + is_follower) * _MAX_WEIGHT - weights).argsort(kind="stable")
        begin = self._size.cumsum() - self._size
        rank = np.arange(len(members)) - begin[cluster[members]]
        return iter(self._words(members[rank < MAX_CLUSTER_WORDS]))

    def _read_words(
        self, leading: Ints, max_words: int | None
    ) -> tuple[list[list[dict[str, Any]]], list[int]]:
        """Return for each cluster the words that its leader's state was computed from, and their number.

        They are in the order of entry. Several words may be at the position of the leader: then these are the
        words that any of them has read, but for themselves.
        """
        index, read, layer = self._fields.find_read_words(leading)
        cluster = self._cluster[leading][index]
        is_other = ~self._is_leader[read] | (self._cluster[read] != cluster)
        entries = np.stack([cluster, read, layer])[:, is_other]
        cluster, read, layer = entries[:, np.lexsort(entries[[1, 2, 0]])]
        # the first entry of each word that leaders at the same position have read
        first = np.sort(np.unique(cluster * len(self._cluster) + read, return_index=True)[1])
        cluster, read, layer = cluster[first], read[first], layer[first]
        totals = np.bincount(cluster, minlength=len(self._root))
        rank = np.arange(len(cluster)) - (totals.cumsum() - totals)[cluster]
        shown = np.flatnonzero(rank < (len(rank) if max_words is None else max_words))
        read = read[shown]
        columns = zip(self._words(read), self._spans(read), layer[shown].tolist(), strict=True)
        words = [{"word": word, "spans": [span], "layer": layer} for word, span, layer in columns]
        ends = np.bincount(cluster[shown], minlength=len(self._root)).cumsum().tolist()
        return [words[begin:end] for begin, end in pairwise([0, *ends])], totals.tolist()

    def add_words(self, answers: Sequence[dict[str, Any]]) -> None:
        """Add `words`, all of them in the order of the text, to every answer."""
        outputs = self._outputs
        indices = np.arange(len(outputs.text))
        columns = zip(
            self._words(indices),
            self._spans(indices),
            (self._cluster - self._first_cluster[outputs.text]).tolist(),
            self._is_leader.tolist(),
            label_values(outputs.contribution, outputs.labels),
            (self._read_as.get(word, {}) for word in indices.tolist()),
            strict=True,
        )
        for b, (answer, text) in enumerate(zip(answers, outputs.texts, strict=True)):
            starts, ends = self._positions(b, [0, -1])
            attended = self._fields.find_attended(b, int(outputs.bounds[b]))
            words = zip(islice(columns, len(text.tokenized)), starts, ends, attended, strict=True)
            answer["words"] = [
                {
                    "word": word,
                    "spans": [span],
                    "cluster": cluster,
                    "leader": is_leader,
                    "contribution": contribution,
                    "position": start,
                    "final_position": end,
                    "attends_to": attended,
                    **read_as,
                }
                for (word, span, cluster, is_leader, contribution, read_as), start, end, attended in words
            ]

    def _positions(self, b: int, layers: Any) -> Any:
        return np.round(self._outputs.positions[b][layers], 7).tolist()

    def _weights(self, units: Ints, words: Ints) -> Ints:
        """Return the weights of contributions: their absolute values, or their ranges over several labels."""
        units = units[:, words]
        return np.asarray(np.abs(units[0]) if len(units) == 1 else np.ptp(units, axis=0))

    def _spans(self, words: Ints) -> Iterator[list[int]]:
        starts, ends = self._offsets
        return map(list, zip(starts[words].tolist(), ends[words].tolist(), strict=True))

    def _words(self, words: Ints) -> list[str]:
        """Return words as they are written, in lower case."""
        starts, ends = self._codepoints
        texts = [text.tokenized.text for text in self._outputs.texts]
        text_ids = self._outputs.text[words].tolist()
        cuts = zip(text_ids, starts[words].tolist(), ends[words].tolist(), strict=True)
        return [texts[b][start:end].lower() for b, start, end in cuts]


def add_trajectory(outputs: HeadOutputs, answers: Sequence[dict[str, Any]]) -> None:
    """Add `trajectory`, the position of every word at every layer, to every answer."""
    for positions, answer in zip(outputs.positions, answers, strict=True):
        answer["trajectory"] = np.round(positions, 7).tolist()


def resolve_clusters(outputs: HeadOutputs) -> tuple[Ints, dict[int, list[int]]]:
    """Return the word that names each word's cluster, and for a tie the leaders that it reaches."""
    assert outputs.target is not None
    tied = outputs.target < 0
    root = np.where(tied, np.arange(len(tied)), outputs.target + outputs.bounds[outputs.text])
    for _ in range(_MAX_DOUBLINGS):
        next_root = root[root]
        if (next_root == root).all():
            break
        root = next_root
    ties: dict[int, list[int]] = {}
    for b in np.unique(outputs.text[tied]).tolist():
        new_root: dict[int, int] = {}
        first_tied: dict[tuple[int, ...], int] = {}
        for i, leaders in sorted(_reachable_leaders(outputs, b, tied, root).items()):
            new_root[i] = leaders[0] if len(leaders) == 1 else first_tied.setdefault(leaders, i)
        ties |= {i: list(leaders) for leaders, i in first_tied.items()}
        begin, end = outputs.bounds[b : b + 2].tolist()
        root[begin:end] = [new_root.get(i, i) for i in root[begin:end].tolist()]
    return root, ties


def _reachable_leaders(
    outputs: HeadOutputs, b: int, tied: NDArray[np.bool_], root: Ints
) -> dict[int, tuple[int, ...]]:
    """Return the leaders that each tied word of text b reaches.

    A position attends to one that is at least as long, so the longest go first. Positions lie on a grid:
    their products are exact.
    """
    begin, end = outputs.bounds[b : b + 2].tolist()
    z = outputs.positions[b][-1]  # [N, d]
    norm = np.square(z).sum(axis=1)
    words = begin + np.flatnonzero(tied[begin:end])
    reached: dict[int, tuple[int, ...]] = {}
    for i in words[np.argsort(-norm[words - begin], kind="stable")].tolist():
        scores = z @ z[i - begin]
        leaders: set[int] = set()
        for j in begin + np.flatnonzero(scores == scores.max()):
            word = int(root[j])
            leaders |= set(reached.get(word, () if tied[word] else (word,)))
        reached[i] = tuple(sorted(leaders)) or (i,)
    return reached


def _word_offsets(texts: Sequence[EncodedText], unit: str) -> tuple[Ints, Ints]:
    """Return where each word begins and ends in its text, in code points or in units of UTF-16."""
    offsets = [(text.tokenized.starts, text.tokenized.ends) for text in texts]
    if unit == "utf16":
        units = [utf16_offsets(text.tokenized.text) for text in texts]
        offsets = [(unit[starts], unit[ends]) for unit, (starts, ends) in zip(units, offsets, strict=True)]
    starts, ends = zip(*offsets, strict=True)
    return np.concatenate(starts), np.concatenate(ends)
