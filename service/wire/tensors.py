"""Texts and answers as tensors of the Open Inference Protocol: in JSON, or as bytes after it."""

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from service.errors import InvalidInput, MalformedInput, TooLarge
from service.text.pipeline import Answer
from service.wire.documents import MAX_JSON_BYTES, parse, write
from service.wire.protocols import InferRequest

INPUT = "text"
DEFAULT_OUTPUTS = {"label": "BYTES", "score": "FP32", "logit": "FP32", "abstain_reason": "BYTES"}
OUTPUTS = {**DEFAULT_OUTPUTS, "leaders": "BYTES"}  # leaders only on request


def read_request(
    content: bytearray, json_length: str | None, max_texts: int, *, is_binary: bool
) -> tuple[InferRequest, list[str]]:
    """Return the request, and the texts in its input.

    Args:
        content: The body.
        json_length: The header that says how much of the body is JSON, if there is one.
        max_texts: MAX_CLIENT_BATCH_SIZE.
        is_binary: Whether the media type is that of bytes.
    """
    document, tensors = _split(content, json_length, is_binary=is_binary)
    request = parse(document, InferRequest)
    if [(tensor.name, tensor.datatype) for tensor in request.inputs] != [(INPUT, "BYTES")]:
        raise InvalidInput('expected one input, "text", of datatype BYTES')
    (tensor,) = request.inputs
    count = int(np.prod(tensor.shape, dtype=object))
    if not 1 <= count <= max_texts:
        raise TooLarge(f"expected 1 to {max_texts} texts (MAX_CLIENT_BATCH_SIZE)")
    size = tensor.parameters.get("binary_data_size")
    if size not in (None, len(tensors)):
        raise MalformedInput("binary_data_size is not the size of the data that follow")
    texts = _flatten(tensor.data) if size is None else _read_elements(tensors, count)
    if len(texts) != count:
        raise InvalidInput(f"the shape says {count} texts, there are {len(texts)}")
    return request, texts


def requested_outputs(request: InferRequest) -> dict[str, bool]:
    """Return the names of the requested outputs, and whether each is sent as bytes."""
    default = bool(request.parameters.get("binary_data_output", False))
    if not request.outputs:
        return dict.fromkeys(DEFAULT_OUTPUTS, default)
    for output in request.outputs:
        if output.name not in OUTPUTS:
            raise InvalidInput(f"there is no such output; there are {', '.join(OUTPUTS)}")
    return {output.name: bool(output.parameters.get("binary_data", default)) for output in request.outputs}


def write_response(
    head: dict[str, Any], request: InferRequest, outputs: dict[str, bool], answers: Sequence[Answer]
) -> tuple[bytes, int | None]:
    """Return the body of the answer, and the length of its JSON part if tensors follow as bytes."""
    documents: list[dict[str, Any]] = []
    tensors = b""
    for name, is_binary in outputs.items():
        values, kind = [_element(answer, name) for answer in answers], OUTPUTS[name]
        output: dict[str, Any] = {"name": name, "datatype": kind, "shape": request.inputs[0].shape}
        if is_binary:
            data = _write_elements(values) if kind == "BYTES" else np.array(values, "<f4").tobytes()
            output["parameters"] = {"binary_data_size": len(data)}
            tensors += data
        else:
            output["data"] = values
        documents.append(output)
    head = {**head, "outputs": documents} | ({} if request.id is None else {"id": request.id})
    text = write(head)
    return text + tensors, len(text) if tensors else None


def _split(content: bytearray, json_length: str | None, *, is_binary: bool) -> tuple[bytearray, memoryview]:
    """Return the JSON part of a body, and the tensors after it."""
    if json_length is None:
        if is_binary:
            raise MalformedInput("an octet stream needs Inference-Header-Content-Length")
        return content, memoryview(b"")
    if not json_length.isdecimal() or len(json_length) > 12 or int(json_length) > len(content):
        raise MalformedInput("Inference-Header-Content-Length is not the length of the JSON part")
    length = int(json_length)
    if length > MAX_JSON_BYTES:
        raise TooLarge(
            f"the JSON part may have {MAX_JSON_BYTES / 1e6:g} MB: send the texts as a binary tensor"
        )
    return content[:length], memoryview(content)[length:]


def _read_elements(tensor: memoryview, count: int) -> list[str]:
    """Read a BYTES tensor: the length of each element in four bytes, little endian, then its UTF-8."""
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


def _flatten(data: object) -> list[str]:
    texts: list[str] = []
    stack = [data]
    while stack:
        value = stack.pop()
        if isinstance(value, str):
            texts.append(value)
        elif isinstance(value, list):
            stack.extend(reversed(value))
        else:
            raise InvalidInput('data of "text" should be strings')
    return texts


def _element(answer: Answer, name: str) -> Any:
    """Return one element of a tensor. `neutral` has no logit of the model: it gets 0."""
    if name == "logit":
        logit = answer["logit"]
        return logit.get(answer["label"], 0.0) if isinstance(logit, dict) else logit
    if name == "leaders":
        return write(answer["leaders"]).decode()
    return answer[name] or "" if name == "abstain_reason" else answer[name]


def _write_elements(values: Sequence[str]) -> bytes:
    parts = [value.encode() for value in values]
    return b"".join(struct.pack("<I", len(part)) + part for part in parts)
