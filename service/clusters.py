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


def read_clusters(cloud: Cloud, first: Ints, size: Ints, ties: Ints, target: Floats) -> tuple[Clusters, Ints]:
    """Clusters by argmax sets, single ones first, each kind by its first leader; every point's cluster.

    first and size describe each distinct token's set C_i, ties lists the pairs (i, member) of those with
    several, target is the mean over C_i.
    """
    sets, name = argmax_sets(first, size, ties)
    given = _Twins(cloud)
    leaders = [np.sort(np.concatenate([given.of(i) for i in members])) for members in sets]
    tie = np.array([len(members) > 1 for members in sets])
    order = np.array(sorted(range(len(sets)), key=lambda c: (tie[c], leaders[c][0], leaders[c].tolist())))
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    _, someone = np.unique(name, return_index=True)
    assignment = rank[name][cloud.place]
    return (
        Clusters(
            leaders=tuple(leaders[c] for c in order),
            tie=tie[order],
            limit=cloud.restore(target[someone[order]]),
            size=np.bincount(assignment, minlength=len(order)),
        ),
        assignment,
    )


def argmax_sets(first: Ints, size: Ints, ties: Ints) -> tuple[list[Ints], Ints]:
    """The different sets C_i, each sorted, and which of them each distinct token has."""
    order = np.lexsort((ties[1], ties[0]))
    row, member = ties[:, order]
    tied = np.flatnonzero(size > 1)
    bounds = np.searchsorted(row, np.append(tied, len(size)))
    known: dict[bytes, int] = {}
    key = first.copy()  # a single member names the set; sets of several are numbered after all tokens
    for i, start, stop in zip(tied.tolist(), bounds[:-1], bounds[1:], strict=True):
        key[i] = len(first) + known.setdefault(member[start:stop].tobytes(), len(known))
    several = [np.frombuffer(members, np.int64) for members in known]
    keys, name = np.unique(key, return_inverse=True)
    sets = [np.array([k]) if k < len(first) else several[k - len(first)] for k in keys.tolist()]
    return sets, name


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


class _Twins:
    """The given points of each distinct one."""

    def __init__(self, cloud: Cloud) -> None:
        self._order = np.argsort(cloud.place, kind="stable")
        self._ends = np.cumsum(cloud.counts)
        self._counts = cloud.counts

    def of(self, i: int) -> Ints:
        return self._order[self._ends[i] - self._counts[i] : self._ends[i]]
