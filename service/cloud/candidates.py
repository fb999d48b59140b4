"""Search for the candidates: pairs (query, key) that can be in an argmax set, without scoring all pairs.

A key may be left out for a query only where an inequality of theory.md, section 4, says that its score
is below the best by more than `slack`, which covers the rounding of scores and any margin of the caller.

    all pairs     about a thousand points: all scores are computed
    by length     d > 3: a key shorter than the best score of a unit query cannot win
    by direction  d <= 3: for all queries in a cone of directions another key is proved better (cones.py)
    by window     any d: only near keys can win for a query nearly as long as the longest key

All yield batches, since the pairs of a large cloud would not fit in memory.
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from service.cloud.cones import PAIRS_PER_BATCH, CandidateBatch, ConeSearch, pair_up
from service.cloud.coordinates import Vectors, largest_entries, lengths_of
from service.cloud.points import UNIT, Floats, Ints
from service.cloud.sets import Pairs
from service.runtime.session import Session

MAX_PAIRS_ALL_SCORED = 2**21  # up to this number of pairs (query, key), all are scored
PAIRS_PER_BLOCK = 2**18  # scored at a time: their scores fit a processor's cache
MAX_PAIRS_BY_LENGTH = 2**22  # up to this number, keys are left out only by length
QUERIES_PER_BLOCK = 4096  # queries that are screened together
KEYS_PER_BLOCK = 1024  # keys that are screened together
KEYS_PER_RUN = 32  # keys that the graph returns together (model_export/dynamics.py)
UNIT32 = 2.0**-24
MAX_LENGTH_GAP = 0.01  # between a query and the longest key, for a window
MAX_WINDOW_KEYS = 32
MAX_SLACK_RATIO = 100.0  # of the slack of a query in a cone to the smallest slack

Floats32 = npt.NDArray[np.float32]


def find_candidates(
    session: Session, queries: Vectors, keys: Vectors, slack: Floats, own_key: Ints | None = None
) -> Iterator[CandidateBatch]:
    """Yield the candidates of all queries, in batches.

    Args:
        session: the graph that screens keys.
        queries: the queries.
        keys: the keys.
        slack: [q] how far below the best score a candidate may be.
        own_key: [q] the index of each query among the keys, if the queries are keys too.
    """
    rows = np.arange(len(queries.x))
    if len(rows) * len(keys.x) <= MAX_PAIRS_ALL_SCORED:
        yield from score_all_pairs(queries.x, keys.x, slack)
        return
    if own_key is not None and len(rows) * len(keys.x) > MAX_PAIRS_BY_LENGTH:
        batches, rows = search_windows(queries, keys, slack, own_key)
        yield from batches
    if keys.x.shape[1] <= 3 and len(rows) * len(keys.x) > MAX_PAIRS_BY_LENGTH:
        relative = slack[rows] / largest_entries(queries.x[rows])
        small = relative <= max(MAX_SLACK_RATIO * float(relative.min()), 1e-9 * float(keys.size.max()))
        in_cones, rows = rows[small], rows[~small]  # a query of large slack would slow down its whole cone
        for query, pairs in ConeSearch(queries.x[in_cones], keys.x, slack[in_cones]).batches():
            yield in_cones[query], pairs
    if own_key is not None and len(rows) > QUERIES_PER_BLOCK:
        rows = rows[np.argsort(-keys.size[own_key[rows]])]  # queries of a tile then need about as many keys
    if len(rows):
        yield from screen_keys(session, rows, queries.x[rows], keys.x, slack[rows])


def score_all_pairs(x: Floats, y: Floats, slack: Floats) -> Iterator[CandidateBatch]:
    """Yield the candidates by scoring all pairs, block by block."""
    queries, keys, slack32, _ = to_float32(x, y, slack)
    transposed = np.ascontiguousarray(keys.T)
    size = max(1, PAIRS_PER_BLOCK // len(y))
    for start in range(0, len(x), size):
        score = queries[start : start + size] @ transposed
        row, best = np.arange(len(score)), score.argmax(axis=1)
        floor = score[row, best] - slack32[start : start + size]
        score[row, best] = -np.inf
        if (score.max(axis=1) < floor).all():
            yield start + row, Pairs(row, best)
            continue
        score[row, best] = np.inf
        yield start + row, Pairs(*np.nonzero(score >= floor[:, None]))


def screen_keys(
    session: Session, rows: Ints, x: Floats, y: Floats, slack: Floats
) -> Iterator[CandidateBatch]:
    """Yield the candidates by screening keys in order of decreasing length."""
    queries, scaled, slack32, lengths = to_float32(x, y, slack)
    order = np.argsort(-lengths) if len(y) > KEYS_PER_BLOCK else np.arange(len(y))
    keys = scaled[np.concatenate([order, np.full(-len(y) % KEYS_PER_RUN, order[-1])])]
    sizes = lengths_of(x)
    parts = [
        slice(start, min(start + QUERIES_PER_BLOCK, len(x))) for start in range(0, len(x), QUERIES_PER_BLOCK)
    ]
    while parts:
        part = parts.pop()
        tile = Tile(queries[part], slack32[part])
        for block in range(0, len(keys), KEYS_PER_BLOCK):
            max_score = lengths[order[block]] * sizes[part]
            screened = keys[block : block + KEYS_PER_BLOCK]
            if tile.crowded or not tile.screen(session, screened, block, max_score):
                break
        if tile.crowded:  # again, with half as many queries at a time
            middle = (part.start + part.stop) // 2
            parts += [slice(middle, part.stop), slice(part.start, middle)]
            continue
        query, key = tile.pairs(len(y))
        yield rows[part], Pairs(query, order[key])


def to_float32(x: Floats, y: Floats, slack: Floats) -> tuple[Floats32, Floats32, Floats32, Floats]:
    """Return the queries, the keys scaled to a length of at most 1, the slack of scores, and the lengths."""
    lengths = lengths_of(y)
    scale = 2.0 ** -float(np.frexp(lengths.max())[1])
    rounding = (2.1 * (x.shape[1] + 3) * UNIT32 * scale * float(lengths.max())) * lengths_of(x)
    slack32 = ((slack * scale + rounding) * 1.0001).astype(np.float32)
    return x.astype(np.float32), (y * scale).astype(np.float32), slack32, lengths * scale


class Tile:
    """A block of queries, screened against blocks of keys."""

    def __init__(self, x: Floats32, slack: Floats32) -> None:
        self._x = x
        self._slack = slack
        self._best = np.full(len(x), -np.inf, np.float32)
        self._pairs = 0
        self.crowded = False  # too many candidates for memory
        self._query: list[Ints] = []
        self._key: list[Ints] = []
        self._score: list[Floats] = []

    def screen(self, session: Session, keys: Floats, block: int, max_score: Floats) -> bool:
        """Screen a block of keys; return False if none of them can be a candidate."""
        rows = np.flatnonzero(max_score >= self._best - self._slack)
        if not len(rows):
            return False
        best, runs, scores = session.run(
            {"queries": self._x[rows], "keys": keys, "best": self._best[rows], "slack": self._slack[rows]},
            ("best_out", "runs", "scores"),
        )
        self._best[rows] = best
        query, run = np.divmod(runs, len(keys) // KEYS_PER_RUN)
        close = scores >= (best - self._slack[rows])[query, None]
        self._pairs += int(np.count_nonzero(close))
        self.crowded = self._pairs > PAIRS_PER_BATCH and len(self._x) > 1
        if self.crowded:
            return True
        index, slot = np.nonzero(close)
        self._query.append(rows[query[index]])
        self._key.append(block + run[index] * KEYS_PER_RUN + slot)
        self._score.append(scores[index, slot])
        return True

    def pairs(self, count: int) -> tuple[Ints, Ints]:
        """Return the pairs (query, key) within the slack of the best score, of the first `count` keys."""
        query, key = np.concatenate(self._query), np.concatenate(self._key)
        score = np.concatenate(self._score)
        keep = (score >= (self._best - self._slack)[query]) & (key < count)
        query, key = query[keep], key[keep]
        order = np.argsort(query, kind="stable")
        return query[order], key[order]


def search_windows(
    queries: Vectors, keys: Vectors, slack: Floats, own_key: Ints
) -> tuple[Iterator[CandidateBatch], Ints]:
    """Return the candidates of queries almost as long as the longest key, and the other queries.

    <x, y> >= <x, x> - s means |y - x|^2 <= R^2 - |x|^2 + 2 s, with R the largest |y|. So y - x is that short
    in its first coordinate too: a window in the order of first coordinates.
    """
    rows = np.flatnonzero(keys.size[own_key] >= (1 - MAX_LENGTH_GAP**2) * keys.size.max())
    if len(rows) < len(own_key) / 100:
        return iter(()), np.arange(len(own_key))
    x, longest = keys.x[own_key[rows]], float(lengths_of(keys.x).max())
    lengths = lengths_of(x)
    scale = lengths / lengths_of(queries.x[rows])  # undoes the scaling of queries
    max_square = (longest - lengths) * (longest + lengths) + 2 * scale * slack[rows]
    max_square += 4 * (keys.x.shape[1] + 2) * UNIT * longest**2  # the rounding of the lengths
    width = np.sqrt(max_square) * (1 + 1e-9) + 1e-15 * longest
    order = np.argsort(keys.x[:, 0])
    sorted_keys = keys.x[order, 0]
    low = np.searchsorted(sorted_keys, x[:, 0] - width)
    high = np.searchsorted(sorted_keys, x[:, 0] + width, side="right")
    small = high - low <= MAX_WINDOW_KEYS
    others = np.setdiff1d(np.arange(len(own_key)), rows[small], assume_unique=True)
    return pair_up(rows[small], order, low[small], (high - low)[small]), others
