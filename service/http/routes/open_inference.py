"""The Open Inference Protocol (/v2) of Triton, KServe and their clients.

Models that label texts take a BYTES tensor `text` and return `label`, `abstain_reason` (BYTES), `score` and
`logit` (FP32), and on request `leaders` (BYTES): the leaders of each text as in /classify, as JSON. Tensors
are JSON or, with the binary tensor extension, bytes after the JSON, whose length is in the header
`Inference-Header-Content-Length`. A version in the path must be the served one. Triton's clients list models
by its repository and statistics.
"""

from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from service import __version__
from service.errors import InvalidInput, NotFound
from service.http import openapi
from service.http.bodies import BINARY, NO_STORE, UntypedBodyDep, parse_body, reply, write_answers
from service.http.dependencies import OPEN, LabelOptionsDep, ModelInPath, ServiceDep, VersionInPath
from service.http.routes.classify import label_texts
from service.runtime.card import HEAD
from service.runtime.registry import RegistryEntry
from service.text.pipeline import ClassifyOptions
from service.wire.protocols import (
    ConfigTensor,
    IndexEntry,
    InferRequest,
    InferResponse,
    ModelConfig,
    ModelMetadata,
    ProtocolError,
    ServerMetadata,
    Statistics,
    TensorMetadata,
    Version,
)
from service.wire.tensors import INPUT, OUTPUTS, read_request, requested_outputs, write_response

HEADER_LENGTH = "inference-header-content-length"
VERSION_PATH = "/models/{name}/versions/{version}"

router = APIRouter()
protocol = APIRouter(prefix="/v2", tags=["v2"])
extensions = APIRouter(prefix="/v2", tags=["other clients"])


def errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the documentation of error responses in the protocol's shape."""
    return openapi.responses(errors=statuses, error_type=ProtocolError)


JSON_LENGTH = {
    "name": HEADER_LENGTH,
    "in": "header",
    "description": "With the binary tensor extension: bytes of JSON before the tensors.",
    "schema": {"type": "integer"},
}
# shared by several routes
PROTOCOL_PROBE: dict[str, Any] = {"response_class": Response, "responses": errors(503), "openapi_extra": OPEN}
READY: dict[str, Any] = {"response_class": Response, "responses": errors(401, 404, 422, 503)}
INFER_ROUTE: dict[str, Any] = {
    "response_model": InferResponse,
    "responses": openapi.responses("infer", BINARY, error_type=ProtocolError),
    "openapi_extra": {**openapi.body("infer", InferRequest, BINARY), "parameters": [JSON_LENGTH]},
}


@protocol.get("", responses=errors(401), summary="Get name, version and extensions of the server")
async def server_metadata() -> ServerMetadata:
    """Return name, version and extensions of the server."""
    return ServerMetadata(name="hardmax", version=__version__, extensions=["binary_tensor_data"])


@protocol.get("/health/live", **PROTOCOL_PROBE, summary="Check that the server is alive")
async def server_live(service: ServiceDep) -> Response:
    """Answer 200 while the inference thread works, otherwise 503."""
    service.check_health()
    return reply(b"")


@protocol.get("/health/ready", **PROTOCOL_PROBE, summary="Check that the server can take requests")
async def server_ready(service: ServiceDep) -> Response:
    """Answer 200 while requests can be taken, otherwise 503."""
    service.check_ready()
    return reply(b"")


async def get_model(service: ServiceDep, name: ModelInPath) -> RegistryEntry:
    """Return the model of the path."""
    entry = service.registry.get(name)
    if entry is None:
        raise NotFound("no model has this name and version")
    return entry


ModelDep = Annotated[RegistryEntry, Depends(get_model)]


async def get_version(service: ServiceDep, name: ModelInPath, version: VersionInPath) -> RegistryEntry:
    """Return the model of the path, if it has the version of the path."""
    entry = await get_model(service, name)
    if version not in (entry.digest, entry.digest[:12]):
        raise NotFound("no model has this name and version")
    return entry


VersionDep = Annotated[RegistryEntry, Depends(get_version)]


@protocol.get("/models/{name}", responses=errors(401, 404, 422), summary="Get the tensors of a model")
async def model_metadata(entry: ModelDep) -> ModelMetadata:
    """Return the tensors of a model."""
    reads_text = entry.kind == HEAD
    inputs = [TensorMetadata(name=INPUT, datatype="BYTES", shape=[-1])]
    outputs = [TensorMetadata(name=name, datatype=kind, shape=[-1]) for name, kind in OUTPUTS.items()]
    return ModelMetadata(
        name=entry.name,
        versions=[entry.digest[:12]],
        platform="onnxruntime_onnx",
        inputs=inputs if reads_text else [],
        outputs=outputs if reads_text else [],
    )


