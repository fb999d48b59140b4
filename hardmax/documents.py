"""What the API answers, as types: one description for clients, for the server and for its documentation."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Literal

Explain = Literal["none", "leaders", "full"]
OffsetUnit = Literal["codepoints", "utf16"]
AbstainReason = Literal["low_confidence", "out_of_distribution", "no_known_words"]
Stop = Literal["certified", "converged", "never"]
Include = Literal["assignment", "limits", "trajectory", "polytope", "temperature"]
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
    """As it stands in the text, in lower case."""
    spans: list[Span]
    """Its place: from, to; offsets into the text as sent."""
    layer: int
    """The layer of the reader at which it entered, from 1 on."""


@dataclass(frozen=True, kw_only=True)
class Leader(Document):
    word: str
    """As it stands in the text, in lower case."""
    cluster: int
    """The id of its cluster."""
    since_layer: int
    """The first layer at which it attends to itself alone."""
    followers: int
    """Other places of the text that end in its cluster."""
    contribution: Number
    """Its cluster's part of the logit: words count where they end."""
    spans: list[Span]
    """Its places. Several where words have the very same place."""
    read: list[ReadWord] = field(default_factory=list)
    """The other words of which its state was made, first read first: eight at most, all with "full"."""
    read_total: int = 0
    """The number of words that its state was computed from. Words outside the complete list, which "full"
    returns, can be left out in place, and the leader keeps its initial `position` to the bit."""
    read_as: str | None = None
    """What was read in place of the word, if anything: "<name>", "<number>", "<unknown>"."""


@dataclass(frozen=True, kw_only=True)
class Cluster(Document):
    id: int
    """Its number in this text: leaders and words name it."""
    kind: Literal["leader", "tie"]
    """"tie": its words attend to several leaders alike."""
    leaders: list[str]
    """One word, or the words that tie."""
    words: list[str]
    """Its leader and its heaviest words: five at most, each once."""
    size: int
    """Places of the text in it."""
    share: float
    """The same as a share of the text."""
    contribution: Number
    """Its part of the logit: logit = bias + their sum."""


@dataclass(frozen=True, kw_only=True)
class Word(Document):
    word: str
    """As it stands in the text, in lower case."""
    spans: list[Span]
    """Its place."""
    cluster: int
    """The id of its cluster."""
    leader: bool
    """Whether it attends to itself alone at some layer."""
    contribution: Number
    """Its part of the logit: logit = bias + their sum."""
    position: Vector
    """Where it is before the layers of the head."""
    final_position: Vector
    """Where it is after them."""
    attends_to: list[list[int]] = field(default_factory=list)
    """For each layer of the encoder the other words that its heads attend to, by their index in this list,
    most attended first."""
    read_as: str | None = None
    """What was read in place of the word, if anything."""


@dataclass(frozen=True, kw_only=True)
class LeftOut(Document):
    word: str
    """As it stands in the text, in lower case."""
    spans: list[Span]
    """Its place."""


@dataclass(frozen=True, kw_only=True)
class Flip(Document):
    without: list[LeftOut]
    """The words that were left out, five at most."""
    label: str
    """The label without them, by running the model."""
    score: float
    """Its probability."""


@dataclass(frozen=True, kw_only=True)
class Sufficient(Document):
    words: list[LeftOut]
    """The words that alone give the same label, sixteen at most; all others are left out in place."""
    score: float
    """The probability of the label then, by running the model."""


@dataclass(frozen=True, kw_only=True)
class Classification(Document):
    index: int = 0
    """The place of the text in the request."""
    label: str
    """The likelier label."""
    score: float
    """Its probability."""
    probs: dict[str, float]
    """The probability of each label."""
    labels: list[str] = field(default_factory=list)
    """Where labels do not exclude each other: all that hold. `label` is the most probable."""
    abstain_reason: AbstainReason | None = None
    """Why the model abstains: too few words are known, the labels are about equally probable, or the text is
    unlike the training data. null if the label can be acted upon."""
    logit: Number
    """logit = bias + the contributions of the clusters = bias + those of the words."""
    bias: Number
    """What the logit is without any word."""
    n_words: int
    """The number of words and marks that were read."""
    n_tokens: int = 0
    """The number of subword tokens that were read."""
    unknown: int | None = None
    """Words that the model does not know."""
    truncated: bool
    """Whether the text has more words than were read."""
    leaders: list[Leader] = field(default_factory=list)
    """The words that lead; with "leaders" and "full"."""
    clusters: list[Cluster] = field(default_factory=list)
    """Who ends together; with "leaders" and "full"."""
    words: list[Word] = field(default_factory=list)
    """Every place, in order; with "full"."""
    trajectory: list[list[Vector]] = field(default_factory=list)
    """For each layer the place of every word."""
    sufficient: Sufficient | None = None
    """With "sufficient": words that alone give the same label; null if none were found."""
    flip: Flip | None = None
    """If asked for: the smallest set found that changes the label; null if none was found."""


