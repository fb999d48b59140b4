"""Argmax sets as arrays: with several members, of layers that are over, and coming in pieces."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from service.clouds.decision import Sets, spans
from service.clouds.points import Bools, Floats, Ints

NOBODY: Ints = np.empty(0, np.int64)


@dataclass(frozen=True)
class Ties:
    """Tokens whose argmax sets have several members, and the means over those sets."""

    row: Ints  # [t] tokens, ascending
    size: Ints  # [t]
    member: Ints  # members of the first, then of the second, ..
    mean: Floats  # [t,d]
    moved: Floats  # [t]

    @classmethod
    def none(cls, d: int) -> Ties:
        return cls(NOBODY, NOBODY, NOBODY, np.empty((0, d)), np.empty(0))

    def members(self, token: int) -> Ints:
        place = int(np.searchsorted(self.row, token))
        start = int(self.size[:place].sum())
        return self.member[start : start + self.size[place]]

    def take(self, which: Bools) -> Ties:
        member = np.repeat(which, self.size)
        return Ties(
            self.row[which], self.size[which], self.member[member], self.mean[which], self.moved[which]
        )

    def join(self, other: Ties) -> Ties:
        row = np.concatenate([self.row, other.row])
        order = np.argsort(row)
        size = np.concatenate([self.size, other.size])
        member = np.concatenate([self.member, other.member])
        return Ties(
            row[order],
            size[order],
            member[spans((np.cumsum(size) - size)[order], size[order])],
            np.concatenate([self.mean, other.mean])[order],
            np.concatenate([self.moved, other.moved])[order],
        )


def members_of(token: int, first: Ints, ties: Ties) -> Ints:
    """The argmax set of a token: that of `ties`, or else its first member alone."""
    place = int(np.searchsorted(ties.row, token))
    tied = place < len(ties.row) and ties.row[place] == token
    return ties.members(token) if tied else first[[token]]


@dataclass(frozen=True)
class Passed:
    """The argmax sets of a layer that is over, of the tokens that were not settled before it."""

    row: Ints
    first: Ints
    ties: Ties

    def members(self, token: int) -> Ints:
        first = self.first[int(np.searchsorted(self.row, token))]
        return self.ties.members(token) if first < 0 else np.array([first])


class Found:
    """Argmax sets that come in pieces."""

    def __init__(self, count: int) -> None:
        self._first: Ints = np.zeros(count, np.int64)
        self._size: Ints = np.zeros(count, np.int64)
        self._sure: Bools = np.zeros(count, np.bool_)
        self._gap: Floats = np.full(count, np.inf)
        self._row: list[Ints] = []
        self._member: list[Ints] = []

    def put(self, rows: Ints, sets: Sets) -> None:
        self._first[rows], self._size[rows] = sets.first, sets.size
        self._sure[rows], self._gap[rows] = sets.sure, sets.gap
        self._row.append(rows[sets.row])
        self._member.append(sets.member)

    def sets(self) -> Sets:
        row, member = np.concatenate([NOBODY, *self._row]), np.concatenate([NOBODY, *self._member])
        order = np.lexsort((member, row))
        return Sets(self._first, self._size, row[order], member[order], self._sure, self._gap)


def starts(size: Ints) -> Ints:
    """Where each of some spans, one after the other, begins."""
    return np.cumsum(size) - size
