"""Search for a form A under which chosen tokens lead: the semidefinite program of control.md.

Token i ends at leader l(i), from layer 0 on and for ever, if <A z_i, z_l(i) - z_j> > 0 for all other j. That
is linear in A. The search for the form whose smallest such gap is largest uses floating point, and adds
constraints as they are violated. Exact arithmetic (certificate.py) then proves that this form satisfies the
constraints, or that none does. Without a proof the answer is undecided.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, repeat

import numpy as np

from service.cloud.dynamics import Result
from service.cloud.points import Floats, check_points
from service.control import semidefinite
from service.control.certificate import compute_margin, verify_feasible, verify_infeasible
from service.control.constraints import GapConstraints, LeaderConstraints, build_constraints, normalize
from service.control.elimination import Deadline
from service.control.semidefinite import Iterate
from service.errors import DeadlineExceeded, InvalidInput

SUFFICIENT_SHARE = 0.9  # of the largest gap of a round; forms with more are closer to singular
ROUND_SHARES = [0.81] * 5 + [0.5]  # of the bound on all gaps: a round that reaches it is the last one
DIRECTION_TOLERANCE = 1e-14  # of the largest singular value; smaller ones count as zero
ROWS_AT_ONCE = 1 << 14
PAIRS_PER_ROUND = 256
RIVALS_PER_TOKEN = 8
PROOF_GAPS = (1e-7, 1e-10, 1e-13)  # between gap and bound, at which infeasibility may be proved
MAX_PROOF_S = 10.0
PRECISION_NOTE = "A is proved, but a run in double precision cannot follow it: gaps are as small as rounding"
PROOF_NOTE = "neither an A nor its impossibility is proved: the proof takes too long"
OPEN_NOTE = (
    "neither an A nor a proof that there is none was found: the request is at the edge of the possible"
)


@dataclass(frozen=True)
class ControlResult:
    """`feasible`: True with A, False with a certificate, None with a note when neither was proved."""

    feasible: bool | None
    A: Floats | None = None
    margin: float | None = None  # smallest (best score - runner-up) of these tokens, relative to A-norms
    bound: float | None = None  # no A reaches a larger gap, in the units of control.md
    worst_pair: tuple[int, int, int] | None = None  # (token, its leader, the rival with the smallest gap)
    certificate: list[tuple[int, int, int, int]] | None = None  # (token, leader, rival, weight)
    note: str | None = None
    dynamics: Result | None = None


def find_form(
    points: Floats,
    assignment: Mapping[int, int] | None,
    leaders: Sequence[int] | None,
    run: Callable[[Floats, Floats], Result],
    deadline_s: float = 30.0,
    proof_s: float = MAX_PROOF_S,
) -> ControlResult:
    """Find a form under which tokens end as `assignment` says or `leaders` lead, or prove that there is none.

    Args:
        points: The cloud, [n, d].
        assignment: The leader of each constrained token; a leader also leads itself.
        leaders: The tokens to lead, in place of `assignment`.
        run: Runs the dynamics of points under a form.
        deadline_s: After this time the search ends with the best form found.
        proof_s: After this time proofs that no form exists end.

    Raises:
        InvalidInput: The points or constraints are unusable.
        TooLarge: Points have too many coordinates.
        DeadlineExceeded: The deadline passed before any form was found.
    """
    points = check_points(points)
    constraints = build_constraints(points, assignment, leaders)
    deadline, proof_deadline = Deadline(deadline_s), Deadline(min(proof_s, deadline_s))
    problem = SearchProblem(constraints, whiten(points), deadline, proof_deadline)
    best = _search(problem)
    if best.proof is not None:
        return _infeasible(best.gaps, best.proof)
    # the identity, for coordinates whose scales differ so much that no doubles hold the form that was found
    for A in (problem.space.to_points(best.A), np.eye(points.shape[1])) if best.smallest_gap > 0 else ():
        if verify_feasible(constraints, A):
            return _feasible(constraints, A, best.bound, run)
    hardest = best.gaps.token[best.weights.argmax()]
    single = _search(replace(problem, constraints=constraints.select_token(hardest)))
    if single.proof is not None:
        return _infeasible(single.gaps, single.proof)
    return _undecided(best, proof_deadline)


def _undecided(best: "SearchState", proof_deadline: Deadline) -> ControlResult:
    note = PROOF_NOTE if proof_deadline.passed else OPEN_NOTE
    worst = best.gaps.triple(int(best.weights.argmax()))
    return ControlResult(None, bound=best.bound, worst_pair=worst, note=note)


def _infeasible(gaps: GapConstraints, weights: list[int]) -> ControlResult:
    proof = sorted((*gaps.triple(k), weight) for k, weight in enumerate(weights) if weight)
    heaviest = max(range(len(weights)), key=weights.__getitem__)
    return ControlResult(False, bound=0.0, worst_pair=gaps.triple(heaviest), certificate=proof)


def _feasible(
    constraints: LeaderConstraints,
    A: Floats,
    bound: float,
    run: Callable[[Floats, Floats], Result],
) -> ControlResult:
    """Return the answer with a form that is proved, and the run that confirms it."""
    margin = compute_margin(constraints, A)
    result = ControlResult(True, A, margin, bound if math.isfinite(bound) else None)
    try:
        outcome = run(constraints.points, A)
    except InvalidInput:  # runs do not accept the cloud under this A
        return replace(result, note=PRECISION_NOTE)
    if not _confirms(outcome, constraints):
        return replace(result, note=PRECISION_NOTE)
    return replace(result, dynamics=outcome)


def _confirms(outcome: Result, constraints: LeaderConstraints) -> bool:
    """Return whether the leaders lead from layer 0, and the tokens end at their leader only."""
    since = dict(zip(outcome.leaders.index.tolist(), outcome.leaders.since_layer.tolist(), strict=True))
    for token, leader in zip(constraints.token.tolist(), constraints.leader.tolist(), strict=True):
        cluster = int(outcome.assignment[token])
        follows = not outcome.clusters.tie[cluster] and leader in outcome.clusters.leaders[cluster]
        if since.get(leader) != 0 or not follows:
            return False
    return True


@dataclass(frozen=True)
class Whitening:
    """Coordinates y = z W, which do not depend on a linear map of the cloud, such as units."""

    W: Floats  # [d, r] times a power of two, for the r directions that the cloud spans
    complement: Floats  # [d, d] positive semidefinite, 0 exactly on the cloud's directions, scaled as W W'
    y: Floats  # [n, r]

    def to_points(self, A: Floats) -> Floats:
        """Return the form A on points: of trace d, and positive in directions that the cloud lacks."""
        form = self.W @ A @ self.W.T + self.complement
        scaled: Floats = (form + form.T) * (len(form) / 2 / np.trace(form))
        return scaled


def whiten(points: Floats) -> Whitening:
    """Return the coordinates in which the points have the identity as second moment."""
    exponent = np.frexp(np.abs(points).max(axis=0))[1]
    z = np.ldexp(points, -exponent)  # every coordinate to about 1
    R: Floats = np.empty((0, z.shape[1]))
    for start in range(0, len(z), ROWS_AT_ONCE):
        R = np.asarray(np.linalg.qr(np.concatenate([R, z[start : start + ROWS_AT_ONCE]]), mode="r"))
    _, size, rotation = np.linalg.svd(R, full_matrices=False)
    present = size > DIRECTION_TOLERANCE * size[0]
    directions = rotation[present].T
    W = directions * (math.sqrt(len(z)) / size[present])
    # subtle: orthogonal to z, whose coordinates are scaled; to the points only after scaling back, with W
    complement = (np.eye(z.shape[1]) - directions @ directions.T) * (W**2).max()
    shift = exponent.min() - exponent
    return Whitening(np.ldexp(W, shift[:, None]), np.ldexp(complement, shift[:, None] + shift), z @ W)


@dataclass(frozen=True)
class SearchProblem:
    """Constraints in whitened coordinates y, and deadlines.

    Gaps are <A y_i, y_l(i) - y_j> with both vectors at length 1.
    """

    constraints: LeaderConstraints
    space: Whitening
    deadline: Deadline
    proof_deadline: Deadline

    def hardest_gaps(self, A: Floats) -> tuple[float, GapConstraints]:
        """Return the smallest gap and the PAIRS_PER_ROUND pairs of smallest gaps, few of each token."""
        y, gaps, pairs = self.space.y, [np.empty(0)], [GapConstraints.empty()]
        for leader, tokens in self.constraints.groups():
            gap = (normalize(y[tokens])[0] @ A) @ normalize(y[leader] - y)[0].T
            gap[:, self.constraints.is_twin(leader)] = np.inf
            k = min(RIVALS_PER_TOKEN, gap.shape[1])
            rival = np.argpartition(gap, k - 1, axis=1)[:, :k]
            gap = np.take_along_axis(gap, rival, axis=1)
            real = np.isfinite(gap)
            token = np.repeat(tokens, k)[real.ravel()]
            gaps.append(gap[real])
            pairs.append(GapConstraints(token, np.full(len(token), leader), rival[real]))
        gap, pair = np.concatenate(gaps), GapConstraints.concatenate(pairs)
        order = np.argsort(gap, kind="stable")[:PAIRS_PER_ROUND]
        return float(gap.min(initial=math.inf)), pair[order]

    def vectors(self, gaps: GapConstraints) -> tuple[Floats, Floats]:
        """Return u and v of each pair's matrix."""
        y = self.space.y
        return normalize(y[gaps.token])[0], normalize(y[gaps.leader] - y[gaps.rival])[0]

    def unnormalize(self, gaps: GapConstraints, weights: Floats) -> Floats:
        """Return the weights of the same matrices without their lengths: of z_token (z_leader - z_rival)'."""
        y = self.space.y
        _, u, u_exponent = normalize(y[gaps.token])
        _, v, v_exponent = normalize(y[gaps.leader] - y[gaps.rival])
        exponent = u_exponent + v_exponent
        scaled: Floats = np.ldexp(weights / u / v, exponent.min(initial=0) - exponent)
        return scaled

    def prove_infeasible(self, gaps: GapConstraints, weights: Floats) -> list[int] | None:
        """Return integer weights that prove that no form exists, or None."""
        points, weights = self.constraints.points, self.unnormalize(gaps, weights)
        try:
            return verify_infeasible(points, gaps, weights, self.proof_deadline)
        except DeadlineExceeded:
            return None


