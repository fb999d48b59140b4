"""Coordinates in which the form A is the identity, and a bound on the error of every score in them.

With A = L L', <A z_i, z_j> is <z_i L, z_j L>. The computed score of a query i and a key j differs from that
of the rational numbers by at most  error_i size_j + size_i error_j  (theory.md, section 5). Keys
are taken relative to a middle of the cloud: adding one vector to all keys changes no argmax, and a cloud far
from the origin loses no digits.
"""

from dataclasses import dataclass

import numpy as np

from service.cloud.points import UNIT, Floats, Ints

MAX_SHORT_DIMENSION = 8  # up to this dimension, columns are handled one by one, which is faster
MAX_SCALE_EXPONENT = 1000  # 2^1000 is finite, and scales the smallest double to 2^-74
MIN_LENGTH = 2.0**-500  # of a shorter vector, squares of entries may underflow


@dataclass(frozen=True)
class Vectors:
    """Vectors x [n,d] with bounds [n] of their size and error, which bound the errors of scores as above."""

    x: Floats
    size: Floats
    error: Floats

    def take(self, rows: Ints) -> "Vectors":
        """Return some of the vectors."""
        return Vectors(self.x[rows], self.size[rows], self.error[rows])


class Frame:
    """Coordinates around the middle of a cloud in which A is the identity."""

    def __init__(self, points: Floats, form: Floats | None) -> None:
        d = points.shape[1]
        self.root = None if form is None else np.linalg.cholesky(form)
        columns = points.T if d <= MAX_SHORT_DIMENSION else [points]
        low, high = (np.hstack([f(column, axis=0) for column in columns]) for f in (np.min, np.max))
        radius = float((high - low).max()) / 2
        middle = (low + high) / 2
        is_far = float(np.abs(middle).max()) > 8 * radius
        self.middle: Floats = middle if is_far and radius > 0 else np.zeros(d)
        self.rounding = 2.05 * (d + 2) * UNIT  # of a product, with the coordinates' own rounding and L's

    def centred(self, points: Floats) -> tuple[Floats, Floats]:
        """Return points relative to the middle, and a bound on the rounding of each (as `sizes` measures)."""
        if not self.middle.any():
            return points.copy(), np.zeros(len(points))
        centred = points - self.middle
        return centred, UNIT * self.sizes(centred)

    def sizes(self, vectors: Floats) -> Floats:
        """Return upper bounds on the lengths of the images of all vectors within these absolute values."""
        images = vectors if self.root is None else np.abs(vectors) @ np.abs(self.root)
        sizes: Floats = lengths_of(images) * (1 + 2 * self.rounding) + MIN_LENGTH
        return sizes

    def keys(self, centred: Floats, error_bound: Floats) -> Vectors:
        """Return the keys at centred positions, each known to within `error_bound` (as `sizes` measures)."""
        size = self.sizes(centred) + error_bound
        return Vectors(self.image(centred), size, error_bound + self.rounding * size)

    def queries(self, centred: Floats, error_bound: Floats) -> Vectors:
        """Return the queries at centred positions, each scaled by a power of two, usually to about 1."""
        points = centred + self.middle if self.middle.any() else centred
        scale = self.scales(centred)
        points = points * scale[:, None]
        error_bound = error_bound * scale
        size = self.sizes(points) + error_bound
        return Vectors(self.image(points), size, error_bound + self.rounding * size)

    def scales(self, centred: Floats) -> Floats:
        """Return the powers of two by which queries at centred positions are scaled."""
        size = largest_entries(centred + self.middle if self.middle.any() else centred)
        exponent = -np.frexp(np.where(size > 0, size, 1.0))[1]
        scales: Floats = np.ldexp(1.0, np.minimum(exponent, MAX_SCALE_EXPONENT))
        return scales

    def lengths(self, vectors: Floats) -> Floats:
        """Return the A-norms of vectors."""
        return lengths_of(self.image(vectors))

    def length_bounds(self, lengths: Floats, sizes: Floats | float) -> Floats:
        """Return upper bounds on the exact A-norms of vectors of these computed lengths and of these sizes.

        L L' differs from A by (d + 1) UNIT |L| |L|', which may lengthen a vector by the root of that.
        """
        bounds: Floats = np.sqrt(lengths**2 + 2 * self.rounding * np.square(sizes))
        return bounds

    def image(self, vectors: Floats) -> Floats:
        """Return vectors in these coordinates."""
        return vectors if self.root is None else vectors @ self.root


def slack_of(queries: Vectors, keys: Vectors) -> Floats:
    """Return twice a bound on the error of the scores of each query, whatever the key, [q]."""
    slack: Floats = 2 * (queries.error * keys.size.max() + queries.size * keys.error.max())
    return slack


def lengths_of(vectors: Floats) -> Floats:
    """Return the Euclidean length of each row."""
    lengths: Floats = np.sqrt(np.einsum("ij,ij->i", vectors, vectors))
    return lengths


def largest_entries(vectors: Floats) -> Floats:
    """Return the largest absolute value of each row."""
    if vectors.shape[1] > MAX_SHORT_DIMENSION:
        rows: Floats = np.abs(vectors).max(axis=1)
        return rows
    size = np.abs(vectors[:, 0])
    for column in vectors.T[1:]:
        np.maximum(size, np.abs(column), out=size)
    return size
