"""What clients of other servers send and get: inference endpoints, text-embeddings-inference."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from service.schemas.wire import Given, Wire

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
