"""What the API answers, as pydantic models: one description for clients, the server and its documentation.

Everything that a client reads is checked, because an answer may come from anybody: numbers are not read from
strings. Fields and values of later versions are accepted.
"""

from __future__ import annotations

import inspect
from functools import cached_property
from typing import Annotated, Any, Literal, TypeVar, get_type_hints

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, WrapValidator

from hardmax.errors import UnexpectedAnswer

Explain = Literal["none", "leaders", "full"]
OffsetUnit = Literal["codepoints", "utf16"]
AbstainReason = Literal["low_confidence", "out_of_distribution", "no_known_words"]
Stop = Literal["certified", "converged", "never"]
Include = Literal["assignment", "limits", "trajectory", "polytope", "temperature", "argmax", "softmax"]
T = TypeVar("T")
Items = Annotated[list[T], Field(fail_fast=True)]  # one wrong entry is reported, not a million
ItemsOrNull = Annotated[Items[T], BeforeValidator(lambda value: [] if value is None else value)]
Vector = Items[float]
Span = Annotated[tuple[int, int], Field(strict=False)]  # JSON has lists only
Number = float | dict[str, float]  # a number for each label if there are several logits
Open = WrapValidator(lambda value, check: value if isinstance(value, str) else check(value))  # to later words


class Document(BaseModel):
    """A part of an answer."""

    model_config = ConfigDict(
        extra="allow",
        frozen=True,
        strict=True,
        use_attribute_docstrings=True,
        defer_build=True,  # most programs need few of these types
    )

    @cached_property
    def document(self) -> dict[str, Any]:
        """The whole of it as it came, with fields of later versions too."""
        return self.model_dump(mode="json", exclude_unset=True)


M = TypeVar("M", bound=Document)


def read(kind: type[M], document: Any, **known: Any) -> M:
    """Return the answer that a JSON value describes, with the fields that are known here.

    Raises:
        UnexpectedAnswer: It does not fit its type; the message names the field and what was expected.
    """
    try:
        return kind.model_validate({**document, **known} if isinstance(document, dict) else document)
    except ValidationError as invalid:
        problem = invalid.errors(include_url=False, include_input=False, include_context=False)[0]
        field = ".".join(map(str, problem["loc"])) or "the answer"
        raise UnexpectedAnswer(f"this is no answer of hardmax: {field}: {problem['msg']}") from None


def with_plain_signature(kind: type[M]) -> type[M]:
    """Leave validators out of the signature and the types of a class, which `help` and the documentation
    show."""
    types = get_type_hints(kind, localns={kind.__name__: kind})
    kind.__annotations__ = types
    parameters = inspect.signature(kind).parameters.values()
    kind.__signature__ = inspect.Signature(
        [each.replace(annotation=types[each.name]) for each in parameters if each.name in types]
    )
    return kind


# ---------------------------------------- texts


class ReadWord(Document):
    """A word that a leader has read."""

    word: str
    """The word as it stands in the text, in lower case."""
    spans: Items[Span]
    """The span of the word, as offsets into the text as sent."""
    layer: int
    """The layer of the encoder at which the word entered, from 1 on."""


class Leader(Document):
    """A word that leads, and what was read to compute its state."""

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
    spans: Items[Span]
    """The spans of the leader; several if words have the very same position."""
    read: ItemsOrNull[ReadWord] = Field(default_factory=list)
    """The other words that its state was computed from, in the order of entry: at most eight, all of them
    with "full"."""
    read_total: int = 0
    """The number of words that its state was computed from. Words outside the complete list, which "full"
    returns, can be left out in place, and the leader keeps its initial `position` to the bit."""
    read_as: str | None = None
    """The token that was read in place of the word, if any: "<name>", "<number>" or "<unknown>"."""


class Cluster(Document):
    """The words that follow one leader, or that are between leaders in a tie."""

    id: int
    """The id of the cluster in this text, which leaders and words refer to."""
    kind: Annotated[Literal["leader", "tie"], Open]
    """In a cluster of kind "tie" the words attend to several leaders alike."""
    leaders: Items[str]
    """The word that leads, or the words that tie."""
    words: Items[str]
    """The leader and the words of largest contribution, at most five, each once."""
    size: int
    """The number of words in the cluster."""
    share: float
    """The share of the text's words in the cluster."""
    contribution: Number
    """The part of the logit that the cluster adds: the logit is the bias plus the sum over clusters."""


class Word(Document):
    """A word of the text with its contribution and its positions in the leader head."""

    word: str
    """The word as it stands in the text, in lower case."""
    spans: Items[Span]
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
    attends_to: ItemsOrNull[Items[int]] = Field(default_factory=list)
    """For each layer of the encoder the other words that its heads attend to, by their index in this list,
    most attended first."""
    read_as: str | None = None
    """The token that was read in place of the word, if any."""


class LeftOut(Document):
    """A word that was left out, or that remained, in a search."""

    word: str
    """The word as it stands in the text, in lower case."""
    spans: Items[Span]
    """The span of the word."""


