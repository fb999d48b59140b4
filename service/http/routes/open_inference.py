"""The Open Inference Protocol (/v2), as Triton, KServe and their clients speak it.

Models that label texts take a BYTES tensor `text` and give `label` and `abstain_reason` (BYTES), `score` and
`logit` (FP32), and if asked for `leaders` (BYTES): of each text its leaders as /classify has them, as JSON.
Tensors travel as JSON or, with the binary tensor extension, behind the JSON of which `Inference-Header-
Content-Length` tells the length. A version in the path must be the one that is served. Triton's clients also
ask its repository and statistics which models there are.
"""

import asyncio
import struct
from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from service import __version__
from service.answers.writing import PIECE_BYTES, write
from service.errors import InvalidInput, MalformedInput, NotFound, TooLarge
from service.http import examples
from service.http.bodies import BINARY, MAX_JSON_BYTES, NO_STORE, UntypedBodyOf, read_bytes, reply
from service.http.dependencies import NeutralOf, ServiceOf, SizeOf
from service.http.routes.classify import label
from service.runtime.bundle import HEAD
from service.runtime.registry import Entry
from service.schemas.protocols import (
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
from service.schemas.reading import parse
from service.text.pipeline import Answer, ClassifyOptions

HEADER_LENGTH = "inference-header-content-length"
INPUT = "text"
OUTPUT_DATATYPES = {"label": "BYTES", "score": "FP32", "logit": "FP32", "abstain_reason": "BYTES"}
REASONS = {"leaders": "BYTES"}  # given where they are asked for
VERSION_PATH = "/models/{name}/versions/{version}"

router = APIRouter()
protocol = APIRouter(prefix="/v2", tags=["v2"])
extensions = APIRouter(prefix="/v2", tags=["other clients"])


def failing(*statuses: int) -> dict[int | str, dict[str, Any]]:
    return examples.answers(failing=statuses, errors=ProtocolError)


JSON_LENGTH = {
    "name": HEADER_LENGTH,
    "in": "header",
    "description": "With the binary tensor extension: bytes of JSON before the tensors.",
    "schema": {"type": "integer"},
}
# What routes have in common.
PROTOCOL_PROBE: dict[str, Any] = {"response_class": Response, "responses": failing(503)}
READY: dict[str, Any] = {"response_class": Response, "responses": failing(401, 404, 422, 503)}
INFER_ROUTE: dict[str, Any] = {
    "response_model": InferResponse,
    "responses": examples.answers(examples.INFERRED, BINARY, errors=ProtocolError),
    "openapi_extra": {**examples.body(examples.INFER, InferRequest, BINARY), "parameters": [JSON_LENGTH]},
}


@protocol.get("", responses=failing(401), summary="Name, version and extensions of the server")
async def server_metadata() -> ServerMetadata:
    return ServerMetadata(name="hardmax", version=__version__, extensions=["binary_tensor_data"])


@protocol.get("/health/live", **PROTOCOL_PROBE, summary="Whether the server lives")
async def server_live(service: ServiceOf) -> Response:
    service.check_health()
    return reply(b"")


@protocol.get("/health/ready", **PROTOCOL_PROBE, summary="Whether the server takes traffic")
async def server_ready(service: ServiceOf) -> Response:
    service.check_ready()
    return reply(b"")


async def model_of(service: ServiceOf, name: str) -> Entry:
    entry = service.registry.get(name)
    if entry is None:
        raise NotFound("no model has this name and version")
    return entry


ModelOf = Annotated[Entry, Depends(model_of)]


async def version_of(service: ServiceOf, name: str, version: str) -> Entry:
    entry = await model_of(service, name)
    if version not in (entry.version, entry.version[:12]):
        raise NotFound("no model has this name and version")
    return entry


VersionOf = Annotated[Entry, Depends(version_of)]


@protocol.get("/models/{name}", responses=failing(401, 404, 422), summary="The tensors of a model")
async def model_metadata(entry: ModelOf) -> ModelMetadata:
    reads_text = entry.kind == HEAD
    inputs = [TensorMetadata(name=INPUT, datatype="BYTES", shape=[-1])]
    named = (OUTPUT_DATATYPES | REASONS).items()
    outputs = [TensorMetadata(name=name, datatype=kind, shape=[-1]) for name, kind in named]
    return ModelMetadata(
        name=entry.name,
        versions=[entry.version[:12]],
        platform="onnxruntime_onnx",
        inputs=inputs if reads_text else [],
        outputs=outputs if reads_text else [],
    )


@extensions.get(
    "/models/{name}/config", responses=failing(401, 404, 422), summary="Return the configuration of a model"
)
async def model_config(entry: ModelOf) -> ModelConfig:
    """Return the tensors of a model as Triton's `get_model_config` does."""
    metadata = await model_metadata(entry)
    return ModelConfig(
        name=entry.name,
        platform=metadata.platform,
        input=[ConfigTensor.of(tensor) for tensor in metadata.inputs],
        output=[ConfigTensor.of(tensor) for tensor in metadata.outputs],
    )


@protocol.get("/models/{name}/ready", **READY, summary="Whether a model can infer")
async def model_ready(entry: ModelOf, service: ServiceOf) -> Response:
    return await server_ready(service)


@protocol.post("/models/{name}/infer", **INFER_ROUTE, summary="Label texts by the Open Inference Protocol")
async def infer(
    body: UntypedBodyOf,
    entry: ModelOf,
    request: Request,
    service: ServiceOf,
    neutral: NeutralOf,
    size: SizeOf,
) -> Response:
    """With or without the binary tensor extension."""
    if entry.kind != HEAD:
        raise InvalidInput(f"models of kind {entry.kind} do not infer by this protocol: see /docs")
    announced, most = request.headers.get(HEADER_LENGTH), service.settings.max_client_batch_size
    infer_request, texts, shape = await read_bytes(
        request, _read, body.content, body.media_type, announced, most
    )
    wanted = _wanted(infer_request)
    how = ClassifyOptions(
        (service.registry.find(entry.name, HEAD),), "leaders" if REASONS.keys() & wanted.keys() else "none"
    )
    answers = await label(service, texts, how, INPUT, neutral, size)
    work = partial(_answer, entry, infer_request, wanted, answers, shape)
    return work() if size.response_bytes <= PIECE_BYTES else await asyncio.to_thread(work)


@protocol.get(VERSION_PATH, responses=failing(401, 404, 422), summary="The tensors of a version of a model")
async def version_metadata(entry: VersionOf) -> ModelMetadata:
    return await model_metadata(entry)


@protocol.get(f"{VERSION_PATH}/ready", **READY, summary="Whether a version can infer")
async def version_ready(entry: VersionOf, service: ServiceOf) -> Response:
    return await server_ready(service)


@protocol.post(f"{VERSION_PATH}/infer", **INFER_ROUTE, summary="Label texts with a version of a model")
async def version_infer(
    body: UntypedBodyOf,
    entry: VersionOf,
    request: Request,
    service: ServiceOf,
    neutral: NeutralOf,
    size: SizeOf,
) -> Response:
    return await infer(body, entry, request, service, neutral, size)


@extensions.get(
    "/models/stats", responses=failing(*examples.ALL), summary="Models and versions, as Triton's statistics"
)
async def statistics(service: ServiceOf) -> Statistics:
    entries = service.registry.entries.values()
    return Statistics(model_stats=[Version(name=each.name, version=each.version[:12]) for each in entries])


@extensions.post(
    "/repository/index",
    responses=failing(*examples.ALL),
    summary="Models and refused bundles, as Triton's repository",
)
async def repository_index(service: ServiceOf) -> list[IndexEntry]:
    entries, refused = service.registry.entries.values(), service.registry.refused.items()
    return [
        *(IndexEntry(name=each.name, version=each.version[:12]) for each in entries),
        *(IndexEntry(name=name, version="", state="UNAVAILABLE", reason=why) for name, why in refused),
    ]


router.include_router(extensions)  # first: /v2/models/stats is no model
router.include_router(protocol)


def _read(
    content: bytearray, media_type: str, announced: str | None, most: int
) -> tuple[InferRequest, list[str], list[int]]:
    """The request, the texts in its one input, and their shape."""
    document, tensors = _split(content, media_type, announced)
    infer_request = parse(document, InferRequest)
    if [tensor.name for tensor in infer_request.inputs] != [INPUT] or infer_request.inputs[
        0
    ].datatype != "BYTES":
        raise InvalidInput('expected one input, "text", of datatype BYTES')
    tensor = infer_request.inputs[0]
    count = int(np.prod(tensor.shape, dtype=object))
    if not 1 <= count <= most:
        raise TooLarge(f"expected 1 to {most} texts (MAX_CLIENT_BATCH_SIZE)")
    size = tensor.parameters.get("binary_data_size")
    if size is None:
        texts = _flatten(tensor.data)
    elif size == len(tensors):
        texts = _elements(tensors, count)
    else:
        raise MalformedInput("binary_data_size is not the size of the data that follow")
    if len(texts) != count:
        raise InvalidInput(f"the shape says {count} texts, there are {len(texts)}")
    return infer_request, texts, tensor.shape


def _elements(tensor: memoryview, count: int) -> list[str]:
    """A BYTES tensor: of each element its length in four bytes, little endian, and as many of UTF-8."""
    texts: list[str] = []
    position = 0
    while position < len(tensor):
        if len(texts) == count:
            raise InvalidInput(f"the shape says {count} texts, there are more")
        start = position + 4
        if start > len(tensor):
            raise MalformedInput("the BYTES tensor ends within a length")
        position = start + int.from_bytes(tensor[start - 4 : start], "little")
        if position > len(tensor):
            raise MalformedInput("the BYTES tensor ends within an element")
        try:
            texts.append(str(tensor[start:position], "utf-8"))
        except UnicodeDecodeError:
            raise MalformedInput("an element of the BYTES tensor is not UTF-8") from None
    return texts


def _split(content: bytearray, media_type: str, announced: str | None) -> tuple[bytearray, memoryview]:
    """The JSON part of a body, and the tensors behind it."""
    if announced is None:
        if media_type == BINARY:
            raise MalformedInput("an octet stream needs Inference-Header-Content-Length")
        return content, memoryview(b"")
    if not announced.isdecimal() or len(announced) > 12 or int(announced) > len(content):
        raise MalformedInput("Inference-Header-Content-Length is not the length of the JSON part")
    length = int(announced)
    if length > MAX_JSON_BYTES:
        raise TooLarge(
            f"the JSON part may have {MAX_JSON_BYTES / 1e6:g} MB: send the texts as a binary tensor"
        )
    return content[:length], memoryview(content)[length:]


def _flatten(data: object) -> list[str]:
    texts: list[str] = []
    waiting = [data]
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            texts.append(value)
        elif isinstance(value, list):
            waiting.extend(reversed(value))
        else:
            raise InvalidInput('data of "text" should be strings')
    return texts


def _wanted(request: InferRequest) -> dict[str, bool]:
    """Names of the outputs to give, and whether as binary."""
    default = bool(request.parameters.get("binary_data_output", False))
    if not request.outputs:
        return dict.fromkeys(OUTPUT_DATATYPES, default)
    for output in request.outputs:
        if output.name == "undecided":
            raise InvalidInput("the output undecided is called abstain_reason since 0.4")
        if output.name not in OUTPUT_DATATYPES | REASONS:
            raise InvalidInput(f"there is no such output; there are {', '.join(OUTPUT_DATATYPES | REASONS)}")
    return {output.name: bool(output.parameters.get("binary_data", default)) for output in request.outputs}


def _answer(
    entry: Entry,
    request: InferRequest,
    wanted: dict[str, bool],
    answers: Sequence[Answer],
    shape: list[int],
) -> Response:
    outputs: list[dict[str, Any]] = []
    tensors = b""
    for name, binary in wanted.items():
        values = [_value(answer, name) for answer in answers]
        kind = (OUTPUT_DATATYPES | REASONS)[name]
        output: dict[str, Any] = {"name": name, "datatype": kind, "shape": shape}
        if binary:
            data = _write_bytes(values) if kind == "BYTES" else np.array(values, "<f4").tobytes()
            output["parameters"] = {"binary_data_size": len(data)}
            tensors += data
        else:
            output["data"] = values
        outputs.append(output)
    head: dict[str, Any] = {"model_name": entry.name, "model_version": entry.version[:12], "outputs": outputs}
    if request.id is not None:
        head["id"] = request.id
    text = write(head)
    if not tensors:
        return reply(text)
    return reply(text + tensors, BINARY, {**NO_STORE, HEADER_LENGTH: str(len(text))})


def _value(answer: Answer, name: str) -> Any:
    """One element of a tensor. The logit of `neutral` is none of the model's: it is 0."""
    if name == "logit":
        logit = answer["logit"]
        return logit.get(answer["label"], 0.0) if isinstance(logit, dict) else logit
    if name == "leaders":
        return write(answer["leaders"]).decode()
    return answer[name] or "" if name == "abstain_reason" else answer[name]


def _write_bytes(values: Sequence[str]) -> bytes:
    parts = [value.encode() for value in values]
    return b"".join(struct.pack("<I", len(part)) + part for part in parts)
