"""Which matrix A makes chosen tokens lead: the semidefinite program of docs/control.md.

Token i ends at leader l(i), from layer 0 on and for ever, if <A z_i, z_l(i) - z_j> > 0 for all other j. That
is linear in A: of all A >= eps I with trace d, the one whose smallest such gap is largest is found, with
constraints generated as they are violated. Every answer carries its proof: a run of the dynamics with A, or a
bound that no A exceeds. Knows neither HTTP nor how clouds are run: `run` is given to it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from service.cloud import merge
from service.errors import DeadlineExceeded, InferenceError, InvalidInput, NotFound, TooLarge

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

FLOOR = 1e-4  # eps: the smallest eigenvalue A may have, where its trace is d
TOLERANCE = 1e-9  # a gap below it, relative to the lengths of the tokens, counts as none
ACCURACY = 1e-6  # what may be left between the gap that was reached and the bound
ROUND = 512  # constraints added at once, of
RIVALS = 8  # the hardest rivals of each token
MAX_DIMENSION = 64  # the program has d(d + 1)/2 unknowns and time grows with their cube
LATE = "no matrix was found within the time this request may take"
ROWS = 1024  # tokens whose scores are in memory at once


class Leaders(Protocol):
    @property
    def index(self) -> Ints: ...
    @property
    def since_layer(self) -> Ints: ...


class Clusters(Protocol):
    @property
    def leaders(self) -> Sequence[Ints]: ...
    @property
    def tie(self) -> NDArray[np.bool_]: ...


class Outcome(Protocol):
    """What we read of a run: service.dynamics.DynamicsResult has it."""

    @property
    def leaders(self) -> Leaders: ...
    @property
    def clusters(self) -> Clusters: ...
    @property
    def assignment(self) -> Ints: ...


@dataclass(frozen=True)
class Control:
    """The answer. With `feasible`, A and the run that confirms it; without, the pair that is hardest."""

    feasible: bool
    A: Floats | None
    margin: float | None  # smallest (best score - runner-up) of a wanted token, relative to A-norms
    worst_pair: tuple[int, int, int] | None  # (token, its wanted leader, the rival that is best)
    bound: float  # no A reaches a larger gap, in units of the lengths of the tokens; <= 0: impossible
    dynamics: Any | None


@dataclass(frozen=True)
class Gaps:
    """Of each wanted token the smallest gaps and the rivals it has them to, in no order: [m, RIVALS]."""

    gap: Floats
    rival: Ints

    def worst(self, count: int) -> tuple[Ints, Ints]:
        """The smallest gaps of all, smallest first: which wanted token, and its rival."""
        order = np.argsort(self.gap, axis=None, kind="stable")[:count]
        order = order[np.isfinite(self.gap.flat[order])]  # a token may have fewer rivals than RIVALS
        return order // self.gap.shape[1], self.rival.flat[order]

    @property
    def least(self) -> float:
        return float(self.gap.min())


def control(
    points: Floats,
    assignment: Mapping[int, int] | None,
    leaders: Sequence[int] | None,
    run: Callable[[Floats, Floats], Outcome],
    deadline_s: float = 30.0,
) -> Control:
    """The A of largest margin under which tokens end as `assignment` says, or `leaders` lead; or why not."""
    wish = _Wish(np.asarray(points, np.float64), _wanted(points, assignment, leaders))
    A, gaps, bound = _maximise(wish, time.monotonic() + deadline_s)
    row, rival = (int(each[0]) for each in gaps.worst(1))
    pair = (int(wish.token[row]), int(wish.leader[row]), rival)
    if gaps.least <= TOLERANCE:
        if bound > ACCURACY:
            raise InferenceError(f"the semidefinite solver left {gaps.least:.3g} to {bound:.3g} open")
        return Control(False, None, None, pair, bound, None)
    outcome = run(wish.points, A)
    if not _confirms(outcome, wish):
        if gaps.least > ACCURACY:
            raise InferenceError(f"the run contradicts a gap of {gaps.least:.3g}")
        return Control(False, None, None, pair, bound, None)
    return Control(True, A, wish.margin(A), None, bound, outcome)


def _wanted(
    points: Floats, assignment: Mapping[int, int] | None, leaders: Sequence[int] | None
) -> dict[int, int]:
    """Token -> leader; every leader also leads itself."""
    if points.shape[1] > MAX_DIMENSION:
        raise TooLarge(
            f"points have {points.shape[1]} numbers; control takes {MAX_DIMENSION}", param="points"
        )
    param = "leaders" if assignment is None else "assignment"
    wanted = dict(assignment) if assignment is not None else {leader: leader for leader in leaders or ()}
    if not wanted:
        raise InvalidInput(f"{param} asks for nothing", param=param)
    for index in (*wanted, *wanted.values()):
        if not 0 <= index < len(points):
            raise InvalidInput(f"{param} names point {index} of {len(points)}", param=param)
    for leader in set(wanted.values()):
        if wanted.setdefault(leader, leader) != leader:
            problem = f"point {leader} cannot lead, as assignment asks, and follow point {wanted[leader]}"
            raise InvalidInput(problem, param=param)
    for index in wanted:
        if not np.any(points[index]):
            raise InvalidInput(
                f"points[{index}] is zero: it attends to every point", param=f"points[{index}]"
            )
    return wanted


@dataclass(frozen=True)
class Columns:
    """A sparse matrix by columns, as Clarabel reads it (it asks for these names and for nothing else)."""

    shape: tuple[int, int]
    data: Floats
    indices: NDArray[np.int32]
    indptr: NDArray[np.int32]
    nnz: int
    has_sorted_indices: bool = True
    has_canonical_format: bool = True

    @classmethod
    def of(cls, dense: Floats) -> Columns:
        column, row = np.nonzero(dense.T)
        starts = np.searchsorted(column, np.arange(dense.shape[1] + 1))
        data, size = dense[row, column], len(row)
        return cls(dense.shape, data, row.astype(np.int32), starts.astype(np.int32), size)


class _Wish:
    """The gaps <A q_i, z_l(i) - z_j>, where q_i is z_i at length 1 and the cloud has radius 1."""

    def __init__(self, points: Floats, wanted: Mapping[int, int]) -> None:
        self.points = points
        self.token = np.array(sorted(wanted))
        self.leader = np.array([wanted[i] for i in self.token])
        self.z = points / np.linalg.norm(points, axis=1).max()
        self.q = self.z[self.token] / np.linalg.norm(self.z[self.token], axis=1, keepdims=True)
        # Identical points are one token: a leader's twin is no rival. They are told by their bits.
        self._kind = merge(points + 0.0)[1]

    def gaps(self, A: Floats) -> Gaps:
        """Of every wanted token its smallest gaps, over all rivals."""
        k = min(RIVALS, len(self.z))
        gap, rival = np.empty((len(self.token), k)), np.empty((len(self.token), k), np.int64)
        for rows in _chunks(len(self.token)):
            score = (self.q[rows] @ A) @ self.z.T
            own = score[np.arange(len(score)), self.leader[rows]]
            score[self._kind[None] == self._kind[self.leader[rows], None]] = -np.inf
            rival[rows] = np.argpartition(-score, k - 1, axis=1)[:, :k]
            gap[rows] = own[:, None] - np.take_along_axis(score, rival[rows], axis=1)
        return Gaps(gap, rival)

    def constraints(self, rows: Ints, rivals: Ints) -> Floats:
        """svec of the symmetric M with <A, M> = gap, a row for each (wanted token, rival)."""
        difference = self.z[self.leader[rows]] - self.z[rivals]
        upper, lower = _triangle(self.z.shape[1])
        q, half = self.q[rows], np.where(upper == lower, 0.5, math.sqrt(0.5))
        products: Floats = half * (q[:, lower] * difference[:, upper] + q[:, upper] * difference[:, lower])
        return products

    def margin(self, A: Floats) -> float:
        """The certificate's margin, over the wanted tokens: gaps relative to |z_i|_A max |z|_A."""
        lengths = np.sqrt(np.einsum("ij,jk,ik->i", self.z, A, self.z))
        own = np.sqrt(np.einsum("ij,jk,ik->i", self.q, A, self.q))
        return float((self.gaps(A).gap.min(axis=1) / (own * lengths.max())).min())