class Flip(Document):
    """A set of words whose removal changes the label."""

    without: Items[LeftOut]
    """The words that were left out, at most five."""
    label: str
    """The label without these words, by running the model."""
    score: float
    """The probability of that label."""


class Sufficient(Document):
    """A set of words that alone gives the same label."""

    words: Items[LeftOut]
    """The words that alone give the same label, at most sixteen; all others are left out in place."""
    score: float
    """The probability of the label with these words alone, by running the model."""


class Classification(Document):
    """The answer of one model to one text."""

    index: int = 0
    """The index of the text in the request."""
    label: str
    """The most probable label."""
    score: float
    """The probability of the label."""
    probs: dict[str, float]
    """The probability of each label."""
    labels: ItemsOrNull[str] = Field(default_factory=list)
    """All labels that apply, for models whose labels do not exclude each other; `label` is the most probable
    one."""
    abstain_reason: Annotated[AbstainReason, Open] | None = None
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
    leaders: ItemsOrNull[Leader] = Field(default_factory=list)
    """The leaders of the text, with "leaders" and "full"."""
    clusters: ItemsOrNull[Cluster] = Field(default_factory=list)
    """The groups of words that end together, with "leaders" and "full"."""
    words: ItemsOrNull[Word] = Field(default_factory=list)
    """All words in the order of reading, with "full"."""
    trajectory: ItemsOrNull[Items[Vector]] = Field(default_factory=list)
    """The position of every word at each layer, with `trajectory`."""
    sufficient: Sufficient | None = None
    """A small set of words that alone gives the same label, with `sufficient`; null if none was found."""
    flip: Flip | None = None
    """The smallest set of words found whose removal changes the label, with `flip`; null without one."""


class Classifications(Document):
    """One text, answered by several models."""

    index: int
    """The index of the text in the request."""
    answers: dict[str, Classification]
    """The answer of each model, by the name that the request uses."""


class Usage(Document):
    """The numbers of texts and of tokens of a request."""

    texts: int
    """The number of texts that were answered."""
    tokens: int
    """The number of subword tokens that were read."""


class ClassifyResponse(Document):
    """The response of POST /classify."""

    id: str
    """The id of the request."""
    model: str | Items[str]
    """The model that answered, or the models in the order of the request."""
    usage: Usage
    """The amount of text that was read."""
    data: Items[Classification | Classifications]
    """One entry for each text, in the order of the request."""


def number_of(value: Any, label: str) -> float:
    """Return a number of an answer; where there is one for each label, the label's own."""
    return float(value[label] if isinstance(value, dict) else value)


# ---------------------------------------- clouds


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
    """The limits of a "certified" run are proved (with a tie_tolerance, as docs/theory.md says). In a
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
    """No matrix has a larger smallest gap, in the units of docs/control.md; the bound is 0 if the request is
    infeasible."""
    certificate: Items[Refutation] | None = None
    """The proof that no matrix grants the request: the sum of weight * (M + M'), with M = z_token (z_leader
    - z_rival)', is exactly negative semidefinite."""
    note: str | None = None
    """A note says what is missing from the answer, and why."""
    dynamics: DynamicsResult | None = None
    """The run with A that confirms the answer; null if double precision cannot follow it."""


# ---------------------------------------- sequences


class SequenceLabel(Document):
    """The label of one sequence."""

    index: int
    """The index of the sequence in the request."""
    label: str | int | float | bool | None
    """The label as in the data of the model; null if the answer is in `output`."""
    margin: float | None
    """The answer stays the same while every token moves by less than this; null for any move."""
    leader: int | None
    """The token of the sequence that decides; null if there are several."""
    output: Items[Vector] | None = None
    """The output of models whose answers are sequences."""


class SequencesResponse(Document):
    """The response of POST /sequences/classify."""

    id: str
    """The id of the request."""
    model: str
    """The model that answered."""
    data: Items[SequenceLabel]
    """One entry for each sequence, in the order of the request."""


# ---------------------------------------- the service


class ModelCard(Document):
    """The card of a bundle, as it is."""

    name: str
    """The name of the model in requests."""
    kind: Annotated[Literal["encoder", "text-classification", "dynamics", "sequences"], Open]
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
    id2label: dict[str, str] | None = None
    """The label of each index of the probabilities, as in transformers, for text-classification models."""
    bias: Number | None = None
    """The logit of a text without words, for text-classification models."""
    loaded_at: str | None = None
    """The time at which this process loaded the model."""


class ModelList(Document):
    """The models that are served."""

    models: Items[ModelCard]
    """The cards of all models that are served."""


class Limits(Document):
    """The limits of requests."""

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


class LoadError(Document):
    """A bundle in MODELS_DIR that is not served, and why."""

    name: str
    """The name of the bundle's folder."""
    reason: str
    """The reason why the bundle could not be loaded."""


class Info(Document):
    """The server, its limits and its models."""

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
    models: Items[str]
    """The names of all models that are served."""
    load_errors: Items[LoadError]
    """The bundles that could not be loaded."""
    limits: Limits
    """The limits of a request."""
