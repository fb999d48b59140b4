"""Candidates by direction, for d <= 3: cones are cut in two until few keys can win in each.

For all queries in a cone of directions another key is proved better than those that are left out.
"""

from collections.abc import Generator, Iterator
from itertools import product

import numpy as np

from service.cloud.coordinates import largest, lengths_of
from service.cloud.decision import Pairs
from service.cloud.points import Floats, Ints
from service.cloud.sets import pieces, spans, starts

CHUNK = 2**12  # keys that are seen from some cones together
CROWD = 2**23  # keys in the lists of the cones that are cut together
LONG = 2**11  # a list of keys that is cut by itself
PIECE = 2**19  # pairs that are handed over together
SHARE = 8.0  # queries of each of the narrowest cones, if they were spread evenly

Piece = tuple[Ints, Pairs] | None  # queries (positions among those asked for), their pairs; None: still at it


def by_direction(rows: Ints, x: Floats, y: Floats, slack: Floats) -> Iterator[Piece]:
    """Cones of directions, cut in two in every coordinate until few keys can win in each."""
    d = x.shape[1]
    children = 2 ** (d - 1)
    size = largest(x)
    loose = float((slack / size).max())  # for unit queries: |x| >= its largest entry
    yield None
    depth = max(1, int(np.log2(max(2, len(x) / SHARE)) / (d - 1))) if d > 1 else 0
    code = cones(x, size, depth)
    yield None
    order = np.argsort(code)
    code = code[order]
    yield None
    level = min(1, depth)
    cone, low, high = _occupied(np.arange(2 * d * children**level), code, (depth - level) * (d - 1))
    key, count = yield from _choose(cone, level, y, np.arange(len(y)), loose)
    left = [(level, cone, low, high, key, count)]
    while left:
        level, cone, low, high, key, count = left.pop()
        crowded = children * int(count.sum()) > CROWD
        if crowded and len(cone) > 1:  # half of these cones first, with their keys
            half, cut = len(cone) // 2, int(count[: len(cone) // 2].sum())
            left.append((level, cone[half:], low[half:], high[half:], key[cut:], count[half:]))
            left.append((level, cone[:half], low[:half], high[:half], key[:cut], count[:half]))
            continue
        done = (count <= 1) | (high - low <= 2) | (level == depth) | crowded
        start = starts(count)
        for part in (done & (count == 1), done & (count > 1)):  # most queries have one candidate: no question
            many = (high - low)[part]
            query = order[spans(low[part], many)]
            yield from hand_over(rows[query], key, np.repeat(start[part], many), np.repeat(count[part], many))
        if done.all():
            continue
        level += 1
        parent = np.repeat(np.flatnonzero(~done), children)
        cone = np.repeat(cone[~done] * children, children) + np.tile(np.arange(children), (~done).sum())
        cone, low, high, parent = _occupied(cone, code, (depth - level) * (d - 1), parent)
        key, count = yield from _next_keys(cone, level, y, parent, start, count, key, loose)
        left.append((level, cone, low, high, key, count))


def cones(x: Floats, size: Floats, depth: int) -> Ints:
    """The cone each direction is in: a face of the cube, then a cell of the face, halved `depth` times."""
    d = x.shape[1]
    columns = [np.ascontiguousarray(column) for column in x.T]
    axis = [np.abs(column) == size for column in columns[1:]]  # subtle: of equal ones the last counts

    def along(shift: int) -> Floats:
        """For every direction the coordinate that comes `shift` after its largest."""
        found: Floats = columns[shift % d].copy()
        for c, largest_here in enumerate(axis, start=1):
            np.copyto(found, columns[(c + shift) % d], where=largest_here)
        return found

    code: Ints = (along(0) < 0).astype(np.int64)
    for c, largest_here in enumerate(axis, start=1):
        np.copyto(code, 2 * c + (columns[c] < 0), where=largest_here)
    code <<= depth * (d - 1)
    spread = np.zeros(2**depth, np.int64)  # the bits of a number, d - 1 places apart
    for bit in range(depth):
        spread |= (np.arange(2**depth) >> bit & 1) << bit * (d - 1)
    for c in range(d - 1):
        place = (along(1 + c) / size + 1) * 2.0 ** (depth - 1)
        code |= spread[np.minimum(place.astype(np.int64), 2**depth - 1)] << (d - 2 - c)
    return code


