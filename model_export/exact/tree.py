"""The offline half of the exact construction: which token tells which sequences apart, and where codes lie.

A *class* is a set of sequences that the transformer has not yet told apart. Class 0 holds all; a token split
moves those members of a class that contain a token into a new class; where members differ in their tokens'
shares alone, a frequency split spreads a class by the share of one token. A class ends *pure*: one output.
Tokens are numbers t in [0, 1] here (docs/exact.md, step 0).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from model_export.exact.data import Floats, ImpossibleData, Ints, Measures

Bools = NDArray[np.bool_]
GAP = 0.5  # between the cells of two classes, which are 1 wide
WIDEST_SPREAD = 64.0  # a frequency split moves codes by at most this, unless tokens have targets of their own
SMALL = 8  # a side of at most 1/8 of its class may be split off together with others, from one scan


@dataclass(frozen=True)
class TokenSplit:
    """Members of class `owner` that contain `token` move to class `new`."""

    owner: int
    token: int
    new: int
    isolation: float  # distance from the token to its nearest other token in the class


@dataclass(frozen=True)
class FrequencySplit:
    """Codes of class `owner` move on by `spread` times the share of the token whose code is `offset` + t."""

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
    offsets: list[Floats]  # beside `members`; zero where no frequency split touched the class
    widths: list[float]  # how far codes of a class may reach: 1, and what its spreads add

    @property
    def isolations(self) -> list[float]:
        splits: list[TokenSplit | FrequencySplit] = [*self.token_splits, *self.frequency_splits]
        return [split.isolation for split in splits]


def grow(measures: Measures, t: Floats, floor: float, *, disjoint: bool = False) -> Tree:
    """Split until every class is pure. `floor`: tokens closer than this cannot be told apart safely.

    `disjoint` asks that frequency splits leave no two codes interleaved, whatever the spread.
    """
    members: list[Ints] = [np.arange(len(measures))]
    splits: list[TokenSplit] = []
    mixed = [0] if _is_mixed(measures, members[0]) else []
    while mixed:
        owner = mixed.pop()
        touched = {owner}
        for split, stay, leave in _scan(measures, t, floor, owner, members[owner], len(members)):
            splits.append(split)
            members[split.owner] = stay
            members.append(leave)
            touched |= {split.owner, split.new}
        mixed += [c for c in touched if _is_mixed(measures, members[c])]
    tree = Tree(splits, [], members, [np.zeros(len(rows)) for rows in members], [1.0] * len(members))
    for owner, rows in enumerate(members):
        if len(np.unique(measures.target[rows])) > 1:
            _spread(tree, owner, measures, t, floor, disjoint)
    return tree


def _is_mixed(measures: Measures, rows: Ints) -> bool:
    """Whether token splits are still needed: outputs differ, and so do the sets of tokens."""
    if len(rows) < 2 or (measures.target[rows] == measures.target[rows[0]]).all():
        return False
    support = measures.token[measures.row(int(rows[0]))]
    lengths = measures.start[rows + 1] - measures.start[rows]
    if (lengths != len(support)).any():
        return True
    return bool((measures.gather(rows)[1].reshape(len(rows), -1) != support).any())


def _scan(
    measures: Measures, t: Floats, floor: float, owner: int, rows: Ints, new: int
) -> Iterator[tuple[TokenSplit, Ints, Ints]]:
    """The best split of a class, or several that cut off small sides: (split, who stays, who leaves)."""
    entry, token = measures.gather(rows)
    target = np.unique(measures.target[rows], return_inverse=True)[1]
    tokens, place = np.unique(token, return_inverse=True)
    isolation = _isolation(t[tokens])
    n, holders = len(rows), np.bincount(place)
    usable = (holders < n) & (isolation >= floor)
    if not usable.any():
        names = " and ".join(map(measures.name, rows[:2]))
        raise ImpossibleData(f"tokens that tell {names} apart are too close for this precision")
    gain = _information_gain(target, target[entry], place, holders)
    gain = np.where(usable, np.maximum(gain, 0), -1)
    good = np.flatnonzero(usable & (gain >= 0.8 * gain.max()))
    good = good[np.argsort(-isolation[good], kind="stable")]
    by_token = entry[np.argsort(place, kind="stable")]
    ends = np.cumsum(holders)
    left = np.ones(n, bool)
    for i in _choose(good, holders, by_token, ends, target):
        has = np.zeros(n, bool)
        has[by_token[ends[i] - holders[i] : ends[i]]] = True
        split = TokenSplit(owner, int(tokens[i]), new, float(isolation[i]))
        yield split, rows[left & ~has], rows[left & has]
        small_leaves = 2 * holders[i] <= n
        left &= ~has if small_leaves else has
        owner, new = (owner, new + 1) if small_leaves else (new, new + 1)


def _choose(good: Ints, holders: Ints, by_token: Ints, ends: Ints, target: Ints) -> Iterator[int]:
    """Tokens to split by, in turn. Their small sides are disjoint, so that each split remains proper.

    Sequences of the commonest output are not cut off one by one: they may be what remains in the end.
    """
    n, commonest = len(target), int(np.bincount(target).argmax())
    left = np.ones(n, bool)
    remaining = np.bincount(target)
    work, chosen = 8 * len(by_token), 0
    for i in good:
        small = by_token[ends[i] - holders[i] : ends[i]]
        if 2 * holders[i] > n:
            small, work = np.setdiff1d(np.arange(n), small, assume_unique=True), work - n
        work -= len(small)
        if len(small) * SMALL > n:
            if not chosen:
                yield int(i)
                return
            continue
        if left[small].all() and (target[small] != commonest).any():
            left[small] = False
            remaining -= np.bincount(target[small], minlength=len(remaining))
            chosen += 1
            yield int(i)
        if work < 0 or 2 * left.sum() < n or np.count_nonzero(remaining) < 2:
            break
    if not chosen:
        yield int(good[0])


def _isolation(t: Floats) -> Floats:
    """Distance of each of these ascending numbers to its nearest neighbour; 1 for a lone one."""
    gaps = np.concatenate([[1.0], np.diff(t), [1.0]])
    nearest: Floats = np.minimum(gaps[:-1], gaps[1:])
    return nearest


def _information_gain(target: Ints, entry_target: Ints, place: Ints, holders: Ints) -> Floats:
    """Entropy (times n) that splitting by each token removes, in time linear in the class's entries."""
    n, totals = len(target), np.bincount(target)
    pair, count = np.unique(place * len(totals) + entry_target, return_counts=True)
    where, total = pair // len(totals), totals[pair % len(totals)]
    yes = _xlogx(holders) - np.bincount(where, _xlogx(count), len(holders))
    kept = _xlogx(totals).sum() + np.bincount(where, _xlogx(total - count) - _xlogx(total), len(holders))
    before = _xlogx(np.array([n])) - _xlogx(totals).sum()
    gain: Floats = before - (yes + _xlogx(n - holders) - kept)
    return gain


