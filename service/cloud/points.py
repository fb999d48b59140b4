"""A cloud of points made ready for the dynamics: checked, twins merged, scaled by a power of two.

`Cloud.restore` and indexing by `Cloud.place` undo it all.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from service.errors import InvalidInput, TooLarge

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

UNIT = 2.0**-53  # rounding errs by so much of a number
MAX_UNSCALED_EXPONENT = 400  # clouds are scaled where their largest entry is not within 2^-400 .. 2^400


@dataclass(frozen=True)
class Cloud:
    """Distinct points, scaled by a power of two where they are very large or very small."""

    points: Floats  # [m,d] distinct
    counts: Ints  # [m] how many given points each one stands for
    place: Ints  # [n] where each given point went
    exponent: int  # points were multiplied by 2^-exponent, exactly
    form: Floats | None  # [d,d] A, multiplied by a power of two; None: the identity
    form_exponent: int = 0  # A was multiplied by 2^-form_exponent

    def restore(self, points: Floats) -> Floats:
        """Points of this cloud in the units they were given in."""
        return np.ldexp(points, self.exponent) if self.exponent else points


def prepare(points: Floats, form: Floats | None) -> Cloud:
    """The cloud of `points` under the form A, or an `InvalidInput` that names what is wrong and where."""
    points = check_points(points)
    A = None if form is None else check_form(form, points.shape[1])
    exponent = int(np.frexp(np.abs(points).max())[1])
    if abs(exponent) <= MAX_UNSCALED_EXPONENT:
        exponent = 0
    else:
        points = _scaled(points, exponent)
    first, place = merge(points)
    distinct = points if len(first) == len(points) else points[first]
    form_exponent = 0 if form is None else int(np.frexp(np.abs(form).max())[1])
    return Cloud(distinct, np.bincount(place), place, exponent, A, form_exponent)


def _scaled(points: Floats, exponent: int) -> Floats:
    """Points times 2^-exponent, where that is exact."""
    scaled = np.ldexp(points, -exponent)
    lost = (np.ldexp(scaled, exponent) != points).any(axis=1)
    if lost.any():
        place = f"points[{int(lost.argmax())}]"
        problem = "has entries too small beside those of others: double precision cannot hold both"
        raise InvalidInput(f"{place} {problem}", param=place)
    return scaled


def to_one(x: Floats) -> Floats:
    """Times the power of two that brings the largest to about 1."""
    return np.ldexp(x, -int(np.frexp(np.abs(x).max())[1]))


def check_points(points: Floats) -> Floats:
    """Finite, nonzero rows of equal length; -0.0 becomes 0.0, for the two are one number with two codes."""
    if points.ndim != 2:
        problem = f"points has {points.ndim} axes, expected 2 (points and coordinates)"
        raise InvalidInput(problem, param="points")
    if not points.size:
        raise InvalidInput("points is empty", param="points")
    points = points.astype(np.float64) + 0.0
    check_finite(points, "points")
    zero = ~points.any(axis=1)
    if zero.any():
        place = f"points[{int(zero.argmax())}]"
        problem = f"{place} is zero: it scores all points alike, so it has no limit; leave it out"
        raise InvalidInput(problem, param=place)
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
    given, A = A, to_one(A)
    if (np.ldexp(A, int(np.frexp(np.abs(given).max())[1])) != given).any():
        problem = "A has entries too small beside others: double precision cannot hold both"
        raise InvalidInput(problem, param="A")
    skew = np.abs(A - A.T)
    if skew.max() > 1e-12:
        i, j = sorted(map(int, np.unravel_index(int(skew.argmax()), skew.shape)))
        raise InvalidInput(f"A is not symmetric: A[{i}][{j}] differs from A[{j}][{i}]", param="A")
    A = (A + A.T) / 2
    least, largest = np.linalg.eigvalsh(A)[[0, -1]]
    if least <= 4 * d * UNIT * largest:
        raise InvalidInput(f"A is not positive definite: its smallest eigenvalue is {least / largest:.3g} "
                           "times its largest", param="A")  # fmt: skip
    return A


def merge(points: Floats) -> tuple[Ints, Ints]:
    """Identical points by their bits: the first of each, in order, and for each point which of those it is.

    Rows are sorted by a 64-bit hash, which is far faster than by their entries; rows that share one are
    compared in full, and a collision (one in 10^7 clouds of a million points) falls back to the slow sort.
    subtle: the hash is another one each time, and multiplies twice: nobody can send points that collide.
    """
    bits = np.ascontiguousarray(points).view(np.uint64)
    odd, last = np.random.default_rng().integers(0, 2**64, (2, bits.shape[1]), np.uint64) | np.uint64(1)
    mixed = (bits ^ (bits >> np.uint64(29))) * odd
    mixed ^= mixed >> np.uint64(32)
    mixed *= last
    codes = mixed.sum(axis=1, dtype=np.uint64)
    in_order = np.sort(codes)
    if (in_order[1:] != in_order[:-1]).all():
        return np.arange(len(points)), np.arange(len(points))
    _, first, place = np.unique(codes, return_index=True, return_inverse=True)
    if not np.array_equal(bits[first][place], bits):
        _, first, place = np.unique(bits, axis=0, return_index=True, return_inverse=True)
        place = place.reshape(-1)
    rank = np.argsort(first)
    back = np.empty_like(rank)
    back[rank] = np.arange(len(rank))
    return first[rank], back[place]


def check_finite(array: Floats, param: str) -> None:
    """Name the first number that is not finite."""
    row, column = np.unravel_index(int(np.argmin(np.isfinite(array))), array.shape)
    if not np.isfinite(array[row, column]):
        place = f"{param}[{row}][{column}]"
        raise InvalidInput(f"{place} is not a finite number", param=place)


def check_size(n: int, d: int, max_points: int, max_dimension: int, param: str = "points") -> None:
    """Refuse what is over a limit before anything is computed."""
    if n > max_points:
        raise TooLarge(f"{param} has more than {max_points} rows (MAX_POINTS)", param=param)
    if d > max_dimension:
        raise TooLarge(f"{param} has more than {max_dimension} columns (MAX_DIMENSION)", param=param)
