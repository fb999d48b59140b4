"""The Open Inference Protocol (/v2); what other protocols, described beside their routes, have in common; the
shape of a failure.
"""

from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field

from service.schemas.requests import Given


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


class ConfigTensor(Wire):
    name: str = Field(description="The name of the tensor.")
    data_type: str = Field(description="TYPE_STRING or TYPE_FP32.")
    dims: list[int] = Field(description="The size of each dimension; -1 for as many as are sent.")

    @classmethod
    def of(cls, tensor: TensorMetadata) -> Self:
        """Return the same tensor in the words of a configuration."""
        kind = {"BYTES": "TYPE_STRING"}.get(tensor.datatype, f"TYPE_{tensor.datatype}")
        return cls(name=tensor.name, data_type=kind, dims=tensor.shape)


class ModelConfig(Wire):
    name: str = Field(description="The name of the model.")
    platform: str = Field(description="The program that runs the model.")
    max_batch_size: int = Field(
        default=0, description="Always 0: the first dimension of tensors is not a batch."
    )
    input: list[ConfigTensor] = Field(description="The tensors that the model takes.")
    output: list[ConfigTensor] = Field(description="The tensors that the model returns.")


class Foreign(BaseModel):
    """A request in the words of another server: what it knows and we do not is left alone."""

    model_config = ConfigDict(extra="ignore", frozen=True, strict=True, hide_input_in_errors=True)


class InferTensor(Foreign, strict=False):
    name: str = Field(description="Name of the tensor.")
    datatype: str = Field(description="BYTES or FP32.")
    shape: Given[Annotated[int, Field(ge=0, le=2**31)]] = Field(description="Size of each dimension.")
    parameters: dict[str, Any] = Field(
        default_factory=dict, description="binary_data_size: how many bytes of this tensor follow the JSON."
    )
    data: list[Any] | None = Field(None, description="The elements, unless they follow the JSON as bytes.")


class InferOutput(Foreign, strict=False):
    name: str = Field(description="label, score, logit, abstain_reason or leaders.")
    parameters: dict[str, Any] = Field(
        default_factory=dict, description="binary_data: give this tensor as bytes behind the JSON."
    )


class InferRequest(Foreign, strict=False):
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


class Version(Wire):
    name: str = Field(description="Of the model.")
    version: str = Field(description="The one that is served.")


class IndexEntry(Version):
    state: str = Field(default="READY", description="READY, or UNAVAILABLE for a bundle that was refused.")
    reason: str = Field(default="", description="Why it was refused.")


class Statistics(Wire):
    model_stats: list[Version] = Field(description="What is served; its counts are in GET /metrics.")
