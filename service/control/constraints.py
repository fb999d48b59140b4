"""The requested leader of each token, and the inequalities that make the token end there."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from service.cloud.points import Bools, Floats, Ints, merge
from service.errors import InvalidInput, TooLarge

MAX_GAPS_AT_ONCE = 1 << 20  # in memory
MAX_CONTROL_DIMENSION = 64  # where elimination takes a second; time grows with the fifth power


@dataclass(frozen=True)
class GapConstraints:
    """<A z_token, z_leader - z_rival> > 0, by index."""

    token: Ints
    leader: Ints
    rival: Ints

    def __len__(self) -> int:
        return len(self.token)

    def __getitem__(self, rows: Any) -> "GapConstraints":
        return GapConstraints(self.token[rows], self.leader[rows], self.rival[rows])

    def triple(self, k: int) -> tuple[int, int, int]:
        """Return token, leader and rival of constraint k."""
        return int(self.token[k]), int(self.leader[k]), int(self.rival[k])

    @classmethod
    def empty(cls) -> "GapConstraints":
        """Return no constraints."""
        return cls(*(np.empty(0, np.int64),) * 3)

    @classmethod
    def concatenate(cls, parts: "Sequence[GapConstraints]") -> "GapConstraints":
        """Return all constraints of several parts."""
        columns = zip(*((part.token, part.leader, part.rival) for part in parts), strict=True)
        return cls(*map(np.concatenate, columns))


@dataclass(frozen=True)
class LeaderConstraints:
    """<A z_i, z_l(i) - z_j> > 0 for these tokens i, their leaders l(i), and every z_j other than z_l(i)."""

    points: Floats
    point_id: Ints  # the same for identical points
    token: Ints
    leader: Ints  # of each token

    def select_token(self, token: int) -> "LeaderConstraints":
        """Return the constraints on one token."""
        rows = self.token == token
        return replace(self, token=self.token[rows], leader=self.leader[rows])

    def is_twin(self, leader: int) -> Bools:
        """Return which points equal the leader."""
        equal: Bools = self.point_id == self.point_id[leader]
        return equal

    def groups(self) -> Iterator[tuple[int, Ints]]:
        """Yield (leader, its tokens), as many tokens at once as their gaps to all rivals fit in memory."""
        order = np.argsort(self.leader, kind="stable")
        first = np.flatnonzero(np.diff(self.leader[order], prepend=-1))
        size = max(1, MAX_GAPS_AT_ONCE // len(self.points))
        for rows in np.split(order, first[1:]):
            for start in range(0, len(rows), size):
                yield int(self.leader[rows[0]]), self.token[rows[start : start + size]]


def build_constraints(
    points: Floats, assignment: Mapping[int, int] | None, leaders: Sequence[int] | None
) -> LeaderConstraints:
    """Check a request and return its constraints; every leader also leads itself."""
    if (assignment is None) == (leaders is None):
        raise InvalidInput("give either assignment or leaders", param="assignment")
    if points.shape[1] > MAX_CONTROL_DIMENSION:
        problem = f"points have {points.shape[1]} numbers; control takes {MAX_CONTROL_DIMENSION}"
        raise TooLarge(problem, param="points")
    param = "leaders" if assignment is None else "assignment"
    leader_of = dict(assignment) if assignment is not None else {leader: leader for leader in leaders or ()}
    if not leader_of:
        raise InvalidInput(f"{param} is empty", param=param)
    for index in (*leader_of, *leader_of.values()):
        if not 0 <= index < len(points):
            raise InvalidInput(f"{param} names point {index} of {len(points)}", param=param)
    for leader in set(leader_of.values()):
        if leader_of.setdefault(leader, leader) != leader:
            problem = f"point {leader} cannot lead, as assignment asks, and follow point {leader_of[leader]}"
            raise InvalidInput(problem, param=param)
    tokens = np.array(sorted(leader_of))
    token_leaders = np.array([leader_of[token] for token in tokens.tolist()])
    return LeaderConstraints(points, merge(points)[1], tokens, token_leaders)


def normalize(vectors: Floats) -> tuple[Floats, Floats, Ints]:
    """Return unit vectors, and lengths as a number and the exponent of a power of two. Zero stays zero."""
    exponent = np.frexp(np.abs(vectors).max(axis=1))[1]
    scaled = np.ldexp(vectors, -exponent[:, None])
    lengths = np.linalg.norm(scaled, axis=1)
    lengths[lengths == 0] = 1
    return scaled / lengths[:, None], lengths, exponent
