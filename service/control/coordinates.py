"""Coordinates in which the cloud's second moments are the identity."""

import math
from dataclasses import dataclass

import numpy as np

from service.cloud.points import Floats

DIRECTION_TOLERANCE = 1e-14  # of the largest singular value; smaller ones count as zero
ROWS_AT_ONCE = 1 << 14


@dataclass(frozen=True)
class Whitening:
    """Coordinates y = z W, which do not depend on a linear map of the cloud, such as units."""

    W: Floats  # [d, r] times a power of two, for the r directions that the cloud spans
    complement: Floats  # [d, d] positive semidefinite, 0 exactly on the cloud's directions, scaled as W W'
    y: Floats  # [n, r]

    def to_points(self, A: Floats) -> Floats:
        """Return the form A on points: of trace d, and positive in directions that the cloud lacks."""
        form = self.W @ A @ self.W.T + self.complement
        scaled: Floats = (form + form.T) * (len(form) / 2 / np.trace(form))
        return scaled


def whiten(points: Floats) -> Whitening:
    """Return the coordinates in which the points have the identity as second moment."""
    exponent = np.frexp(np.abs(points).max(axis=0))[1]
    z = np.ldexp(points, -exponent)  # every coordinate to about 1
    R: Floats = np.empty((0, z.shape[1]))
    for start in range(0, len(z), ROWS_AT_ONCE):
        R = np.asarray(np.linalg.qr(np.concatenate([R, z[start : start + ROWS_AT_ONCE]]), mode="r"))
    _, size, rotation = np.linalg.svd(R, full_matrices=False)
    present = size > DIRECTION_TOLERANCE * size[0]
    directions = rotation[present].T
    W = directions * (math.sqrt(len(z)) / size[present])
    # subtle: orthogonal to z, whose coordinates are scaled; to the points only after scaling back, with W
    complement = (np.eye(z.shape[1]) - directions @ directions.T) * (W**2).max()
    shift = exponent.min() - exponent
    return Whitening(np.ldexp(W, shift[:, None]), np.ldexp(complement, shift[:, None] + shift), z @ W)
