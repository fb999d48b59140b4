"""A cloud of points made ready for the dynamics: checked, twins merged, scaled and put in a fast order.

`Cloud.restore` and indexing by `Cloud.place` undo it all; it knows nothing of layers or of ONNX.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from service.errors import InvalidInput, TooLarge

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

EPS = float(np.finfo(np.float64).eps) / 2
LARGEST_GUARD = 1e-3  # a relative gap that a form so ill-conditioned blurs is no gap


@dataclass(frozen=True)
class Cloud:
    """Distinct points, neighbours side by side, scaled by a power of two: the largest entry is about 1."""

    points: Floats  # [m,d] distinct
    counts: Ints  # [m] how many given points each one stands for
    first: Ints  # [m] the first of them
    place: Ints  # [n] where each given point went
    exponent: int  # points were multiplied by 2^-exponent, exactly
    form: Floats  # [d,d] A, multiplied by a power of two
    guard: float  # relative gap below which rounding could decide an argmax

    def restore(self, points: Floats) -> Floats:
        """Points of this cloud in the units they were given in."""
        return np.ldexp(points, self.exponent)


def prepare(points: Floats, form: Floats | None, tie_tolerance: float) -> Cloud:
    """The cloud of `points` under the form A, or an `InvalidInput` that names what is wrong and where."""
    points = check_points(points)
    d = points.shape[1]
    A = np.eye(d) if form is None else check_form(form, d)
    guard = max(tie_tolerance, rounding(A))
    exponent = int(np.frexp(np.abs(points).max())[1])
    scaled = np.ldexp(points, -exponent)
    _check_span(points, _lengths(scaled, A), guard)
    first, place = merge(scaled)
    order = direction_order(scaled[first], A)
    first = first[order]
    back = np.empty_like(order)
    back[order] = np.arange(len(order))
    place = back[place]
    return Cloud(scaled[first], np.bincount(place), first, place, exponent, A, guard)


def check_points(points: Floats) -> Floats:
    """Finite, nonzero rows of equal length; -0.0 becomes 0.0, for the two are one number with two codes."""
    if points.ndim != 2:
        raise InvalidInput(
            f"points has {points.ndim} axes, expected 2 (points and coordinates)", param="points"
        )
    if not points.size:
        raise InvalidInput("points is empty", param="points")
    points = points.astype(np.float64) + 0.0
    row, column = np.unravel_index(int(np.argmin(np.isfinite(points))), points.shape)
    if not np.isfinite(points[row, column]):
        place = f"points[{row}][{column}]"
        raise InvalidInput(f"{place} is {points[row, column]}, not a finite number", param=place)
    zero = ~points.any(axis=1)
    if zero.any():
        place = f"points[{int(zero.argmax())}]"
        raise InvalidInput(
            f"{place} is zero: it attends to everybody alike and has no limit of its own", param=place
        )
    return points


def check_form(form: Floats, d: int) -> Floats:
    """A [d,d], finite, symmetric, positive definite and well enough conditioned; scaled to about 1."""
    A = np.asarray(form, np.float64)
    if A.shape != (d, d):
        shape = " x ".join(map(str, A.shape)) or "a number"
        raise InvalidInput(f"A is {shape}, expected {d} x {d} as the points have {d} coordinates", param="A")
    if not np.isfinite(A).all():
        raise InvalidInput("A has entries that are not finite numbers", param="A")
    if not A.any():
        raise InvalidInput("A is not positive definite: it is zero", param="A")
    A = np.ldexp(A, -int(np.frexp(np.abs(A).max())[1]))
    skew = np.abs(A - A.T)
    if skew.max() > 1e-12:
        i, j = sorted(map(int, np.unravel_index(int(skew.argmax()), skew.shape)))
        raise InvalidInput(f"A is not symmetric: A[{i}][{j}] differs from A[{j}][{i}]", param="A")
    A = (A + A.T) / 2
    least, largest = np.linalg.eigvalsh(A)[[0, -1]]
    if least <= d * EPS * largest:
        raise InvalidInput(f"A is not positive definite: its smallest eigenvalue is {least / largest:.3g} "
                           "times its largest", param="A")  # fmt: skip
    if rounding(A) > LARGEST_GUARD:
        raise InvalidInput(
            f"A is too ill-conditioned ({largest / least:.1g}) for double precision", param="A"
        )
    return A


def rounding(A: Floats) -> float:
    """A bound on the rounding of a score <Ax, y>, relative to |x|_A |y|_A: grows with the condition of A."""
    eigenvalues = np.linalg.eigvalsh(A)
    return float(8 * len(A) * EPS * eigenvalues[-1] / eigenvalues[0])


def merge(points: Floats) -> tuple[Ints, Ints]:
    """Identical points by their bits: the first of each, in order, and for each point which of those it is.

    Rows are sorted by a 64-bit hash, which is far faster than by their entries; rows that share one are
    compared in full, and a collision (one in 10^7 clouds of a million points) falls back to the slow sort.
    """
    bits = np.ascontiguousarray(points).view(np.uint64)
    odd = np.random.default_rng(0).integers(0, 2**63, bits.shape[1], dtype=np.uint64) * np.uint64(
        2
    ) + np.uint64(1)
    mixed = (bits ^ (bits >> np.uint64(29))) * odd
    codes = (mixed ^ (mixed >> np.uint64(32))).sum(axis=1, dtype=np.uint64)
    _, first, place = np.unique(codes, return_index=True, return_inverse=True)
    if not np.array_equal(bits[first][place], bits):
        _, first, place = np.unique(bits, axis=0, return_index=True, return_inverse=True)
        place = place.reshape(-1)
    rank = np.argsort(first)
    back = np.empty_like(rank)
    back[rank] = np.arange(len(rank))
    return first[rank], back[place]


def direction_order(points: Floats, A: Floats) -> Ints:
    """An order in which neighbours look the same way, in up to three dimensions; only speed depends on it."""
    n, d = points.shape
    if d > 3 or n < 2048:
        return np.arange(n)
    x = points @ np.linalg.cholesky(A)
    if d == 1:
        return np.argsort(x[:, 0], kind="stable")
    turn = np.arctan2(x[:, 1], x[:, 0])
    if d == 2:
        return np.argsort(turn, kind="stable")
    height = np.argsort(np.argsort(x[:, 2] / np.linalg.norm(x, axis=1)))
    return np.lexsort((turn, height * 8 // n))  # eight slices of equally many points, each by angle


def _lengths(points: Floats, A: Floats) -> Floats:
    """A-norms, each row scaled on its own so that nothing underflows."""
    largest = np.abs(points).max(axis=1, keepdims=True)
    rows = points / largest
    lengths: Floats = np.sqrt(np.einsum("ij,ij->i", rows @ A, rows)) * largest[:, 0]
    return lengths


def _check_span(points: Floats, lengths: Floats, guard: float) -> None:
    """A point shorter than what rounding does to the longest one would be decided by that rounding."""
    shortest = int(lengths.argmin())
    if lengths[shortest] < 1e3 * guard * lengths.max():
        ratio = lengths[shortest] / lengths.max()
        raise InvalidInput(
            f"points[{shortest}] is {ratio:.1g} times as long as the longest point: ties within "
            f"{guard:.1g} cannot be told apart over such a span",
            param=f"points[{shortest}]",
        )


def check_size(n: int, d: int, max_points: int, max_dimension: int) -> None:
    """Refuse what is over a limit before anything is computed."""
    if n > max_points:
        raise TooLarge(f"points has {n} rows, the limit is {max_points} (MAX_POINTS)", param="points")
    if d > max_dimension:
        raise TooLarge(
            f"points have {d} coordinates, the limit is {max_dimension} (MAX_DIMENSION)", param="points"
        )
