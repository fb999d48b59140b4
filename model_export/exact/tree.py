"""The tree of an exact classifier: splits by tokens separate classes of sequences until each has one output.

A *class* is a set of sequences that the transformer has not yet separated. Class 0 contains all. A token
split moves those members of a class that contain a token into a new class. If members differ only in the
shares of their tokens, a frequency split spreads the class by the share of one token. A final class is
*pure*: it has one output. Tokens are numbers t in [0, 1] here (exact.md, step 0).
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from model_export.exact.data import Floats, ImpossibleData, Ints, Measures

Bools = NDArray[np.bool_]
CELL_GAP = 0.5  # between the cells of two classes, which are 1 wide
MAX_SPREAD = 64.0  # a frequency split moves codes by at most this, unless offsets must be disjoint
SPREADS = (32, 1_024, 32_768)  # that are tried for a frequency split: more if fewer do not do
SMALL_SIDE_DIVISOR = 8  # one scan may split off several sides of at most 1/8 of their class
GAIN_SHARE = 0.8  # of the largest information gain; among tokens with more, isolation decides


@dataclass(frozen=True)
class TokenSplit:
    """Members of class `owner` that contain `token` move to class `new`."""

    owner: int
    token: int
    new: int
    isolation: float  # distance from the token to the nearest other token in the class


@dataclass(frozen=True)
class FrequencySplit:
    """Codes of class `owner` move by `spread` times the share of the token whose code is `offset` + t."""

    owner: int
    token: int
    offset: float
    spread: float
    isolation: float


@dataclass(frozen=True)
class Tree:
    """Splits in the order to apply them, the members of each final class, and their codes' offsets in it."""

    token_splits: list[TokenSplit]
    frequency_splits: list[FrequencySplit]
    members: list[Ints]
    offsets: list[Floats]  # in the order of `members`; zero for a class without frequency splits
    widths: list[float]  # of the codes of a class: 1 plus its spreads

    @property
    def isolations(self) -> list[float]:
        splits: list[TokenSplit | FrequencySplit] = [*self.token_splits, *self.frequency_splits]
        return [split.isolation for split in splits]


def grow_tree(measures: Measures, t: Floats, floor: float, *, disjoint: bool = False) -> Tree:
    """Split until every class is pure.

    Tokens that are closer than `floor` cannot be separated safely. With `disjoint`, frequency splits must not
    interleave the codes of two offsets, whatever the spread.
    """
    members: list[Ints] = [np.arange(len(measures))]
    splits: list[TokenSplit] = []
    mixed = [0] if _is_mixed(measures, members[0]) else []
    while mixed:
        owner = mixed.pop()
        touched = {owner}
        for split, staying, leaving in _split_class(measures, t, floor, owner, members[owner], len(members)):
            splits.append(split)
            members[split.owner] = staying
            members.append(leaving)
            touched |= {split.owner, split.new}
        mixed += [c for c in touched if _is_mixed(measures, members[c])]
    tree = Tree(splits, [], members, [np.zeros(len(rows)) for rows in members], [1.0] * len(members))
    for owner, rows in enumerate(members):
        if len(np.unique(measures.target[rows])) > 1:
            _split_by_frequency(tree, owner, measures, t, floor, disjoint)
    return tree


def _is_mixed(measures: Measures, rows: Ints) -> bool:
    """Return whether token splits are still needed: outputs differ, and so do the sets of tokens."""
    if len(rows) < 2 or (measures.target[rows] == measures.target[rows[0]]).all():
        return False
    support = measures.token[measures.row(int(rows[0]))]
    lengths = measures.start[rows + 1] - measures.start[rows]
    if (lengths != len(support)).any():
        return True
    return bool((measures.gather(rows)[1].reshape(len(rows), -1) != support).any())


