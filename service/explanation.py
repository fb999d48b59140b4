"""Turns the arrays of a batch into what a person reads: leaders, clusters, words.

The cluster of a word is the leader that it reaches by following C at the last layer: a word attends to a
token, that one perhaps to another, until one attends to itself. Norms grow along the way, so there is an end.
A word that attends to several tokens at once (a tie) and through them reaches more than one leader is in a
cluster of kind "tie", named by those leaders. Every word is in exactly one cluster.
Knows arrays and names; no sessions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Ties = Mapping[int, Sequence[int]]  # cluster -> its leaders, all as flat positions
DECIMALS = 7


@dataclass(frozen=True)
class Outputs:
    """What the graph says of a batch, flat: text b's token i is at b * N + i."""

    counts: Array
    contribution: Array
    target: Array
    size: Array
    since: Array

    @property
    def width(self) -> int:
        return int(self.counts.shape[1])


@dataclass(frozen=True)
class Clusters:
    """The clusters of a batch: those of text b are numbers start[b] to start[b + 1], the weightiest first."""

    root: list[int]  # position of the leader (of a tie: of its first word)
    start: list[int]
    contribution: list[float]
    share: list[float]
    size: list[int]  # distinct words
    members: Array  # positions of all words, cluster after cluster; the leader first, then by |contribution|
    number: Array  # [B * N] cluster of each position


def follow(target: Array) -> Array:
    """The end of every chain i -> target_i -> .., as flat positions; doubling the stride each time."""
    rows, width = target.shape
    root: Array = (target + np.arange(rows)[:, None] * width).ravel()
    while True:
        further: Array = root[root]
        if np.array_equal(further, root):
            return root
        root = further


def resolve_tie(root: Array, members: Array, offset: int) -> dict[int, tuple[int, ...]]:
    """Gives the words of one text that end in ties their clusters; members [n, n] is C, `root` changes too.

    ->  the tie clusters (position of the first word -> positions of the leaders)
    """
    sizes = members.sum(axis=1)
    reached: dict[int, frozenset[int]] = {}

    def reach(i: int, path: frozenset[int]) -> frozenset[int]:
        """Leaders that i reaches; tokens that merely tie with each other lead together."""
        if i in reached:
            return reached[i]
        others = [int(j) for j in np.flatnonzero(members[i]) if j != i and j not in path]
        found = frozenset().union(*(reach(j, path | {i}) for j in others))
        if not path:
            reached[i] = found or frozenset(np.flatnonzero(members[i]).tolist() or [i])
            return reached[i]
        return found or (frozenset([i]) if sizes[i] == 1 else frozenset())

    first: dict[frozenset[int], int] = {}
    for i in range(len(members)):
        leaders = reach(i, frozenset())
        single = len(leaders) == 1 and sizes[next(iter(leaders))] == 1
        root[offset + i] = offset + (next(iter(leaders)) if single else first.setdefault(leaders, i))
    return {offset + i: tuple(offset + leader for leader in sorted(group)) for group, i in first.items()}


def cluster(outputs: Outputs, root: Array) -> Clusters:
    """Groups a batch by root; all texts at once."""
    counts, contribution = outputs.counts.ravel(), outputs.contribution.ravel().astype(np.float64)
    n = len(counts)
    real = np.flatnonzero(counts)
    weight = np.bincount(root[real], contribution[real], n)
    occurrences = np.bincount(root[real], counts[real], n)
    size = np.bincount(root[real], minlength=n)
    leads = np.flatnonzero(size)
    text = leads // outputs.width
    order = np.lexsort((-np.abs(weight[leads]), text))
    leads, text = leads[order], text[order]
    number = np.zeros(n, dtype=np.int64)
    number[leads] = np.arange(len(leads))
    number = number[root]
    total = np.bincount(real // outputs.width, counts[real], len(outputs.counts))
    weightless = np.abs(contribution[real])
    place = number[real] + 0.5 - 0.5 * weightless / (weightless.max(initial=0.0) + 1e-30)
    place[root[real] == real] = number[real[root[real] == real]] - 0.1
    return Clusters(
        root=leads.tolist(),
        start=np.searchsorted(text, np.arange(len(outputs.counts) + 1)).tolist(),
        contribution=np.round(weight[leads], DECIMALS).tolist(),
        share=np.round(occurrences[leads] / total[text], DECIMALS).tolist(),
        size=size[leads].tolist(),
        members=real[np.argsort(place)],
        number=number,
    )


def describe(
    outputs: Outputs,
    clusters: Clusters,
    ties: Ties,
    names: Array,
    spans: Callable[[int, int], list[tuple[int, int]]],
) -> list[dict[str, Any]]:
    """For every text its `leaders` and `clusters`. names [B, N]; spans(b, i) are a token's places."""
    width = outputs.width
    flat = names.ravel()
    words = flat[clusters.members].tolist()
    since = outputs.since.ravel()[clusters.root].tolist()
    rows = list(zip(clusters.root, clusters.size, clusters.share, clusters.contribution, since, strict=True))
    answers = []
    end = 0
    for b, (first, last) in enumerate(pairwise(clusters.start)):
        leaders: list[dict[str, Any]] = []
        groups: list[dict[str, Any]] = []
        for number, (root, size, share, contribution, since_layer) in enumerate(rows[first:last]):
            group = words[end : end + size]
            end += size
            tied = ties.get(root)
            groups.append(
                {
                    "id": number,
                    "kind": "leader" if tied is None else "tie",
                    "leaders": group[:1] if tied is None else [flat[leader] for leader in tied],
                    "words": group,
                    "share": share,
                    "contribution": contribution,
                }
            )
            if tied is None:
                leaders.append(
                    {
                        "word": group[0],
                        "cluster": number,
                        "since_layer": since_layer,
                        "followers": size - 1,
                        "contribution": contribution,
                        "spans": spans(b, root - b * width),
                    }
                )
        answers.append({"leaders": leaders, "clusters": groups})
    return answers
