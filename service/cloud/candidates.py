"""Search for the candidates: pairs (query, key) that can be in an argmax set, without scoring all pairs.

A key may be left out for a query only where an inequality of docs/theory.md, section 4, says that its score
is below the best by more than `slack`, which covers the rounding of scores and any margin of the caller.

    at once       a thousand points or so: all scores are computed
    by length     d > 3: a key shorter than the best score of a unit query cannot win
    by direction  d <= 3: for all queries in a cone of directions another key is proved better (cones.py)
    by window     any d: a query nearly as long as the longest key is beaten by its neighbours only

All yield batches, since the pairs of a large cloud would not fit in memory.
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from service.cloud.cones import PAIRS_PER_BATCH, CandidateBatch, ConeSearch, pair_up
from service.cloud.coordinates import Vectors, largest_entries, lengths_of
from service.cloud.decision import Pairs
from service.cloud.points import Floats, Ints
from service.runtime.session import Session

MAX_PAIRS_ALL_SCORED = 2**21  # up to so many pairs of a query and a key, all are scored
PAIRS_PER_BLOCK = 2**18  # scored at a time: their scores fit a processor's cache
MAX_PAIRS_BY_LENGTH = 2**22  # up to so many pairs, keys are left out by length only
QUERIES_PER_BLOCK = 4096  # queries that are screened together
KEYS_PER_BLOCK = 1024  # keys that are screened together
KEYS_PER_RUN = 32  # keys that the graph returns together (model_export/attention/screen.py)
UNIT32 = 2.0**-24
MAX_LENGTH_GAP = 0.01  # of a query to the longest key, for a window
MAX_WINDOW_KEYS = 32
MAX_SLACK_RATIO = 100.0  # to the smallest slack, of a query in a cone

Floats32 = npt.NDArray[np.float32]


def candidates(
    session: Session, queries: Vectors, keys: Vectors, slack: Floats, own: Ints | None = None
) -> Iterator[CandidateBatch]:
    """Yield the candidates of all queries, in batches.

    Args:
        session: the graph that screens keys.
        queries: the queries.
        keys: the keys.
        slack: [q] how far below the best score a candidate may be.
        own: [q] the index of each query among the keys, if the queries are keys too.
    """
    rows = np.arange(len(queries.x))
    if len(rows) * len(keys.x) <= MAX_PAIRS_ALL_SCORED:
        yield from at_once(queries.x, keys.x, slack)
        return
    if own is not None and len(rows) * len(keys.x) > MAX_PAIRS_BY_LENGTH:
        near, rows = near_longest(queries, keys, slack, own)
        yield from near
    if keys.x.shape[1] <= 3 and len(rows) * len(keys.x) > MAX_PAIRS_BY_LENGTH:
        wide = slack[rows] / largest_entries(queries.x[rows])
        exact = wide <= max(MAX_SLACK_RATIO * float(wide.min()), 1e-9 * float(keys.size.max()))
        narrow, rows = rows[exact], rows[~exact]  # a query that is not would spoil its whole cone
        for query, pairs in ConeSearch(queries.x[narrow], keys.x, slack[narrow]).batches():
            yield narrow[query], pairs
    if own is not None and len(rows) > QUERIES_PER_BLOCK:
        rows = rows[np.argsort(-keys.size[own[rows]])]  # those of a tile need about as many keys
    if len(rows):
        yield from by_length(session, rows, queries.x[rows], keys.x, slack[rows])


def at_once(x: Floats, y: Floats, slack: Floats) -> Iterator[CandidateBatch]:
    """Yield the candidates by scoring all pairs, block by block."""
    queries, keys, wide, _ = in_float32(x, y, slack)
    transposed = np.ascontiguousarray(keys.T)
    many = max(1, PAIRS_PER_BLOCK // len(y))
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


def by_length(session: Session, rows: Ints, x: Floats, y: Floats, slack: Floats) -> Iterator[CandidateBatch]:
    """Yield the candidates by screening keys in order of decreasing length."""
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
        query, key = tile.pairs(len(y))
        yield rows[part], Pairs(query, order[key])


def in_float32(x: Floats, y: Floats, slack: Floats) -> tuple[Floats32, Floats32, Floats32, Floats]:
    """Return the queries, the keys scaled to a length of at most 1, the slack of scores, and the lengths."""
    lengths = lengths_of(y)
    scale = 2.0 ** -float(np.frexp(lengths.max())[1])
    rounding = (2.1 * (x.shape[1] + 3) * UNIT32 * scale * float(lengths.max())) * lengths_of(x)
    wanted = ((slack * scale + rounding) * 1.0001).astype(np.float32)
    return x.astype(np.float32), (y * scale).astype(np.float32), wanted, lengths * scale


class Tile:
    """A block of queries, screened against blocks of keys."""

    def __init__(self, x: Floats32, slack: Floats32) -> None:
        self._x = x
        self._slack = slack
        self._best = np.full(len(x), -np.inf, np.float32)
        self._pairs = 0
        self.crowded = False  # more candidates than should be in memory at once
        self._query: list[Ints] = []
        self._key: list[Ints] = []
        self._score: list[Floats] = []

    def screen(self, session: Session, keys: Floats, block: int, longest: Floats) -> bool:
        """Screen a block of keys; return False if none of them can be a candidate."""
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
        self.crowded = self._pairs > PAIRS_PER_BATCH and len(self._x) > 1
        if self.crowded:
            return True
        near, slot = np.nonzero(close)
        self._query.append(open_[query[near]])
        self._key.append(block + run[near] * KEYS_PER_RUN + slot)
        self._score.append(scores[near, slot])
        return True

    def pairs(self, count: int) -> tuple[Ints, Ints]:
        """Return the pairs (query, key) within the slack of the best score, of the first `count` keys."""
        query, key = np.concatenate(self._query), np.concatenate(self._key)
        score = np.concatenate(self._score)
        keep = (score >= (self._best - self._slack)[query]) & (key < count)
        query, key = query[keep], key[keep]
        order = np.argsort(query, kind="stable")
        return query[order], key[order]


def near_longest(
    queries: Vectors, keys: Vectors, slack: Floats, own: Ints
) -> tuple[Iterator[CandidateBatch], Ints]:
    """Candidates of the queries almost as long as the longest key, and the other queries.

    <x, y> >= <x, x> - s means |y - x|^2 <= R^2 - |x|^2 + 2 s, with R the largest |y|. So y - x is that short
    in its first coordinate too: a window in the order of first coordinates.
    """
    near = np.flatnonzero(keys.size[own] >= (1 - MAX_LENGTH_GAP**2) * keys.size.max())
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
    few = high - low <= MAX_WINDOW_KEYS
    rest = np.setdiff1d(np.arange(len(own)), near[few], assume_unique=True)
    return pair_up(near[few], order, low[few], (high - low)[few]), rest
