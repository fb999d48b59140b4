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
from typing import Any, Literal, NamedTuple

import numpy as np

from service.bundle import Bundle
from service.cloud import Cloud, Floats, Ints, check_size, prepare
from service.clusters import Clusters, Leaders, polytope_vertices, read_clusters, read_leaders
from service.errors import BundleError, InvalidInput, TooLarge
from service.runtime import Runtime, Session

CHUNK_S = 0.1  # a chunk of layers aims at this, so that a run can be followed and cancelled
SMALL = 2048  # up to so many points the graph compares all pairs, and every layer knows its margin
REACHES = (1e-4, 1e-2, 2.5)  # of larger ones, tried in turn; relative scores differ by at most 2

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


class Trajectory(NamedTuple):
    """The points at the layers that were kept."""

    layers: Ints  # [t]
    points: Floats  # [t,n,d]


@dataclass(frozen=True)
class Result:
    """The answer of POST /dynamics, as arrays over the points as they were given."""

    n: int
    d: int
    alpha: float
    status: Literal["certified", "converged", "max_layers"]
    layers: int
    certified_layer: int | None
    margin: float | None
    leaders: Leaders
    clusters: Clusters
    assignment: Ints  # [n]
    limits: Floats  # [n,d]
    points: Floats  # [n,d] the state at layer `layers`
    vertices: Ints  # of the limit polytope
    trajectory: Trajectory | None


class Dynamics:
    """A loaded dynamics bundle."""

    def __init__(self, session: Session, limits: Limits | None = None) -> None:
        self.session = session
        self._limits = limits or Limits()

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
        return Run(
            self.session, prepare(points, parameters.A, parameters.tie_tolerance), parameters, self._limits
        )


class Run(Iterator[Progress]):
    """One cloud on its way: each `next` computes a chunk of layers, and `result` is there after the last."""

    def __init__(self, session: Session, cloud: Cloud, parameters: Parameters, limits: Limits) -> None:
        self._session = session
        self._cloud = cloud
        self._parameters = parameters
        self._limits = limits
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
        self._reach = REACHES[-1] if m <= SMALL else 0.0
        self._kept: list[tuple[int, Floats]] = []
        self._result: Result | None = None
        self._keep()

    def __next__(self) -> Progress:
        if self._result is not None:
            raise StopIteration
        began = time.perf_counter()
        self._advance(self._chunk_size())
        seconds = time.perf_counter() - began
        self._chunk = (
            max(1, self._chunk // 2) if seconds > CHUNK_S else self._chunk * (1 + (2 * seconds < CHUNK_S))
        )
        self._keep()
        if self._found["finished"]:
            self._result = self._finish()
        return Progress(self._layer, int((self._state["since"] >= 0).sum()), float(self._found["movement"]))

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
        if "trajectory" not in self._parameters.include:
            return self._chunk
        every = self._parameters.trajectory_every
        return min(self._chunk, every - self._layer % every)

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

    def _keep(self) -> None:
        """Remember this layer's points where the trajectory wants them."""
        if "trajectory" in self._parameters.include and self._layer % self._parameters.trajectory_every == 0:
            self._remember(self._layer, self._state["points"])

    def _remember(self, layer: int, points: Floats) -> None:
        if not self._kept or self._kept[-1][0] < layer:
            self._kept.append((layer, points))
        check_trajectory(len(self._kept), len(self._cloud.place), points.shape[1], self._limits)

    def _finish(self) -> Result:
        """Read the argmax sets of the last layer, and go on in closed form where more layers are wanted."""
        cloud, parameters = self._cloud, self._parameters
        certified = self._layer if self._found["certified"] else None
        margin = self._margin() if certified is not None else None
        since, points, layers = self._state["since"], self._state["points"], self._layer
        if certified is not None:
            layers += self._layers_left()
            points = self._at(layers)
        trajectory = self._trajectory(layers) if "trajectory" in parameters.include else None
        clusters, assignment = read_clusters(
            cloud, self._state["hint"], self._found["size"], self._found["ties"], self._found["target"]
        )
        leaders = read_leaders(cloud, since, points, assignment, clusters)
        converged = parameters.stop != "never" and self._found["movement"] <= parameters.tolerance
        return Result(
            n=len(cloud.place),
            d=points.shape[1],
            alpha=parameters.alpha,
            status="certified" if certified is not None else "converged" if converged else "max_layers",
            layers=layers,
            certified_layer=certified,
            margin=margin,
            leaders=leaders,
            clusters=clusters,
            assignment=assignment,
            limits=clusters.limit[assignment],
            points=cloud.restore(points)[cloud.place],
            vertices=polytope_vertices(leaders),
            trajectory=trajectory,
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
        """The points at a layer after the certificate: c + (1 + alpha)^-m (z - c)."""
        points: Floats = self._state["points"]
        target: Floats = self._found["target"]
        shrink = math.exp(-(layer - self._layer) * math.log1p(self._parameters.alpha))
        return points + (1 - shrink) * (target - points)

    def _trajectory(self, layers: int) -> Trajectory:
        every = self._parameters.trajectory_every
        for layer in range(self._layer // every * every + every, layers, every):
            self._remember(layer, self._at(layer))
        if layers > self._layer:
            self._remember(layers, self._at(layers))
        self._remember(layers, self._state["points"])
        points = np.stack([self._cloud.restore(points)[self._cloud.place] for _, points in self._kept])
        return Trajectory(np.array([layer for layer, _ in self._kept]), points)

    def _margin(self) -> float | None:
        """The smallest relative distance, over all tokens, from the best score to the best outside C_i.

        The graph knows it where it is below the `reach` it was given: in a large cloud it nearly always is.
        None: nobody is outside.
        """
        for reach in REACHES:
            if self._found["margin"] < self._reach:
                break
            self._reach = max(reach, self._reach)
            self._advance(1)
        margin = float(self._found["margin"])
        return margin if math.isfinite(margin) else None


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
        check_trajectory(parameters.max_layers // parameters.trajectory_every + 1, n, d, limits)


def check_trajectory(layers: int, n: int, d: int, limits: Limits) -> None:
    if 16 * layers * n * d > limits.max_bytes:
        problem = (
            f"a trajectory of {layers} layers of {n} points needs more than "
            f"{limits.max_bytes / 2**30:.1f} GiB; raise trajectory_every"
        )
        raise TooLarge(problem, param="trajectory_every")
