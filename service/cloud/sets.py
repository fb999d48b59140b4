"""Argmax sets, and the candidates for them, as arrays."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import overload

import numpy as np

from service.cloud.points import Bools, Floats, Ints
from service.errors import TooLarge

EMPTY: Ints = np.empty(0, np.int64)
NUMBERS_AT_ONCE = 2**20  # coordinates of pairs in memory
MAX_MEMBERS = 2**23  # of all sets with several members of a layer
TOO_MANY_TIES = "too many points tie, or nearly: send fewer points"


class Ragged(Sequence[Ints]):
    """Rows of different lengths in one flat array: a million small arrays are slow to make and to free."""

    def __init__(self, flat: Ints, lengths: Ints) -> None:
        self.flat = flat
        self._ends = np.cumsum(lengths)
        self.lengths = lengths

    @classmethod
    def of(cls, rows: Sequence[Ints]) -> "Ragged":
        """Return rows in one flat array."""
        return cls(np.concatenate([EMPTY, *rows]), np.array([len(row) for row in rows], np.int64))

    def __len__(self) -> int:
        return len(self.lengths)

    @overload
    def __getitem__(self, index: int) -> Ints: ...
    @overload
    def __getitem__(self, index: slice) -> "Ragged": ...
    def __getitem__(self, index: int | slice) -> "Ints | Ragged":
        if isinstance(index, slice):
            return self.take(np.arange(len(self))[index])
        end = self._ends[index]
        return self.flat[end - self.lengths[index] : end]

    def __iter__(self) -> Iterator[Ints]:
        return map(self.__getitem__, range(len(self)))

    def take(self, rows: Ints) -> "Ragged":
        """Return these rows, in this order."""
        lengths = self.lengths[rows]
        return Ragged(self.flat[concatenated_ranges((self._ends - self.lengths)[rows], lengths)], lengths)

    def unique(self) -> tuple[Ints, Ints]:
        """Return the index of each distinct row, and for every row the distinct row that it equals."""
        groups: dict[bytes, int] = {}
        group = np.array([groups.setdefault(row.tobytes(), len(groups)) for row in self], np.int64)
        return np.unique(group, return_index=True)[1], group


@dataclass(frozen=True)
class Pairs:
    """Candidates: pairs (query, key) sorted by query, every query at least once."""

    query: Ints  # [p] ascending positions among the queries
    key: Ints  # [p]


@dataclass(frozen=True)
class Sets:
    """The argmax set of every query."""

    first: Ints  # [q] the first member
    size: Ints  # [q]
    row: Ints  # [m] the pairs (query, member) of all sets with several members
    member: Ints  # [m]

    def ragged(self) -> Ragged:
        """Return all sets, those of a single member too."""
        flat = np.repeat(self.first, self.size)
        flat[np.repeat(self.size > 1, self.size)] = self.member
        return Ragged(flat, self.size)


@dataclass(frozen=True)
class Ties:
    """Tokens whose argmax sets have several members, and the means over those sets."""

    row: Ints  # [t] tokens, ascending
    size: Ints  # [t]
    member: Ints  # members of the first, then of the second, ..
    mean: Floats  # [t,d]
    error_bound: Floats  # [t] on the distance of each mean from the exact one

    @classmethod
    def empty(cls, d: int) -> "Ties":
        """Return no ties, in dimension d."""
        return cls(EMPTY, EMPTY, EMPTY, np.empty((0, d)), np.empty(0))

    @cached_property
    def sets(self) -> Ragged:
        return Ragged(self.member, self.size)

    def take(self, mask: Bools) -> "Ties":
        """Return some of the ties."""
        member = self.member[np.repeat(mask, self.size)]
        return Ties(self.row[mask], self.size[mask], member, self.mean[mask], self.error_bound[mask])

    def join(self, other: "Ties") -> "Ties":
        """Return the ties of both, sorted by token."""
        names = ("row", "size", "member", "mean", "error_bound")
        joint = Ties(*(np.concatenate([getattr(self, name), getattr(other, name)]) for name in names))
        order = np.argsort(joint.row)
        sets = joint.sets.take(order)
        return Ties(joint.row[order], sets.lengths, sets.flat, joint.mean[order], joint.error_bound[order])


def members_of(query: int, first: Ints, row: Ints, sets: Ragged) -> Ints:
    """Return the argmax set of a query: `sets` has those of the queries `row`, `first` all others."""
    index = int(np.searchsorted(row, query))
    tied = index < len(row) and row[index] == query
    return sets[index] if tied else first[[query]]


class ArgmaxSetBuilder:
    """Collects argmax sets that are found in batches."""

    def __init__(self, count: int) -> None:
        self._first: Ints = np.zeros(count, np.int64)
        self._size: Ints = np.zeros(count, np.int64)
        self._row: list[Ints] = []
        self._member: list[Ints] = []
        self._count = 0

    def add(self, rows: Ints, sets: Sets) -> None:
        """Add the sets of the queries `rows`."""
        self._first[rows], self._size[rows] = sets.first, sets.size
        self._row.append(rows[sets.row])
        self._member.append(sets.member)
        self._count += len(sets.member)
        if self._count > MAX_MEMBERS:
            raise TooLarge(TOO_MANY_TIES, param="points")

    def build(self) -> Sets:
        """Return the sets of all queries."""
        row, member = np.concatenate([EMPTY, *self._row]), np.concatenate([EMPTY, *self._member])
        order = np.lexsort((member, row))
        return Sets(self._first, self._size, row[order], member[order])


def range_starts(size: Ints) -> Ints:
    """Return where each of consecutive ranges of these sizes begins."""
    return np.cumsum(size) - size


def concatenated_ranges(start: Ints, size: Ints) -> Ints:
    """Return start, start + 1, ..., start + size - 1 of every range, one range after the other."""
    ends = np.cumsum(size)
    ranges: Ints = np.arange(int(ends[-1]) if len(ends) else 0)
    ranges += np.repeat(start - (ends - size), size)
    return ranges


def split_by_size(size: Ints, max_size: int) -> Iterator[slice]:
    """Yield slices of consecutive ranges that hold at most `max_size` together, or one larger range."""
    totals, start = np.cumsum(size), 0
    while start < len(size):
        total = int(totals[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(totals, total + max_size, side="right")))
        yield slice(start, stop)
        start = stop
