"""What the API answers, as types: one description for clients, for the server and for its documentation."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Literal

Explain = Literal["none", "leaders", "full"]
OffsetUnit = Literal["codepoints", "utf16"]
AbstainReason = Literal["low_confidence", "out_of_distribution", "no_known_words"]
Stop = Literal["certified", "converged", "never"]
Include = Literal["assignment", "limits", "trajectory", "polytope", "temperature", "argmax", "softmax"]
Vector = list[float]
Span = tuple[int, int]
Number = float | dict[str, float]  # a number for each label if there are several logits


class Document:
    """A part of an answer."""

    # For pydantic, which documents the API with these types. Nothing else here needs it.
    __pydantic_config__: ClassVar[dict[str, Any]] = {
        "use_attribute_docstrings": True, "extra": "allow",
        "defer_build": True,  # the descriptions are read when somebody asks for the document
    }  # fmt: skip

    @cached_property
    def document(self) -> dict[str, Any]:
        """The whole of it as it came, with fields of later versions too."""
        return asdict(self)  # type: ignore[call-overload, no-any-return]  # each kind is a dataclass


# ---------------------------------------- texts


@dataclass(frozen=True, kw_only=True)
class ReadWord(Document):
    word: str
    """The word as it stands in the text, in lower case."""
    spans: list[Span]
    """The span of the word, as offsets into the text as sent."""
    layer: int
    """The layer of the encoder at which the word entered, from 1 on."""


@dataclass(frozen=True, kw_only=True)
class Leader(Document):
    word: str
    """The word as it stands in the text, in lower case."""
    cluster: int
    """The id of its cluster."""
    since_layer: int
    """The first layer at which the word attends to itself alone."""
    followers: int
    """The number of other words in its cluster."""
    contribution: Number
    """The part of the logit that its cluster adds."""
    spans: list[Span]
    """The spans of the leader; several if words have the very same position."""
    read: list[ReadWord] = field(default_factory=list)
    """The other words that its state was computed from, in the order of entry: at most eight, all of them
    with "full"."""
    read_total: int = 0
    """The number of words that its state was computed from. Words outside the complete list, which "full"
    returns, can be left out in place, and the leader keeps its initial `position` to the bit."""
    read_as: str | None = None
    """The token that was read in place of the word, if any: "<name>", "<number>" or "<unknown>"."""


@dataclass(frozen=True, kw_only=True)
class Cluster(Document):
    id: int
    """The id of the cluster in this text, which leaders and words refer to."""
    kind: Literal["leader", "tie"]
    """In a cluster of kind "tie" the words attend to several leaders alike."""
    leaders: list[str]
    """The word that leads, or the words that tie."""
    words: list[str]
    """The leader and the words of largest contribution, at most five, each once."""
    size: int
    """The number of words in the cluster."""
    share: float
    """The share of the text's words in the cluster."""
    contribution: Number
    """The part of the logit that the cluster adds: the logit is the bias plus the sum over clusters."""


@dataclass(frozen=True, kw_only=True)
class Word(Document):
    word: str
    """The word as it stands in the text, in lower case."""
    spans: list[Span]
    """The span of the word."""
    cluster: int
    """The id of its cluster."""
    leader: bool
    """Whether the word attends to itself alone at some layer."""
    contribution: Number
    """The part of the logit that the word adds: the logit is the bias plus the sum over words."""
    position: Vector
    """The position before the layers of the head."""
    final_position: Vector
    """The position after the last layer."""
    attends_to: list[list[int]] = field(default_factory=list)
    """For each layer of the encoder the other words that its heads attend to, by their index in this list,
    most attended first."""
    read_as: str | None = None
    """The token that was read in place of the word, if any."""


@dataclass(frozen=True, kw_only=True)
class LeftOut(Document):
    word: str
    """The word as it stands in the text, in lower case."""
    spans: list[Span]
    """The span of the word."""


