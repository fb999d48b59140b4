"""The layout of codes: a number for each token, cells of numbers for classes, and the order of outputs.

It turns the tree of splits into the numbers of the blocks. The code of a token in a class is
`start[class] + t`. All codes lie between two powers of two, where floating-point numbers form one grid,
so that sums and differences of codes are exact.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from model_export.exact.data import Examples, Floats, ImpossibleData, Ints, Measures
from model_export.exact.tree import CELL_GAP, Tree, grow_tree

STRAY = CELL_GAP / 4  # how far an unknown token may lie outside [0, 1], the range of known ones


@dataclass(frozen=True)
class Code:
    """t(x) = <u, x> - p: distinct tokens become distinct numbers of [0, 1]."""

    u: Floats  # [D]
    p: float
    t: Floats  # of the known tokens, ascending
    error: float  # bound of the rounding error of t

    @property
    def scale(self) -> float:
        """The least Euclidean distance by which a token has to move for its t to move by 1."""
        return 1 / float(np.linalg.norm(self.u))


def coordinate_limit(tokens: Floats) -> float:
    """Return the limit to which coordinates are clipped: outside known tokens, it bounds all rounding."""
    return 2 * float(np.abs(tokens).max()) or 1.0


@dataclass(frozen=True)
class Layout:
    """The cell of class c begins at `start[c]`; `error` bounds all rounding of a code."""

    measures: Measures  # tokens numbered by their t
    tree: Tree
    code: Code
    start: Floats
    error: float

    def width(self, isolation: float) -> float:
        """Return the distance, a power of two, within which a flag is 1; beyond twice of it the flag is 0."""
        return float(2.0 ** np.floor(np.log2(min(isolation, CELL_GAP) / 3)))

    @property
    def radius(self) -> float:
        """A lower bound of the noise that the flags tolerate, as a distance between tokens."""
        return self.code.scale * min(map(self.width, self.tree.isolations), default=1.0)


@dataclass(frozen=True)
class Cell:
    """Codes between lo and hi belong to the output `row` of example `example`."""

    lo: float
    hi: float
    example: int
    row: int
    key: tuple[int, int]  # equal for equal outputs


def build_layout(measures: Measures, seed: int, *, disjoint: bool) -> Layout:
    """Return the layout along the direction whose tree tolerates most noise, of the most promising ones."""
    layouts, error = [], ImpossibleData("no direction separates the tokens")
    for u in _directions(measures.tokens, seed, int(np.clip(4000 / len(measures), 2, 8))):
        try:
            layouts.append(_arrange(*_encode(measures, u), disjoint))
        except ImpossibleData as failure:
            error = failure
    if not layouts:
        raise error
    return max(layouts, key=lambda layout: layout.radius)


def _directions(tokens: Floats, seed: int, n: int) -> Floats:
    """Return the n of many random unit vectors that best separate all tokens (step 0)."""
    points = tokens.astype(np.float64)
    spread = points.std(axis=0)
    rng = np.random.default_rng(seed)
    tries = int(np.clip(4e6 / len(points), 16, 1024)) if points.shape[1] > 1 else 1
    u = rng.normal(size=(tries, points.shape[1]))
    u[::2] /= np.where(spread > 0, spread, 1)
    u /= np.linalg.norm(u, axis=1, keepdims=True)
    gaps = [_smallest_gap(points @ direction) for direction in u]
    return u[np.argsort(gaps)[::-1][:n]]


def _smallest_gap(t: Floats) -> float:
    """Return the smallest gap between these numbers, relative to their range."""
    gaps = np.diff(np.sort(t))
    return float(gaps.min() / gaps.sum()) if len(gaps) else 1.0


def _encode(measures: Measures, u: Floats) -> tuple[Measures, Code]:
    """Return the code along the direction u, and the measures with tokens numbered in its order."""
    dtype, points = measures.tokens.dtype, measures.tokens.astype(np.float64)
    width = float(np.ptp(points @ u)) or 1.0
    u = (u / width).astype(dtype).astype(np.float64)
    t = points @ u
    p = float(t.min())
    order = np.argsort(t)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    # t is a sum of d products, a code two such sums and a constant. t itself is rounded in float64.
    sizes = coordinate_limit(points) * np.abs(u).sum() + abs(p) + 2
    error = float((len(u) + 3) * sizes * (np.finfo(dtype).eps + np.finfo(np.float64).eps))
    return _renumber(measures, rank), Code(u, p, t[order] - p, error)


def _arrange(measures: Measures, code: Code, disjoint: bool) -> Layout:
    """Grow the tree and lay out its classes; retry if they leave too few digits for the splits."""
    error, dtype = code.error, measures.tokens.dtype
    for _ in range(4):
        tree = grow_tree(measures, code.t, 6 * error, disjoint=disjoint)
        base, end = _cells(tree, measures)
        C = 2.0 ** float(np.ceil(np.log2(end)))
        error = code.error + _rounding(tree, float(np.spacing(dtype.type(C))), float(np.finfo(dtype).eps))
        if min(tree.isolations, default=1.0) >= 6 * error:
            return Layout(measures, tree, code, C + base, error)
    raise ImpossibleData(f"{len(measures)} sequences with tokens this close need more digits than {dtype}")


def _rounding(tree: Tree, spacing: float, eps: float) -> float:
    """Return the bound of the rounding error of a code after it was made.

    The code and the one it is compared with are rounded once, and, with a share, in each frequency split.
    """
    moves = dict.fromkeys((split.owner for split in tree.frequency_splits), 0.0)
    for split in tree.frequency_splits:
        moves[split.owner] += spacing + eps * split.spread
    return 1.5 * spacing + max(moves.values(), default=0.0)


def _cells(tree: Tree, measures: Measures) -> tuple[Floats, float]:
    """Return the start of each class's cell, in the order of outputs, and the end of the last cell."""
    order = np.argsort([measures.target[rows].min() for rows in tree.members], kind="stable")
    ends = 1 + np.cumsum(np.array(tree.widths)[order] + CELL_GAP)
    base = np.empty(len(order))
    base[order] = np.concatenate([[1.0], ends[:-1]])
    return base, float(ends[-1])


