"""Build the transformer of an exact classifier: from the tree of splits to the parameters of L blocks.

A block is a feed-forward layer of width 3, FF(x) = eta x + W relu(U x + b), and rank-one hardmax attention,
SA(X)_i = rho x_i + v <w, mean of x_j over C_i>, C_i = argmax_j <q, x_i><k, x_j>. Tokens of R^d become
(g, f, 0, ..): g says which class its sequence is in and which token it is, f is a flag. exact.md has the
construction and its proof; the step numbers below are those of that page.

subtle: the numbers are chosen so that floating point hardly rounds. All codes g lie on one grid of numbers
(layout.py) and widths are powers of two, so that differences, flags and changes of class are exact, in
whatever order they are summed. Only a token's code and each move by a share are rounded; the layout bounds
these errors.
"""

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from model_export.exact.data import Examples, Floats, Measures
from model_export.exact.layout import STRAY, Cell, Code, build_layout, coordinate_limit, merge_cells

NO_ZONE = (-np.inf, -np.inf, 1.0)


@dataclass(frozen=True)
class Block:
    """The 10 D + 5 parameters of a block, and the zone from which the margin of an answer is computed.

    A token may not enter a block before the read-out with lo < f < hi, or the read-out with lo < g < hi. The
    third number of the zone, its unit, turns distances from the zone into distances between tokens.
    """

    U: Floats  # [3, D]
    b: Floats  # [3]
    W: Floats  # [D, 3]
    eta: float
    rho: float
    v: Floats  # [D], like w, q and k
    w: Floats
    q: Floats
    k: Floats
    zone: tuple[float, float, float] = NO_ZONE

    @property
    def attends(self) -> bool:
        return bool(self.v.any())

    def __call__(self, X: Floats) -> Floats:
        """Return the tokens X [n, D] after the block, by its definition with all n x n scores."""
        Y = self.eta * X + np.maximum(X @ self.U.T + self.b, 0) @ self.W.T
        scores = np.outer(Y @ self.q, Y @ self.k)
        members = scores == scores.max(axis=1, keepdims=True)
        # The mean is the minimum plus a mean excess, so that the mean of equal numbers is that number.
        minimum = np.where(members[:, :, None], Y, np.inf).min(axis=1)
        excess = np.where(members[:, :, None], Y - minimum[:, None], 0).sum(axis=1)
        means = minimum + excess / members.sum(axis=1, keepdims=True)
        result: Floats = self.rho * Y + np.outer(means @ self.w, self.v)
        return result


@dataclass(frozen=True)
class Transformer:
    """The blocks; those from index `read_out` on map cells to outputs.

    With `collapse` all tokens end at the same point.
    """

    blocks: tuple[Block, ...]
    read_out: int
    collapse: bool
    n_splits: int
    limit: float  # coordinates are clipped to [-limit, limit]

    @property
    def dimension(self) -> int:
        return len(self.blocks[0].v)

    def states(self, tokens: Floats) -> list[Floats]:
        """Return the tokens [n, D] of a sequence before the blocks and after each."""
        X = [np.pad(tokens, [(0, 0), (0, self.dimension - tokens.shape[1])])]
        for block in self.blocks:
            X.append(block(X[-1]))
        return X

    @property
    def n_parameters(self) -> int:
        return len(self.blocks) * (10 * self.dimension + 5)


def build_transformer(examples: Examples, measures: Measures, *, seed: int = 0) -> Transformer:
    """Return the transformer that maps every sequence to its output."""
    D = max(2, measures.tokens.shape[1], examples.outputs[0].shape[1])
    layout = build_layout(measures, seed, disjoint=examples.has_token_outputs)
    tree, code, start = layout.tree, layout.code, layout.start
    scale = code.scale * (1 - 8 * float(np.finfo(measures.tokens.dtype).eps))
    builder = BlockBuilder(D, scale, 2 * layout.error)
    blocks = [builder.code(code, start[0])]
    for split in tree.token_splits:
        G, shift = start[split.owner] + code.t[split.token], start[split.new] - start[split.owner]
        blocks += builder.flag(G, layout.width(split.isolation), shift, uniform=False)
    for frequency_split in tree.frequency_splits:
        G = start[frequency_split.owner] + frequency_split.offset + code.t[frequency_split.token]
        width = layout.width(frequency_split.isolation)
        blocks += builder.flag(G, width, frequency_split.spread, uniform=True)
    if not examples.has_token_outputs:
        blocks.append(builder.collapse())
    read_out = len(blocks)
    blocks += builder.read_out(list(merge_cells(layout, examples)), examples.outputs)
    n_splits = len(tree.token_splits) + len(tree.frequency_splits)
    limit = coordinate_limit(measures.tokens)
    return Transformer(tuple(blocks), read_out, not examples.has_token_outputs, n_splits, limit)


