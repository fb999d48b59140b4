"""Leaders and clusters from argmax sets."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from service.cloud.points import Bools, Cloud, Floats, Ints, scale_to_one
from service.cloud.sets import Ragged, Ties, range_starts


@dataclass(frozen=True)
class Leaders:
    """The given points that lead, by index. Equal points are listed one by one."""

    index: Ints  # [l]
    since_layer: Ints  # [l]
    point: Floats  # [l,d]
    followers: Ints  # [l] the number of points of its cluster that do not equal it
    cluster: Ints  # [l]

    def __len__(self) -> int:
        return len(self.index)


@dataclass(frozen=True)
class Clusters:
    """Tokens with the same limit: the followers of one leader, or of several leaders that tie."""

    leaders: Ragged  # the points that each cluster moves to, in order
    tie: Bools  # [c] whether it has several leaders
    limit: Floats  # [c,d]
    size: Ints  # [c] the number of given points

    def __len__(self) -> int:
        return len(self.leaders)


def read_leaders(cloud: Cloud, since: Ints, points: Floats, assignment: Ints, clusters: Clusters) -> Leaders:
    """Return the leaders among the given points, in the order they were given."""
    index = np.flatnonzero(since[cloud.inverse] >= 0)
    distinct = cloud.inverse[index]
    cluster = assignment[index]
    followers = clusters.size[cluster] - cloud.counts[distinct]
    return Leaders(index, since[distinct], cloud.restore(points[distinct]), followers, cluster)


def read_clusters(
    cloud: Cloud, first: Ints, ties: Ties, targets: Callable[[Ints], Floats]
) -> tuple[Clusters, Ints]:
    """Return the clusters and the cluster of every point.

    Clusters of one leader come first; each kind is sorted by its first leader.

    `first` is the first member of each distinct token's set, `ties` has the sets with several members.
    `targets` returns the mean over the set of each of these tokens.
    """
    sets, representative, index = argmax_sets(first, ties.row, ties.sets)
    leaders = original_members(cloud, sets)
    tie = sets.lengths > 1
    single = np.flatnonzero(~tie)
    tied = sorted(np.flatnonzero(tie).tolist(), key=lambda c: leaders[c].tolist())
    earliest = leaders.flat[range_starts(leaders.lengths)]
    order = np.concatenate([single[np.argsort(earliest[single])], np.array(tied, np.int64)])
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    assignment = rank[index][cloud.inverse]
    return (
        Clusters(
            leaders=leaders.take(order),
            tie=tie[order],
            limit=cloud.restore(targets(representative[order])),
            size=np.bincount(assignment, minlength=len(order)),
        ),
        assignment,
    )


def original_members(cloud: Cloud, sets: Ragged) -> Ragged:
    """Return sets of given points, in order, from sets of distinct points."""
    originals = Ragged(np.argsort(cloud.inverse, kind="stable"), cloud.counts).take(sets.flat)
    owner = np.repeat(np.repeat(np.arange(len(sets)), sets.lengths), originals.lengths)
    return Ragged(
        originals.flat[np.lexsort((originals.flat, owner))], np.bincount(owner, minlength=len(sets))
    )


def argmax_sets(first: Ints, row: Ints, tie_sets: Ragged) -> tuple[Ragged, Ints, Ints]:
    """Return the distinct argmax sets, a token with each of them, and the index of each token's set."""
    key = first.copy()  # a single member names the set; sets of several are numbered after all tokens
    distinct, group = tie_sets.unique()
    key[row] = len(first) + group
    is_key = np.zeros(len(first) + len(distinct), np.int64)
    is_key[key] = 1
    keys = np.flatnonzero(is_key)
    representative = np.empty(len(is_key), np.int64)
    representative[key[::-1]] = np.arange(len(key) - 1, -1, -1)
    representative = representative[keys]
    index = (np.cumsum(is_key) - 1)[key]
    single = keys[keys < len(first)]
    larger = tie_sets.take(np.searchsorted(row, representative[len(single) :]))
    lengths = np.concatenate([np.ones_like(single), larger.lengths])
    return Ragged(np.concatenate([single, larger.flat]), lengths), representative, index


def polytope_vertices(leaders: Leaders) -> Ints:
    """Return the vertices of the limit polytope as given points: the leaders, equal points once.

    In the plane they are in counterclockwise order. No hull is computed: a leader is the only maximiser of
    <A z_l, .> over the cloud, which makes it a vertex of every later hull, and every vertex of the limit
    polytope is a leader (theory.md, section 3).
    """
    _, vertices = np.unique(leaders.cluster, return_index=True)
    vertices = np.sort(vertices)
    if leaders.point.shape[1] == 2 and len(vertices) > 2:
        points = scale_to_one(leaders.point[vertices])
        x, y = (points - points.mean(axis=0)).T
        vertices = vertices[np.argsort(np.arctan2(y, x))]
    return leaders.index[vertices]
