"""Which matrix A makes chosen tokens lead: the semidefinite program of docs/control.md.

Token i ends at leader l(i), from layer 0 on and for ever, if <A z_i, z_l(i) - z_j> > 0 for all other j.
That is linear in A. The A whose smallest such gap is largest is sought in floating point, with constraints
added as they are violated. What is answered is proved in exact arithmetic: this A grants the wish, or none
does. What cannot be proved is undecided. It does not run clouds itself: `run` is given to it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, repeat

import numpy as np

from service.cloud.dynamics import Result, Run
from service.cloud.points import Floats, Ints, check_points, merge
from service.cloud.rational import BOUND, Account, Exhausted
from service.control import semidefinite
from service.control.proof import Conditions, grants, groups, refutes, smallest_margin, units
from service.control.semidefinite import Iterate
from service.engine.cloud_queue import Steps
from service.errors import DeadlineExceeded, InvalidInput, TooLarge

ENOUGH = 0.9  # share of the largest gap among some pairs: an A with more of it is closer to singular
SHARES = [0.81] * 5 + [0.5]  # share of the largest gap of all that ends a round: the first five, later ones
ROUND = 256  # constraints added at once
RIVALS = 8  # of one token, the hardest
CLOSE = (1e-7, 1e-10, 1e-13)  # what is left between gap and bound when a proof of infeasibility is tried
MAX_DIMENSION = 64  # exact elimination takes a second there, and time grows with the fifth power
LATE = "no matrix was found within the time this request may take"
TOO_FINE = "A is proved, but a run in double precision cannot follow it: gaps are as small as its rounding"
OPEN = "neither an A nor a proof that there is none was found: the wish is at the edge of what is possible"


@dataclass(frozen=True)
class Control:
    """`feasible`: True with A, False with a certificate, None with a note when neither was proved."""

    feasible: bool | None
    A: Floats | None = None
    margin: float | None = None  # smallest (best score - runner-up) of a wanted token, relative to A-norms
    bound: float | None = None  # no A reaches a larger gap, in the units of docs/control.md
    worst_pair: tuple[int, int, int] | None = None  # (token, its wanted leader, the rival in its way)
    certificate: list[tuple[int, int, int, int]] | None = None  # (token, leader, rival, weight)
    note: str | None = None
    dynamics: Result | None = None


def control(
    points: Floats,
    assignment: Mapping[int, int] | None,
    leaders: Sequence[int] | None,
    run: Callable[[Floats, Floats], Run],
    deadline_s: float = 30.0,
    exact_work: int = BOUND,
) -> Steps[Control]:
    """An A under which tokens end as `assignment` says, or `leaders` lead; or why there is none."""
    points = check_points(points)
    account, deadline = Account(exact_work), time.monotonic() + deadline_s
    wish = yield from _prepare(points, _wanted(points, assignment, leaders), deadline, account)
    found = yield from _search(wish)
    if found.refuted is not None:
        return _infeasible(found.pairs, found.refuted)
    try:
        # The identity for clouds of such unlike coordinates that no doubles hold the form that was found.
        for A in (wish.original(found.A), np.eye(points.shape[1])) if found.least > 0 else ():
            if (yield from grants(points, wish.kind, wish.token, wish.leader, A, account)):
                return (yield from _feasible(wish, A, found.bound, run))
    except Exhausted:
        return _undecided(found, account)
    alone = yield from _search(wish.only(found.pairs.token[found.weights.argmax()]))
    if alone.refuted is not None:
        return _infeasible(alone.pairs, alone.refuted)
    return _undecided(found, account)


def _undecided(found: _Found, account: Account) -> Control:
    note = f"neither an A nor its impossibility is proved: {account.excess}" if account.excess else OPEN
    worst = _pair(found.pairs, int(found.weights.argmax()))
    return Control(None, bound=found.bound, worst_pair=worst, note=note)


def _pair(pairs: Conditions, k: int) -> tuple[int, int, int]:
    return int(pairs.token[k]), int(pairs.leader[k]), int(pairs.rival[k])


def _infeasible(pairs: Conditions, weights: list[int]) -> Control:
    proof = sorted((*_pair(pairs, k), weight) for k, weight in enumerate(weights) if weight)
    heaviest = max(range(len(weights)), key=weights.__getitem__)
    return Control(False, bound=0.0, worst_pair=_pair(pairs, heaviest), certificate=proof)


def _feasible(wish: _Wish, A: Floats, bound: float, run: Callable[[Floats, Floats], Run]) -> Steps[Control]:
    """A does what was asked."""
    margin = yield from smallest_margin(wish.points, wish.kind, wish.token, wish.leader, A, wish.account)
    proved = Control(True, A, margin, bound if math.isfinite(bound) else None)
    try:
        running = run(wish.points, A)
    except InvalidInput:  # the cloud under this A is beyond what runs accept
        return replace(proved, note=TOO_FINE)
    for _ in running:
        yield
    if not _confirms(running.result, wish):
        return replace(proved, note=TOO_FINE)
    return replace(proved, dynamics=running.result)


def _wanted(
    points: Floats, assignment: Mapping[int, int] | None, leaders: Sequence[int] | None
) -> dict[int, int]:
    """Token -> leader; every leader also leads itself."""
    if (assignment is None) == (leaders is None):
        raise InvalidInput("give either assignment or leaders", param="assignment")
    if points.shape[1] > MAX_DIMENSION:
        problem = f"points have {points.shape[1]} numbers; control takes {MAX_DIMENSION}"
        raise TooLarge(problem, param="points")
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
    return wanted


@dataclass(frozen=True)
class _Wish:
    """A wish, in coordinates y = z W in which the cloud's second moments are the identity.

    So nothing depends on the scale of a coordinate, nor on any other linear map of the cloud. Gaps are
    <A y_i, y_l(i) - y_j> with both vectors at length 1.
    """

    points: Floats
    kind: Ints  # identical points are one token, and a leader's twin is no rival
    token: Ints
    leader: Ints
    W: Floats  # [d, r] times a power of two: of the r directions that the cloud has
    absent: Floats  # [d, d] positive semidefinite, 0 on the cloud alone, in the scale of W
    y: Floats
    deadline: float
    account: Account

    def only(self, token: int) -> _Wish:
        """The part of it that concerns one token."""
        rows = self.token == token
        return replace(self, token=self.token[rows], leader=self.leader[rows])

    def original(self, A: Floats) -> Floats:
        """The same form for the points, of trace d, and positive in the directions that the cloud lacks."""
        form = self.W @ A @ self.W.T + self.absent
        scaled: Floats = (form + form.T) * (len(form) / 2 / np.trace(form))
        return scaled

    def hardest(self, A: Floats) -> Steps[tuple[float, Conditions]]:
        """The smallest gap of all, and the ROUND pairs of smallest gaps, at most RIVALS of a token."""
        gaps, pairs = [np.empty(0)], [Conditions(*(np.empty(0, np.int64),) * 3)]
        for leader, rows in groups(self.leader, len(self.y)):
            own, apart = units(self.y[self.token[rows]])[0], units(self.y[leader] - self.y)[0]
            twin = self.kind == self.kind[leader]
            gap = (own @ A) @ apart.T
            gap[:, twin] = np.inf
            k = min(RIVALS, gap.shape[1])
            rival = np.argpartition(gap, k - 1, axis=1)[:, :k]
            gap = np.take_along_axis(gap, rival, axis=1)
            real = np.isfinite(gap)
            gaps.append(gap[real])
            token = np.repeat(self.token[rows], k)[real.ravel()]
            pairs.append(Conditions(token, np.full(len(token), leader), rival[real]))
            yield
        gap, pair = np.concatenate(gaps), Conditions.joined(pairs)
        order = np.argsort(gap, kind="stable")[:ROUND]
        return float(gap.min(initial=math.inf)), pair[order]

    def vectors(self, pairs: Conditions) -> tuple[Floats, Floats]:
        """u and v of each pair's matrix."""
        return units(self.y[pairs.token])[0], units(self.y[pairs.leader] - self.y[pairs.rival])[0]

    def weigh(self, pairs: Conditions, weights: Floats) -> Floats:
        """The weights of the same matrices without their lengths: of z_token (z_leader - z_rival)'."""
        _, u, u_exponent = units(self.y[pairs.token])
        _, v, v_exponent = units(self.y[pairs.leader] - self.y[pairs.rival])
        exponent = u_exponent + v_exponent
        weighed: Floats = np.ldexp(weights / u / v, exponent.min(initial=0) - exponent)
        return weighed