@extensions.get(
    "/models/{name}/config", responses=errors(401, 404, 422), summary="Get the configuration of a model"
)
async def model_config(entry: ModelDep) -> ModelConfig:
    """Return the tensors of a model as Triton's `get_model_config` does."""
    metadata = await model_metadata(entry)
    return ModelConfig(
        name=entry.name,
        platform=metadata.platform,
        input=[ConfigTensor.of(tensor) for tensor in metadata.inputs],
        output=[ConfigTensor.of(tensor) for tensor in metadata.outputs],
    )


@protocol.get("/models/{name}/ready", **READY, summary="Check that a model is ready")
async def model_ready(entry: ModelDep, service: ServiceDep) -> Response:
    """Answer 200 if the model is served and requests can be taken."""
    return await server_ready(service)


@protocol.post("/models/{name}/infer", **INFER_ROUTE, summary="Classify texts by the Open Inference Protocol")
async def infer(
    body: UntypedBodyDep,
    entry: ModelDep,
    request: Request,
    service: ServiceDep,
    query: LabelOptionsDep,
) -> Response:
    """Classify the texts of the tensor `text`, with or without the binary tensor extension."""
    if entry.kind != HEAD:
        raise InvalidInput(f"models of kind {entry.kind} do not infer by this protocol: see /docs")
    read = partial(
        read_request,
        json_length=request.headers.get(HEADER_LENGTH),
        max_texts=service.settings.max_client_batch_size,
        is_binary=body.media_type == BINARY,
    )
    infer_request, texts = await parse_body(body.content, read, service.run_in_parser)
    outputs = requested_outputs(infer_request)
    # the version in the answer is that of the entry, which a reload may have replaced meanwhile
    heads = (entry.model,) if entry.model else await service.find_heads(entry.name)
    options = ClassifyOptions(heads, "leaders" if "leaders" in outputs else "none")
    answers = await label_texts(service, texts, options, INPUT, query)
    head = {"model_name": entry.name, "model_version": entry.digest[:12]}
    write = partial(write_response, head, infer_request, outputs, answers)
    content, json_length = await write_answers(write, len(texts))
    if json_length is None:
        return reply(content)
    return reply(content, BINARY, {**NO_STORE, HEADER_LENGTH: str(json_length)})


@protocol.get(VERSION_PATH, responses=errors(401, 404, 422), summary="Get the tensors of a version")
async def version_metadata(entry: VersionDep) -> ModelMetadata:
    """Return the tensors of a version."""
    return await model_metadata(entry)


@protocol.get(f"{VERSION_PATH}/ready", **READY, summary="Check that a version is ready")
async def version_ready(entry: VersionDep, service: ServiceDep) -> Response:
    """Answer 200 if the version is served and requests can be taken."""
    return await server_ready(service)


@protocol.post(f"{VERSION_PATH}/infer", **INFER_ROUTE, summary="Classify texts with a version of a model")
async def version_infer(
    body: UntypedBodyDep,
    entry: VersionDep,
    request: Request,
    service: ServiceDep,
    query: LabelOptionsDep,
) -> Response:
    """Classify texts with a version of a model."""
    return await infer(body, entry, request, service, query)


@extensions.get(
    "/models/stats",
    responses=errors(*openapi.ERRORS),
    summary="List models and versions, as Triton's statistics",
)
async def statistics(service: ServiceDep) -> Statistics:
    """Return the names and versions of the models."""
    entries = service.registry.entries.values()
    return Statistics(model_stats=[Version(name=entry.name, version=entry.digest[:12]) for entry in entries])


@extensions.post(
    "/repository/index",
    responses=errors(*openapi.ERRORS),
    summary="List models and refused bundles, as Triton",
)
async def repository_index(service: ServiceDep) -> list[IndexEntry]:
    """Return the models that are served and the bundles that could not be loaded."""
    entries, refused = service.registry.entries.values(), service.registry.refused.items()
    return [
        *(IndexEntry(name=entry.name, version=entry.digest[:12]) for entry in entries),
        *(IndexEntry(name=name, version="", state="UNAVAILABLE", reason=reason) for name, reason in refused),
    ]


router.include_router(extensions)  # first, because /v2/models/stats is not a model
router.include_router(protocol)