def _split_class(
    measures: Measures, t: Floats, floor: float, owner: int, rows: Ints, new: int
) -> Iterator[tuple[TokenSplit, Ints, Ints]]:
    """Yield the best split of a class, or several with small sides, and the members that stay and leave.

    The larger side is split further: the class `owner`, or the new one if most members contain the token.
    """
    entries = _ClassTokens.of(measures, rows)
    isolation = _isolation(t[entries.tokens])
    usable = (entries.count < len(rows)) & (isolation >= floor)
    if not usable.any():
        names = " and ".join(map(measures.name, rows[:2]))
        raise ImpossibleData(f"tokens that tell {names} apart are too close for this precision")
    gain = np.where(usable, np.maximum(_information_gain(entries), 0), -1)
    candidates = np.flatnonzero(usable & (gain >= GAIN_SHARE * gain.max()))
    candidates = candidates[np.argsort(-isolation[candidates], kind="stable")]
    larger = np.ones(len(rows), bool)
    for i in _choose_tokens(candidates, entries):
        contains = np.zeros(len(rows), bool)
        contains[entries.members_with(i)] = True
        split = TokenSplit(owner, int(entries.tokens[i]), new, float(isolation[i]))
        yield split, rows[larger & ~contains], rows[larger & contains]
        if entries.is_minority(i):
            larger &= ~contains
        else:
            larger &= contains
            owner = new
        new += 1


@dataclass(frozen=True)
class _ClassTokens:
    """The tokens of the members of a class, as entries (member, token) with numbers within the class."""

    target: Ints  # of each member
    tokens: Ints  # distinct, ascending
    count: Ints  # the number of members with each token
    member: Ints  # of each entry
    column: Ints  # the token of each entry
    by_token: Ints  # the members of all entries, sorted by token
    ends: Ints  # the end of each token's part of `by_token`

    @classmethod
    def of(cls, measures: Measures, rows: Ints) -> "_ClassTokens":
        member, token = measures.gather(rows)
        target = np.unique(measures.target[rows], return_inverse=True)[1]
        tokens, column = np.unique(token, return_inverse=True)
        count = np.bincount(column)
        by_token = member[np.argsort(column, kind="stable")]
        return cls(target, tokens, count, member, column, by_token, np.cumsum(count))

    def members_with(self, i: int) -> Ints:
        return self.by_token[self.ends[i] - self.count[i] : self.ends[i]]

    def is_minority(self, i: int) -> bool:
        return bool(2 * self.count[i] <= len(self.target))


def _choose_tokens(candidates: Ints, entries: _ClassTokens) -> Iterator[int]:
    """Yield tokens to split by, in order. Their small sides are disjoint, so that each split remains proper.

    Sides with only the most common output are not split off, since these sequences may be the last class.
    """
    target, n = entries.target, len(entries.target)
    remaining = np.bincount(target)
    most_common = int(remaining.argmax())
    available = np.ones(n, bool)
    work, n_chosen = 8 * len(entries.by_token), 0
    for i in candidates.tolist():
        small = entries.members_with(i)
        if not entries.is_minority(i):
            small, work = np.setdiff1d(np.arange(n), small, assume_unique=True), work - n
        work -= len(small)
        if len(small) * SMALL_SIDE_DIVISOR > n:
            if not n_chosen:
                yield i
                return
            continue
        if available[small].all() and (target[small] != most_common).any():
            available[small] = False
            remaining -= np.bincount(target[small], minlength=len(remaining))
            n_chosen += 1
            yield i
        if work < 0 or 2 * available.sum() < n or np.count_nonzero(remaining) < 2:
            break
    if not n_chosen:
        yield int(candidates[0])


def _isolation(t: Floats) -> Floats:
    """Return the distance of each of these ascending numbers to its nearest neighbour; 1 for a single one."""
    gaps = np.concatenate([[1.0], np.diff(t), [1.0]])
    nearest: Floats = np.minimum(gaps[:-1], gaps[1:])
    return nearest


def _information_gain(entries: _ClassTokens) -> Floats:
    """Return n times the entropy that splitting by each token removes, in time linear in the entries."""
    target, count = entries.target, entries.count
    n, totals = len(target), np.bincount(target)
    pair, in_pair = np.unique(entries.column * len(totals) + target[entries.member], return_counts=True)
    column, total = pair // len(totals), totals[pair % len(totals)]
    with_token = _xlogx(count) - np.bincount(column, _xlogx(in_pair), len(count))
    changes = np.bincount(column, _xlogx(total - in_pair) - _xlogx(total), len(count))
    sum_without_token = _xlogx(totals).sum() + changes
    before = _xlogx(np.array([n])) - _xlogx(totals).sum()
    gain: Floats = before - (with_token + _xlogx(n - count) - sum_without_token)
    return gain


