"""The answers about clouds, and to requests for a matrix."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict

from hardmax.models.document import Document, Items, Open, Vector

Stop = Literal["certified", "converged", "never"]
Include = Literal["assignment", "limits", "trajectory", "polytope", "temperature", "argmax", "softmax"]


class CloudLeader(Document):
    """A point that leads."""

    index: int
    """The index of the leader among the points."""
    since_layer: int
    """The first layer at which the point attends to itself alone."""
    point: Vector
    """The coordinates of the leader, which does not move."""
    followers: int
    """The number of other points in its cluster."""
    cluster: int
    """The id of its cluster."""


class CloudCluster(Document):
    """The points with one limit."""

    id: int
    """The index of the cluster in this list."""
    kind: Annotated[Literal["leader", "tie"], Open]
    """In a cluster of kind "tie" the points attend to several leaders alike."""
    leaders: Items[int]
    """The index of the leader, or the indices of the leaders that tie."""
    limit: Vector
    """The point to which all points of the cluster converge."""
    size: int
    """The number of points in the cluster."""


class Polytope(Document):
    """The convex hull of the limits."""

    vertices: Items[int]
    """The indices of the leaders that are vertices of the limit polytope."""


class Trajectory(Document):
    """The points at the recorded layers."""

    layers: Items[int]
    """The recorded layers."""
    points: Items[Items[Vector]]
    """The cloud at each of these layers."""


class Temperature(Document):
    """A temperature below which softmax attention provably stays near the hardmax run."""

    t: float | None
    """The largest temperature that is proved, together with all lower ones; null for any temperature."""
    distance: float
    """The distance within which every point stays, in the A-norm: a hundredth of the longest point."""
    layers: int
    """The number of layers for which the bound is proved."""
    float64: bool
    """Whether softmax in double precision provably stays as near at `t`; if false, rounding may part it from
    the exact softmax."""


class Softmax(Document):
    """Softmax attention on the same cloud."""

    temperature: float
    """The temperature of the attention, as requested."""
    layers: Items[int]
    """The recorded layers, the same as in the hardmax trajectory."""
    points: Items[Items[Vector]]
    """The cloud under softmax attention at each of these layers."""
    distance: Items[float]
    """The distance of the farthest point from its hardmax run at each of these layers, in the A-norm."""


def _without_d(schema: dict[str, Any]) -> None:
    """subtle: openapi-python-client writes wrong code for a field of the name d."""
    del schema["properties"]["d"]
    schema["required"].remove("d")


class DynamicsResult(Document):
    """The response of POST /dynamics."""

    model_config = ConfigDict(json_schema_extra=_without_d)

    id: str = ""
    """The id of the request; empty within another answer."""
    n: int
    """The number of points. The field `d` next to it is their dimension."""
    d: int
    """Numbers of each."""
    alpha: float
    """The step size of the run."""
    status: Annotated[Literal["certified", "converged", "max_layers"], Open]
    """The limits of a "certified" run are proved. In a
    "converged" run every point is near its limit. A "max_layers" run ended before either."""
    layers: int
    """The number of layers from the start to the state that is reported."""
    certified_layer: int | None
    """The layer that proved the limits; null without a proof."""
    margin: float | None
    """A lower bound on the smallest relative gap between a best score and the next one; null if there is no
    next one."""
    leaders: Items[CloudLeader]
    """The points that attend to themselves alone."""
    clusters: Items[CloudCluster]
    """The groups of points with the same limit."""
    assignment: Items[int] | None = None
    """The id of the cluster of each point."""
    limits: Items[Vector] | None = None
    """The limit of each point, with `include: ["limits"]`."""
    polytope: Polytope | None = None
    """The convex hull of the limits, with `include: ["polytope"]`."""
    trajectory: Trajectory | None = None
    """The cloud at each layer, with `include: ["trajectory"]`."""
    temperature: Temperature | None = None
    """The temperatures at which softmax attention keeps every point near this run, with `include:
    ["temperature"]`; null if nothing is certified, or if gaps are as small as their rounding."""
    argmax: Items[Items[Items[int]]] | None = None
    """The argmax set of each point at each layer up to the certified one, with `include: ["argmax"]`."""
    softmax: Softmax | None = None
    """Softmax attention from the same start, with `include: ["softmax"]`."""


class Refutation(Document):
    """One term of a certificate that no matrix A makes the chosen points lead."""

    token: int
    """The index of the token whose leader was requested."""
    leader: int
    """The leader that was requested."""
    rival: int
    """The point that the token should not prefer to the leader."""
    weight: str
    """A positive integer in decimal digits."""


class ControlResponse(Document):
    """The response of POST /control."""

    id: str
    """The id of the request."""
    feasible: bool | None
    """With true, A grants the request from layer 0 on, which is proved for the numbers as sent. With false,
    no A does, which the certificate proves. With null, neither could be proved."""
    A: Items[Vector] | None
    """The matrix that was found, with trace d."""
    margin: float | None
    """The smallest gap between the best score of a requested token and the next, relative to A-norms; null
    without a matrix, or if no point is a rival."""
    worst_pair: Items[int] | None = None
    """The token, its requested leader, and the rival in its way."""
    bound: float | None = None
    """No matrix has a larger smallest gap, in the units of docs/concepts/control.md; the bound is 0 if
    the request is infeasible."""
    certificate: Items[Refutation] | None = None
    """The proof that no matrix grants the request: the sum of weight * (M + M'), with M = z_token (z_leader
    - z_rival)', is exactly negative semidefinite."""
    note: str | None = None
    """A note says what is missing from the answer, and why."""
    dynamics: DynamicsResult | None = None
    """The run with A that confirms the answer; null if double precision cannot follow it."""
