"""Pairs (query, key) that can matter, found without looking at all of them: each way with its proof.

A key may be left out for a query only where an inequality of docs/theory.md, section 4, says that its score
is below the best by more than `slack`, which covers the rounding of scores and whatever else a caller wants
to see.

    at once       a thousand points or so: all scores are computed
    by length     d > 3: a key shorter than the best score of a unit query cannot win
    by direction  d <= 3: for all queries in a cone of directions another key is proved better (cones.py)
    by window     any d: a query nearly as long as the longest key is beaten by its neighbours only

All are iterators over pieces, since all pairs of a large cloud would not fit in memory.
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from service.cloud.cones import PAIRS_PER_PIECE, ConeSearch, Piece, pair_up
from service.cloud.coordinates import Vectors, largest, lengths_of
from service.cloud.decision import Pairs
from service.cloud.points import Floats, Ints
from service.runtime.session import Session

SMALL = 2**21  # up to so many pairs of a query and a key, all are scored
CACHED = 2**18  # pairs that are scored at a time
FEW = 2**22  # up to so many pairs, no key is left out by direction or by window
QUERIES_PER_BLOCK = 4096  # queries that are screened together
KEYS_PER_BLOCK = 1024  # keys that are screened together
KEYS_PER_RUN = 32  # keys the graph looks at as one (model_export/attention/screen.py)
UNIT32 = 2.0**-24
CLOSE = 0.01  # windows are tried for queries whose length is this near to that of the longest key
WINDOW = 32  # a window is used where it holds no more keys than this
ROUGH = 100.0  # a query so many times less exact than the best is not put into a cone

Floats32 = npt.NDArray[np.float32]


def candidates(
    session: Session, queries: Vectors, keys: Vectors, slack: Floats, own: Ints | None = None
) -> Iterator[Piece]:
    """Candidates of all queries, in pieces. own [q]: the keys that they are themselves, if they are."""
    rows = np.arange(len(queries.x))
    if len(rows) * len(keys.x) <= SMALL:
        yield from at_once(queries.x, keys.x, slack)
        return
    if own is not None and len(rows) * len(keys.x) > FEW:
        near, rows = near_longest(queries, keys, slack, own)
        yield from near
    if keys.x.shape[1] <= 3 and len(rows) * len(keys.x) > FEW:
        wide = slack[rows] / largest(queries.x[rows])
        exact = wide <= max(ROUGH * float(wide.min()), 1e-9 * float(keys.size.max()))
        narrow, rows = rows[exact], rows[~exact]  # a query that is not would spoil its whole cone
        for query, pairs in ConeSearch(queries.x[narrow], keys.x, slack[narrow]).pieces():
            yield narrow[query], pairs
    if own is not None and len(rows) > QUERIES_PER_BLOCK:
        rows = rows[np.argsort(-keys.size[own[rows]])]  # those of a tile need about as many keys
    if len(rows):
        yield from by_length(session, rows, queries.x[rows], keys.x, slack[rows])


def at_once(x: Floats, y: Floats, slack: Floats) -> Iterator[Piece]:
    """All scores, so many at a time as stay in a processor's cache; what is within the slack of the best."""
    queries, keys, wide, _ = in_float32(x, y, slack)
    transposed = np.ascontiguousarray(keys.T)
    many = max(1, CACHED // len(y))
    for start in range(0, len(x), many):
        score = queries[start : start + many] @ transposed
        row, best = np.arange(len(score)), score.argmax(axis=1)
        floor = score[row, best] - wide[start : start + many]
        score[row, best] = -np.inf
        if (score.max(axis=1) < floor).all():
            yield start + row, Pairs(row, best)
            continue
        score[row, best] = np.inf
        yield start + row, Pairs(*np.nonzero(score >= floor[:, None]))


def by_length(session: Session, rows: Ints, x: Floats, y: Floats, slack: Floats) -> Iterator[Piece]:
    """Keys in decreasing length, block by block, for the queries whose best score is not longer."""
    queries, scaled, wanted, lengths = in_float32(x, y, slack)
    order = np.argsort(-lengths) if len(y) > KEYS_PER_BLOCK else np.arange(len(y))
    keys = scaled[np.concatenate([order, np.full(-len(y) % KEYS_PER_RUN, order[-1])])]
    reach = lengths_of(x)
    parts = [
        slice(start, min(start + QUERIES_PER_BLOCK, len(x))) for start in range(0, len(x), QUERIES_PER_BLOCK)
    ]
    while parts:
        part = parts.pop()
        tile = Tile(queries[part], wanted[part])
        for block in range(0, len(keys), KEYS_PER_BLOCK):
            ahead = lengths[order[block]]
            near = keys[block : block + KEYS_PER_BLOCK]
            if tile.crowded or not tile.screen(session, near, block, ahead * reach[part]):
                break
        if tile.crowded:  # by half as many queries at a time
            middle = (part.start + part.stop) // 2
            parts += [slice(middle, part.stop), slice(part.start, middle)]
            continue
        query, place = tile.pairs(len(y))
        yield rows[part], Pairs(query, order[place])


def in_float32(x: Floats, y: Floats, slack: Floats) -> tuple[Floats32, Floats32, Floats32, Floats]:
    """Queries, keys scaled to a length of 1 at most, the slack of their scores, and the keys' lengths."""
    lengths = lengths_of(y)
    scale = 2.0 ** -float(np.frexp(lengths.max())[1])
    rounding = (2.1 * (x.shape[1] + 3) * UNIT32 * scale * float(lengths.max())) * lengths_of(x)
    wanted = ((slack * scale + rounding) * 1.0001).astype(np.float32)
    return x.astype(np.float32), (y * scale).astype(np.float32), wanted, lengths * scale


class Tile:
    """Some queries on their way through the blocks of keys."""

    def __init__(self, x: Floats32, slack: Floats32) -> None:
        self._x = x
        self._slack = slack
        self._best = np.full(len(x), -np.inf, np.float32)
        self._pairs = 0
        self.crowded = False  # more pairs are near than should be in memory at once
        self._query: list[Ints] = []
        self._place: list[Ints] = []
        self._score: list[Floats] = []

    def screen(self, session: Session, keys: Floats, block: int, longest: Floats) -> bool:
        """Look at a block of keys, for the queries that some key in it may still concern; False: for none."""
        open_ = np.flatnonzero(longest >= self._best - self._slack)
        if not len(open_):
            return False
        best, runs, scores = session.run(
            {"queries": self._x[open_], "keys": keys, "best": self._best[open_], "slack": self._slack[open_]},
            ("best_out", "runs", "scores"),
        )
        self._best[open_] = best
        query, run = np.divmod(runs, len(keys) // KEYS_PER_RUN)
        close = scores >= (best - self._slack[open_])[query, None]
        self._pairs += int(np.count_nonzero(close))
        self.crowded = self._pairs > PAIRS_PER_PIECE and len(self._x) > 1
        if self.crowded:
            return True
        near, slot = np.nonzero(close)
        self._query.append(open_[query[near]])
        self._place.append(block + run[near] * KEYS_PER_RUN + slot)
        self._score.append(scores[near, slot])
        return True

    def pairs(self, count: int) -> tuple[Ints, Ints]:
        """Pairs (query, place) within the slack of the best score at the end; places below `count`."""
        query, place = np.concatenate(self._query), np.concatenate(self._place)
        score = np.concatenate(self._score)
        keep = (score >= (self._best - self._slack)[query]) & (place < count)
        query, place = query[keep], place[keep]
        order = np.argsort(query, kind="stable")
        return query[order], place[order]


def near_longest(queries: Vectors, keys: Vectors, slack: Floats, own: Ints) -> tuple[Iterator[Piece], Ints]:
    """Candidates of the queries almost as long as the longest key, and the other queries.

    <x, y> >= <x, x> - s means |y - x|^2 <= R^2 - |x|^2 + 2 s, with R the largest |y|. So y - x is that short
    in its first coordinate too: a window in the order of first coordinates.
    """
    near = np.flatnonzero(keys.size[own] >= (1 - CLOSE**2) * keys.size.max())
    if len(near) < len(own) / 100:
        return iter(()), np.arange(len(own))
    x, longest = keys.x[own[near]], float(lengths_of(keys.x).max())
    lengths = lengths_of(x)
    scale = lengths / lengths_of(queries.x[near])  # queries are scaled: back to their own lengths
    square = (longest - lengths) * (longest + lengths) + 2 * scale * slack[near]
    width = np.sqrt(square) * (1 + 1e-9) + 1e-15 * longest
    order = np.argsort(keys.x[:, 0])
    line = keys.x[order, 0]
    low = np.searchsorted(line, x[:, 0] - width)
    high = np.searchsorted(line, x[:, 0] + width, side="right")
    few = high - low <= WINDOW
    rest = np.setdiff1d(np.arange(len(own)), near[few], assume_unique=True)
    return pair_up(near[few], order, low[few], (high - low)[few]), rest
