"""Clouds of points run to their limits.

    run = Dynamics.load(bundle, runtime).start(points, Parameters(alpha=0.5))
    for progress in run: ...      # a tenth of a second each; stop iterating to cancel
    run.result

What may be asked for, what is refused, and the answer; layers.py does the work.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from hardmax.documents import Stop
from service.cloud.clusters import Clusters, Leaders, polytope_vertices, read_clusters, read_leaders
from service.cloud.layers import Layers
from service.cloud.margin import Gap, Temperature
from service.cloud.points import Cloud, Floats, Ints, check_size, prepare
from service.errors import BundleError, TooLarge
from service.runtime.bundle import Bundle
from service.runtime.session import Graph, Runtime, Session

CHUNK_S = 0.1  # a run stops so often to see whether it should go on
OUTPUTS = {"best_out", "runs", "scores"}


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
    if 16 * layers * n * d > max_bytes:
        problem = (
            f"a trajectory of {layers} layers of {n} points needs more than "
            f"{max_bytes / 2**30:.1f} GiB; raise trajectory_every"
        )
        raise TooLarge(problem, param="trajectory_every")


@dataclass(frozen=True)
class Parameters:
    """What a run may ask for; the fields of POST /dynamics, whose schema says what they may be."""

    alpha: float = 1.0
    A: Floats | None = None
    max_layers: int = 1000
    stop: Stop = "certified"
    tolerance: float = 1e-9
    tie_tolerance: float = 0.0
    include: frozenset[str] = frozenset({"assignment"})
    trajectory_every: int = 1


@dataclass(frozen=True)
class Limits:
    """What a run may cost."""

    max_points: int = 1_000_000
    max_dimension: int = 256
    max_layers: int = 100_000
    max_bytes: int = 4 * 2**30


@dataclass(frozen=True)
class Progress:
    """Where a run stands after a chunk of layers."""

    layer: int
    leaders: int  # distinct tokens that lead so far
    distance: float | None  # of the farthest token from the mean it is drawn to, relative to the longest


@dataclass(frozen=True)
class Result:
    """The answer of POST /dynamics, as arrays over the points as they were given."""

    n: int
    d: int
    alpha: float
    status: Literal["certified", "converged", "max_layers"]
    layers: int
    certified_layer: int | None
    # smallest relative distance from a best score to the best outside C_i; None: no such
    margin: float | None
    leaders: Leaders
    clusters: Clusters
    assignment: Ints  # [n]
    limits: Floats  # [n,d]
    points: Floats  # [n,d] the state at layer `layers`
    vertices: Ints  # of the limit polytope
    trajectory: Trajectory | None
    temperature: Temperature | None  # None: not asked for, not certified, or gaps as small as their rounding
    note: str | None  # why nothing is certified, where exact arithmetic would have cost too much


class Dynamics:
    """A loaded dynamics bundle."""

    def __init__(self, graph: Graph, limits: Limits | None = None, chunk_s: float = CHUNK_S) -> None:
        self.graph = graph
        self._limits = limits or Limits()
        self._chunk_s = chunk_s

    @classmethod
    def load(cls, bundle: Bundle, runtime: Runtime, limits: Limits | None = None) -> Dynamics:
        """The dynamics of a bundle, or a `BundleError` where its graph has other outputs than we read."""
        missing = OUTPUTS - {spec.name for spec in runtime.open(bundle.model).outputs}
        if missing:
            raise BundleError(f"{bundle.name}: model.onnx has no output {min(missing)}", param="model.onnx")
        return cls(runtime.graph(bundle.model), limits)

    @property
    def session(self) -> Session:
        return self.graph.session

    def start(self, points: Floats, parameters: Parameters | None = None) -> Run:
        """A run that has computed nothing yet; whatever is wrong with its input is said here."""
        parameters = parameters or Parameters()
        if parameters.max_layers > self._limits.max_layers:
            most = f"{self._limits.max_layers} (MAX_LAYERS)"
            raise TooLarge(f"max_layers is {parameters.max_layers}, the limit is {most}", param="max_layers")
        if points.ndim == 2:
            n, d = points.shape
            self.check_size(n, d, parameters)
        return Run(self.session, points, parameters, self._limits.max_bytes, self._chunk_s)

    def check_size(self, n: int, d: int, parameters: Parameters) -> None:
        limits = self._limits
        check_size(n, d, limits.max_points, limits.max_dimension)
        needed = 200 * n * max(d, 2) + 2**27  # by the arrays a layer holds: measured, rounded up
        if needed > limits.max_bytes:
            wanted, allowed = needed / 2**30, limits.max_bytes / 2**30
            problem = f"{n} points in {d} dimensions need {wanted:.1f} GiB, the limit is {allowed:.1f} GiB"
            raise TooLarge(problem, param="points")
        if parameters.stop == "never" and "trajectory" in parameters.include:
            layers = parameters.max_layers // parameters.trajectory_every + 1
            check_trajectory(layers, n, d, limits.max_bytes)


class Run(Iterator[Progress]):
    """One cloud on its way: each `next` works for about `chunk_s`, and `result` is there after the last."""

    def __init__(
        self, session: Session, points: Floats, parameters: Parameters, max_bytes: int, chunk_s: float
    ) -> None:
        self._cloud = cloud = prepare(points, parameters.A)
        self._parameters = parameters
        keeps = "trajectory" in parameters.include
        self._recorder = Recorder(cloud, parameters.trajectory_every, max_bytes) if keeps else None
        self._chunk_s = chunk_s
        self.layers = Layers(session, cloud, parameters.alpha, parameters.tie_tolerance)
        self._reached = 0
        self._result: Result | None = None
        self.work = self._steps()

    def __next__(self) -> Progress:
        until = time.perf_counter() + self._chunk_s
        next(self.work)
        while self._result is None and time.perf_counter() < until:
            next(self.work)
        leaders = int((self.layers.since >= 0).sum())
        distance = self.layers.distance
        return Progress(self._reached, leaders, distance if math.isfinite(distance) else None)

    @property
    def kept_bytes(self) -> int:
        """What the layers that were kept so far take."""
        return self._recorder.kept_bytes if self._recorder else 0

    @property
    def result(self) -> Result:
        """The answer, once the run is over."""
        if self._result is None:
            raise RuntimeError("the run is not over: iterate it to its end first")
        return self._result

    def _steps(self) -> Iterator[None]:
        """All work there is, in small pieces."""
        layers, parameters = self.layers, self._parameters
        gaps: list[Gap] | None = [] if "temperature" in parameters.include else None
        while True:
            yield from layers.attend()
            if gaps is not None and not (layers.certified and gaps):
                gaps.append((yield from layers.gap()))
            self._reached = layers.layer
            if self._recorder:
                self._recorder.keep(layers.layer, layers.points(layers.layer))
            if layers.certified or self._converged() or layers.layer == parameters.max_layers:
                break
            yield
            layers.step()
            yield
        margin = None
        if layers.certified:
            margin = yield from layers.margin()
        last = layers.layer + self._layers_left()
        if self._recorder:
            for layer in self._recorder.write(last, layers.points):
                self._reached = max(self._reached, layer)
                yield
        exact = layers.certified and parameters.tie_tolerance == 0
        temperature = layers.temperature(gaps) if gaps and exact else None
        self._result = self._read(last, margin, temperature)
        yield

    def _converged(self) -> bool:
        return self._parameters.stop != "never" and self.layers.distance <= self._parameters.tolerance

    def _layers_left(self) -> int:
        """Layers from the certificate to where this run is to stop: they need not be run."""
        layers, parameters = self.layers, self._parameters
        rest = parameters.max_layers - layers.layer
        if not layers.certified or parameters.stop == "certified":
            return 0
        if parameters.stop == "never" or parameters.tolerance == 0 < layers.distance:
            return rest
        if layers.distance <= parameters.tolerance:
            return 0
        shrinkings = math.log(layers.distance / parameters.tolerance) / math.log1p(parameters.alpha)
        return math.ceil(min(rest, shrinkings))  # the least alpha makes them infinite

    def _read(self, last: int, margin: float | None, temperature: Temperature | None) -> Result:
        """Leaders and clusters from the argmax sets, and the points at layer `last`."""
        cloud, layers = self._cloud, self.layers
        points, excess = layers.points(last), layers.history.account.excess
        clusters, assignment = read_clusters(cloud, layers.first, layers.ties, layers.targets)
        leaders = read_leaders(cloud, layers.since, points, assignment, clusters)
        return Result(
            n=len(cloud.place),
            d=points.shape[1],
            alpha=self._parameters.alpha,
            status="certified" if layers.certified else "converged" if self._converged() else "max_layers",
            layers=last,
            certified_layer=layers.layer if layers.certified else None,
            margin=margin,
            leaders=leaders,
            clusters=clusters,
            assignment=assignment,
            limits=clusters.limit[assignment],
            points=cloud.restore(points)[cloud.place],
            vertices=polytope_vertices(leaders),
            trajectory=self._recorder.trajectory if self._recorder else None,
            temperature=temperature,
            note=None if layers.exact or not excess else f"not certified: {excess}",
        )
