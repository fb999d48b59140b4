"""The Open Inference Protocol (/v2), as Triton, KServe and their clients speak it.

Models of kind sentiment take a BYTES tensor `text` and give `label` (BYTES), `score` and `logit` (FP32).
Tensors travel as JSON or, with the binary tensor extension, behind the JSON of which `Inference-Header-
Content-Length` tells the length.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Sequence
from typing import Any
from typing import Protocol as Interface

import numpy as np
from pydantic_core import to_json

from service import __version__
from service.api import examples
from service.api.classify import How, check_texts, size_of
from service.api.exchange import NO_STORE, Exchange, Reply
from service.api.media import BINARY, JSON, body_type
from service.api.numbers import WHOLE
from service.api.texts import TextReader
from service.batching import Batcher
from service.errors import InvalidInput, MalformedInput, NotFound, NotReady, TooLarge
from service.registry import Entry, Registry
from service.schemas import InferRequest, InferResponse, ModelMetadata, ServerMetadata
from service.settings import Settings

HEADER_LENGTH = b"inference-header-content-length"
INPUT = "text"
DIMENSIONS = 32  # of a tensor: as many as numpy and Triton's clients have
_BINARY = {"schema": {"type": "string", "format": "binary"}}
REQUEST = examples.body(examples.INFER, **{BINARY: _BINARY})
ANSWER = examples.answer(examples.INFERRED, **{BINARY: _BINARY})
OUTPUTS = {"label": "BYTES", "score": "FP32", "logit": "FP32"}


async def server_metadata() -> ServerMetadata:
    """Name, version and extensions of the server"""
    raise NotImplementedError


async def server_live() -> None:
    """Whether the server lives"""
    raise NotImplementedError


async def server_ready() -> None:
    """Whether the server takes traffic"""
    raise NotImplementedError


async def model_metadata(name: str) -> ModelMetadata:
    """The tensors of a model"""
    raise NotImplementedError


async def model_ready(name: str) -> None:
    """Whether a model can infer"""
    raise NotImplementedError


async def infer(name: str, body: InferRequest) -> InferResponse:
    """Label texts by the Open Inference Protocol

    With or without the binary tensor extension.
    """
    raise NotImplementedError


async def version_metadata(name: str, version: str) -> ModelMetadata:
    """The tensors of a version of a model"""
    raise NotImplementedError


async def version_ready(name: str, version: str) -> None:
    """Whether a version of a model can infer"""
    raise NotImplementedError


async def version_infer(name: str, version: str, body: InferRequest) -> InferResponse:
    """Label texts with a version of a model"""
    raise NotImplementedError


class Life(Interface):
    def healthy(self) -> bool: ...
    def unready(self) -> str | None: ...


class Protocol:
    def __init__(
        self,
        registry: Registry,
        texts: Batcher[str, dict[str, Any]],
        settings: Settings,
        life: Life,
    ) -> None:
        self._registry = registry
        self._texts = texts
        self._settings = settings
        self._life = life
        self._reader = TextReader(settings)

    async def server(self, exchange: Exchange) -> Reply:
        return Reply(
            to_json({"name": "hardmax", "version": __version__, "extensions": ["binary_tensor_data"]})
        )

    async def live(self, exchange: Exchange) -> Reply:
        if not self._life.healthy():
            raise NotReady("the inference thread does not answer")
        return Reply(b"")

    async def ready(self, exchange: Exchange) -> Reply:
        if reason := self._life.unready():
            raise NotReady(reason)
        return Reply(b"")

    async def model(self, exchange: Exchange) -> Reply:
        entry = self._entry(exchange)
        text = entry.kind == "sentiment"
        inputs = [{"name": INPUT, "datatype": "BYTES", "shape": [-1]}] if text else []
        outputs = [{"name": name, "datatype": kind, "shape": [-1]} for name, kind in OUTPUTS.items()]
        metadata = {
            "name": entry.name,
            "versions": [entry.version[:12]],
            "platform": "onnxruntime_onnx",
            "inputs": inputs,
            "outputs": outputs if text else [],
        }
        return Reply(to_json(metadata))

    async def model_ready(self, exchange: Exchange) -> Reply:
        self._entry(exchange)
        return await self.ready(exchange)

    async def infer(self, exchange: Exchange) -> Reply:
        kind = body_type(exchange, JSON, BINARY)
        entry = self._entry(exchange)
        body = await exchange.read(self._settings.payload_limit_bytes)
        document, tensors = _split(exchange, body, kind)
        request = await self._reader.read(InferRequest, document)
        if entry.kind != "sentiment":
            raise InvalidInput(f"models of kind {entry.kind} do not infer by this protocol: see /docs")
        texts, shape = await self._texts_of(request, tensors)
        wanted = _wanted(request)
        how = How(entry.model, "none", False, True, self._settings.max_batch_tokens)
        results = await self._texts.submit(how, [(text, size_of(text)) for text in texts])
        answers = []
        for result in results:
            if isinstance(result, Exception):
                raise result
            answers.append(result)
        return _answer(entry, request, wanted, answers, shape)

    def _entry(self, exchange: Exchange) -> Entry:
        entry = self._registry.entries.get(exchange.parameters["name"])
        version = exchange.parameters.get("version")
        if entry is None or (version is not None and version not in (entry.version, entry.version[:12])):
            raise NotFound("no model has this name and version")
        return entry

    async def _texts_of(self, request: InferRequest, tensors: memoryview) -> tuple[list[str], list[int]]:
        """The texts in the request's one input."""
        if [tensor.name for tensor in request.inputs] != [INPUT] or request.inputs[0].datatype != "BYTES":
            raise InvalidInput('expected one input, "text", of datatype BYTES')
        tensor = request.inputs[0]
        if len(tensor.shape) > DIMENSIONS:
            raise InvalidInput(f"the shape has more than {DIMENSIONS} dimensions")
        count = int(np.prod(tensor.shape, dtype=object))
        if not 1 <= count <= self._settings.max_client_batch_size:
            limit = self._settings.max_client_batch_size
            raise TooLarge(f"expected 1 to {limit} texts (MAX_CLIENT_BATCH_SIZE)")
        size = tensor.parameters.get("binary_data_size")
        if size is None:
            texts = _flatten(tensor.data)
        elif size == len(tensors):
            texts = await self._reader.read_elements(tensors, count)
        else:
            raise MalformedInput("binary_data_size is not the size of the data that follow")
        if len(texts) != count:
            raise InvalidInput(f"the shape says {count} texts, there are {len(texts)}")
        if sum(map(len, texts)) <= WHOLE:
            check_texts(texts, self._settings, INPUT, single=False)
        else:
            await asyncio.to_thread(check_texts, texts, self._settings, INPUT, single=False)
        return texts, tensor.shape


