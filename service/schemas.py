"""The wire format: what travels as JSON, with the limits and examples that the documentation shows.

Requests are checked here only for their shape; what they mean is the domain's business. Limits that an
operator can set are checked where the settings are known.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

Explain = Literal["none", "leaders", "full"]
Stop = Literal["certified", "converged", "never"]
Include = Literal["assignment", "limits", "trajectory", "polytope"]

ModelName = Annotated[str, StringConstraints(min_length=1, max_length=200)]
Vector = list[float]
T = TypeVar("T")
Given = Annotated[list[T], Field(fail_fast=True)]  # one wrong entry is told, not a million
Finite = Annotated[float, Field(allow_inf_nan=False)]


class Request(BaseModel):
    """Unknown fields are refused: a misspelt option must not be silently ignored."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, hide_input_in_errors=True)


class Wire(BaseModel):
    """An answer. Clients may meet fields of a later version: they are kept, not refused."""

    model_config = ConfigDict(extra="allow", frozen=True)


class ClassifyRequest(Request):
    input: str | Given[str] = Field(description="One text, or a list of them.", examples=["A superb film."])
    model: ModelName | None = Field(None, description="A model of kind sentiment; the default one if absent.")
    explain: Explain = Field(
        "leaders", description="none: label only; leaders: leaders and clusters; full: every word too."
    )
    trajectory: bool = Field(False, description='With "full": every word\'s position at every layer.')
    truncate: bool = Field(True, description="false: a text longer than the model reads is refused (413).")


class Usage(Wire):
    texts: int
    tokens: int


class Leader(Wire):
    word: str
    cluster: int
    since_layer: int
    followers: int
    contribution: float
    spans: list[tuple[int, int]]


class Cluster(Wire):
    id: int
    kind: Literal["leader", "tie"]
    leaders: list[str]
    words: list[str]
    share: float
    contribution: float


class Word(Wire):
    text: str
    spans: list[tuple[int, int]]
    cluster: int
    leader: bool
    contribution: float
    start: Vector
    end: Vector


class Classification(Wire):
    index: int
    label: str
    score: float
    probs: dict[str, float]
    logit: float
    bias: float
    tokens: int
    unknown: int | None = Field(
        None, description="Words that the model does not know: they are in no cluster."
    )
    truncated: bool
    leaders: list[Leader] | None = None
    clusters: list[Cluster] | None = None
    words: list[Word] | None = None
    trajectory: list[list[Vector]] | None = None


class ClassifyResponse(Wire):
    id: str
    model: str
    usage: Usage
    data: list[Classification]


class DynamicsParameters(Request):
    """Everything a run of the dynamics may ask for but its points."""

    alpha: Finite = Field(1.0, gt=0, description="Step size of the dynamics: gamma = alpha / (1 + alpha).")
    A: Given[Given[float]] | None = Field(
        None, description="Symmetric positive definite matrix; absent: identity."
    )
    max_layers: int = Field(1000, ge=1, description="Layers to run at most.")
    stop: Stop = Field("certified", description='When to stop; "never" runs exactly max_layers.')
    tolerance: Finite = Field(1e-9, ge=0, description="Movement below which a run has converged.")
    tie_tolerance: Finite = Field(1e-12, ge=0, lt=1, description="Relative gap below which two tokens tie.")
    include: Given[Include] = Field(["assignment"], description="Parts of the answer beyond the summary.")
    trajectory_every: int = Field(1, ge=1, description="Keep every so many layers of the trajectory.")


class DynamicsRequest(DynamicsParameters):
    """A cloud and how to run it."""

    points: list[Vector] = Field(description="The cloud: n points of d numbers each.")


class CloudLeader(Wire):
    index: int
    since_layer: int
    point: Vector
    followers: int
    cluster: int


class CloudCluster(Wire):
    id: int
    kind: Literal["leader", "tie"]
    leaders: list[int]
    limit: Vector
    size: int


class Polytope(Wire):
    vertices: list[int]


class Trajectory(Wire):
    layers: list[int]
    points: list[list[Vector]]


