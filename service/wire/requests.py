"""The requests of the service's own routes; their answers are in hardmax.models.

These models check only the shape of requests; the domain checks their meaning, and the code that has the
settings checks the limits of the operator.
"""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from hardmax.models.clouds import Include, Stop
from hardmax.models.document import Items, Vector
from hardmax.models.texts import Explain, OffsetUnit

MAX_MODELS = 32  # of a request
MAX_ABLATED_SPANS = 256  # of a request
MAX_LEADERS = 10_000  # of a request to /control
MAX_ASSIGNED = 100_000

Finite = Annotated[float, Field(allow_inf_nan=False)]
Offset = Annotated[int, Field(ge=0)]
ModelName = Annotated[str, StringConstraints(min_length=1, max_length=200)]


def limited(*settings: str) -> dict[str, Any]:
    """Return the OpenAPI extension that names the settings which limit a field."""
    return {"x-limits": list(settings)}


TEXTS = limited("MAX_CLIENT_BATCH_SIZE", "MAX_TEXT_CHARS")
CLOUD = limited("MAX_POINTS", "MAX_DIMENSION")
Points = Annotated[
    list[Vector], Field(description="The cloud: n points of d numbers each.", json_schema_extra=CLOUD)
]


class RequestModel(BaseModel):
    """Unknown fields are refused: a misspelt option must not be silently ignored."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, hide_input_in_errors=True)


class ClassifyRequest(RequestModel):
    """The request of POST /classify."""

    input: str | Items[str] = Field(
        description="One text, or a list of texts.", examples=["A superb film."], json_schema_extra=TEXTS
    )
    model: ModelName | Annotated[Items[ModelName], Field(min_length=1, max_length=MAX_MODELS)] | None = Field(
        None,
        description="A model that labels texts, NAME@VERSION for one of its versions; the default one if "
        "absent. Of a list each model answers, in `answers`; all of them use the same encoder, and "
        "texts are read once, or twice if only some of them fold names.",
    )
    explain: Explain = Field(
        "leaders",
        description='How much of the explanation to return: "none" is the label alone, "leaders" adds leaders'
        ' and clusters, "full" adds every word.',
    )
    trajectory: bool = Field(False, description="Return the position of every word at every layer.")
    truncate: bool = Field(
        True, description="With false, a text longer than the model reads is refused (413)."
    )
    offset_unit: OffsetUnit = Field(
        "codepoints", description="The unit of all offsets: Unicode code points or UTF-16 units."
    )
    without: Items[Annotated[Items[Offset], Field(min_length=2, max_length=2)]] = Field(
        [],
        max_length=MAX_ABLATED_SPANS,
        description="Of one text: spans whose words are left out in place. All other words keep their "
        "positions, and a word that has not read them keeps its initial `position`, to the bit.",
    )
    sufficient: bool = Field(
        False,
        description="Search for a small set of words that alone gives the same label, in at most 16 texts.",
    )
    flip: bool = Field(
        False,
        description="Search for a small set of words whose removal changes the label, in at most 16 texts.",
    )


class DynamicsParameters(RequestModel):
    """Everything a run of the dynamics may ask for but its points."""

    alpha: Finite = Field(
        1.0, gt=0, description="The step size of the dynamics: gamma = alpha / (1 + alpha)."
    )
    A: Items[Items[float | int]] | None = Field(
        None,
        description="A symmetric positive definite matrix; the identity if absent.",
        json_schema_extra=limited("MAX_DIMENSION"),
    )
    max_layers: int = Field(
        1000,
        ge=1,
        description="The largest number of layers to run.",
        json_schema_extra=limited("MAX_LAYERS"),
    )
    stop: Stop = Field(
        "certified",
        description='When to stop. "never" runs exactly max_layers; the default with "trajectory" or '
        '"softmax" in `include` is "converged".',
    )
    tolerance: Finite = Field(
        1e-9,
        ge=0,
        description="A run has converged when every point is this near to its target, relative to the "
        "longest point.",
    )
    include: Items[Include] = Field(
        ["assignment"], max_length=16, description="The parts of the answer beyond the summary."
    )
    trajectory_every: int = Field(
        1, ge=1, description="The number of layers between two states of the trajectory."
    )
    temperature: Finite | None = Field(
        None, gt=0, description='The temperature of softmax attention, with "softmax" in `include`.'
    )


class DynamicsRequest(DynamicsParameters):
    """A cloud and how to run it."""

    points: Points


class ControlParameters(RequestModel):
    """Everything but the points, which become an array."""

    assignment: Annotated[dict[str, int], Field(max_length=MAX_ASSIGNED)] | None = Field(
        None, description="The leader of each token, by the index of the token."
    )
    leaders: Annotated[Items[int], Field(max_length=MAX_LEADERS)] | None = Field(
        None, description="The tokens that should lead; the others follow any of them."
    )


class ControlRequest(ControlParameters):
    """A cloud and what shall become of it."""

    points: Points


class SequencesEnvelope(RequestModel):
    """Everything but the numbers, which become arrays."""

    model: ModelName = Field(description="The name of a model of kind sequences.")


class SequencesRequest(SequencesEnvelope):
    """Sequences to label."""

    sequences: list[list[Vector]] = Field(
        min_length=1,
        description="A list of sequences, each a list of points.",
        json_schema_extra=limited("MAX_CLIENT_BATCH_SIZE", "MAX_POINTS", "MAX_DIMENSION"),
    )
