"""Read the bytes of an ONNX graph: its weights, the digest of everything else, the files that it names.

Two graphs with the same digest compute the same function of their inputs and weights. The digest is computed,
not read from the file. ONNX is protobuf; the fields used are those of onnx.proto.
"""

import hashlib
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.errors import BundleError

Array = NDArray[Any]

MODEL_GRAPH, MODEL_METADATA = 7, 14
GRAPH_INITIALIZER, GRAPH_INPUT = 5, 11
TENSOR_DIMS, TENSOR_TYPE, TENSOR_NAME, TENSOR_RAW_DATA, VALUE_NAME = 1, 2, 8, 9, 1
TENSOR_EXTERNAL_DATA, ENTRY_KEY, ENTRY_VALUE = 13, 1, 2
# The fields of a message of onnx.proto that may hold a tensor: kind of message -> field -> its kind.
NESTED: dict[str, dict[int, str]] = {
    "model": {7: "graph", 20: "training", 25: "function"},
    "training": {1: "graph", 2: "graph"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "function": {7: "node", 11: "attribute"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
    "tensor": {},
}
ELEMENT_TYPES = {
    1: "float32",
    2: "uint8",
    3: "int8",
    6: "int32",
    7: "int64",
    9: "bool",
    10: "float16",
    11: "float64",
}


def split_weights(model: bytes) -> tuple[str, dict[str, Array]]:
    """Return the digest of a graph without its weights, and the weights.

    Weights are the initializers that are inputs too: a caller of the graph may feed others.

    Raises:
        BundleError: The bytes are not a graph, or a weight is not stored as raw data.
    """
    try:
        return _split(memoryview(model))
    except (IndexError, KeyError, ValueError) as error:
        raise BundleError(f"not an ONNX graph: {error}", param="model.onnx") from error


def external_locations(model: bytes) -> set[str]:
    """Return the names of the files that tensors of a graph are stored in.

    Tensors of attributes, inner graphs and functions count: ONNX Runtime reads the files of all of them.

    Raises:
        BundleError: The bytes are not a graph.
    """
    try:
        return {value for key, value in _external_data(memoryview(model)) if key == "location"}
    except (IndexError, KeyError, ValueError) as error:
        raise BundleError(f"not an ONNX graph: {error}", param="model.onnx") from error


def _external_data(model: memoryview) -> Iterator[tuple[str | None, str]]:
    messages = [("model", model)]  # a stack: nesting may be deeper than Python's
    while messages:
        kind, message = messages.pop()
        for number, value in _fields(message):
            if number in NESTED[kind] and isinstance(value, memoryview):
                messages.append((NESTED[kind][number], value))
            elif kind == "tensor" and number == TENSOR_EXTERNAL_DATA:
                yield _text(value, ENTRY_KEY), _text(value, ENTRY_VALUE) or ""


def _split(model: memoryview) -> tuple[str, dict[str, Array]]:
    digest, weights = hashlib.sha256(), {}
    for number, field in _fields(model):
        if number == MODEL_METADATA:
            continue
        if number != MODEL_GRAPH:
            _update(digest, number, field)
            continue
        graph = list(_fields(field))
        inputs = {_text(value, VALUE_NAME) for part, value in graph if part == GRAPH_INPUT}
        for part, value in graph:
            name = _text(value, TENSOR_NAME) if part == GRAPH_INITIALIZER else None
            if name in inputs and name is not None:
                weights[name] = _array(value)
            else:
                _update(digest, part, value)
        digest.update(b"end of graph")
    return digest.hexdigest(), weights


def _update(digest: Any, number: int, field: Any) -> None:
    content = field if isinstance(field, memoryview) else str(field).encode()
    digest.update(f"{number} {len(content)} ".encode())
    digest.update(content)


def _fields(message: memoryview) -> Iterator[tuple[int, Any]]:
    """Yield the number and the value of every field: an int, or the bytes."""
    position = 0
    while position < len(message):
        key, position = _varint(message, position)
        if key >= 1 << 32:  # some parsers ignore the bits above
            raise ValueError("a field's number is too large")
        wire = key & 7
        if wire == 0:
            value, position = _varint(message, position)
            yield key >> 3, value
            continue
        size, position = _varint(message, position) if wire == 2 else ({1: 8, 5: 4}[wire], position)
        if position + size > len(message):
            raise ValueError("a field is longer than the file")
        yield key >> 3, message[position : position + size]
        position += size


def _varint(message: memoryview, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[position]
        value |= (byte & 127) << shift
        position, shift = position + 1, shift + 7
        if byte < 128:
            return value, position
        if shift > 63:
            raise ValueError("a number has more than 64 bits")


def _text(message: memoryview, number: int) -> str | None:
    """Return a field's text; the last one if there are several, as in protobuf."""
    text = None
    for part, value in _fields(message):
        if part == number:
            text = str(value, "utf-8")
    return text


def _array(tensor: memoryview) -> Array:
    shape: list[int] = []
    fields = dict[int, Any]()
    for number, value in _fields(tensor):
        if number != TENSOR_DIMS:
            fields[number] = value
        elif isinstance(value, int):
            shape.append(value)
        else:  # packed
            position = 0
            while position < len(value):
                size, position = _varint(value, position)
                shape.append(size)
    return np.frombuffer(fields[TENSOR_RAW_DATA], ELEMENT_TYPES[fields[TENSOR_TYPE]]).reshape(shape)
