"""What clients of other servers send and get: inference endpoints, text-embeddings-inference, vLLM."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from hardmax.documents import Leader, Undecided
from service.schemas.requests import Given, ModelName
from service.schemas.wire import Wire

TopK = Annotated[
    int | None, Field(ge=1, description="How many labels of each text, the best first; all if absent.")
]


class Foreign(BaseModel):
    """A request in the words of another server: what it knows and we do not is left alone."""

    model_config = ConfigDict(extra="ignore", frozen=True, strict=True, hide_input_in_errors=True)


class EndpointParameters(Foreign):
    top_k: TopK = None
    function_to_apply: Literal["sigmoid", "softmax", "none"] | None = Field(
        default=None,
        description="none: the scores before softmax. The others give probabilities, as does nothing.",
    )

    candidate_labels: Given[str] | None = Field(
        default=None, description="Of a zero-shot client: labels of this model. Others are refused (422)."
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
    top_k: TopK = None


class LabelScore(Wire):
    label: str = Field(description="A label of the model.")
    score: float = Field(description="Its probability, or its score before softmax where that was asked for.")


class VllmRequest(Foreign):
    """What clients of vLLM send to /v1/classify."""

    input: str | Given[str] = Field(description="One text, or a list of them.")
    model: ModelName | None = Field(None, description="The default one if absent.")


class VllmLabel(Wire):
    index: int = Field(description="The place of the text in the request.")
    label: str = Field(description="The likelier label.")
    probs: list[float] = Field(description="The probability of each label, in the order of the model's card.")
    num_classes: int = Field(description="How many those are.")
    undecided: Undecided | None = Field(None, description="Why the label should not be acted upon.")
    leaders: list[Leader] = Field([], description="The words that lead, as /classify has them.")


class VllmUsage(Wire):
    prompt_tokens: int = Field(description="Words and marks that were read.")
    total_tokens: int = Field(description="The same.")
    completion_tokens: int = Field(description="None.")


class VllmResponse(Wire):
    id: str = Field(description="Of the answer.")
    object: Literal["list"] = Field(description="What it is.")
    created: int = Field(description="Seconds since 1970.")
    model: str = Field(description="The model that answered.")
    data: list[VllmLabel] = Field(description="One entry a text.")
    usage: VllmUsage = Field(description="What was read.")
