"""POST /dynamics and POST /control."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from hardmax.documents import Include, Stop, Vector
from service.schemas.wire import Given, Request

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


class ControlWish(Request):
    """Everything but the points, which are read in pieces."""

    assignment: dict[str, int] | None = Field(None, description="Token index -> the leader it shall end at.")
    leaders: Given[int] | None = Field(None, description="Tokens that shall be leaders; others may choose.")


class ControlRequest(ControlWish):
    """A cloud and what shall become of it."""

    points: Points
