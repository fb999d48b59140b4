"""The Open Inference Protocol, /v2."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from service.schemas.requests import Given
from service.schemas.wire import Wire


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
        default_factory=dict,
        description="binary_data_size: how many bytes of this tensor follow the JSON.",
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
        default_factory=dict,
        description="binary_data_output: give all tensors as bytes behind the JSON.",
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