def _maximise(wish: _Wish, deadline: float) -> tuple[Floats, Gaps, float]:
    """The best A, its gaps over all rivals, and a bound that no A exceeds."""
    d = wish.z.shape[1]
    best, best_gaps, bound = np.eye(d), wish.gaps(np.eye(d)), math.inf
    gaps, rows, tight = best_gaps, np.empty((0, d * (d + 1) // 2)), np.empty(0, bool)
    while True:
        rows = np.concatenate([rows[tight], wish.constraints(*gaps.worst(ROUND))])
        try:
            A, mu, weights = _solve(rows, d, deadline - time.monotonic())
        except DeadlineExceeded:
            if best_gaps.least > TOLERANCE:  # not the largest margin, but a right answer
                return best, best_gaps, bound
            raise
        bound = min(bound, d * float(np.linalg.eigvalsh(_matrix(weights @ rows, d)).max()))
        gaps = wish.gaps(A)
        if gaps.least > best_gaps.least:
            best, best_gaps = A, gaps
        tight = rows @ _svec(A) < 2 * mu - gaps.least
        if bound <= TOLERANCE or gaps.least >= mu - 1e-7 * max(1.0, abs(mu)):
            return best, best_gaps, bound


def _solve(rows: Floats, d: int, seconds: float) -> tuple[Floats, float, Floats]:
    """max mu over A >= FLOOR I, trace A = d, <A, M_k> >= mu  ->  A, mu, the constraints' weights (sum 1)."""
    try:
        import clarabel
    except ImportError:
        raise NotFound("control is not installed here: pip install 'hardmax[control]'") from None
    if seconds <= 0:
        raise DeadlineExceeded(LATE)
    p, identity = rows.shape[1], _svec(np.eye(d))
    constraints = np.zeros((1 + len(rows) + p, p + 1))
    constraints[0, :p] = identity
    constraints[1 : 1 + len(rows), :p], constraints[1 : 1 + len(rows), p] = -rows, 1
    constraints[1 + len(rows) :, :p] = -np.eye(p)
    right = np.concatenate([[d], np.zeros(len(rows)), -FLOOR * identity])
    cones = [clarabel.ZeroConeT(1), clarabel.NonnegativeConeT(len(rows)), clarabel.PSDTriangleConeT(d)]
    settings = clarabel.DefaultSettings()
    settings.verbose, settings.time_limit, settings.max_threads = False, seconds, 1
    objective = np.append(np.zeros(p), -1.0)
    nothing, matrix = Columns.of(np.zeros((p + 1, p + 1))), Columns.of(constraints)
    solver = clarabel.DefaultSolver(nothing, objective, matrix, right, cones, settings)
    found = solver.solve()
    if found.status == clarabel.SolverStatus.MaxTime:
        raise DeadlineExceeded(LATE)
    x, weights = np.array(found.x), np.maximum(np.array(found.z[1 : 1 + len(rows)]), 0)
    if not np.isfinite(x).all() or weights.sum() == 0:
        raise InferenceError(f"the semidefinite solver ended with {found.status}")
    return _matrix(x[:p], d), float(x[p]), weights / weights.sum()


def _confirms(outcome: Outcome, wish: _Wish) -> bool:
    """Whether in the run every wanted leader leads from layer 0 and every wanted token is its alone."""
    since = dict(zip(outcome.leaders.index.tolist(), outcome.leaders.since_layer.tolist(), strict=True))
    for token, leader in zip(wish.token.tolist(), wish.leader.tolist(), strict=True):
        cluster = int(outcome.assignment[token])
        alone = not outcome.clusters.tie[cluster] and leader in outcome.clusters.leaders[cluster]
        if since.get(leader) != 0 or not alone:
            return False
    return True


def _chunks(n: int) -> Iterator[slice]:
    return (slice(start, min(start + ROWS, n)) for start in range(0, n, ROWS))


def _triangle(d: int) -> tuple[Ints, Ints]:
    """(row, column) of the upper triangle, column by column: the order of the solver's cone."""
    column, row = np.tril_indices(d)
    return row, column


def _svec(A: Floats) -> Floats:
    """The upper triangle with off-diagonal entries times sqrt(2): inner products are kept."""
    row, column = _triangle(len(A))
    vector: Floats = A[row, column] * np.where(row == column, 1.0, math.sqrt(2))
    return vector


def _matrix(vector: Floats, d: int) -> Floats:
    """The symmetric matrix of such a vector."""
    row, column = _triangle(d)
    A = np.zeros((d, d))
    A[row, column] = A[column, row] = vector / np.where(row == column, 1.0, math.sqrt(2))
    return A