class BlockBuilder:
    """Makes blocks of dimension D; each method makes those of one step of exact.md.

    A token that moves by r moves its code by r / `scale`, up to `stray`, the bound on the rounding of codes.
    Zones are wider by `stray`.
    """

    def __init__(self, D: int, scale: float, stray: float) -> None:
        self.D, self.scale, self.stray = D, scale, stray
        self.e1, self.e2 = np.eye(D)[0], np.eye(D)[1]

    def code(self, code: Code, base: float) -> Block:
        """Return the block of step 0: x -> (base + t, 0, ..).

        t is clipped to [-STRAY, 1 + STRAY], so that every token stays near its cell.
        """
        u = np.zeros(self.D)
        u[: len(code.u)] = code.u
        U, b = np.stack([0 * u, u, u]), np.array([base - STRAY, STRAY - code.p, -1 - STRAY - code.p])
        return self.block(U, b, np.outer(self.e1, [1, 1, -1]), eta=0.0)

    def flag(self, G: float, width: float, shift: float, *, uniform: bool) -> list[Block]:
        """Return the blocks of a split (steps 2 and 3): f becomes 1 on the token of code G, 0 on all others.

        A sequence with such a token moves by `shift` or, with uniform attention, by `shift` times its share.
        """
        e1, e2 = self.e1, self.e2
        distance = self.block(
            np.stack([e2, e1, -e1]), np.array([0, -G, G]), np.outer(e2, [-1, 1 / width, 1 / width])
        )
        zone = (1 - self.stray / width, 2 + self.stray / width, width * self.scale)
        U, b, W = np.stack([e2, -e2, -e2]), np.array([0, 2, 1]), np.outer(e2, [-1, 1, -1])
        q = 0 * e1 if uniform else e1
        return [distance, self.block(U, b, W, v=shift * e1, w=e2, q=q, k=e2, zone=zone)]

    def collapse(self) -> Block:
        """Return the block of step 4: all tokens move to (g, 0, ..) for the largest g."""
        e1 = self.e1
        zero = np.zeros((3, self.D))
        return self.block(zero, np.zeros(3), zero.T, rho=0.0, v=e1, w=e1, q=e1, k=e1)

    def read_out(self, cells: list[Cell], outputs: list[Floats]) -> list[Block]:
        """Return the blocks of step 5, which map the codes of each cell to its output, highest first."""
        y = np.stack(
            [np.pad(row, (0, self.D - len(row))) for row in (outputs[c.example][c.row] for c in cells)]
        )
        ramps = [_ramp(below.hi, above.lo) for below, above in pairwise(cells)]
        # Outputs replace codes in the first coordinate: they must fit into the gap between two cells.
        gap, spread = min((width for _, width in ramps), default=1.0), float(np.ptp(y[:, 0]))
        shrink = 2.0 ** min(0.0, np.floor(np.log2(gap / spread))) if spread > 0 else 1.0
        y *= shrink
        floor = [cells[0].lo - STRAY, *(start + 2 * width for start, width in ramps)]  # of each cell
        shift = floor[0] - y[0, 0]  # the top block moves codes down by it and clears f
        W = np.column_stack([-self.e1, y[0] - floor[0] * self.e1, -self.e2])
        U = np.stack([self.e1, 0 * self.e1, self.e2])
        blocks = [self.block(U, np.array([-floor[-1], 1, 0]), W)]
        for n in range(len(cells) - 2, -1, -1):
            (start, width), step = ramps[n], (y[n + 1] - y[n]) / ramps[n][1]
            b = shift - np.array([floor[n], start, start + width])
            W = np.column_stack([-self.e1, step - self.e1, 2 * self.e1 - step])
            zone = (start - self.stray, floor[n + 1] + self.stray, self.scale)
            blocks.append(self.block(np.stack([self.e1] * 3), b, W, zone=zone))
        return [*blocks[:-1], replace(blocks[-1], rho=1 / shrink)]

    def block(
        self,
        U: Floats,
        b: Floats,
        W: Floats,
        *,
        eta: float = 1.0,
        rho: float = 1.0,
        v: Floats | None = None,
        w: Floats | None = None,
        q: Floats | None = None,
        k: Floats | None = None,
        zone: tuple[float, float, float] = NO_ZONE,
    ) -> Block:
        """Return a block. Without v it has no attention: rho = 1 and v = 0 do not move tokens."""
        v, w, q, k = (np.zeros(self.D) if part is None else part for part in (v, w, q, k))
        return Block(np.asarray(U), np.asarray(b), np.asarray(W), eta, rho, v, w, q, k, zone)


def _ramp(hi: float, lo: float) -> tuple[float, float]:
    """Return the start and the width of the ramp between two cells, which has a gap of its width above it."""
    width = float(2.0 ** np.floor(np.log2((lo - hi) / 4)))
    return hi + ((lo - hi) - 2 * width) / 2, width
