"""The Open Inference Protocol, /v2."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from service.schemas.wire import Given, Wire


class ProtocolError(Wire):
    """The error shape of the Open Inference Protocol."""

    error: str = Field(description="What is wrong, for people.")


class TensorMetadata(Wire):
    name: str = Field(description="Of the tensor.")
    datatype: str = Field(description="BYTES or FP32.")
    shape: list[int] = Field(description="-1: as many as are sent.")


class ServerMetadata(Wire):
    name: str = Field(description="Of the server.")
    version: str = Field(description="Of the server.")
    extensions: list[str] = Field(description="Of the protocol, that it has.")


class ModelMetadata(Wire):
    name: str = Field(description="Of the model.")
    versions: list[str] = Field(description="The one that is served.")
    platform: str = Field(description="What runs it.")
    inputs: list[TensorMetadata] = Field(description="Tensors it takes.")
    outputs: list[TensorMetadata] = Field(description="Tensors it gives.")


class Lenient(BaseModel):
    """Fields that are not known here are left alone."""

    model_config = ConfigDict(frozen=True, hide_input_in_errors=True)


class InferTensor(Lenient):
    name: str = Field(description="Of the tensor.")
    datatype: str = Field(description="BYTES or FP32.")
    shape: Given[Annotated[int, Field(ge=0, le=2**31)]] = Field(description="Its sizes.")
    parameters: dict[str, Any] = Field(
        default_factory=dict,
        description="Of the protocol: binary_data_size tells how many bytes follow the JSON.",
    )
    data: list[Any] | None = Field(None, description="Its elements, where they are not behind the JSON.")


class InferOutput(Lenient):
    name: str = Field(description="label, score or logit.")
    parameters: dict[str, Any] = Field(
        default_factory=dict, description="Of the protocol: binary_data asks for bytes behind the JSON."
    )


class InferRequest(Lenient):
    id: str | None = Field(None, description="Given back in the answer.")
    parameters: dict[str, Any] = Field(
        default_factory=dict,
        description="Of the protocol: binary_data_output asks for bytes behind the JSON.",
    )
    inputs: Given[InferTensor] = Field(description='One tensor, "text".')
    outputs: Given[InferOutput] = Field(
        default_factory=list, description="Those that are wanted; all if none is named."
    )


class InferResponse(Wire):
    id: str | None = Field(None, description="As in the request.")
    model_name: str = Field(description="The model that answered.")
    model_version: str = Field(description="Its version.")
    outputs: list[InferTensor] = Field(description="The tensors that were asked for.")
