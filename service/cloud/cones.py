"""Candidates by direction, for d <= 3: cones are cut in two until few keys can win in each.

For all queries in a cone of directions another key is proved better than those that are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np

from service.cloud.coordinates import largest_entries, lengths_of
from service.cloud.decision import Pairs
from service.cloud.points import Bools, Floats, Ints
from service.cloud.sets import concatenated_ranges, range_starts, split_by_size

CHUNK = 2**12  # keys that are scored for some cones together
MAX_BATCH_KEYS = 2**23  # keys in the lists of the cones that are cut together
LONG_LIST = 2**11  # a list of keys that is cut by itself
PAIRS_PER_BATCH = 2**19
QUERIES_PER_CONE = 8.0  # of each of the narrowest cones, if they were spread evenly

CandidateBatch = tuple[Ints, Pairs]  # queries (positions among those searched for), and their pairs


@dataclass(frozen=True)
class ConeBatch:
    """Cones of one level; each holds a range of the queries, and a list of the keys that can win in it."""

    level: int  # how often a face of the cube was halved
    cone: Ints  # [c] codes, see `cones`
    low: Ints  # [c] the first of its queries, in the order of their codes
    high: Ints  # [c] one after the last
    key: Ints  # the keys of the first cone, then of the second, ..
    count: Ints  # [c] how many keys each cone has

    def __len__(self) -> int:
        return len(self.cone)

    @property
    def start(self) -> Ints:
        """Where the keys of each cone begin."""
        return range_starts(self.count)

    def halves(self) -> tuple[ConeBatch, ConeBatch]:
        """Return the first half of these cones with their keys, and the second."""
        half = len(self) // 2
        return self._slice(slice(None, half)), self._slice(slice(half, None))

    def _slice(self, part: slice) -> ConeBatch:
        cut = int(self.count[: part.start or 0].sum())
        count = self.count[part]
        key = self.key[cut : cut + int(count.sum())]
        return ConeBatch(self.level, self.cone[part], self.low[part], self.high[part], key, count)


class ConeSearch:
    """The search for the candidates of queries x among keys y, within `slack` [q] of the best."""

    def __init__(self, x: Floats, y: Floats, slack: Floats) -> None:
        d, size = x.shape[1], largest_entries(x)
        self._y = y
        self._axes = d - 1
        self._children = 2 ** (d - 1)
        self._loose = float((slack / size).max())  # for unit queries: |x| >= its largest entry
        widest = np.log2(max(2, len(x) / QUERIES_PER_CONE))
        self._depth = max(1, int(widest / (d - 1))) if d > 1 else 0
        code = cones(x, size, self._depth)
        self._order = np.argsort(code)
        self._code = code[self._order]

    def batches(self) -> Iterator[CandidateBatch]:
        """Yield the queries with their candidates: narrow cones, and those with few keys, first."""
        left = [self._widest()]
        while left:
            batch = left.pop()
            crowded = self._children * int(batch.count.sum()) > MAX_BATCH_KEYS
            if crowded and len(batch) > 1:
                left += reversed(batch.halves())
                continue
            done = (batch.count <= 1) | (batch.high - batch.low <= 2)
            done |= (batch.level == self._depth) | crowded
            yield from self._candidates(batch, done)
            if not done.all():
                left.append(self._refined(batch, ~done))

    def _widest(self) -> ConeBatch:
        """Return the cones to begin with, with those of all keys that can win in them."""
        level, d = min(1, self._depth), self._axes + 1
        every = np.arange(2 * d * self._children**level)
        low, high, there = self._queries_in(every, level)
        key, count = _choose(every[there], level, self._y, np.arange(len(self._y)), self._loose)
        return ConeBatch(level, every[there], low, high, key, count)

    def _queries_in(self, cone: Ints, level: int) -> tuple[Ints, Ints, Bools]:
        """Return the ranges of queries of those cones that hold any, and which these are."""
        shift = (self._depth - level) * self._axes
        low = np.searchsorted(self._code, cone << shift)
        high = np.searchsorted(self._code, (cone + 1) << shift)
        there = high > low
        return low[there], high[there], there

    def _candidates(self, batch: ConeBatch, done: Bools) -> Iterator[CandidateBatch]:
        """Yield the queries of the cones that are done; those with a single candidate, nearly all, apart."""
        for part in (done & (batch.count == 1), done & (batch.count > 1)):
            many = (batch.high - batch.low)[part]
            query = self._order[concatenated_ranges(batch.low[part], many)]
            start, size = np.repeat(batch.start[part], many), np.repeat(batch.count[part], many)
            yield from pair_up(query, batch.key, start, size)

    def _refined(self, batch: ConeBatch, left: Bools) -> ConeBatch:
        """Return the cones that are left, each halved in every coordinate."""
        level = batch.level + 1
        parent = np.repeat(np.flatnonzero(left), self._children)
        cone = np.repeat(batch.cone[left] * self._children, self._children)
        cone += np.tile(np.arange(self._children), int(left.sum()))
        low, high, there = self._queries_in(cone, level)
        key, count = self._next_keys(batch, cone[there], level, parent[there])
        return ConeBatch(level, cone[there], low, high, key, count)

    def _next_keys(self, batch: ConeBatch, cone: Ints, level: int, parent: Ints) -> tuple[Ints, Ints]:
        """The keys of cones from those of their parents: long lists one by one, all short ones together."""
        many, start = batch.count[parent], batch.start
        short = many <= LONG_LIST
        found = batch.key[concatenated_ranges(start[parent[short]], many[short])]
        keys, counts = _prune(cone[short], found, many[short], self._y, level, self._loose)
        parts, owner, number = [keys], [np.repeat(np.flatnonzero(short), counts)], np.zeros_like(cone)
        number[short] = counts
        for p in np.unique(parent[~short]).tolist():
            here = np.flatnonzero(parent == p)
            of_parent = batch.key[start[p] : start[p] + batch.count[p]]
            keys, counts = _choose(cone[here], level, self._y, of_parent, self._loose)
            parts.append(keys)
            owner.append(np.repeat(here, counts))
            number[here] = counts
        return np.concatenate(parts)[np.argsort(np.concatenate(owner), kind="stable")], number


def cones(x: Floats, size: Floats, depth: int) -> Ints:
    """Return the cone of each direction: a face of the cube, and a cell of it, halved `depth` times."""
    d = x.shape[1]
    columns = [np.ascontiguousarray(column) for column in x.T]
    axis = [np.abs(column) == size for column in columns[1:]]  # subtle: of equal ones the last counts

    def along(shift: int) -> Floats:
        """For every direction the coordinate that comes `shift` after its largest."""
        found: Floats = columns[shift % d].copy()
        for c, is_axis in enumerate(axis, start=1):
            np.copyto(found, columns[(c + shift) % d], where=is_axis)
        return found

    code: Ints = (along(0) < 0).astype(np.int64)
    for c, is_axis in enumerate(axis, start=1):
        np.copyto(code, 2 * c + (columns[c] < 0), where=is_axis)
    code <<= depth * (d - 1)
    spread = np.zeros(2**depth, np.int64)  # the bits of a number, d - 1 bits apart
    for bit in range(depth):
        spread |= (np.arange(2**depth) >> bit & 1) << bit * (d - 1)
    for c in range(d - 1):
        cell = (along(1 + c) / size + 1) * 2.0 ** (depth - 1)
        code |= spread[np.minimum(cell.astype(np.int64), 2**depth - 1)] << (d - 2 - c)
    return code


def cone_shapes(cone: Ints, level: int, d: int) -> tuple[Floats, Floats]:
    """Return the middle direction [c,d] of every cone, and the sine of the angle to the farthest in it [c].

    subtle: of the distance; sqrt(1 - cosine**2) has no digits left where cones are narrow.
    """
    cell = np.zeros((len(cone), d - 1))
    bits = cone.copy()
    for bit in range(level):
        for c in range(d - 2, -1, -1):
            cell[:, c] += (bits & 1) << bit
            bits = bits >> 1
    axis, sign = bits >> 1, 1.0 - 2.0 * (bits & 1)
    width = 2.0 / 2**level
    others = (axis[:, None] + 1 + np.arange(d - 1)) % d

    def at(offset: Floats) -> Floats:
        vectors = np.zeros((len(cone), d))
        np.put_along_axis(vectors, axis[:, None], sign[:, None], axis=1)
        np.put_along_axis(vectors, others, (cell + offset) * width - 1, axis=1)
        unit: Floats = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        return unit

    middle = at(np.full(d - 1, 0.5))
    far = np.zeros(len(cone))
    for corner in product((-1e-9, 1 + 1e-9), repeat=d - 1):
        far = np.maximum(far, lengths_of(middle - at(np.array(corner))))
    return middle, far * np.sqrt(1 - far**2 / 4) + 1e-12


def _choose(cone: Ints, level: int, y: Floats, keys: Ints, loose: float) -> tuple[Ints, Ints]:
    """Return the keys that can win in each cone, and their number; all cones share the list `keys`.

    Every direction of a cone scores at least <m, e> cos(a) - |e'| sin(a), with e' the part of e across m.
    Shorter keys win nowhere. The others are compared as in `_prune`.
    """
    middle, sine = cone_shapes(cone, level, y.shape[1])
    best, top = _best_keys(middle, y, keys)
    ahead = y[top]
    across = lengths_of(ahead - best[:, None] * middle)  # a difference of squares would lose digits
    reached = best * np.sqrt(1 - sine**2) - across * sine
    bound = float(np.where(best > 0, reached, -np.inf).min()) * (1 - 1e-9) - loose
    long = keys[lengths_of(y[keys]) >= bound]
    of_cone, of_keys = [], []
    for start in range(0, len(long), CHUNK):
        part = np.ascontiguousarray(y[long[start : start + CHUNK]].T)
        gain = (best - loose)[:, None] - middle @ part
        distance = sum((ahead[:, [c]] - part[c]) ** 2 for c in range(len(part)))
        c, key = np.nonzero((gain <= 0) | (gain * gain <= (sine**2 * (1 + 1e-9))[:, None] * distance))
        of_cone.append(c)
        of_keys.append(long[key + start])
    order = np.argsort(np.concatenate(of_cone), kind="stable")
    return np.concatenate(of_keys)[order], np.bincount(np.concatenate(of_cone), minlength=len(cone))


def _best_keys(middle: Floats, y: Floats, keys: Ints) -> tuple[Floats, Ints]:
    """Return the best score among these keys for every direction, and whose it is."""
    best, top = np.full(len(middle), -np.inf), np.zeros(len(middle), np.int64)
    for start in range(0, len(keys), CHUNK):
        score = middle @ y[keys[start : start + CHUNK]].T
        index = score.argmax(axis=1)
        here = score[np.arange(len(middle)), index]
        better = here > best
        best[better], top[better] = here[better], keys[index[better] + start]
    return best, top


def _prune(cone: Ints, key: Ints, size: Ints, y: Floats, level: int, loose: float) -> tuple[Ints, Ints]:
    """Return the keys of each cone, `size` of them, that come within `loose` of the best somewhere in it.

    With e the best key in the middle direction m: for directions u at an angle of at most a to m,
    <u, y - e> < -loose  if  <m, e - y> - loose > sin(a) |e - y|.
    """
    if not len(cone):
        return key, size
    middle, sine = cone_shapes(cone, level, y.shape[1])
    which, start = np.repeat(np.arange(len(cone)), size), range_starts(size)
    keys = y[key]
    score = np.einsum("ij,ij->i", middle[which], keys)
    best = np.maximum.reduceat(score, start)
    top = np.flatnonzero(score == best[which])
    ahead = keys[top[np.searchsorted(which[top], np.arange(len(cone)))]][which] - keys
    gain = best[which] - score - loose
    distance = np.einsum("ij,ij->i", ahead, ahead)
    keep = (gain <= 0) | (gain * gain <= (sine**2 * (1 + 1e-9))[which] * distance)
    return key[keep], np.bincount(which[keep], minlength=len(cone))


def pair_up(rows: Ints, key: Ints, start: Ints, size: Ints) -> Iterator[CandidateBatch]:
    """Pairs of every query with the `size` keys from `start` on."""
    if len(rows) and size.max() == 1:
        yield rows, Pairs(np.arange(len(rows)), key[start])
        return
    for part in split_by_size(size, PAIRS_PER_BATCH):
        query = np.repeat(np.arange(part.stop - part.start), size[part])
        yield rows[part], Pairs(query, key[concatenated_ranges(start[part], size[part])])