@dataclass(frozen=True, kw_only=True)
class Classifications(Document):
    """One text, answered by several models."""

    index: int
    """The place of the text in the request."""
    answers: dict[str, Classification]
    """By model, as the request names it."""


@dataclass(frozen=True, kw_only=True)
class Usage(Document):
    texts: int
    """Texts that were answered."""
    tokens: int
    """The number of subword tokens that were read."""


@dataclass(frozen=True, kw_only=True)
class ClassifyResponse(Document):
    id: str
    """The request's id."""
    model: str | list[str]
    """The model that answered, or those that did."""
    usage: Usage
    """What was read."""
    data: list[Classification | Classifications]
    """One entry a text, in the order of the request."""


def number_of(value: Any, label: str) -> float:
    """A number of an answer; where there is one for each label, the label's own."""
    return float(value[label] if isinstance(value, dict) else value)


# ---------------------------------------- clouds


@dataclass(frozen=True, kw_only=True)
class CloudLeader(Document):
    index: int
    """Its place among the points."""
    since_layer: int
    """The first layer at which it attends to itself alone."""
    point: Vector
    """Where it is: a leader does not move."""
    followers: int
    """Other points that end in its cluster."""
    cluster: int
    """The id of its cluster."""


@dataclass(frozen=True, kw_only=True)
class CloudCluster(Document):
    id: int
    """Its place in the list."""
    kind: Literal["leader", "tie"]
    """"tie": its points attend to several leaders alike."""
    leaders: list[int]
    """Indices of the one leader, or of those that tie."""
    limit: Vector
    """Where its points end."""
    size: int
    """Points in it."""


@dataclass(frozen=True, kw_only=True)
class Polytope(Document):
    vertices: list[int]
    """Indices of the leaders that are vertices of the limit polytope."""


@dataclass(frozen=True, kw_only=True)
class Trajectory(Document):
    layers: list[int]
    """The layers that were kept."""
    points: list[list[Vector]]
    """The cloud at each of them."""


@dataclass(frozen=True, kw_only=True)
class Temperature(Document):
    t: float | None
    """The largest temperature that is proved, with all lower ones; null: any."""
    distance: float
    """What is kept, in the A-norm: a hundredth of the longest point."""
    layers: int
    """Layers for which it holds: up to the certified one, at least the first."""


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
    """The request's id; none where it is part of another answer."""
    n: int
    """Points of the cloud. Beside it `d` tells how many numbers each has."""
    d: int
    """Numbers of each."""
    alpha: float
    """The step size it was run with."""
    status: Literal["certified", "converged", "max_layers"]
    """certified: the limits are proved (with a tie_tolerance: as docs/theory.md says). converged: every
    point is near where it is drawn. max_layers: neither, yet."""
    layers: int
    """Layers from the start to the state reported."""
    certified_layer: int | None
    """The layer that proved the limits, or null."""
    margin: float | None
    """Smallest relative gap between a best score and the next one; null without a next."""
    leaders: list[CloudLeader]
    """Points that attend to themselves alone."""
    clusters: list[CloudCluster]
    """Points of one limit, together."""
    assignment: list[int] | None = None
    """For each point the id of its cluster."""
    limits: list[Vector] | None = None
    """For each point where it ends; if asked for."""
    polytope: Polytope | None = None
    """The hull of the limits; if asked for."""
    trajectory: Trajectory | None = None
    """The cloud layer by layer; if asked for."""
    temperature: Temperature | None = None
    """At which temperatures softmax attention keeps every point near this run; if asked for.
    null: nothing is certified, or gaps are as small as their rounding."""
    note: str | None = None
    """Why it is not certified, where the proof costs too much."""