class DynamicsResult(Wire):
    n: int
    d: int
    alpha: float
    status: Literal["certified", "converged", "max_layers"]
    layers: int
    certified_layer: int | None
    margin: float | None
    leaders: list[CloudLeader]
    clusters: list[CloudCluster]
    assignment: list[int] | None = None
    limits: list[Vector] | None = None
    polytope: Polytope | None = None
    trajectory: Trajectory | None = None


class DynamicsResponse(DynamicsResult):
    id: str


class SequencesEnvelope(Request):
    """Everything but the numbers, which are read in pieces."""

    model: ModelName = Field(description="A model of kind sequences.")


class SequencesRequest(SequencesEnvelope):
    """Sequences to label."""

    sequences: list[list[Vector]] = Field(min_length=1, description="Sequences of points of d numbers each.")


class SequenceLabel(Wire):
    index: int
    label: str | int | float | bool | None
    margin: float | None = Field(
        description="The answer is the same while every token moves by less than this; null: any move."
    )
    leader: int | None = Field(description="The token of the sequence that decides; null: there are several.")
    output: list[Vector] | None = None


class SequencesResponse(Wire):
    id: str
    model: str
    data: list[SequenceLabel]


class ControlWish(Request):
    """Everything but the points, which are read in pieces."""

    assignment: dict[str, int] | None = Field(None, description="Token index -> the leader it shall end at.")
    leaders: Given[int] | None = Field(None, description="Tokens that shall be leaders; others may choose.")


class ControlRequest(ControlWish):
    """A cloud and what shall become of it."""

    points: list[Vector] = Field(description="The cloud: n points of d numbers each.")


class ControlResponse(Wire):
    id: str
    feasible: bool
    A: list[Vector] | None
    margin: float | None
    worst_pair: list[int] | None = Field(None, description="Token, wanted leader, the rival that wins.")
    bound: float | None = None
    dynamics: DynamicsResult | None = None


class Health(Wire):
    status: Literal["ok"]


class Ready(Wire):
    status: Literal["ready"]


class ModelCard(Wire):
    """The card of a bundle, as it is."""

    name: str
    kind: Literal["sentiment", "dynamics", "sequences"]
    description: str
    licence: str
    default: bool = False
    loaded_at: str | None = None


class ModelList(Wire):
    models: list[ModelCard]


class Limits(Wire):
    max_concurrent_requests: int
    max_batch_tokens: int
    max_client_batch_size: int
    max_text_chars: int
    payload_limit_mb: float
    payload_total_mb: float
    max_points: int
    max_dimension: int
    max_layers: int
    request_timeout_s: float


class Refused(Wire):
    """A bundle in MODELS_DIR that is not served, and why."""

    name: str
    reason: str


class Info(Wire):
    name: Literal["hardmax"] = "hardmax"
    version: str
    provider: str
    threads: int
    default_model: str
    models: list[str]
    refused: list[Refused]
    limits: Limits


class Problem(Wire):
    type: str
    message: str
    param: str | None = None
    request_id: str | None = None


class ErrorResponse(Wire):
    error: Problem


class InferenceError(Wire):
    """The error shape of the Open Inference Protocol."""

    error: str


class TensorMetadata(Wire):
    name: str
    datatype: str
    shape: list[int]


class ServerMetadata(Wire):
    name: str
    version: str
    extensions: list[str]


class ModelMetadata(Wire):
    name: str
    versions: list[str]
    platform: str
    inputs: list[TensorMetadata]
    outputs: list[TensorMetadata]


class InferTensor(BaseModel):
    model_config = ConfigDict(frozen=True, hide_input_in_errors=True)

    name: str
    datatype: str
    shape: Given[Annotated[int, Field(ge=0, le=2**31)]]
    parameters: dict[str, Any] = {}
    data: list[Any] | None = None


class InferOutput(BaseModel):
    model_config = ConfigDict(frozen=True, hide_input_in_errors=True)

    name: str
    parameters: dict[str, Any] = {}


class InferRequest(BaseModel):
    model_config = ConfigDict(frozen=True, hide_input_in_errors=True)

    id: str | None = None
    parameters: dict[str, Any] = {}
    inputs: Given[InferTensor]
    outputs: Given[InferOutput] = []


class InferResponse(Wire):
    id: str | None = None
    model_name: str
    model_version: str
    outputs: list[InferTensor]
