"""Clouds of points run to their limits: the domain side of dynamics.onnx.

    run = Dynamics.load(bundle, runtime).start(points, Parameters(alpha=0.5))
    for progress in run: ...      # one chunk of layers each; stop iterating to cancel
    run.result

The dynamics themselves, and the certificate that ends a run, are in the graph. This module feeds it, reads
its argmax sets, and once a run is certified continues it in closed form. It knows no HTTP, no ONNX Runtime.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from service.bundle import Bundle
from service.cloud import Cloud, Floats, Ints, check_size, prepare
from service.clusters import Clusters, Leaders, polytope_vertices, read_clusters, read_leaders
from service.errors import BundleError, InvalidInput, TooLarge
from service.runtime import Runtime, Session
from service.trajectory import Recorder, Trajectory, check_trajectory

WIDEST = 2.5  # relative scores differ by at most 2
CHUNK_S = 0.1  # a chunk of layers aims at this, so that a run can be followed and cancelled
SMALL = 2048  # up to so many points the graph compares all pairs, and every layer knows its margin

STATE = ("points", "since", "key", "hint", "clear", "layer")
FOUND = ("target", "size", "ties", "certified", "margin", "movement", "finished")


@dataclass(frozen=True)
class Parameters:
    """What a run may ask for; the fields of POST /dynamics."""

    alpha: float = 1.0
    A: Floats | None = None
    max_layers: int = 1000
    stop: Literal["certified", "converged", "never"] = "certified"
    tolerance: float = 1e-9
    tie_tolerance: float = 1e-12
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
    movement: float  # of the farthest token in the next layer, relative to the longest


@dataclass(frozen=True)
class Result:
    """The answer of POST /dynamics, as arrays over the points as they were given."""

    n: int
    d: int
    alpha: float
    status: Literal["certified", "converged", "max_layers"]
    layers: int
    certified_layer: int | None
    margin: (
        float | None
    )  # smallest relative distance from a best score to the best outside C_i; None: no such
    leaders: Leaders
    clusters: Clusters
    assignment: Ints  # [n]
    limits: Floats  # [n,d]
    points: Floats  # [n,d] the state at layer `layers`
    vertices: Ints  # of the limit polytope
    trajectory: Trajectory | None


class Dynamics:
    """A loaded dynamics bundle."""

    def __init__(self, session: Session, limits: Limits | None = None, chunk_s: float = CHUNK_S) -> None:
        self.session = session
        self._limits = limits or Limits()
        self._chunk_s = chunk_s

    @classmethod
    def load(cls, bundle: Bundle, runtime: Runtime, limits: Limits | None = None) -> Dynamics:
        """The dynamics of a bundle, or a `BundleError` where its graph has other outputs than we read."""
        session = runtime.open(bundle.model)
        missing = {f"{name}_out" for name in (*STATE, *FOUND)} - {spec.name for spec in session.outputs}
        if missing:
            raise BundleError(f"{bundle.name}: model.onnx has no output {min(missing)}", param="model.onnx")
        return cls(session, limits)

    def start(self, points: Floats, parameters: Parameters | None = None) -> Run:
        """A run that has computed nothing yet; whatever is wrong with its input is said here."""
        parameters = parameters or Parameters()
        check_parameters(parameters, self._limits)
        if points.ndim == 2:
            n, d = points.shape
            check_size(n, d, self._limits.max_points, self._limits.max_dimension)
            check_memory(n, d, parameters, self._limits)
        cloud = prepare(points, parameters.A, parameters.tie_tolerance)
        recorder = None
        if "trajectory" in parameters.include:
            recorder = Recorder(cloud, parameters.trajectory_every, self._limits.max_bytes)
        return Run(self.session, cloud, parameters, recorder, self._chunk_s)


class Run(Iterator[Progress]):
    """One cloud on its way: each `next` works for about `chunk_s`, and `result` is there after the last."""

    def __init__(
        self,
        session: Session,
        cloud: Cloud,
        parameters: Parameters,
        recorder: Recorder | None,
        chunk_s: float,
    ) -> None:
        self._session = session
        self._cloud = cloud
        self._parameters = parameters
        self._recorder = recorder
        self._chunk_s = chunk_s
        m = len(cloud.points)
        self._state: dict[str, np.ndarray[Any, Any]] = {
            "points": cloud.points,
            "since": np.full(m, -1),
            "key": np.ones(m, np.bool_),
            "hint": np.arange(m),
            "clear": np.array(True),
            "layer": np.array(0),
        }
        self._found: dict[str, np.ndarray[Any, Any]] = {}
        self._chunk = 1
        self._reach = 0.0
        self._reached = 0
        self._began = 0.0
        self._result: Result | None = None
        self._work = self._steps()

    def __next__(self) -> Progress:
        self._began = time.perf_counter()
        next(self._work)
        leaders = int((self._state["since"] >= 0).sum())
        return Progress(self._reached, leaders, float(self._found["movement"]))

    def _steps(self) -> Iterator[None]:
        """All work there is; whoever iterates may leave, or be late, at every yield."""
        self._keep()
        while True:
            self._run_chunk()
            if self._found["finished"]:
                break
            yield
        yield from self._finish()
        yield

    def _late(self) -> bool:
        return time.perf_counter() - self._began >= self._chunk_s

    def _run_chunk(self) -> None:
        self._advance(self._chunk_size())
        seconds = time.perf_counter() - self._began
        self._chunk = (
            max(1, self._chunk // 2)
            if seconds > self._chunk_s
            else self._chunk * (1 + (2 * seconds < self._chunk_s))
        )
        self._reached = self._layer
        self._keep()

    @property
    def result(self) -> Result:
        """The answer, once the run is over."""
        if self._result is None:
            raise RuntimeError("the run is not over: iterate it to its end first")
        return self._result

    @property
    def _layer(self) -> int:
        return int(self._state["layer"])

    def _chunk_size(self) -> int:
        """Layers to run now; a trajectory stops at each layer that it keeps."""
        return min(self._chunk, self._recorder.ahead(self._layer)) if self._recorder else self._chunk

    def _advance(self, layers: int) -> None:
        """Let the graph run, and take over its state and findings."""
        parameters, cloud = self._parameters, self._cloud
        scalars = {
            "alpha": parameters.alpha,
            "tie_tolerance": parameters.tie_tolerance,
            "guard": cloud.guard,
            "reach": self._reach,
            "tolerance": -1.0 if parameters.stop == "never" else parameters.tolerance,
        }
        feeds = {
            **self._state,
            **{name: np.array(value, np.float64) for name, value in scalars.items()},
            "weights": cloud.counts.astype(np.float64),
            "A": cloud.form,
            "layers": np.array(layers),
            "last": np.array(parameters.max_layers),
        }
        names = (*STATE, *FOUND)
        found = dict(zip(names, self._session.run(feeds, [f"{name}_out" for name in names]), strict=True))
        self._state = {name: found[name] for name in STATE}
        self._found = {name: found[name] for name in FOUND}
        if not self._found["size"].all():
            raise TooLarge(
                "too many points tie: choose a smaller tie_tolerance, or move the cloud nearer to the origin",
                param="points",
            )

    def _keep(self) -> None:
        if self._recorder:
            self._recorder.keep(self._layer, self._state["points"])

    def _finish(self) -> Iterator[None]:
        """Find the margin, and go on in closed form where more layers are wanted; then read the answer."""
        layers, margin = self._layer, None
        if self._found["certified"]:
            margin = float(self._found["margin"])
            if len(self._cloud.points) > SMALL:
                if self._late():
                    yield
                self._reach = min(margin, WIDEST)  # some gap is this wide: what is farther does not matter
                self._advance(1)  # the same layer once more
                margin = min(margin, float(self._found["margin"]))
            layers += self._layers_left()
        if self._recorder:
            for layer in self._recorder.write(layers, self._at):
                self._reached = max(self._reached, layer)
                if self._late():
                    yield
        self._result = self._read(layers, margin)

    def _read(self, layers: int, margin: float | None) -> Result:
        """Leaders and clusters from the argmax sets of the last layer."""
        cloud, parameters = self._cloud, self._parameters
        certified = self._layer if self._found["certified"] else None
        points = self._at(layers)
        clusters, assignment = read_clusters(
            cloud, self._state["hint"], self._found["size"], self._found["ties"], self._found["target"]
        )
        leaders = read_leaders(cloud, self._state["since"], points, assignment, clusters)
        converged = parameters.stop != "never" and self._found["movement"] <= parameters.tolerance
        return Result(
            n=len(cloud.place),
            d=points.shape[1],
            alpha=parameters.alpha,
            status="certified" if certified is not None else "converged" if converged else "max_layers",
            layers=layers,
            certified_layer=certified,
            margin=margin if margin is not None and math.isfinite(margin) else None,
            leaders=leaders,
            clusters=clusters,
            assignment=assignment,
            limits=clusters.limit[assignment],
            points=cloud.restore(points)[cloud.place],
            vertices=polytope_vertices(leaders),
            trajectory=self._recorder.trajectory if self._recorder else None,
        )

    def _layers_left(self) -> int:
        """Layers from the certificate to where this run is to stop: they need not be run."""
        parameters = self._parameters
        rest = parameters.max_layers - self._layer
        if parameters.stop == "certified":
            return 0
        movement = float(self._found["movement"])
        if parameters.stop == "never" or parameters.tolerance == 0 < movement:
            return rest
        if movement <= parameters.tolerance:
            return 0
        halvings = math.log(movement / parameters.tolerance) / math.log1p(parameters.alpha)
        return min(rest, math.ceil(halvings))

    def _at(self, layer: int) -> Floats:
        """The points at this layer or, once certified, a later one: c + (1 + alpha)^-m (z - c)."""
        points: Floats = self._state["points"]
        if layer == self._layer:
            return points
        target: Floats = self._found["target"]
        shrink = math.exp(-(layer - self._layer) * math.log1p(self._parameters.alpha))
        return points + (1 - shrink) * (target - points)


def check_parameters(parameters: Parameters, limits: Limits) -> None:
    """The ranges of what a run may ask for."""
    for name in ("alpha", "tolerance", "tie_tolerance"):
        if not math.isfinite(getattr(parameters, name)):
            raise InvalidInput(f"{name} is not a finite number", param=name)
    if parameters.alpha <= 0:
        raise InvalidInput(f"alpha is {parameters.alpha:g}, expected more than 0", param="alpha")
    if parameters.tolerance < 0:
        raise InvalidInput(f"tolerance is {parameters.tolerance:g}, expected 0 or more", param="tolerance")
    if not 0 <= parameters.tie_tolerance < 1:
        problem = f"tie_tolerance is {parameters.tie_tolerance:g}, expected at least 0 and less than 1"
        raise InvalidInput(problem, param="tie_tolerance")
    for name in ("max_layers", "trajectory_every"):
        if getattr(parameters, name) < 1:
            raise InvalidInput(f"{name} is {getattr(parameters, name)}, expected 1 or more", param=name)
    if parameters.stop not in ("certified", "converged", "never"):
        raise InvalidInput(
            f"stop is {parameters.stop!r}, expected certified, converged or never", param="stop"
        )
    if parameters.max_layers > limits.max_layers:
        problem = f"max_layers is {parameters.max_layers}, the limit is {limits.max_layers} (MAX_LAYERS)"
        raise TooLarge(problem, param="max_layers")


def check_memory(n: int, d: int, parameters: Parameters, limits: Limits) -> None:
    """Refuse a cloud whose run would not fit, by the arrays a layer holds: measured, rounded up."""
    needed = n * (160 * d + 400) + 2**27
    if needed > limits.max_bytes:
        wanted, allowed = needed / 2**30, limits.max_bytes / 2**30
        problem = f"{n} points in {d} dimensions need {wanted:.1f} GiB, the limit is {allowed:.1f} GiB"
        raise TooLarge(problem, param="points")
    if parameters.stop == "never" and "trajectory" in parameters.include:
        layers = parameters.max_layers // parameters.trajectory_every + 1
        check_trajectory(layers, n, d, limits.max_bytes)