@dataclass(frozen=True)
class SearchState:
    """The best form so far in whitened coordinates, its smallest gap, and a bound on all gaps."""

    A: Floats
    smallest_gap: float
    bound: float
    gaps: GapConstraints
    weights: Floats
    proof: list[int] | None = None  # weights which prove that no form satisfies the constraints


def _search(problem: SearchProblem) -> SearchState:
    """Solve with few pairs, add the pairs that the solution violates most, until it violates none."""
    A = np.eye(problem.space.y.shape[1])
    smallest_gap, gaps = problem.hardest_gaps(A)
    best = SearchState(A, smallest_gap, math.inf, gaps, np.ones(len(gaps)))
    if not len(gaps):  # no token has a rival
        return best
    for share in chain(ROUND_SHARES, repeat(ROUND_SHARES[-1])):
        try:
            iterate, proof = _solve(problem, gaps, A)
        except DeadlineExceeded:
            if best.smallest_gap > 0:  # not the largest gap, but a correct answer
                return best
            raise
        weights = problem.unnormalize(gaps, iterate.weights)
        # the mean with the best form violates fewer other pairs
        A = iterate.A if best.smallest_gap <= 0 else (iterate.A + best.A) / 2
        smallest_gap, violated = problem.hardest_gaps(A)
        if smallest_gap > best.smallest_gap:
            best = replace(best, A=A, smallest_gap=smallest_gap)
        best = replace(best, bound=min(best.bound, iterate.bound), gaps=gaps, weights=weights, proof=proof)
        if proof is not None or iterate.mu <= 0 or best.smallest_gap >= share * best.bound:
            break
        heaviest = np.argsort(-iterate.weights)[: 4 * PAIRS_PER_ROUND]
        gaps = GapConstraints.concatenate([gaps[heaviest], violated])
        A = (A + np.eye(len(A))) / 2
    return best


def _solve(problem: SearchProblem, gaps: GapConstraints, A: Floats) -> tuple[Iterate, list[int] | None]:
    """Take steps until mu is a sufficient share of its bound, or infeasibility is proved."""
    u, v = problem.vectors(gaps)
    iterate, proof_gaps = semidefinite.start(A, u, v), list(PROOF_GAPS)
    while proof_gaps and not iterate.mu > SUFFICIENT_SHARE * iterate.bound > 0:
        problem.deadline.check()
        improved = _improve(iterate, u, v)
        iterate = improved or iterate
        converged = improved is None or iterate.bound < 0 or iterate.bound - iterate.mu < proof_gaps[0]
        if iterate.mu <= 0 and converged:
            proof_gaps = proof_gaps[1:]
            proof = problem.prove_infeasible(gaps, iterate.weights)
            if proof is not None:
                return iterate, proof
        if improved is None:
            break
    return iterate, None


def _improve(iterate: Iterate, u: Floats, v: Floats) -> Iterate | None:
    """Return the next iterate, or None if rounding keeps the gap from shrinking."""
    try:
        following = semidefinite.step(iterate, u, v)
    except np.linalg.LinAlgError:
        return None
    return following if following.bound - following.mu < iterate.bound - iterate.mu else None
