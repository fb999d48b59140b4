"""Candidates by direction, for d <= 3: cones are cut in two until few keys can win in each.

For all queries in a cone of directions another key is proved better than the keys that are left out.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np

from service.cloud.coordinates import largest_entries, lengths_of
from service.cloud.points import Bools, Floats, Ints
from service.cloud.sets import Pairs, concatenated_ranges, range_starts, split_by_size

CHUNK = 2**12  # keys that are scored together
MAX_BATCH_KEYS = 2**23  # keys in the lists of the cones that are cut together
LONG_LIST = 2**11  # a list of keys that is cut by itself
PAIRS_PER_BATCH = 2**19
QUERIES_PER_CONE = 8.0  # in each of the narrowest cones, for evenly spread queries

CandidateBatch = tuple[Ints, Pairs]  # indices of queries, and their pairs


@dataclass(frozen=True)
class ConeBatch:
    """Cones of one level; each holds a range of the queries, and a list of the keys that can win in it."""

    level: int  # how often a face of the cube was halved
    cone: Ints  # [c] codes, see `cone_codes`
    low: Ints  # [c] the first of its queries, in the order of their codes
    high: Ints  # [c] one after the last
    key: Ints  # the keys of the first cone, then of the second, ..
    count: Ints  # [c] how many keys each cone has

    def __len__(self) -> int:
        return len(self.cone)

    @property
    def start(self) -> Ints:
        """The index of the first key of each cone."""
        return range_starts(self.count)

    def halves(self) -> "tuple[ConeBatch, ConeBatch]":
        """Return the first half of these cones with their keys, and the second."""
        half = len(self) // 2
        return self._slice(slice(None, half)), self._slice(slice(half, None))

    def _slice(self, part: slice) -> "ConeBatch":
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
        self._slack = float((slack / size).max())  # of unit queries: |x| >= its largest entry
        widest = np.log2(max(2, len(x) / QUERIES_PER_CONE))
        self._depth = max(1, int(widest / (d - 1))) if d > 1 else 0
        code = cone_codes(x, size, self._depth)
        self._order = np.argsort(code)
        self._code = code[self._order]

    def batches(self) -> Iterator[CandidateBatch]:
        """Yield the queries with their candidates: narrow cones, and those with few keys, first."""
        pending = [self._first_batch()]
        while pending:
            batch = pending.pop()
            crowded = self._children * int(batch.count.sum()) > MAX_BATCH_KEYS
            if crowded and len(batch) > 1:
                pending += reversed(batch.halves())
                continue
            done = (batch.count <= 1) | (batch.high - batch.low <= 2)
            done |= (batch.level == self._depth) | crowded
            yield from self._candidates(batch, done)
            if not done.all():
                pending.append(self._refine(batch, ~done))

    def _first_batch(self) -> ConeBatch:
        """Return the widest cones, with the keys that can win in them."""
        level, d = min(1, self._depth), self._axes + 1
        cone = np.arange(2 * d * self._children**level)
        low, high, occupied = self._queries_in(cone, level)
        key, count = _select_keys(cone[occupied], level, self._y, np.arange(len(self._y)), self._slack)
        return ConeBatch(level, cone[occupied], low, high, key, count)

    def _queries_in(self, cone: Ints, level: int) -> tuple[Ints, Ints, Bools]:
        """Return the ranges of the queries of those cones that hold any, and which cones these are."""
        shift = (self._depth - level) * self._axes
        low = np.searchsorted(self._code, cone << shift)
        high = np.searchsorted(self._code, (cone + 1) << shift)
        occupied = high > low
        return low[occupied], high[occupied], occupied

    def _candidates(self, batch: ConeBatch, done: Bools) -> Iterator[CandidateBatch]:
        """Yield the queries of the cones that are done; separately those with one candidate, nearly all."""
        for part in (done & (batch.count == 1), done & (batch.count > 1)):
            n_queries = (batch.high - batch.low)[part]
            query = self._order[concatenated_ranges(batch.low[part], n_queries)]
            start, size = np.repeat(batch.start[part], n_queries), np.repeat(batch.count[part], n_queries)
            yield from pair_up(query, batch.key, start, size)

    def _refine(self, batch: ConeBatch, unfinished: Bools) -> ConeBatch:
        """Return the cones that are not done, each halved in every coordinate."""
        level = batch.level + 1
        parent = np.repeat(np.flatnonzero(unfinished), self._children)
        cone = np.repeat(batch.cone[unfinished] * self._children, self._children)
        cone += np.tile(np.arange(self._children), int(unfinished.sum()))
        low, high, occupied = self._queries_in(cone, level)
        key, count = self._child_keys(batch, cone[occupied], level, parent[occupied])
        return ConeBatch(level, cone[occupied], low, high, key, count)

    def _child_keys(self, batch: ConeBatch, cone: Ints, level: int, parent: Ints) -> tuple[Ints, Ints]:
        """Select keys of cones from those of their parents: long lists one by one, short ones together."""
        size, start = batch.count[parent], batch.start
        short = size <= LONG_LIST
        key = batch.key[concatenated_ranges(start[parent[short]], size[short])]
        keys, counts = _prune(cone[short], key, size[short], self._y, level, self._slack)
        parts, owner, total = [keys], [np.repeat(np.flatnonzero(short), counts)], np.zeros_like(cone)
        total[short] = counts
        for p in np.unique(parent[~short]).tolist():
            children = np.flatnonzero(parent == p)
            key = batch.key[start[p] : start[p] + batch.count[p]]
            keys, counts = _select_keys(cone[children], level, self._y, key, self._slack)
            parts.append(keys)
            owner.append(np.repeat(children, counts))
            total[children] = counts
        return np.concatenate(parts)[np.argsort(np.concatenate(owner), kind="stable")], total


def cone_codes(x: Floats, size: Floats, depth: int) -> Ints:
    """Return the cone of each direction: a face of the cube, and a cell of it, halved `depth` times."""
    d = x.shape[1]
    columns = [np.ascontiguousarray(column) for column in x.T]
    axis = [np.abs(column) == size for column in columns[1:]]  # subtle: of equal ones the last counts

    def coordinate(shift: int) -> Floats:
        """Return for every direction the coordinate that comes `shift` after its largest."""
        values: Floats = columns[shift % d].copy()
        for c, is_axis in enumerate(axis, start=1):
            np.copyto(values, columns[(c + shift) % d], where=is_axis)
        return values

    code: Ints = (coordinate(0) < 0).astype(np.int64)
    for c, is_axis in enumerate(axis, start=1):
        np.copyto(code, 2 * c + (columns[c] < 0), where=is_axis)
    code <<= depth * (d - 1)
    spread = np.zeros(2**depth, np.int64)  # the bits of a number, d - 1 bits apart
    for bit in range(depth):
        spread |= (np.arange(2**depth) >> bit & 1) << bit * (d - 1)
    for c in range(d - 1):
        cell = (coordinate(1 + c) / size + 1) * 2.0 ** (depth - 1)
        code |= spread[np.minimum(cell.astype(np.int64), 2**depth - 1)] << (d - 2 - c)
    return code


def cone_shapes(cone: Ints, level: int, d: int) -> tuple[Floats, Floats]:
    """Return the middle direction [c,d] of every cone, and the sine of the angle to the farthest in it [c].

    subtle: from the distance, because sqrt(1 - cosine**2) loses all digits where cones are narrow.
    """
    cell = np.zeros((len(cone), d - 1))
    bits = cone.copy()
    for bit in range(level):
        for c in range(d - 2, -1, -1):
            cell[:, c] += (bits & 1) << bit
            bits = bits >> 1
    axis, sign = bits >> 1, 1.0 - 2.0 * (bits & 1)
    width = 2.0 / 2**level
    other_axes = (axis[:, None] + 1 + np.arange(d - 1)) % d

    def direction(offset: Floats) -> Floats:
        vectors = np.zeros((len(cone), d))
        np.put_along_axis(vectors, axis[:, None], sign[:, None], axis=1)
        np.put_along_axis(vectors, other_axes, (cell + offset) * width - 1, axis=1)
        unit: Floats = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        return unit

    middle = direction(np.full(d - 1, 0.5))
    distance = np.zeros(len(cone))
    for corner in product((-1e-9, 1 + 1e-9), repeat=d - 1):
        distance = np.maximum(distance, lengths_of(middle - direction(np.array(corner))))
    return middle, distance * np.sqrt(1 - distance**2 / 4) + 1e-12


def _select_keys(cone: Ints, level: int, y: Floats, keys: Ints, slack: float) -> tuple[Ints, Ints]:
    """Return the keys that can win in each cone, and their number; all cones share the list `keys`.

    Every direction of a cone scores at least <m, e> cos(a) - |e'| sin(a), with e' the part of e orthogonal
    to m. Shorter keys win nowhere. The others are compared as in `_prune`.
    """
    middle, sine = cone_shapes(cone, level, y.shape[1])
    best, best_key = _best_keys(middle, y, keys)
    e = y[best_key]
    across = lengths_of(e - best[:, None] * middle)  # a difference of squares would lose digits
    reached = best * np.sqrt(1 - sine**2) - across * sine
    bound = float(np.where(best > 0, reached, -np.inf).min()) * (1 - 1e-9) - slack
    long = keys[lengths_of(y[keys]) >= bound]
    of_cone, of_keys = [], []
    for start in range(0, len(long), CHUNK):
        part = np.ascontiguousarray(y[long[start : start + CHUNK]].T)
        gain = (best - slack)[:, None] - middle @ part
        distance = sum((e[:, [c]] - part[c]) ** 2 for c in range(len(part)))
        c, key = np.nonzero((gain <= 0) | (gain * gain <= (sine**2 * (1 + 1e-9))[:, None] * distance))
        of_cone.append(c)
        of_keys.append(long[key + start])
    order = np.argsort(np.concatenate(of_cone), kind="stable")
    return np.concatenate(of_keys)[order], np.bincount(np.concatenate(of_cone), minlength=len(cone))


def _best_keys(middle: Floats, y: Floats, keys: Ints) -> tuple[Floats, Ints]:
    """Return the best score among these keys for every direction, and the key that has it."""
    best, best_key = np.full(len(middle), -np.inf), np.zeros(len(middle), np.int64)
    for start in range(0, len(keys), CHUNK):
        score = middle @ y[keys[start : start + CHUNK]].T
        index = score.argmax(axis=1)
        score = score[np.arange(len(middle)), index]
        better = score > best
        best[better], best_key[better] = score[better], keys[index[better] + start]
    return best, best_key


def _prune(cone: Ints, key: Ints, size: Ints, y: Floats, level: int, slack: float) -> tuple[Ints, Ints]:
    """Return those of the `size` keys of each cone that come within `slack` of the best somewhere in it.

    With e the best key in the middle direction m: for directions u at an angle of at most a to m,
    <u, y - e> < -slack  if  <m, e - y> - slack > sin(a) |e - y|.
    """
    if not len(cone):
        return key, size
    middle, sine = cone_shapes(cone, level, y.shape[1])
    owner, start = np.repeat(np.arange(len(cone)), size), range_starts(size)
    keys = y[key]
    score = np.einsum("ij,ij->i", middle[owner], keys)
    best = np.maximum.reduceat(score, start)
    top = np.flatnonzero(score == best[owner])
    difference = keys[top[np.searchsorted(owner[top], np.arange(len(cone)))]][owner] - keys
    gain = best[owner] - score - slack
    distance = np.einsum("ij,ij->i", difference, difference)
    keep = (gain <= 0) | (gain * gain <= (sine**2 * (1 + 1e-9))[owner] * distance)
    return key[keep], np.bincount(owner[keep], minlength=len(cone))


def pair_up(rows: Ints, key: Ints, start: Ints, size: Ints) -> Iterator[CandidateBatch]:
    """Yield the pairs of every query with the `size` keys from `start` on."""
    if len(rows) and size.max() == 1:
        yield rows, Pairs(np.arange(len(rows)), key[start])
        return
    for part in split_by_size(size, PAIRS_PER_BATCH):
        query = np.repeat(np.arange(part.stop - part.start), size[part])
        yield rows[part], Pairs(query, key[concatenated_ranges(start[part], size[part])])