def _renumber(measures: Measures, rank: Ints) -> Measures:
    token = rank[measures.token]
    owner = np.repeat(np.arange(len(measures)), np.diff(measures.start))
    order = np.lexsort((token, owner))
    tokens = measures.tokens[np.argsort(rank)]
    return replace(measures, tokens=tokens, token=token[order], count=measures.count[order])


def merge_cells(layout: Layout, examples: Examples) -> Iterator[Cell]:
    """Yield the cells in ascending order, with neighbours of equal outputs merged.

    Raises:
        ImpossibleData: Two cells with different outputs are too close.
    """
    cells = sorted(_output_cells(layout, examples), key=lambda cell: cell.lo)
    merged = cells[0]
    for cell in cells[1:]:
        if cell.key == merged.key:
            merged = replace(merged, hi=max(merged.hi, cell.hi))
        elif cell.lo < merged.hi + 6 * layout.error:
            a, b = examples.names[merged.example], examples.names[cell.example]
            raise ImpossibleData(f"{a} and {b} end too close to each other for this precision")
        else:
            yield merged
            merged = cell
    yield merged


def _output_cells(layout: Layout, examples: Examples) -> Iterator[Cell]:
    measures, tree, t = layout.measures, layout.tree, layout.code.t
    for rows, offsets, start in zip(tree.members, tree.offsets, layout.start, strict=True):
        gaps = np.diff(np.unique(offsets))
        crowded = len(gaps) > 0 and gaps.min() < 1 + CELL_GAP
        for row, offset in zip(rows, start + offsets, strict=True):
            codes, target = t[measures.token[measures.row(int(row))]], int(measures.target[row])
            example = int(measures.example[row])
            parts = [(codes[-1], codes[-1])] if crowded else [(0.0, 1.0)]
            if examples.has_token_outputs:
                parts = list(_cut(codes, len(examples.outputs[example])))
            for m, (lo, hi) in enumerate(parts):
                yield Cell(offset + lo, offset + hi, example, m, (target, m))


def _cut(codes: Floats, parts: int) -> Iterator[tuple[float, float]]:
    """Cut ascending codes at their widest gaps into `parts` intervals."""
    cuts = np.sort(np.argsort(-np.diff(codes), kind="stable")[: parts - 1]) + 1
    for part in np.split(codes, cuts):
        yield float(part[0]), float(part[-1])