@dataclass(frozen=True, kw_only=True)
class Flip(Document):
    without: list[LeftOut]
    """The words that were left out, at most five."""
    label: str
    """The label without these words, by running the model."""
    score: float
    """The probability of that label."""


@dataclass(frozen=True, kw_only=True)
class Sufficient(Document):
    words: list[LeftOut]
    """The words that alone give the same label, at most sixteen; all others are left out in place."""
    score: float
    """The probability of the label with these words alone, by running the model."""


@dataclass(frozen=True, kw_only=True)
class Classification(Document):
    index: int = 0
    """The index of the text in the request."""
    label: str
    """The most probable label."""
    score: float
    """The probability of the label."""
    probs: dict[str, float]
    """The probability of each label."""
    labels: list[str] = field(default_factory=list)
    """All labels that apply, for models whose labels do not exclude each other; `label` is the most probable
    one."""
    abstain_reason: AbstainReason | None = None
    """Why the model abstains: too few words are known, the labels are about equally probable, or the text is
    unlike the training data. null if the label can be acted upon."""
    logit: Number
    """The logit is the bias plus the contributions of all clusters, or of all words. With several logits
    there is one number for each label."""
    bias: Number
    """The logit of a text without words."""
    n_words: int
    """The number of words and marks that were read."""
    n_tokens: int = 0
    """The number of subword tokens that were read."""
    unknown: int | None = None
    """The number of words that the model does not know."""
    truncated: bool
    """Whether the text has more words than the model reads."""
    leaders: list[Leader] = field(default_factory=list)
    """The leaders of the text, with "leaders" and "full"."""
    clusters: list[Cluster] = field(default_factory=list)
    """The groups of words that end together, with "leaders" and "full"."""
    words: list[Word] = field(default_factory=list)
    """All words in the order of reading, with "full"."""
    trajectory: list[list[Vector]] = field(default_factory=list)
    """The position of every word at each layer, with `trajectory`."""
    sufficient: Sufficient | None = None
    """A small set of words that alone gives the same label, with `sufficient`; null if none was found."""
    flip: Flip | None = None
    """The smallest set of words found whose removal changes the label, with `flip`; null without one."""


@dataclass(frozen=True, kw_only=True)
class Classifications(Document):
    """One text, answered by several models."""

    index: int
    """The index of the text in the request."""
    answers: dict[str, Classification]
    """The answer of each model, by the name that the request uses."""


@dataclass(frozen=True, kw_only=True)
class Usage(Document):
    texts: int
    """The number of texts that were answered."""
    tokens: int
    """The number of subword tokens that were read."""


@dataclass(frozen=True, kw_only=True)
class ClassifyResponse(Document):
    id: str
    """The id of the request."""
    model: str | list[str]
    """The model that answered, or the models in the order of the request."""
    usage: Usage
    """The amount of text that was read."""
    data: list[Classification | Classifications]
    """One entry for each text, in the order of the request."""


def number_of(value: Any, label: str) -> float:
    """A number of an answer; where there is one for each label, the label's own."""
    return float(value[label] if isinstance(value, dict) else value)


# ---------------------------------------- clouds


@dataclass(frozen=True, kw_only=True)
class CloudLeader(Document):
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


@dataclass(frozen=True, kw_only=True)
class CloudCluster(Document):
    id: int
    """The index of the cluster in this list."""
    kind: Literal["leader", "tie"]
    """In a cluster of kind "tie" the points attend to several leaders alike."""
    leaders: list[int]
    """The index of the leader, or the indices of the leaders that tie."""
    limit: Vector
    """The point to which all points of the cluster converge."""
    size: int
    """The number of points in the cluster."""


@dataclass(frozen=True, kw_only=True)
class Polytope(Document):
    vertices: list[int]
    """The indices of the leaders that are vertices of the limit polytope."""


