"""POST /dynamics and POST /control."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field
from pydantic.json_schema import SkipJsonSchema

from service.schemas.wire import Given, Request, Vector, Wire

Stop = Literal["certified", "converged", "never"]
Include = Literal["assignment", "limits", "trajectory", "polytope"]
Points = Annotated[list[Vector], Field(description="The cloud: n points of d numbers each.")]
Finite = Annotated[float, Field(allow_inf_nan=False)]


class DynamicsParameters(Request):
    """Everything a run of the dynamics may ask for but its points."""

    alpha: Finite = Field(1.0, gt=0, description="Step size of the dynamics: gamma = alpha / (1 + alpha).")
    A: Given[Given[float]] | None = Field(
        None, description="Symmetric positive definite matrix; absent: identity."
    )
    max_layers: int = Field(1000, ge=1, description="Layers to run at most.")
    stop: Stop = Field("certified", description='When to stop; "never" runs exactly max_layers.')
    tolerance: Finite = Field(
        1e-9, ge=0, description="A run has converged when every point is this near to where it is drawn."
    )
    tie_tolerance: Finite = Field(
        0.0,
        ge=0,
        lt=1,
        description="Relative gap below which two tokens tie; 0: scores are compared exactly.",
    )
    include: Given[Include] = Field(["assignment"], description="Parts of the answer beyond the summary.")
    trajectory_every: int = Field(1, ge=1, description="Keep every so many layers of the trajectory.")


class DynamicsRequest(DynamicsParameters):
    """A cloud and how to run it."""

    points: Points


class CloudLeader(Wire):
    index: int = Field(description="Its place among the points.")
    since_layer: int = Field(description="The first layer at which it attends to itself alone.")
    point: Vector = Field(description="Where it is: a leader does not move.")
    followers: int = Field(description="Other points that end in its cluster.")
    cluster: int = Field(description="The id of its cluster.")


class CloudCluster(Wire):
    id: int = Field(description="Its place in the list.")
    kind: Literal["leader", "tie"] = Field(description='"tie": its points attend to several leaders alike.')
    leaders: list[int] = Field(description="Indices of the one leader, or of those that tie.")
    limit: Vector = Field(description="Where its points end.")
    size: int = Field(description="Points in it.")


class Polytope(Wire):
    vertices: list[int] = Field(description="Indices of the leaders that are vertices of the limit polytope.")


class Trajectory(Wire):
    layers: list[int] = Field(description="The layers that were kept.")
    points: list[list[Vector]] = Field(description="The cloud at each of them.")


class DynamicsResult(Wire):
    n: int = Field(description="Points of the cloud. Beside it `d` tells how many numbers each has.")
    # subtle: openapi-python-client writes wrong code for a field of the name d: the document leaves it out.
    d: SkipJsonSchema[int] = Field(description="Numbers of each.")
    alpha: float = Field(description="The step size it was run with.")
    status: Literal["certified", "converged", "max_layers"] = Field(
        description="certified: the limits are proved. converged: every point is near where it is drawn. "
        "max_layers: neither, yet."
    )
    layers: int = Field(description="Layers from the start to the state reported.")
    certified_layer: int | None = Field(description="The layer that proved the limits, or null.")
    margin: float | None = Field(
        description="Smallest relative gap between a best score and the next one; null without a next."
    )
    leaders: list[CloudLeader] = Field(description="Points that attend to themselves alone.")
    clusters: list[CloudCluster] = Field(description="Points of one limit, together.")
    assignment: list[int] | None = Field(None, description="For each point the id of its cluster.")
    limits: list[Vector] | None = Field(None, description="For each point where it ends; if asked for.")
    polytope: Polytope | None = Field(None, description="The hull of the limits; if asked for.")
    trajectory: Trajectory | None = Field(None, description="The cloud layer by layer; if asked for.")


class DynamicsResponse(DynamicsResult):
    id: str = Field(description="The request's id.")


class ControlWish(Request):
    """Everything but the points, which are read in pieces."""

    assignment: dict[str, int] | None = Field(None, description="Token index -> the leader it shall end at.")
    leaders: Given[int] | None = Field(None, description="Tokens that shall be leaders; others may choose.")


class ControlRequest(ControlWish):
    """A cloud and what shall become of it."""

    points: Points


class Refutation(Wire):
    """One term of a certificate that no A grants a wish."""

    token: int = Field(description="Index of the token whose end was wanted.")
    leader: int = Field(description="The leader it was to end at.")
    rival: int = Field(description="The point that it should have preferred the leader to.")
    weight: str = Field(description="A positive whole number, in decimal digits.")


class ControlResponse(Wire):
    id: str = Field(description="The request's id.")
    feasible: bool | None = Field(
        description="true: A grants the wish from layer 0 on, proved for the numbers as sent. "
        "false: no A does, proved by the certificate. null: neither could be proved."
    )
    A: list[Vector] | None = Field(description="The form that was found, of trace d.")
    margin: float | None = Field(
        description="Smallest gap between a wanted token's best score and the next, relative to A-norms; "
        "null without a form, or where no point is a rival."
    )
    worst_pair: list[int] | None = Field(None, description="Token, wanted leader, and the rival in its way.")
    bound: float | None = Field(
        None,
        description="No form has a larger smallest gap, in the units of docs/control.md; 0 if infeasible.",
    )
    certificate: list[Refutation] | None = Field(
        None,
        description="Why no form grants the wish: the sum of weight * (M + M'), with "
        "M = z_token (z_leader - z_rival)', is negative semidefinite, exactly.",
    )
    note: str | None = Field(None, description="What is missing from the answer, and why.")
    dynamics: DynamicsResult | None = Field(
        None, description="The run with A that confirms it; null where double precision cannot follow it."
    )