@dataclass(frozen=True, kw_only=True)
class Refutation(Document):
    """One term of a certificate that no A grants a wish."""

    token: int
    """Index of the token whose end was wanted."""
    leader: int
    """The leader it was to end at."""
    rival: int
    """The point that it should have preferred the leader to."""
    weight: str
    """A positive whole number, in decimal digits."""


@dataclass(frozen=True, kw_only=True)
class ControlResponse(Document):
    id: str
    """The request's id."""
    feasible: bool | None
    """true: A grants the wish from layer 0 on, proved for the numbers as sent.
    false: no A does, proved by the certificate. null: neither could be proved."""
    A: list[Vector] | None
    """The form that was found, of trace d."""
    margin: float | None
    """Smallest gap between a wanted token's best score and the next, relative to A-norms;
    null without a form, or where no point is a rival."""
    worst_pair: list[int] | None = None
    """Token, wanted leader, and the rival in its way."""
    bound: float | None = None
    """No form has a larger smallest gap, in the units of docs/control.md; 0 if infeasible."""
    certificate: list[Refutation] | None = None
    """Why no form grants the wish: the sum of weight * (M + M'), with M = z_token (z_leader - z_rival)', is
    negative semidefinite, exactly."""
    note: str | None = None
    """What is missing from the answer, and why."""
    dynamics: DynamicsResult | None = None
    """The run with A that confirms it; null where double precision cannot follow it."""


# ---------------------------------------- sequences


@dataclass(frozen=True, kw_only=True)
class SequenceLabel(Document):
    index: int
    """The place of the sequence in the request."""
    label: str | int | float | bool | None
    """As in the data that the model was made from; null: the answer is in `output`."""
    margin: float | None
    """The answer is the same while every token moves by less than this; null: any move."""
    leader: int | None
    """The token of the sequence that decides; null: there are several."""
    output: list[Vector] | None = None
    """What the model gives where its answers are sequences."""


@dataclass(frozen=True, kw_only=True)
class SequencesResponse(Document):
    id: str
    """The request's id."""
    model: str
    """The model that answered."""
    data: list[SequenceLabel]
    """One entry a sequence, in the order of the request."""


# ---------------------------------------- the service


@dataclass(frozen=True, kw_only=True)
class ModelCard(Document):
    """The card of a bundle, as it is."""

    name: str
    """What requests call it."""
    kind: Literal["encoder", "text-classification", "dynamics", "sequences"]
    """The kind of the model; text-classification models are heads on an encoder."""
    description: str
    """What it is, in a line."""
    license: str
    """The license under which it may be used."""
    version: int = 1
    """The number after the @ of its name; 1 for a name without a number."""
    digest: str | None = None
    """The SHA-256 digest over all files of the bundle."""
    default: bool = False
    """Whether requests that name no model get it."""
    bias: Number | None = None
    """Of a head: what its logit is without any word, as in answers."""
    loaded_at: str | None = None
    """Since when this process serves it."""


@dataclass(frozen=True, kw_only=True)
class ModelList(Document):
    models: list[ModelCard]
    """All that are served."""


@dataclass(frozen=True, kw_only=True)
class Limits(Document):
    max_concurrent_requests: int
    """Requests at once."""
    max_batch_tokens: int
    """Pieces of words that run together at most."""
    max_client_batch_size: int
    """Texts or sequences in one request."""
    max_text_chars: int
    """Characters of one text."""
    payload_limit_mb: float
    """Megabytes of one body."""
    max_large_requests: int
    """Requests at once whose body or response is over 1 MB."""
    max_points: int
    """Points of one cloud."""
    max_dimension: int
    """Numbers of one point."""
    max_layers: int
    """Layers one cloud may ask for."""
    request_timeout_s: float
    """Seconds a request may take."""


@dataclass(frozen=True, kw_only=True)
class LoadError(Document):
    """A bundle in MODELS_DIR that is not served, and why."""

    name: str
    """The folder."""
    reason: str
    """What is wrong with it."""


@dataclass(frozen=True, kw_only=True)
class Info(Document):
    name: Literal["hardmax"] = "hardmax"
    """Of the service."""
    version: str
    """Of the service."""
    provider: str
    """Where models run: cpu or cuda."""
    threads: int
    """Of one inference."""
    default_model: str
    """What requests that name none get."""
    models: list[str]
    """Names of those that are served."""
    load_errors: list[LoadError]
    """Bundles that are not served."""
    limits: Limits
    """What a request may ask for."""
