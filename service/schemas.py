"""The wire format: what travels as JSON, with the limits and examples that the documentation shows.

Requests are checked here only for their shape; what they mean is the domain's business. Limits that an
operator can set are checked where the settings are known.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StringConstraints
from pydantic.json_schema import SkipJsonSchema

Explain = Literal["none", "leaders", "full"]
Spans = Literal["codepoints", "utf16"]
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
    spans: Spans = Field(
        "codepoints", description="What spans and contexts count: code points or UTF-16 units."
    )


class Usage(Wire):
    texts: int = Field(description="Texts that were answered.")
    tokens: int = Field(description="Words and marks that were read of them.")


Number = Annotated[
    float | dict[str, float],
    Field(description="One number; a number for each label if there are several logits."),
]
Span = Annotated[tuple[int, int], Field(description="From, to: offsets into the text as sent.")]
ReadAs = Annotated[
    str | None,
    Field(description='What the word was read as, where that differs: "<name>", "<unknown>", "great".'),
]


class Leader(Wire):
    word: str = Field(description="As it stands in the text, in lower case.")
    cluster: int = Field(description="The id of its cluster.")
    since_layer: int = Field(description="The first layer at which it attends to itself alone.")
    followers: int = Field(description="Other places of the text that end in its cluster.")
    contribution: Number = Field(description="Its own part of the logit; the cluster's is in `clusters`.")
    spans: list[Span] = Field(description="Its places. Several where the same word stands in the same words.")
    context: Span = Field(description="What its first place was read together with.")
    read_as: ReadAs = None


class Cluster(Wire):
    id: int = Field(description="Its number in this text: leaders and words name it.")
    kind: Literal["leader", "tie"] = Field(description='"tie": its words attend to several leaders alike.')
    leaders: list[str] = Field(description="One word, or the words that tie.")
    words: list[str] = Field(description="Its leader and its heaviest words: five at most, each once.")
    size: int = Field(description="Places of the text in it.")
    share: float = Field(description="The same as a share of the text.")
    contribution: Number = Field(description="Its part of the logit: logit = bias + their sum.")


class Word(Wire):
    text: str = Field(description="As it stands in the text, in lower case.")
    spans: list[Span] = Field(description="Its place.")
    cluster: int = Field(description="The id of its cluster.")
    leader: bool = Field(description="Whether it attends to itself alone at some layer.")
    contribution: Number = Field(description="Its part of the logit: logit = bias + their sum.")
    start: Vector = Field(description="Where it is before the layers.")
    end: Vector = Field(description="Where it is after them.")
    context: Span = Field(description="What it was read together with.")
    read_as: ReadAs = None


class Classification(Wire):
    index: int = Field(description="The place of the text in the request.")
    label: str = Field(description="The likelier label.")
    score: float = Field(description="Its probability.")
    probs: dict[str, float] = Field(description="The probability of each label.")
    undecided: Literal["nothing known", "even"] | None = Field(
        None,
        description="Why the label should not be acted upon: no word is known, or the labels are about even.",
    )
    logit: Number
    bias: Number = Field(description="What the logit is without any word, for a text of this length.")
    tokens: int = Field(description="Words and marks that were read.")
    unknown: int | None = Field(
        None, description="Words that the model does not know: read by their ending at best."
    )
    truncated: bool = Field(description="Whether the text has more words than were read.")
    leaders: list[Leader] | None = Field(None, description='The words that lead; with "leaders" and "full".')
    clusters: list[Cluster] | None = Field(None, description='Who ends together; with "leaders" and "full".')
    words: list[Word] | None = Field(None, description='Every place, in order; with "full".')
    trajectory: list[list[Vector]] | None = Field(None, description="For each layer the place of every word.")


class ClassifyResponse(Wire):
    id: str = Field(description="The request's id.")
    model: str = Field(description="The model that answered.")
    usage: Usage = Field(description="What was read.")
    data: list[Classification] = Field(description="One entry a text, in the order of the request.")


class Foreign(BaseModel):
    """A request in the words of another server: what it knows and we do not is left alone."""

    model_config = ConfigDict(extra="ignore", frozen=True, strict=True, hide_input_in_errors=True)


class EndpointParameters(Foreign):
    top_k: int | None = Field(
        default=None, ge=1, description="How many labels of each text, the best first; all if absent."
    )
    function_to_apply: Literal["sigmoid", "softmax", "none"] | None = Field(
        default=None,
        description="none: the scores before softmax. The others give probabilities, as does nothing.",
    )


class EndpointRequest(Foreign):
    """What clients of inference endpoints send for text classification."""

    inputs: str | Given[str] = Field(description="One text, or a list of them.")
    parameters: EndpointParameters = Field(default=EndpointParameters(), description="What shall come back.")


class PredictRequest(Foreign):
    """What clients of text-embeddings-inference send to /predict."""

    inputs: str | Given[str] | Given[Given[str]] = Field(
        description="One text, a list of them, or a list of lists of one text each."
    )
    raw_scores: bool = Field(False, description="The scores before softmax.")
    truncate: bool = Field(True, description="false: a text longer than the model reads is refused (413).")
    top_k: int | None = Field(
        default=None, ge=1, description="How many labels of each text, the best first; all if absent."
    )


class LabelScore(Wire):
    label: str = Field(description="A label of the model.")
    score: float = Field(description="Its probability, or its score before softmax where that was asked for.")


class DynamicsParameters(Request):
    """Everything a run of the dynamics may ask for but its points."""

    alpha: Finite = Field(1.0, gt=0, description="Step size of the dynamics: gamma = alpha / (1 + alpha).")
    A: Given[Given[float]] | None = Field(
        None, description="Symmetric positive definite matrix; absent: identity."
    )
    max_layers: int = Field(1000, ge=1, description="Layers to run at most.")
    stop: Stop = Field("certified", description='When to stop; "never" runs exactly max_layers.')
    tolerance: Finite = Field(1e-9, ge=0, description="Movement below which a run has converged.")
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

    points: list[Vector] = Field(description="The cloud: n points of d numbers each.")


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
        description="certified: the limits are proved. converged: points move less than the tolerance. "
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


class SequencesEnvelope(Request):
    """Everything but the numbers, which are read in pieces."""

    model: ModelName = Field(description="A model of kind sequences.")


class SequencesRequest(SequencesEnvelope):
    """Sequences to label."""

    sequences: list[list[Vector]] = Field(min_length=1, description="Sequences of points of d numbers each.")


class SequenceLabel(Wire):
    index: int = Field(description="The place of the sequence in the request.")
    label: str | int | float | bool | None = Field(
        description="As in the data that the model was made from; null: the answer is in `output`."
    )
    margin: float | None = Field(
        description="The answer is the same while every token moves by less than this; null: any move."
    )
    leader: int | None = Field(description="The token of the sequence that decides; null: there are several.")
    output: list[Vector] | None = Field(
        None, description="What the model gives where its answers are sequences."
    )


class SequencesResponse(Wire):
    id: str = Field(description="The request's id.")
    model: str = Field(description="The model that answered.")
    data: list[SequenceLabel] = Field(description="One entry a sequence, in the order of the request.")


class ControlWish(Request):
    """Everything but the points, which are read in pieces."""

    assignment: dict[str, int] | None = Field(None, description="Token index -> the leader it shall end at.")
    leaders: Given[int] | None = Field(None, description="Tokens that shall be leaders; others may choose.")


class ControlRequest(ControlWish):
    """A cloud and what shall become of it."""

    points: list[Vector] = Field(description="The cloud: n points of d numbers each.")


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


class Health(Wire):
    status: Literal["ok"] = Field(description="Always ok: a process that is not answers 503.")


class Ready(Wire):
    status: Literal["ready"] = Field(description="Always ready: a process that is not answers 503.")


class ModelCard(Wire):
    """The card of a bundle, as it is."""

    name: str = Field(description="What requests call it.")
    kind: Literal["sentiment", "dynamics", "sequences"] = Field(description="What it reads.")
    description: str = Field(description="What it is, in a line.")
    licence: str = Field(description="Under which it may be used.")
    default: bool = Field(False, description="Whether requests that name no model get it.")
    loaded_at: str | None = Field(None, description="Since when this process serves it.")


class ModelList(Wire):
    models: list[ModelCard] = Field(description="All that are served.")


class Limits(Wire):
    max_concurrent_requests: int = Field(description="Requests at once.")
    max_batch_tokens: int = Field(description="Padded tokens that run together.")
    max_client_batch_size: int = Field(description="Texts or sequences in one request.")
    max_text_chars: int = Field(description="Characters of one text.")
    payload_limit_mb: float = Field(description="Megabytes of one body.")
    payload_total_mb: float = Field(description="Megabytes of all bodies and long answers at once.")
    max_points: int = Field(description="Points of one cloud.")
    max_dimension: int = Field(description="Numbers of one point.")
    max_layers: int = Field(description="Layers one cloud may ask for.")
    request_timeout_s: float = Field(description="Seconds a request may take.")


class RefusedBundle(Wire):
    """A bundle in MODELS_DIR that is not served, and why."""

    name: str = Field(description="The folder.")
    reason: str = Field(description="What is wrong with it.")


class Info(Wire):
    name: Literal["hardmax"] = Field(default="hardmax", description="Of the service.")
    version: str = Field(description="Of the service.")
    provider: str = Field(description="Where models run: cpu or cuda.")
    threads: int = Field(description="Of one inference.")
    default_model: str = Field(description="What requests that name none get.")
    models: list[str] = Field(description="Names of those that are served.")
    refused: list[RefusedBundle] = Field(description="Bundles that are not served.")
    limits: Limits = Field(description="What a request may ask for.")


class Problem(Wire):
    type: str = Field(description="What kind of failure, for programs.")
    message: str = Field(description="What is wrong, for people.")
    param: str | None = Field(None, description="The field or place at fault.")
    request_id: str | None = Field(None, description="To be found in the log.")


class ErrorResponse(Wire):
    error: Problem = Field(description="What went wrong.")


class ProtocolError(Wire):
    """The error shape of the Open Inference Protocol."""

    error: str = Field(description="What is wrong, for people.")


class TensorMetadata(Wire):
    name: str = Field(description="Of the tensor.")
    datatype: str = Field(description="BYTES or FP32.")
    shape: list[int] = Field(description="-1: as many as are sent.")


class ServerMetadata(Wire):
    name: str = Field(description="Of the server.")
    version: str = Field(description="Of the server.")
    extensions: list[str] = Field(description="Of the protocol, that it has.")


class ModelMetadata(Wire):
    name: str = Field(description="Of the model.")
    versions: list[str] = Field(description="The one that is served.")
    platform: str = Field(description="What runs it.")
    inputs: list[TensorMetadata] = Field(description="Tensors it takes.")
    outputs: list[TensorMetadata] = Field(description="Tensors it gives.")


class InferTensor(BaseModel):
    model_config = ConfigDict(frozen=True, hide_input_in_errors=True)

    name: str = Field(description="Of the tensor.")
    datatype: str = Field(description="BYTES or FP32.")
    shape: Given[Annotated[int, Field(ge=0, le=2**31)]] = Field(description="Its sizes.")
    parameters: dict[str, Any] = Field(
        default_factory=dict,
        description="Of the protocol: binary_data_size tells how many bytes follow the JSON.",
    )
    data: list[Any] | None = Field(None, description="Its elements, where they are not behind the JSON.")


class InferOutput(BaseModel):
    model_config = ConfigDict(frozen=True, hide_input_in_errors=True)

    name: str = Field(description="label, score or logit.")
    parameters: dict[str, Any] = Field(
        default_factory=dict, description="Of the protocol: binary_data asks for bytes behind the JSON."
    )


class InferRequest(BaseModel):
    model_config = ConfigDict(frozen=True, hide_input_in_errors=True)

    id: str | None = Field(None, description="Given back in the answer.")
    parameters: dict[str, Any] = Field(
        default_factory=dict,
        description="Of the protocol: binary_data_output asks for bytes behind the JSON.",
    )
    inputs: Given[InferTensor] = Field(description='One tensor, "text".')
    outputs: Given[InferOutput] = Field(
        default_factory=list, description="Those that are wanted; all if none is named."
    )


class InferResponse(Wire):
    id: str | None = Field(None, description="As in the request.")
    model_name: str = Field(description="The model that answered.")
    model_version: str = Field(description="Its version.")
    outputs: list[InferTensor] = Field(description="The tensors that were asked for.")