def _prepare(points: Floats, wanted: Mapping[int, int], deadline: float, account: Account) -> Steps[_Wish]:
    exponent = np.frexp(np.abs(points).max(axis=0))[1]
    z = np.ldexp(points, -exponent)  # every coordinate to about 1
    R: Floats = np.empty((0, z.shape[1]))
    for start in range(0, len(z), 1 << 14):
        R = np.asarray(np.linalg.qr(np.concatenate([R, z[start : start + (1 << 14)]]), mode="r"))
        yield
    _, size, rotation = np.linalg.svd(R, full_matrices=False)
    seen = size > 1e-14 * size[0]
    map_ = rotation[seen].T * (math.sqrt(len(z)) / size[seen])
    # subtle: orthogonal to z, whose coordinates are scaled; to the points only when it is scaled back with W.
    absent = (np.eye(z.shape[1]) - rotation[seen].T @ rotation[seen]) * (map_**2).max()
    token = np.array(sorted(wanted))
    leader = np.array([wanted[i] for i in token.tolist()])
    shift = exponent.min() - exponent
    W, absent = np.ldexp(map_, shift[:, None]), np.ldexp(absent, shift[:, None] + shift)
    return _Wish(points, merge(points)[1], token, leader, W, absent, z @ map_, deadline, account)


