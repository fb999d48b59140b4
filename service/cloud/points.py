"""Prepare a cloud of points for the dynamics: check it, merge equal points, scale it by a power of two.

`Cloud.restore` and indexing by `Cloud.inverse` undo both.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from service.errors import InvalidInput, TooLarge

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

UNIT = 2.0**-53  # unit roundoff of double precision
MAX_UNSCALED_EXPONENT = 400  # clouds are scaled if their largest entry is not within 2^-400 .. 2^400


@dataclass(frozen=True)
class Cloud:
    """Distinct points, scaled by a power of two where they are very large or very small."""

    points: Floats  # [m,d] distinct
    counts: Ints  # [m] the number of given points equal to each
    inverse: Ints  # [n] the index in `points` of each given point
    exponent: int  # points were multiplied by 2^-exponent, exactly
    form: Floats | None  # [d,d] A, multiplied by a power of two; None: the identity
    form_exponent: int = 0  # A was multiplied by 2^-form_exponent

    def restore(self, points: Floats) -> Floats:
        """Return points of this cloud in the units of the caller."""
        return np.ldexp(points, self.exponent) if self.exponent else points


def prepare(points: Floats, form: Floats | None) -> Cloud:
    """Return the cloud of `points` under the form A.

    Raises:
        InvalidInput: The points or A are unusable; `param` names the row or field.
    """
    points = check_points(points)
    A = None if form is None else check_form(form, points.shape[1])
    exponent = int(np.frexp(np.abs(points).max())[1])
    if abs(exponent) <= MAX_UNSCALED_EXPONENT:
        exponent = 0
    else:
        points = _scaled(points, exponent)
    first, inverse = merge(points)
    distinct = points if len(first) == len(points) else points[first]
    form_exponent = 0 if form is None else int(np.frexp(np.abs(form).max())[1])
    return Cloud(distinct, np.bincount(inverse), inverse, exponent, A, form_exponent)


def _scaled(points: Floats, exponent: int) -> Floats:
    """Return the points times 2^-exponent; refuse them if that is not exact."""
    scaled = np.ldexp(points, -exponent)
    inexact = (np.ldexp(scaled, exponent) != points).any(axis=1)
    if inexact.any():
        field = f"points[{int(inexact.argmax())}]"
        problem = "has entries too small relative to those of others: double precision cannot hold both"
        raise InvalidInput(f"{field} {problem}", param=field)
    return scaled


def scale_to_one(x: Floats) -> Floats:
    """Return x times the power of two that makes its largest entry about 1."""
    return np.ldexp(x, -int(np.frexp(np.abs(x).max())[1]))


def check_points(points: Floats) -> Floats:
    """Return the points if all are finite and nonzero; -0.0, which has other bits than 0.0, becomes 0.0."""
    if points.ndim != 2:
        problem = f"points has {points.ndim} axes, expected 2 (points and coordinates)"
        raise InvalidInput(problem, param="points")
    if not points.size:
        raise InvalidInput("points is empty", param="points")
    points = points.astype(np.float64) + 0.0
    check_finite(points, "points")
    zero = ~points.any(axis=1)
    if zero.any():
        field = f"points[{int(zero.argmax())}]"
        problem = f"{field} is zero: it scores all points alike, so it has no limit; leave it out"
        raise InvalidInput(problem, param=field)
    return points


def check_form(form: Floats, d: int) -> Floats:
    """Return A [d,d] if it is finite, symmetric and positive definite, scaled to about 1."""
    A = np.asarray(form, np.float64)
    if A.shape != (d, d):
        shape = " x ".join(map(str, A.shape)) or "a number"
        raise InvalidInput(f"A is {shape}, expected {d} x {d} as the points have {d} coordinates", param="A")
    if not np.isfinite(A).all():
        raise InvalidInput("A has entries that are not finite numbers", param="A")
    if not A.any():
        raise InvalidInput("A is not positive definite: it is zero", param="A")
    unscaled, A = A, scale_to_one(A)
    if (np.ldexp(A, int(np.frexp(np.abs(unscaled).max())[1])) != unscaled).any():
        problem = "A has entries too small relative to others: double precision cannot hold both"
        raise InvalidInput(problem, param="A")
    skew = np.abs(A - A.T)
    if skew.max() > 1e-12:
        i, j = sorted(map(int, np.unravel_index(int(skew.argmax()), skew.shape)))
        raise InvalidInput(f"A is not symmetric: A[{i}][{j}] differs from A[{j}][{i}]", param="A")
    A = (A + A.T) / 2
    smallest, largest = np.linalg.eigvalsh(A)[[0, -1]]
    if smallest <= 4 * d * UNIT * largest:
        raise InvalidInput(f"A is not positive definite: its smallest eigenvalue is {smallest / largest:.3g} "
                           "times its largest", param="A")  # fmt: skip
    return A


def merge(points: Floats) -> tuple[Ints, Ints]:
    """Return the index of the first of each distinct point, in order, and the distinct point of each point.

    Rows are sorted by a 64-bit hash, which is far faster than by their entries; rows with the same hash are
    compared in full, and a collision (one in 10^7 clouds of a million points) falls back to the slow sort.
    subtle: the hash multiplies twice by random factors, so that a caller cannot send points that collide.
    """
    bits = np.ascontiguousarray(points).view(np.uint64)
    factors = np.random.default_rng().integers(0, 2**64, (2, bits.shape[1]), np.uint64) | np.uint64(1)
    mixed = (bits ^ (bits >> np.uint64(29))) * factors[0]
    mixed ^= mixed >> np.uint64(32)
    mixed *= factors[1]
    codes = mixed.sum(axis=1, dtype=np.uint64)
    ascending = np.sort(codes)
    if (ascending[1:] != ascending[:-1]).all():
        return np.arange(len(points)), np.arange(len(points))
    _, first, inverse = np.unique(codes, return_index=True, return_inverse=True)
    if not np.array_equal(bits[first][inverse], bits):
        _, first, inverse = np.unique(bits, axis=0, return_index=True, return_inverse=True)
        inverse = inverse.reshape(-1)
    rank = np.argsort(first)
    position = np.empty_like(rank)
    position[rank] = np.arange(len(rank))
    return first[rank], position[inverse]


def check_finite(array: Floats, param: str) -> None:
    """Refuse numbers that are not finite; name the first."""
    row, column = np.unravel_index(int(np.argmin(np.isfinite(array))), array.shape)
    if not np.isfinite(array[row, column]):
        field = f"{param}[{row}][{column}]"
        raise InvalidInput(f"{field} is not a finite number", param=field)


def check_size(n: int, d: int, max_points: int, max_dimension: int, param: str = "points") -> None:
    """Refuse a cloud over a limit before anything is computed."""
    if n > max_points:
        raise TooLarge(f"{param} has more than {max_points} rows (MAX_POINTS)", param=param)
    if d > max_dimension:
        raise TooLarge(f"{param} has more than {max_dimension} columns (MAX_DIMENSION)", param=param)
