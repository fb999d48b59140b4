"""What clients of other servers send and get: the Open Inference Protocol (/v2), inference endpoints,
text-embeddings-inference, vLLM; what all answers share that are described here, and the shape of a failure.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from hardmax.documents import Leader, Undecided
from service.schemas.requests import Given, ModelName

TopK = Annotated[
    int | None, Field(ge=1, description="How many labels of each text, the best first; all if absent.")
]


class Wire(BaseModel):
    """An answer. Clients may meet fields of a later version: they are kept, not refused."""

    model_config = ConfigDict(extra="allow", frozen=True)


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
    name: str = Field(description="Name of the tensor.")
    datatype: str = Field(description="BYTES or FP32.")
    shape: list[int] = Field(description="-1: as many as are sent.")


class ServerMetadata(Wire):
    name: str = Field(description="Name of the server.")
    version: str = Field(description="Version of the server.")
    extensions: list[str] = Field(description="Extensions of the protocol that the server has.")


class ModelMetadata(Wire):
    name: str = Field(description="Name of the model.")
    versions: list[str] = Field(description="The one that is served.")
    platform: str = Field(description="What runs it.")
    inputs: list[TensorMetadata] = Field(description="Tensors it takes.")
    outputs: list[TensorMetadata] = Field(description="Tensors it gives.")


class Lenient(BaseModel):
    """Fields that are not known here are left alone."""

    model_config = ConfigDict(frozen=True, hide_input_in_errors=True)


class InferTensor(Lenient):
    name: str = Field(description="Name of the tensor.")
    datatype: str = Field(description="BYTES or FP32.")
    shape: Given[Annotated[int, Field(ge=0, le=2**31)]] = Field(description="Size of each dimension.")
    parameters: dict[str, Any] = Field(
        default_factory=dict, description="binary_data_size: how many bytes of this tensor follow the JSON."
    )
    data: list[Any] | None = Field(None, description="The elements, unless they follow the JSON as bytes.")


class InferOutput(Lenient):
    name: str = Field(description="label, score, logit, undecided or leaders.")
    parameters: dict[str, Any] = Field(
        default_factory=dict, description="binary_data: give this tensor as bytes behind the JSON."
    )


class InferRequest(Lenient):
    id: str | None = Field(None, description="Given back in the answer.")
    parameters: dict[str, Any] = Field(
        default_factory=dict, description="binary_data_output: give all tensors as bytes behind the JSON."
    )
    inputs: Given[InferTensor] = Field(description='One tensor, "text".')
    outputs: Given[InferOutput] = Field(
        default_factory=list, description="The tensors that are wanted; if none is named, all but leaders."
    )


class InferResponse(Wire):
    id: str | None = Field(None, description="As in the request.")
    model_name: str = Field(description="The model that answered.")
    model_version: str = Field(description="Its version.")
    outputs: list[InferTensor] = Field(description="The tensors that were asked for.")


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


class OpenAIModel(Wire):
    id: str = Field(description="What requests call it.")
    object: str = Field(default="model", description="Always model.")
    created: int = Field(description="When this process loaded it, in seconds since 1970.")
    owned_by: str = Field(default="hardmax", description="Always hardmax.")


class OpenAIModels(Wire):
    object: str = Field(default="list", description="Always list.")
    data: list[OpenAIModel] = Field(description="All models that are served.")


class Version(Wire):
    name: str = Field(description="Of the model.")
    version: str = Field(description="The one that is served.")


class IndexEntry(Version):
    state: str = Field(default="READY", description="READY, or UNAVAILABLE for a bundle that was refused.")
    reason: str = Field(default="", description="Why it was refused.")


class Statistics(Wire):
    model_stats: list[Version] = Field(description="What is served; its counts are in GET /metrics.")