@dataclass(frozen=True, kw_only=True)
class Trajectory(Document):
    layers: list[int]
    """The layers that were kept."""
    points: list[list[Vector]]
    """The cloud at each of these layers."""


@dataclass(frozen=True, kw_only=True)
class Temperature(Document):
    t: float | None
    """The largest temperature that is proved, together with all lower ones; null for any temperature."""
    distance: float
    """The distance within which every point stays, in the A-norm: a hundredth of the longest point."""
    layers: int
    """The number of layers for which the bound is proved."""
    float64: bool
    """Whether softmax in double precision provably stays as near at `t`; if false, rounding may part it from
    the exact softmax."""


@dataclass(frozen=True, kw_only=True)
class Softmax(Document):
    temperature: float
    """The temperature of the attention, as requested."""
    layers: list[int]
    """The layers that were kept, the same as in the hardmax trajectory."""
    points: list[list[Vector]]
    """The cloud under softmax attention at each of these layers."""
    distance: list[float]
    """The distance of the farthest point from its hardmax run at each of these layers, in the A-norm."""


def _without_d(schema: dict[str, Any]) -> None:
    """subtle: openapi-python-client writes wrong code for a field of the name d."""
    del schema["properties"]["d"]
    schema["required"].remove("d")


@dataclass(frozen=True, kw_only=True)
class DynamicsResult(Document):
    __pydantic_config__: ClassVar[dict[str, Any]] = {
        **Document.__pydantic_config__,
        "json_schema_extra": _without_d,
    }
    id: str = ""
    """The id of the request; empty within another answer."""
    n: int
    """The number of points. The field `d` next to it is their dimension."""
    d: int
    """Numbers of each."""
    alpha: float
    """The step size of the run."""
    status: Literal["certified", "converged", "max_layers"]
    """The limits of a "certified" run are proved (with a tie_tolerance, as docs/theory.md says). In a
    "converged" run every point is near its limit. A "max_layers" run ended before either."""
    layers: int
    """The number of layers from the start to the state that is reported."""
    certified_layer: int | None
    """The layer that proved the limits; null without a proof."""
    margin: float | None
    """A lower bound on the smallest relative gap between a best score and the next one; null if there is no
    next one."""
    leaders: list[CloudLeader]
    """The points that attend to themselves alone."""
    clusters: list[CloudCluster]
    """The groups of points with the same limit."""
    assignment: list[int] | None = None
    """The id of the cluster of each point."""
    limits: list[Vector] | None = None
    """The limit of each point, with `include: ["limits"]`."""
    polytope: Polytope | None = None
    """The convex hull of the limits, with `include: ["polytope"]`."""
    trajectory: Trajectory | None = None
    """The cloud at each layer, with `include: ["trajectory"]`."""
    temperature: Temperature | None = None
    """The temperatures at which softmax attention keeps every point near this run, with `include:
    ["temperature"]`; null if nothing is certified, or if gaps are as small as their rounding."""
    argmax: list[list[list[int]]] | None = None
    """The argmax set of each point at each layer up to the certified one, with `include: ["argmax"]`."""
    softmax: Softmax | None = None
    """Softmax attention from the same start, with `include: ["softmax"]`."""


@dataclass(frozen=True, kw_only=True)
class Refutation(Document):
    """One term of a certificate that no A grants a wish."""

    token: int
    """The index of the token whose leader was requested."""
    leader: int
    """The leader that was requested."""
    rival: int
    """The point that the token should not prefer to the leader."""
    weight: str
    """A positive integer in decimal digits."""


