"""Exact linear algebra on integers, which may take long: doubles are integers times a power of two."""

import math
import time
from itertools import chain

import numpy as np

from service.cloud import rational
from service.cloud.points import UNIT, Floats, Ints
from service.cloud.rational import max_bits
from service.errors import DeadlineExceeded

Row = list[int]

DEADLINE_NOTE = "no matrix was found within the time this request may take"
RANK_TOLERANCE = 1e-9  # of the longest row: a shorter remainder of a row is in the span of others


class Deadline:
    """Raises DeadlineExceeded from `check` once `seconds` have passed."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    @property
    def passed(self) -> bool:
        return time.monotonic() > self._end

    def check(self) -> None:
        """Raise if the deadline has passed."""
        if self.passed:
            raise DeadlineExceeded(DEADLINE_NOTE)


NO_DEADLINE = Deadline(math.inf)


def to_integers(x: Floats) -> list[Row]:
    """Return the rows as integers, all times one power of two."""
    flat, d = rational.to_multiples(x.ravel(), rational.finest_exponent(x)), x.shape[1]
    return [flat[start : start + d] for start in range(0, len(flat), d)]


def subtract(x: Row, y: Row) -> Row:
    """Return x - y."""
    return [a - b for a, b in zip(x, y, strict=True)]


def is_definite(A: Floats) -> bool:
    """Return whether A is positive definite: by floating point with a bound of its rounding, or in integers.

    Cholesky of a matrix B succeeds only if B + c I > 0, with c = (d + 2) UNIT trace B (Rump, 2006).
    """
    n = len(A)
    scale = np.ldexp(1.0, -(np.frexp(np.abs(np.diag(A)) + 1e-300)[1] // 2))
    B = A * scale * scale[:, None]  # exact, except for underflow far below c
    with np.errstate(all="ignore"):
        try:
            if np.isfinite(np.linalg.cholesky(B - 3 * (n + 3) * UNIT * float(np.trace(B)) * np.eye(n))).all():
                return True
        except np.linalg.LinAlgError:
            pass
    return is_semidefinite(to_integers(A), definite=True)


def is_semidefinite(M: list[Row], deadline: Deadline = NO_DEADLINE, *, definite: bool = False) -> bool:
    """Return whether an integer matrix is positive (semi)definite, by fraction-free elimination (Bareiss)."""
    M, n, divisor = [row[:] for row in M], len(M), 1
    for k in range(n):
        deadline.check()
        pivot = M[k][k]
        if pivot < 0 or (pivot == 0 and (definite or any(M[k][k:]))):
            return False
        for i in range(k + 1, n) if pivot else ():
            M[i][i:] = _eliminate(M[i][i:], M[k][i], M[k][i:], pivot, divisor)
        divisor = pivot or divisor
    return True


def solve(system: list[Row], deadline: Deadline = NO_DEADLINE) -> tuple[list[Row], int]:
    """Return X and d with M X = d R for the integers [M R]; d = 0 where M is singular. Gauss-Jordan."""
    n, divisor = len(system), 1
    work = [row[:] for row in system]
    for k in range(n):
        deadline.check()
        pivot_row = next((row for row in range(k, n) if work[row][k]), None)
        if pivot_row is None:
            return [[0 for _ in row[n:]] for row in work], 0
        work[k], work[pivot_row] = work[pivot_row], work[k]
        pivot = work[k][k]
        for i in range(n):
            if i != k:
                row = work[i][k:]
                work[i][k:] = _eliminate(row, row[0], work[k][k:], pivot, divisor)
        divisor = pivot
    return [row[n:] for row in work], divisor


def _eliminate(row: Row, factor: int, pivot_row: Row, pivot: int, divisor: int) -> Row:
    """Return (row * pivot - factor * by) / divisor, which has no remainder (Bareiss)."""
    return [(x * pivot - factor * y) // divisor for x, y in zip(row, pivot_row, strict=True)]


def solve_near(equations: list[Row], start: Row, deadline: Deadline = NO_DEADLINE) -> tuple[Row, int] | None:
    """Return w near scale * start with sum_k w_k equations_k = 0, and the scale; None if rank is in doubt."""
    scaled = [[e * w for e in row] for row, w in zip(equations, start, strict=True)]
    matrix = _to_floats(scaled)  # [k, e]
    basis = independent_rows(matrix).tolist()
    rows = independent_rows(matrix[basis].T).tolist()
    if len(rows) < len(basis):
        return None
    free = sorted(set(range(len(start))) - set(basis))
    deadline.check()
    system = [[*(equations[k][e] for k in basis), -sum(scaled[k][e] for k in free)] for e in rows]
    solution, scale = solve(system, deadline)
    sign = 1 if scale > 0 else -1
    weights = [abs(scale) * w for w in start]
    for k, (w,) in zip(basis, solution, strict=True):
        weights[k] = sign * w
    return weights, abs(scale)


def independent_rows(rows: Floats) -> Ints:
    """Return rows that span the others, largest first: Gram-Schmidt with pivots. No proof depends on it."""
    remainders, basis = rows.copy(), []
    min_length = RANK_TOLERANCE * max(1e-300, float(np.linalg.norm(remainders, axis=1).max(initial=0)))
    for _ in range(min(rows.shape)):
        lengths = np.linalg.norm(remainders, axis=1)
        best = int(lengths.argmax())
        if lengths[best] <= min_length:
            break
        basis.append(best)
        direction = remainders[best] / lengths[best]
        remainders -= np.outer(remainders @ direction, direction)
    return np.array(basis, np.int64)


def _to_floats(x: list[Row]) -> Floats:
    """Return the integers as floats, divided by a power of two so that all are below one."""
    bits = max_bits(chain(*x))
    shift = max(0, bits - 900)
    return np.array([[float(value >> shift) for value in row] for row in x]) / 2.0 ** (bits - shift)
