"""Clouds for tests, and the pretrained dynamics that runs them."""

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from service.cloud.dynamics import Dynamics, Parameters, Result
from service.runtime.bundle import read_bundle
from service.runtime.session import Runtime
from service.settings import PRETRAINED_FOLDER

Floats = npt.NDArray[np.float64]

TRIANGLE = np.array(
    [(1, 1), (0.5, -0.5), (-1, -1), (0.3, -0.2), (0.1, -0.2), (0.8776, 0.9785), (0.0989, 0.4935),
     (-0.2030, -0.9591), (-0.3824, -0.9242)]
)  # fmt: skip
EMERGING = np.array(
    [(1, 1 / 3), (-1 / 12, 1 / 12), (-1, -1), (0, 0.25), (-0.3, -0.7), (-0.6, -0.9), (0.8, 0.1), (0.6, 0.15)]
)
# The corners of a square, points on its axes that tie between two corners, and one that follows a corner.
SQUARE = np.array([(1, 1), (1, -1), (-1, 1), (-1, -1), (0.5, 0), (0, 0.25), (-0.5, -0.25)])
# (0, -2) is the midpoint of an edge and stays between its ends.
EDGE = np.array([[-1, -2], [0, -2], [0, -1], [1, -2], [1, 2]])
# Points of an argmax set move along a face forever: nothing is certified.
UNCERTIFIED = np.array([[-3, -1], [-2, -1], [-2, 1], [-1, 1], [0, -1], [2, -1], [3, -1]])


@cache
def load_dynamics(provider: Any = "cpu") -> Dynamics:
    return Dynamics.load(read_bundle(PRETRAINED_FOLDER / "dynamics"), Runtime(provider, 1))


def run(points: Any, provider: Any = "cpu", **parameters: Any) -> Result:
    """Run the dynamics with these parameters."""
    return load_dynamics(provider).run(np.asarray(points, np.float64), Parameters(**parameters))


def leader_since(result: Result) -> npt.NDArray[np.int64]:
    """Return the first layer at which each point is a leader, -1 for the others."""
    layers = np.full(result.n, -1)
    layers[result.leaders.index] = result.leaders.since_layer
    return layers


def argmax_sets(result: Result) -> list[frozenset[int]]:
    """Return the leaders that each point follows."""
    return [frozenset(result.clusters.leaders[c].tolist()) for c in result.assignment]


def random_form(rng: np.random.Generator, d: int) -> Floats:
    B = rng.standard_normal((d, d))
    return B.T @ B + 0.1 * np.eye(d)


def clouds() -> st.SearchStrategy[Floats]:
    """Draw distinct points with entries of hundredths: scores tie exactly or differ clearly."""
    shapes = st.tuples(st.integers(1, 14), st.integers(1, 5))
    entries = st.integers(-300, 300).map(lambda k: k / 100)
    points = shapes.flatmap(lambda shape: arrays(np.float64, shape, elements=entries))
    return points.map(lambda Z: np.unique(Z[Z.any(axis=1)], axis=0) + 0.0).filter(len)