@dataclass(frozen=True, kw_only=True)
class ControlResponse(Document):
    id: str
    """The id of the request."""
    feasible: bool | None
    """With true, A grants the request from layer 0 on, which is proved for the numbers as sent. With false,
    no A does, which the certificate proves. With null, neither could be proved."""
    A: list[Vector] | None
    """The matrix that was found, with trace d."""
    margin: float | None
    """The smallest gap between the best score of a requested token and the next, relative to A-norms; null
    without a matrix, or if no point is a rival."""
    worst_pair: list[int] | None = None
    """The token, its requested leader, and the rival in its way."""
    bound: float | None = None
    """No matrix has a larger smallest gap, in the units of docs/control.md; the bound is 0 if the request is
    infeasible."""
    certificate: list[Refutation] | None = None
    """The proof that no matrix grants the request: the sum of weight * (M + M'), with M = z_token (z_leader
    - z_rival)', is exactly negative semidefinite."""
    note: str | None = None
    """A note says what is missing from the answer, and why."""
    dynamics: DynamicsResult | None = None
    """The run with A that confirms the answer; null if double precision cannot follow it."""


# ---------------------------------------- sequences


@dataclass(frozen=True, kw_only=True)
class SequenceLabel(Document):
    index: int
    """The index of the sequence in the request."""
    label: str | int | float | bool | None
    """The label as in the data of the model; null if the answer is in `output`."""
    margin: float | None
    """The answer stays the same while every token moves by less than this; null for any move."""
    leader: int | None
    """The token of the sequence that decides; null if there are several."""
    output: list[Vector] | None = None
    """The output of models whose answers are sequences."""


@dataclass(frozen=True, kw_only=True)
class SequencesResponse(Document):
    id: str
    """The id of the request."""
    model: str
    """The model that answered."""
    data: list[SequenceLabel]
    """One entry for each sequence, in the order of the request."""


# ---------------------------------------- the service


@dataclass(frozen=True, kw_only=True)
class ModelCard(Document):
    """The card of a bundle, as it is."""

    name: str
    """The name of the model in requests."""
    kind: Literal["encoder", "text-classification", "dynamics", "sequences"]
    """The kind of the model; text-classification models are heads on an encoder."""
    description: str
    """A description of the model in one line."""
    license: str
    """The license under which it may be used."""
    version: int = 1
    """The number after the @ of its name; 1 for a name without a number."""
    digest: str | None = None
    """The SHA-256 digest over all files of the bundle."""
    default: bool = False
    """Whether the model answers requests that name none."""
    bias: Number | None = None
    """The logit of a text without words, for text-classification models."""
    loaded_at: str | None = None
    """The time at which this process loaded the model."""


@dataclass(frozen=True, kw_only=True)
class ModelList(Document):
    models: list[ModelCard]
    """The cards of all models that are served."""


@dataclass(frozen=True, kw_only=True)
class Limits(Document):
    max_concurrent_requests: int
    """The number of requests that are worked on at once."""
    max_batch_tokens: int
    """The number of subword tokens that run together."""
    max_client_batch_size: int
    """The number of texts or sequences in one request."""
    max_text_chars: int
    """The number of characters of one text."""
    payload_limit_mb: float
    """The size of one body in megabytes."""
    max_large_requests: int
    """The number of requests at once whose body or response is over 1 MB."""
    max_points: int
    """The number of points of one cloud."""
    max_dimension: int
    """The dimension of a cloud."""
    max_layers: int
    """The number of layers that a cloud may request."""
    request_timeout_s: float
    """The time that a request may take, in seconds."""


@dataclass(frozen=True, kw_only=True)
class LoadError(Document):
    """A bundle in MODELS_DIR that is not served, and why."""

    name: str
    """The name of the bundle's folder."""
    reason: str
    """The reason why the bundle could not be loaded."""


@dataclass(frozen=True, kw_only=True)
class Info(Document):
    name: Literal["hardmax"] = "hardmax"
    """The name of the service."""
    version: str
    """The version of the service."""
    provider: str
    """The provider that runs the models, cpu or cuda."""
    threads: int
    """The number of threads of one inference."""
    default_model: str
    """The model of requests that name none."""
    models: list[str]
    """The names of all models that are served."""
    load_errors: list[LoadError]
    """The bundles that could not be loaded."""
    limits: Limits
    """The limits of a request."""