def _xlogx(x: Ints) -> Floats:
    values: Floats = x.astype(np.float64) * np.log(np.maximum(x, 1))
    return values


def _split_by_frequency(
    tree: Tree, owner: int, measures: Measures, t: Floats, floor: float, disjoint: bool
) -> None:
    """Add the frequency splits of one class, whose members contain the same tokens in different shares."""
    rows, offset = tree.members[owner], tree.offsets[owner]
    tokens = measures.token[measures.row(int(rows[0]))]
    counts = np.stack([measures.count[measures.row(int(row))] for row in rows])
    share = counts / counts.sum(axis=1, keepdims=True)
    target = measures.target[rows]
    while (group := _mixed_group(offset, target)) is not None:
        group_offset = float(offset[group][0])
        shifts = np.setdiff1d(np.unique(offset), [group_offset]) - group_offset
        isolation = _isolation_among(t[tokens], shifts)
        column = _best_token(share[group], target[group], isolation >= floor)
        if column is None:
            names = " and ".join(map(measures.name, rows[group][:2]))
            raise ImpossibleData(f"the shares that tell {names} apart are too close for this precision")
        moves = share[group, column]
        spread = _choose_spread(group_offset, moves, offset[~group], disjoint)
        offset[group] += spread * moves
        tree.widths[owner] += spread
        split = FrequencySplit(owner, int(tokens[column]), group_offset, spread, float(isolation[column]))
        tree.frequency_splits.append(split)


def _choose_spread(offset: float, moves: Floats, other_offsets: Floats, disjoint: bool) -> float:
    """Return the spread that separates the offsets most: by whole cells, if that is cheap or `disjoint`.

    No offset may meet another one: two groups would become one, and splitting might never end. Finitely many
    spreads make offsets meet, so one of many is free of that.
    """
    distinct, others = np.unique(moves), np.unique(other_offsets)
    cell_spread = 2.0 ** float(np.ceil(np.log2((1 + CELL_GAP) / np.diff(distinct).min())))
    largest = cell_spread if disjoint else min(cell_spread, MAX_SPREAD)

    def smallest_gap(spread: float) -> float:
        offsets = np.sort(np.concatenate([offset + spread * distinct, others]))
        return min(1 + CELL_GAP, float(np.diff(offsets).min()))

    for n in SPREADS:
        steps = np.arange(n // 2, 2 * n) / 16 if disjoint else np.arange(n, n // 2, -1) / n
        best = float(max(largest * steps, key=smallest_gap))
        if smallest_gap(best) > (1.0 if disjoint else 0.0):
            return best
    raise ImpossibleData("the shares of some sequences are too close for this precision")


def _mixed_group(offset: Floats, target: Ints) -> Bools | None:
    """Return which members share an offset but not their outputs; None if there is no such group."""
    values, index = np.unique(offset, return_inverse=True)
    low, high = np.full(len(values), target.max()), np.zeros(len(values), np.int64)
    np.minimum.at(low, index, target)
    np.maximum.at(high, index, target)
    mixed = np.flatnonzero(low < high)
    return offset == values[mixed[0]] if len(mixed) else None


def _best_token(share: Floats, target: Ints, usable: Bools) -> int | None:
    """Return the token whose share leaves the fewest outputs mixed and, among these, has the largest gap."""
    best: tuple[float, float, int | None] = (np.inf, 0.0, None)
    for column in np.flatnonzero(usable):
        values, index = np.unique(share[:, column], return_inverse=True)
        if len(values) > 1:
            pairs = np.unique(index * (target.max() + 1) + target)
            shared = len(pairs) - len(values)
            best = min(best, (shared, -float(np.diff(values).min()), int(column)))
    return best[2]


def _isolation_among(t: Floats, shifts: Floats) -> Floats:
    """Return the distance of each of these tokens to the others, and to the others moved by `shifts`."""
    moved = np.concatenate([[-np.inf], np.sort(np.add.outer(shifts, t).ravel()), [np.inf]])
    above = np.searchsorted(moved, t)
    nearest: Floats = np.minimum(_isolation(t), np.minimum(moved[above] - t, t - moved[above - 1]))
    return nearest
