"""The types of the Open Inference Protocol (/v2), of errors, and base classes of other protocols."""

from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from hardmax.models.document import Items
from service.wire.requests import limited

Short = Annotated[str, StringConstraints(max_length=200)]
Parameters = Annotated[dict[str, Any], Field(max_length=64)]
MAX_TENSORS = 64  # of a request
MAX_RANK = 32  # of a tensor


class ResponseModel(BaseModel):
    """Base of the answers; fields of later versions are accepted."""

    model_config = ConfigDict(extra="allow", frozen=True)


class Problem(ResponseModel):
    """An error."""

    type: str = Field(description="The kind of the failure, for programs.")
    message: str = Field(description="A sentence that says what is wrong.")
    param: str | None = Field(None, description="The field at fault.")
    request_id: str | None = Field(None, description="The id of the request, as in the log.")


class ErrorResponse(ResponseModel):
    """The body of an error response."""

    error: Problem = Field(description="The error.")


class ProtocolError(ResponseModel):
    """The error shape of the Open Inference Protocol."""

    error: str = Field(description="A sentence that says what is wrong.")


class TensorMetadata(ResponseModel):
    """The name, datatype and shape of a tensor."""

    name: str = Field(description="The name of the tensor.")
    datatype: str = Field(description="The datatype is BYTES or FP32.")
    shape: list[int] = Field(description="The size of each dimension; -1 for as many as are sent.")


class ServerMetadata(ResponseModel):
    """The metadata of the server."""

    name: str = Field(description="The name of the server.")
    version: str = Field(description="The version of the server.")
    extensions: list[str] = Field(description="The extensions of the protocol that the server has.")


class ModelMetadata(ResponseModel):
    """The metadata of a model."""

    name: str = Field(description="The name of the model.")
    versions: list[str] = Field(description="The version that is served.")
    platform: str = Field(description="The program that runs the model.")
    inputs: list[TensorMetadata] = Field(description="The tensors that the model takes.")
    outputs: list[TensorMetadata] = Field(description="The tensors that the model returns.")


class ConfigTensor(ResponseModel):
    """A tensor in the configuration of a model."""

    name: str = Field(description="The name of the tensor.")
    data_type: str = Field(description="TYPE_STRING or TYPE_FP32.")
    dims: list[int] = Field(description="The size of each dimension; -1 for as many as are sent.")

    @classmethod
    def of(cls, tensor: TensorMetadata) -> Self:
        """Return the same tensor in the words of a configuration."""
        kind = {"BYTES": "TYPE_STRING"}.get(tensor.datatype, f"TYPE_{tensor.datatype}")
        return cls(name=tensor.name, data_type=kind, dims=tensor.shape)


class ModelConfig(ResponseModel):
    """The configuration of a model."""

    name: str = Field(description="The name of the model.")
    platform: str = Field(description="The program that runs the model.")
    max_batch_size: int = Field(
        default=0, description="Always 0: the first dimension of tensors is not a batch."
    )
    input: list[ConfigTensor] = Field(description="The tensors that the model takes.")
    output: list[ConfigTensor] = Field(description="The tensors that the model returns.")


class ProtocolRequest(BaseModel):
    """Base of the requests of other protocols; unknown fields are ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True, strict=True, hide_input_in_errors=True)


class InferTensor(ProtocolRequest, strict=False):
    """A tensor of a request or of a response."""

    name: Short = Field(description="The name of the tensor.")
    datatype: Short = Field(description="The datatype is BYTES or FP32.")
    shape: Items[Annotated[int, Field(ge=0, le=2**31)]] = Field(
        max_length=MAX_RANK, description="The size of each dimension."
    )
    parameters: Parameters = Field(
        default_factory=dict,
        description="The parameter binary_data_size is the number of bytes of this tensor that follow the "
        "JSON.",
    )
    data: list[Any] | None = Field(
        None,
        description="The elements, unless they follow the JSON as bytes.",
        json_schema_extra=limited("MAX_CLIENT_BATCH_SIZE", "MAX_TEXT_CHARS"),
    )


class InferOutput(ProtocolRequest, strict=False):
    """A requested output."""

    name: Short = Field(description="The name of an output: label, score, logit, abstain_reason or leaders.")
    parameters: Parameters = Field(
        default_factory=dict,
        description="The parameter binary_data returns this tensor as bytes after the JSON.",
    )


class InferRequest(ProtocolRequest, strict=False):
    """The request of the Open Inference Protocol."""

    id: Short | None = Field(None, description="An id that the answer repeats.")
    parameters: Parameters = Field(
        default_factory=dict,
        description="The parameter binary_data_output returns all tensors as bytes after the JSON.",
    )
    inputs: Items[InferTensor] = Field(max_length=MAX_TENSORS, description='One tensor with the name "text".')
    outputs: Items[InferOutput] = Field(
        default_factory=list,
        max_length=MAX_TENSORS,
        description="The tensors to return; all but leaders if none is named.",
    )


class InferResponse(ResponseModel):
    """The response of the Open Inference Protocol."""

    id: str | None = Field(None, description="The id of the request.")
    model_name: str = Field(description="The model that answered.")
    model_version: str = Field(description="The version of the model.")
    outputs: list[InferTensor] = Field(description="The requested tensors.")


class Version(ResponseModel):
    """A version of a model."""

    name: str = Field(description="The name of the model.")
    version: str = Field(description="The version that is served.")


class IndexEntry(Version):
    """An entry of the model repository."""

    state: str = Field(
        default="READY",
        description="The state is READY, or UNAVAILABLE for a bundle that could not be loaded.",
    )
    reason: str = Field(default="", description="The reason why the bundle could not be loaded.")


class Statistics(ResponseModel):
    """The statistics of models."""

    model_stats: list[Version] = Field(
        description="The models that are served; their counts are in GET /metrics."
    )
