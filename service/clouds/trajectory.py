"""The layers of a run that are kept: every so many, and the last."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from service.clouds.points import Cloud, Floats, Ints
from service.errors import TooLarge


class Trajectory(NamedTuple):
    """The points at the layers that were kept."""

    layers: Ints  # [t]
    points: Floats  # [t,n,d]


class Recorder:
    """Keeps the distinct points of layers while a run goes on; at its end, writes out the given points."""

    def __init__(self, cloud: Cloud, every: int, max_bytes: int) -> None:
        self._cloud = cloud
        self._every = every
        self._max_bytes = max_bytes
        self._kept: deque[tuple[int, Floats]] = deque()
        self.trajectory: Trajectory | None = None  # whole when `write` is through

    def keep(self, layer: int, points: Floats) -> None:
        """Keep this layer, if it is one of those wanted and not kept yet."""
        if layer % self._every == 0 and (not self._kept or self._kept[-1][0] < layer):
            self._kept.append((layer, points))
            self._check(len(self._kept))

    @property
    def kept_bytes(self) -> int:
        points = sum(each.nbytes for _, each in self._kept)
        return points + (self.trajectory.points.nbytes if self.trajectory else 0)

    def write(self, last: int, at: Callable[[int], Floats]) -> Iterator[int]:
        """Write out a layer at each step, up to `last`; those that were not kept are computed by `at`."""
        layers = [layer for layer, _ in self._kept]
        if layers[-1] < last:
            layers += [*range(layers[-1] + self._every, last, self._every), last]
        self._check(len(layers))
        place = self._cloud.place
        given = np.empty((len(layers), len(place), self._cloud.points.shape[1]))
        self.trajectory = Trajectory(np.array(layers), given)
        for row, layer in enumerate(layers):
            points = self._kept.popleft()[1] if self._kept else at(layer)
            given[row] = self._cloud.restore(points)[place]
            yield layer

    def _check(self, layers: int) -> None:
        check_trajectory(layers, len(self._cloud.place), self._cloud.points.shape[1], self._max_bytes)


def check_trajectory(layers: int, n: int, d: int, max_bytes: int) -> None:
    """Refuse a trajectory that would not fit."""
    if 16 * layers * n * d > max_bytes:
        problem = (
            f"a trajectory of {layers} layers of {n} points needs more than "
            f"{max_bytes / 2**30:.1f} GiB; raise trajectory_every"
        )
        raise TooLarge(problem, param="trajectory_every")
