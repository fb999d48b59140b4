"""Run clouds of points to their limits.

    result = Dynamics.load(bundle, runtime).run(points, Parameters(alpha=0.5))

This module has the options, limits and results; attention.py and tokens.py have the algorithm.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from hardmax.models.clouds import Stop
from service.cloud.attention import Attention
from service.cloud.clusters import Clusters, Leaders, polytope_vertices, read_clusters, read_leaders
from service.cloud.margin import LayerGap, Temperature, find_temperature, smallest_margin
from service.cloud.points import Cloud, Floats, Ints, check_size, prepare
from service.cloud.sets import Ragged
from service.cloud.softmax import (
    ArgmaxRecorder,
    Recorder,
    SoftmaxRun,
    Trajectory,
    check_trajectory,
    run_softmax,
)
from service.cloud.tokens import Tokens
from service.errors import BundleError, InvalidInput, TooLarge
from service.runtime.bundle import Bundle
from service.runtime.session import Graph, Runtime, Session

GRAPH_OUTPUTS = {"best_out", "runs", "scores"}
MAX_ALPHA = 2.0**53  # from here on, alpha / (1 + alpha) is 1 in double precision


@dataclass(frozen=True)
class Parameters:
    """The options of a run: the fields of POST /dynamics, whose schema has their ranges."""

    alpha: float = 1.0
    A: Floats | None = None
    max_layers: int = 1000
    stop: Stop = "certified"
    tolerance: float = 1e-9
    include: frozenset[str] = frozenset({"assignment"})
    trajectory_every: int = 1
    temperature: float | None = None  # of the softmax trajectory
    max_numbers: float = math.inf  # of a trajectory in the answer


@dataclass(frozen=True)
class Limits:
    """The limits of a run."""

    max_points: int = 1_000_000
    max_dimension: int = 256
    max_layers: int = 100_000
    max_bytes: int = 4 * 2**30


@dataclass(frozen=True)
class Progress:
    """The progress of a run after a layer."""

    layer: int
    leaders: int  # distinct tokens that lead so far
    distance: float | None  # of the farthest token from the mean it moves to, relative to the longest


Report = Callable[[Progress], None]


@dataclass(frozen=True)
class Result:
    """The answer of POST /dynamics, as arrays over the given points."""

    n: int
    d: int
    alpha: float
    status: Literal["certified", "converged", "max_layers"]
    layers: int
    certified_layer: int | None
    # lower bound on the relative gap between a best score and the best outside its set; None: nothing outside
    margin: float | None
    leaders: Leaders
    clusters: Clusters
    assignment: Ints  # [n]
    limits: Floats  # [n,d]
    points: Floats  # [n,d] the state at layer `layers`
    vertices: Ints  # of the limit polytope
    trajectory: Trajectory | None
    temperature: Temperature | None  # None: not requested, not certified, or gaps as small as rounding
    argmax: list[Ragged] | None  # of every computed layer, the set of every point
    softmax: SoftmaxRun | None


class Dynamics:
    """A loaded dynamics bundle. It can be sent to another process."""

    def __init__(self, graph: Graph, limits: Limits | None = None) -> None:
        self.graph = graph
        self._limits = limits or Limits()

    @classmethod
    def load(cls, bundle: Bundle, runtime: Runtime, limits: Limits | None = None) -> "Dynamics":
        """Return the dynamics of a bundle.

        Raises:
            BundleError: The graph has other outputs than those of `hardmax-export dynamics`.
        """
        missing = GRAPH_OUTPUTS - {spec.name for spec in runtime.open(bundle.model).outputs}
        if missing:
            raise BundleError(f"{bundle.name}: model.onnx has no output {min(missing)}", param="model.onnx")
        return cls(runtime.graph(bundle.model), limits)

    @property
    def session(self) -> Session:
        return self.graph.session

    def run(
        self,
        points: Floats,
        parameters: Parameters | None = None,
        on_progress: Report = lambda progress: None,
    ) -> Result:
        """Run a cloud.

        Args:
            points: [n, d].
            parameters: the options of the run.
            on_progress: called after every layer.

        Raises:
            InvalidInput: points, A or a parameter cannot be used; `param` names it.
            TooLarge: a limit is exceeded.
        """
        parameters = parameters or Parameters()
        self._check(points, parameters)
        return _Run(self.session, points, parameters, self._limits.max_bytes, on_progress).result()

    def _check(self, points: Floats, parameters: Parameters) -> None:
        if parameters.max_layers > self._limits.max_layers:
            problem = f"max_layers is {parameters.max_layers}, the limit is {self._limits.max_layers}"
            raise TooLarge(f"{problem} (MAX_LAYERS)", param="max_layers")
        if parameters.alpha >= MAX_ALPHA:
            share = f"{parameters.alpha:g} / (1 + {parameters.alpha:g})"
            problem = f"alpha should be less than 2^53: {share} is 1 in double precision"
            raise InvalidInput(problem, param="alpha")
        if ("softmax" in parameters.include) != (parameters.temperature is not None):
            raise InvalidInput('temperature goes with "softmax" in include', param="temperature")
        if points.ndim == 2:
            n, d = points.shape
            self.check_size(n, d, parameters)

    def check_size(self, n: int, d: int, parameters: Parameters) -> None:
        """Refuse a cloud over a limit before anything is computed."""
        limits = self._limits
        check_size(n, d, limits.max_points, limits.max_dimension)
        n_bytes = 200 * n * max(d, 2) + 2**27  # of the arrays of a layer: measured, rounded up
        if n_bytes > limits.max_bytes:
            needed, limit = n_bytes / 2**30, limits.max_bytes / 2**30
            problem = f"{n} points in {d} dimensions need {needed:.1f} GiB, the limit is {limit:.1f} GiB"
            raise TooLarge(problem, param="points")
        if parameters.stop == "never" and {"trajectory", "softmax"} & parameters.include:
            layers = parameters.max_layers // parameters.trajectory_every + 1
            check_trajectory(layers, n, d, limits.max_bytes, parameters.max_numbers)


class _Run:
    """The run of one cloud."""

    def __init__(
        self, session: Session, points: Floats, parameters: Parameters, max_bytes: int, on_progress: Report
    ) -> None:
        include = parameters.include
        self._parameters = parameters
        self._on_progress = on_progress
        self._cloud: Cloud = prepare(points, parameters.A)
        self._tokens = Tokens(self._cloud, parameters.alpha)
        self._attention = Attention(session, self._tokens)
        records_points = bool({"trajectory", "softmax"} & include)
        step = parameters.trajectory_every
        limits = max_bytes, parameters.max_numbers
        self._recorder = Recorder(self._cloud, step, *limits) if records_points else None
        self._argmax = ArgmaxRecorder(self._cloud, max_bytes) if "argmax" in include else None
        self._gaps: list[LayerGap] = []

    def result(self) -> Result:
        """Run to the end."""
        tokens = self._tokens
        self._attend()
        while not (tokens.certified or self._converged() or tokens.layer == self._parameters.max_layers):
            tokens.step()
            self._attend()
        return self._read(tokens.layer + self._remaining_layers())

    def _attend(self) -> None:
        tokens = self._tokens
        self._attention.attend()
        if "temperature" in self._parameters.include and not (tokens.certified and self._gaps):
            self._gaps.append(LayerGap.of(self._attention.session, tokens))
        if self._recorder:
            self._recorder.record(tokens.layer, tokens.points(tokens.layer))
        if self._argmax:
            self._argmax.record(tokens.sets())
        self._report(tokens.layer)

    def _report(self, layer: int) -> None:
        leaders, distance = int((self._tokens.leader_since >= 0).sum()), self._tokens.distance
        reached = max(layer, self._tokens.layer)
        self._on_progress(Progress(reached, leaders, distance if math.isfinite(distance) else None))

    def _converged(self) -> bool:
        return self._parameters.stop != "never" and self._tokens.distance <= self._parameters.tolerance

    def _remaining_layers(self) -> int:
        """Return the number of layers from the certificate to the last one: they need not be computed."""
        tokens, parameters = self._tokens, self._parameters
        remaining = parameters.max_layers - tokens.layer
        if not tokens.certified or parameters.stop == "certified":
            return 0
        if parameters.stop == "never" or parameters.tolerance == 0 < tokens.distance:
            return remaining
        if tokens.distance <= parameters.tolerance:
            return 0
        contractions = math.log(tokens.distance / parameters.tolerance) / math.log1p(parameters.alpha)
        return math.ceil(min(remaining, contractions))  # which are infinite for the smallest alpha

    def _read(self, layers: int) -> Result:
        """Return leaders and clusters from the argmax sets, and the points at layer `layers`."""
        cloud, tokens, include = self._cloud, self._tokens, self._parameters.include
        points = tokens.points(layers)
        clusters, assignment = read_clusters(cloud, tokens.first, tokens.ties, tokens.target_points)
        leaders = read_leaders(cloud, tokens.leader_since, points, assignment, clusters)
        recorder = self._recorder
        trajectory = recorder.trajectory(layers, tokens.points, self._report) if recorder else None
        return Result(
            n=len(cloud.inverse),
            d=points.shape[1],
            alpha=self._parameters.alpha,
            status="certified" if tokens.certified else "converged" if self._converged() else "max_layers",
            layers=layers,
            certified_layer=tokens.layer if tokens.certified else None,
            margin=self._margin(),
            leaders=leaders,
            clusters=clusters,
            assignment=assignment,
            limits=clusters.limit[assignment],
            points=cloud.restore(points)[cloud.inverse],
            vertices=polytope_vertices(leaders),
            trajectory=trajectory if "trajectory" in include else None,
            temperature=self._temperature(),
            argmax=self._argmax.layers if self._argmax else None,
            softmax=self._softmax(trajectory) if trajectory and "softmax" in include else None,
        )

    def _margin(self) -> float | None:
        if not self._tokens.certified:
            return None
        return smallest_margin(self._attention.session, self._tokens, self._attention.sets_of_means())

    def _temperature(self) -> Temperature | None:
        if not self._gaps or not self._tokens.certified:
            return None
        return find_temperature(self._gaps, self._tokens)

    def _softmax(self, hardmax: Trajectory) -> SoftmaxRun:
        parameters = self._parameters
        assert parameters.temperature is not None
        return run_softmax(self._cloud, parameters.alpha, parameters.temperature, hardmax)
