"""Records of a run: points and argmax sets of its layers, and softmax attention on the same cloud."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from service.cloud.clusters import original_members
from service.cloud.points import Cloud, Floats, Ints
from service.cloud.sets import Ragged
from service.errors import TooLarge

MAX_SOFTMAX_SCORES = 2**33  # of a softmax trajectory: each costs some nanoseconds
BLOCK_SCORES = 2**22  # softmax scores in memory


class Trajectory(NamedTuple):
    """The points at the recorded layers."""

    layers: Ints  # [t]
    points: Floats  # [t,n,d]


class SoftmaxRun(NamedTuple):
    """Softmax attention from the same start, at the layers of the hardmax trajectory."""

    temperature: float
    layers: Ints  # [t]
    points: Floats  # [t,n,d]
    distance: Floats  # [t] of the farthest point from its hardmax run, in the A-norm


class ArgmaxRecorder:
    """Records the argmax sets of every layer."""

    def __init__(self, cloud: Cloud, max_bytes: int) -> None:
        self._cloud = cloud
        self._max_bytes = max_bytes
        self._bytes = 0
        self.layers: list[Ragged] = []  # the members of every given point's set

    def record(self, sets: Ragged) -> None:
        """Record the next layer from the sets of its distinct points."""
        members = original_members(self._cloud, sets).take(self._cloud.inverse)
        self._bytes += members.flat.nbytes + members.lengths.nbytes
        if 2 * self._bytes > self._max_bytes:
            problem = f"argmax sets of {len(self.layers)} layers need more than"
            raise TooLarge(f"{problem} {self._max_bytes / 2**30:.1f} GiB; lower max_layers", param="include")
        self.layers.append(members)


class Recorder:
    """Records the distinct points of layers; at the end of a run, returns the given points."""

    def __init__(self, cloud: Cloud, step: int, max_bytes: int, max_numbers: float) -> None:
        self._cloud = cloud
        self._step = step
        self._limits = max_bytes, max_numbers
        self._recorded: list[tuple[int, Floats]] = []

    def record(self, layer: int, points: Floats) -> None:
        """Record a layer if it is due. Layers come in order."""
        if layer % self._step == 0:
            self._recorded.append((layer, points))
            self._check(len(self._recorded))

    def trajectory(
        self, last_layer: int, compute: Callable[[int], Floats], on_layer: Callable[[int], None]
    ) -> Trajectory:
        """Return the points of all due layers up to the last; `compute` returns those not recorded."""
        layers = [layer for layer, _ in self._recorded]
        if layers[-1] < last_layer:
            layers += [*range(layers[-1] + self._step, last_layer, self._step), last_layer]
        self._check(len(layers))
        inverse = self._cloud.inverse
        points = np.empty((len(layers), len(inverse), self._cloud.points.shape[1]))
        for row, layer in enumerate(layers):
            distinct = self._recorded[row][1] if row < len(self._recorded) else compute(layer)
            points[row] = self._cloud.restore(distinct)[inverse]
            on_layer(layer)
        return Trajectory(np.array(layers), points)

    def _check(self, layers: int) -> None:
        check_trajectory(layers, len(self._cloud.inverse), self._cloud.points.shape[1], *self._limits)


def check_trajectory(layers: int, n: int, d: int, max_bytes: int, max_numbers: float) -> None:
    """Refuse a trajectory that would not fit in the answer or in memory."""
    if layers * n * d > max_numbers:
        problem = f"the answer holds {max_numbers // (n * d):.0f} layers of {n} points, not {layers}"
        raise TooLarge(f"{problem}; raise trajectory_every or lower max_layers", param="trajectory_every")
    if 16 * layers * n * d > max_bytes:
        problem = f"a trajectory of {layers} layers of {n} points needs more than {max_bytes / 2**30:.1f} GiB"
        raise TooLarge(f"{problem}; raise trajectory_every", param="trajectory_every")


@np.errstate(over="ignore")  # of a score by a small temperature: its weight is 0
def run_softmax(cloud: Cloud, alpha: float, temperature: float, hardmax: Trajectory) -> SoftmaxRun:
    """Run softmax attention on the distinct points, and return the layers of the hardmax trajectory.

    x_i <- x_i + gamma (m_i - x_i), with m_i the mean of all x_j weighted by exp(<A x_i, x_j> / temperature).
    """
    first = np.unique(cloud.inverse, return_index=True)[1]  # given point that equals each distinct point
    x = cloud.points
    scores = int(hardmax.layers[-1]) * len(x) ** 2
    if scores > MAX_SOFTMAX_SCORES:
        problem = f"softmax of {len(x)} points for {hardmax.layers[-1]} layers takes {scores:,} scores"
        raise TooLarge(f"{problem}, the limit is {MAX_SOFTMAX_SCORES:,}", param="include")
    gamma = alpha / (1 + alpha)
    # subtle: points and A are scaled by powers of two, so that no score overflows; so is the temperature
    scaled_temperature = np.ldexp(temperature, -2 * cloud.exponent - cloud.form_exponent)
    scaled_temperature = max(float(scaled_temperature), np.finfo(np.float64).tiny)
    A = None if cloud.form is None else np.ldexp(cloud.form, cloud.form_exponent)
    root = None if A is None else np.linalg.cholesky(A)
    points, distance, layer = np.empty_like(hardmax.points), np.empty(len(hardmax.layers)), 0
    for row, target in enumerate(hardmax.layers.tolist()):
        for _ in range(target - layer):
            x = x + gamma * (_softmax_means(x, cloud.form, scaled_temperature, cloud.counts) - x)
        layer = target
        points[row] = cloud.restore(x)[cloud.inverse]
        difference = x - np.ldexp(hardmax.points[row][first], -cloud.exponent)
        length = np.linalg.norm(difference if root is None else difference @ root, axis=1).max()
        distance[row] = np.ldexp(length, cloud.exponent)
    return SoftmaxRun(temperature, hardmax.layers, points, distance)


def _softmax_means(x: Floats, A: Floats | None, temperature: float, counts: Ints) -> Floats:
    queries, means = x if A is None else x @ A, np.empty_like(x)
    size = max(1, BLOCK_SCORES // len(x))
    for start in range(0, len(x), size):
        scores = queries[start : start + size] @ x.T
        scores -= scores.max(axis=1, keepdims=True)
        weights = np.exp(scores / temperature) * counts
        means[start : start + size] = (weights / weights.sum(axis=1, keepdims=True)) @ x
    return means