@dataclass(frozen=True)
class _Found:
    """What the search ended with: A in the wish's coordinates, its smallest gap, and a bound on all gaps."""

    A: Floats
    least: float
    bound: float
    pairs: Conditions
    weights: Floats
    refuted: list[int] | None = None


def _search(wish: _Wish) -> Steps[_Found]:
    """Solve with few pairs, add those that the solution violates most, repeat until it violates none."""
    A = np.eye(wish.y.shape[1])
    least, pairs = yield from wish.hardest(A)
    best = _Found(A, least, math.inf, pairs, np.ones(len(pairs)))
    if not len(pairs):  # nobody has a rival
        return best
    for share in chain(SHARES, repeat(SHARES[-1])):
        try:
            at, refuted = yield from _solve(wish, pairs, A)
        except DeadlineExceeded:
            if best.least > 0:  # not the largest gap, but a right answer
                return best
            raise
        weights = wish.weigh(pairs, at.weights)
        A = at.A if best.least <= 0 else (at.A + best.A) / 2  # between the two fewer pairs are overlooked
        least, violated = yield from wish.hardest(A)
        if least > best.least:
            best = replace(best, A=A, least=least)
        best = replace(best, bound=min(best.bound, at.bound), pairs=pairs, weights=weights, refuted=refuted)
        if refuted is not None or at.mu <= 0 or best.least >= share * best.bound:
            break
        kept = np.argsort(-at.weights)[: 4 * ROUND]
        pairs = Conditions.joined([pairs[kept], violated])
        A = (A + np.eye(len(A))) / 2
    return best


def _solve(wish: _Wish, pairs: Conditions, A: Floats) -> Steps[tuple[Iterate, list[int] | None]]:
    """Until mu is ENOUGH of its bound, or weights prove that none is positive, or floating point ends."""
    u, v = wish.vectors(pairs)
    at, close = semidefinite.begin(A, u, v), list(CLOSE)
    while close and not at.mu > ENOUGH * at.bound > 0:
        if time.monotonic() > wish.deadline:
            raise DeadlineExceeded(LATE)
        yield
        try:
            further = yield from semidefinite.step(at, u, v)
        except np.linalg.LinAlgError:
            further = at
        ended = not further.bound - further.mu < at.bound - at.mu
        at = at if ended else further
        if at.mu <= 0 and (ended or at.bound < 0 or at.bound - at.mu < close[0]):
            close = [] if ended else close[1:]
            try:
                refuted = yield from refutes(wish.points, pairs, wish.weigh(pairs, at.weights), wish.account)
            except Exhausted:
                break
            if refuted is not None:
                return at, refuted
        elif ended:
            break
    return at, None


def _confirms(outcome: Result, wish: _Wish) -> bool:
    """Whether in the run every wanted leader leads from layer 0 and every wanted token is its alone."""
    since = dict(zip(outcome.leaders.index.tolist(), outcome.leaders.since_layer.tolist(), strict=True))
    for token, leader in zip(wish.token.tolist(), wish.leader.tolist(), strict=True):
        cluster = int(outcome.assignment[token])
        alone = not outcome.clusters.tie[cluster] and leader in outcome.clusters.leaders[cluster]
        if since.get(leader) != 0 or not alone:
            return False
    return True