def cone_shapes(cone: Ints, level: int, d: int) -> tuple[Floats, Floats]:
    """The middle direction [c,d] of every cone, and the sine of the angle to the farthest in it [c].

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


def _occupied(cone: Ints, code: Ints, shift: int, *beside: Ints) -> list[Ints]:
    """The cones that hold a query, the range of their queries, and what stands beside each cone."""
    low, high = np.searchsorted(code, cone << shift), np.searchsorted(code, (cone + 1) << shift)
    there = high > low
    return [each[there] for each in (cone, low, high, *beside)]


def _next_keys(
    cone: Ints, level: int, y: Floats, parent: Ints, start: Ints, count: Ints, key: Ints, loose: float
) -> Generator[None, None, tuple[Ints, Ints]]:
    """The keys of cones from those of their parents: long lists one by one, all short ones together."""
    many = count[parent]
    short = many <= LONG
    found = key[spans(start[parent[short]], many[short])]
    keys, counts = _prune(cone[short], found, many[short], y, level, loose)
    parts, owner, number = [keys], [np.repeat(np.flatnonzero(short), counts)], np.zeros(len(cone), np.int64)
    number[short] = counts
    for p in np.unique(parent[~short]).tolist():
        here = np.flatnonzero(parent == p)
        keys, counts = yield from _choose(cone[here], level, y, key[start[p] : start[p] + count[p]], loose)
        parts.append(keys)
        owner.append(np.repeat(here, counts))
        number[here] = counts
    yield None
    return np.concatenate(parts)[np.argsort(np.concatenate(owner), kind="stable")], number


def _choose(
    cone: Ints, level: int, y: Floats, keys: Ints, loose: float
) -> Generator[None, None, tuple[Ints, Ints]]:
    """Of all these keys those that can win in each cone, and how many; all cones choose from the same.

    Every direction of a cone scores at least <m, e> cos(a) - |e'| sin(a), with e' the part of e across m.
    Shorter keys win nowhere. The others are compared as in `_prune`.
    """
    middle, sine = cone_shapes(cone, level, y.shape[1])
    best, top = np.full(len(cone), -np.inf), np.zeros(len(cone), np.int64)
    for start in range(0, len(keys), CHUNK):
        score = middle @ y[keys[start : start + CHUNK]].T
        place = score.argmax(axis=1)
        here = score[np.arange(len(cone)), place]
        better = here > best
        best[better], top[better] = here[better], keys[place[better] + start]
        yield None
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
        yield None
    order = np.argsort(np.concatenate(of_cone), kind="stable")
    return np.concatenate(of_keys)[order], np.bincount(np.concatenate(of_cone), minlength=len(cone))


def _prune(cone: Ints, key: Ints, size: Ints, y: Floats, level: int, loose: float) -> tuple[Ints, Ints]:
    """Those of the keys of each cone, `size` of them, that come within `loose` of the best somewhere in it.

    With e the best key in the middle direction m: for directions u at an angle of at most a to m,
    <u, y - e> < -loose  if  <m, e - y> - loose > sin(a) |e - y|.
    """
    if not len(cone):
        return key, size
    middle, sine = cone_shapes(cone, level, y.shape[1])
    which, start = np.repeat(np.arange(len(cone)), size), starts(size)
    keys = y[key]
    score = np.einsum("ij,ij->i", middle[which], keys)
    best = np.maximum.reduceat(score, start)
    top = np.flatnonzero(score == best[which])
    ahead = keys[top[np.searchsorted(which[top], np.arange(len(cone)))]][which] - keys
    gain = best[which] - score - loose
    distance = np.einsum("ij,ij->i", ahead, ahead)
    keep = (gain <= 0) | (gain * gain <= (sine**2 * (1 + 1e-9))[which] * distance)
    return key[keep], np.bincount(which[keep], minlength=len(cone))


def hand_over(rows: Ints, key: Ints, start: Ints, size: Ints) -> Iterator[Piece]:
    """Pairs of every query with the `size` keys from `start` on."""
    if len(rows) and size.max() == 1:
        yield rows, Pairs(np.arange(len(rows)), key[start])
        return
    for part in pieces(size, PIECE):
        query = np.repeat(np.arange(part.stop - part.start), size[part])
        yield rows[part], Pairs(query, key[spans(start[part], size[part])])
