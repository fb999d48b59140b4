"""From argmax sets to leaders and clusters; knows nothing of layers, ONNX or the wire."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from service.cloud import Cloud, Floats, Ints


@dataclass(frozen=True)
class Leader:
    """A given point that leads."""

    index: int
    since_layer: int
    point: Floats
    followers: int
    cluster: int


@dataclass(frozen=True)
class Cluster:
    """The given points with one limit."""

    id: int
    kind: Literal["leader", "tie"]
    leaders: list[int]
    limit: Floats
    size: int


@dataclass(frozen=True)
class Leaders(Iterable[Leader]):
    """Every given point that leads, by index. A twin leads where its twin does, and is listed on its own."""

    index: Ints  # [l]
    since_layer: Ints  # [l]
    point: Floats  # [l,d]
    followers: Ints  # [l] points of its cluster that are not itself or a twin
    cluster: Ints  # [l]

    def __iter__(self) -> Iterator[Leader]:
        columns = (self.index.tolist(), self.since_layer.tolist(), self.point, self.followers.tolist())
        for row in zip(*columns, self.cluster.tolist(), strict=True):
            yield Leader(*row)

    def __len__(self) -> int:
        return len(self.index)


@dataclass(frozen=True)
class Clusters(Iterable[Cluster]):
    """Tokens with one limit: the followers of one leader, or those drawn between leaders that tie."""

    leaders: tuple[Ints, ...]  # the points each cluster is drawn to
    tie: npt.NDArray[np.bool_]  # [c] between several leaders
    limit: Floats  # [c,d]
    size: Ints  # [c] points, twins counted

    def __iter__(self) -> Iterator[Cluster]:
        for number, leaders in enumerate(self.leaders):
            kind: Literal["leader", "tie"] = "tie" if self.tie[number] else "leader"
            yield Cluster(number, kind, leaders.tolist(), self.limit[number], int(self.size[number]))

    def __len__(self) -> int:
        return len(self.leaders)


def read_leaders(cloud: Cloud, since: Ints, points: Floats, assignment: Ints, clusters: Clusters) -> Leaders:
    """The leaders among the given points, in the order they were given."""
    index = np.flatnonzero(since[cloud.place] >= 0)
    place = cloud.place[index]
    cluster = assignment[index]
    followers = clusters.size[cluster] - cloud.counts[place]
    return Leaders(index, since[place], cloud.restore(points[place]), followers, cluster)


def read_clusters(cloud: Cloud, hint: Ints, size: Ints, ties: Ints, target: Floats) -> tuple[Clusters, Ints]:
    """Clusters by argmax sets, single ones first, each kind by its first leader; every point's cluster."""
    sets = argmax_sets(hint, size, ties)
    names: dict[tuple[int, ...], int] = {}
    label = np.fromiter((names.setdefault(members, len(names)) for members in sets), np.int64, len(sets))
    given = _twins(cloud)
    leaders = [np.sort(np.concatenate([given[i] for i in members])) for members in names]
    tie = np.array([len(members) > 1 for members in names])
    order = np.array(sorted(range(len(names)), key=lambda c: (tie[c], tuple(leaders[c]))), np.int64)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    one = np.empty(len(names), np.int64)
    one[label[::-1]] = np.arange(len(label))[::-1]  # some token of each cluster
    assignment = rank[label][cloud.place]
    return (
        Clusters(
            leaders=tuple(leaders[c] for c in order),
            tie=tie[order],
            limit=cloud.restore(target[one[order]]),
            size=np.bincount(assignment, minlength=len(order)),
        ),
        assignment,
    )


def argmax_sets(first: Ints, size: Ints, ties: Ints) -> list[tuple[int, ...]]:
    """C_i of every distinct token, as sorted positions."""
    sets: list[tuple[int, ...]] = [(i,) for i in first.tolist()]
    order = np.lexsort((ties[1], ties[0]))
    row, member = ties[:, order]
    tied = np.flatnonzero(size > 1)
    bounds = np.searchsorted(row, np.append(tied, len(size)))
    for i, start, stop in zip(tied.tolist(), bounds[:-1], bounds[1:], strict=True):
        sets[i] = tuple(member[start:stop].tolist())
    return sets


def polytope_vertices(leaders: Leaders) -> Ints:
    """The vertices of the limit polytope, as given points: its leaders, twins once; in the plane, in turn.

    No hull is computed. A leader is the only maximiser of <A z_l, .> over the cloud: that makes it a vertex
    of every later hull; and every vertex of the limit polytope is a leader (docs/theory.md, section 3).
    """
    _, one = np.unique(leaders.cluster, return_index=True)
    one = np.sort(one)
    if leaders.point.shape[1] == 2 and len(one) > 2:
        x, y = (leaders.point[one] - leaders.point[one].mean(axis=0)).T
        one = one[np.argsort(np.arctan2(y, x))]
    return leaders.index[one]


def _twins(cloud: Cloud) -> list[Ints]:
    """The given points of each distinct one."""
    order = np.argsort(cloud.place, kind="stable")
    return np.split(order, np.cumsum(cloud.counts)[:-1])