def _split(exchange: Exchange, body: bytes, kind: str) -> tuple[bytes, memoryview]:
    """The JSON part of a body, and the tensors behind it."""
    given = exchange.headers.get(HEADER_LENGTH)
    if given is None:
        if kind == BINARY:
            raise MalformedInput("an octet stream needs Inference-Header-Content-Length")
        return body, memoryview(b"")
    if not given.isdigit() or len(given) > 12 or int(given) > len(body):
        raise MalformedInput("Inference-Header-Content-Length is not the length of the JSON part")
    length = int(given)
    return body[:length], memoryview(body)[length:]


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
        return dict.fromkeys(OUTPUTS, default)
    for output in request.outputs:
        if output.name not in OUTPUTS:
            raise InvalidInput(f"there is no such output; there are {', '.join(OUTPUTS)}")
    return {output.name: bool(output.parameters.get("binary_data", default)) for output in request.outputs}


def _answer(
    entry: Entry,
    request: InferRequest,
    wanted: dict[str, bool],
    results: Sequence[dict[str, Any]],
    shape: list[int],
) -> Reply:
    outputs: list[dict[str, Any]] = []
    tensors = b""
    for name, binary in wanted.items():
        values = [result[name] for result in results]
        output: dict[str, Any] = {"name": name, "datatype": OUTPUTS[name], "shape": shape}
        if binary:
            data = _write_bytes(values) if name == "label" else np.array(values, "<f4").tobytes()
            output["parameters"] = {"binary_data_size": len(data)}
            tensors += data
        else:
            output["data"] = values
        outputs.append(output)
    head: dict[str, Any] = {"model_name": entry.name, "model_version": entry.version[:12], "outputs": outputs}
    if request.id is not None:
        head["id"] = request.id
    text = to_json(head)
    if not tensors:
        return Reply(text)
    headers = (NO_STORE, (HEADER_LENGTH, b"%d" % len(text)))
    return Reply(text + tensors, media_type=BINARY.encode(), headers=headers)


def _write_bytes(values: Sequence[str]) -> bytes:
    parts = [value.encode() for value in values]
    return b"".join(struct.pack("<I", len(part)) + part for part in parts)