def _xlogx(x: Ints) -> Floats:
    values: Floats = x.astype(np.float64) * np.log(np.maximum(x, 1))
    return values


def _spread(tree: Tree, owner: int, measures: Measures, t: Floats, floor: float, disjoint: bool) -> None:
    """Frequency splits of one class, whose members hold the same tokens in different shares."""
    rows, offset = tree.members[owner], tree.offsets[owner]
    tokens = measures.token[measures.row(int(rows[0]))]
    counts = np.stack([measures.count[measures.row(int(row))] for row in rows])
    share = counts / counts.sum(axis=1, keepdims=True)
    target = measures.target[rows]
    while (group := _mixed_group(offset, target)) is not None:
        here = float(offset[group][0])
        shifts = np.setdiff1d(np.unique(offset), [here]) - here
        isolation = _isolation_among(t[tokens], shifts)
        column = _telling_token(share[group], target[group], isolation >= floor)
        if column is None:
            names = " and ".join(map(measures.name, rows[group][:2]))
            raise ImpossibleData(f"the shares that tell {names} apart are too close for this precision")
        moves, stay = share[group, column], offset[~group]
        spread = _choose_spread(here, moves, stay, disjoint)
        offset[group] += spread * moves
        tree.widths[owner] += spread
        tree.frequency_splits.append(
            FrequencySplit(owner, int(tokens[column]), here, spread, float(isolation[column]))
        )


def _choose_spread(here: float, moves: Floats, stay: Floats, disjoint: bool) -> float:
    """The spread that leaves offsets furthest apart: cells of their own, if that is cheap or asked for."""
    wanted = 2.0 ** float(np.ceil(np.log2((1 + GAP) / np.diff(np.unique(moves)).min())))
    steps = np.arange(16, 64) / 16 if disjoint else np.arange(32, 16, -1) / 32
    candidates = (wanted if disjoint else min(wanted, WIDEST_SPREAD)) * steps

    def apart(spread: float) -> float:
        return min(1 + GAP, float(np.diff(np.unique(np.concatenate([here + spread * moves, stay]))).min()))

    return float(max(candidates, key=apart))


def _mixed_group(offset: Floats, target: Ints) -> Bools | None:
    """Members at one offset that want different outputs, or None when no such group is left."""
    values, place = np.unique(offset, return_inverse=True)
    least, most = np.full(len(values), target.max()), np.zeros(len(values), np.int64)
    np.minimum.at(least, place, target)
    np.maximum.at(most, place, target)
    mixed = np.flatnonzero(least < most)
    return offset == values[mixed[0]] if len(mixed) else None


def _telling_token(share: Floats, target: Ints, usable: Bools) -> int | None:
    """The token whose share leaves the fewest outputs mixed; of those, the one whose shares differ most."""
    best: tuple[float, float, int | None] = (np.inf, 0.0, None)
    for column in np.flatnonzero(usable):
        values, place = np.unique(share[:, column], return_inverse=True)
        if len(values) > 1:
            pairs = np.unique(place * (target.max() + 1) + target)
            shared = len(pairs) - len(values)
            best = min(best, (shared, -float(np.diff(values).min()), int(column)))
    return best[2]


def _isolation_among(t: Floats, shifts: Floats) -> Floats:
    """Distance of each of these tokens to the others, here and moved by `shifts`."""
    others = np.sort(np.add.outer(shifts, t).ravel())
    fence = np.concatenate([[-np.inf], others, [np.inf]])
    above = np.searchsorted(fence, t)
    nearest: Floats = np.minimum(_isolation(t), np.minimum(fence[above] - t, t - fence[above - 1]))
    return nearest
