"""Let a second graph use the weights of a first: its initializers are parts of the first one's file."""

from __future__ import annotations

import onnx
from onnx import TensorProto

MIN_BYTES = 1_024  # smaller initializers are copied
MODEL_FILE = "model.onnx"


def share_weights(model: onnx.ModelProto, file: bytes) -> onnx.ModelProto:
    """Return the model with its large initializers as external data in `file`, another model that has them.

    Raises:
        ValueError: The file has other weights.
    """
    shared, end = onnx.ModelProto(), 0
    shared.CopyFrom(model)
    for tensor in shared.graph.initializer:
        data = tensor.raw_data
        if len(data) < MIN_BYTES:
            continue
        offset = file.find(data, end)
        if offset < 0 and (offset := file.find(data)) < 0:
            raise ValueError(f"the file has no initializer like {tensor.name}")
        end = offset + len(data)
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in (("location", MODEL_FILE), ("offset", offset), ("length", len(data))):
            entry = tensor.external_data.add()
            entry.key, entry.value = key, str(value)
    return shared
