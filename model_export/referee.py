"""The referee of exported graphs: onnx's own evaluator runs them in numpy, one operator after the other.

Torch is the definition of a model, its graph the translation. ONNX Runtime fuses and reorders operators; what
it returns must be what the operators of the graph give, to the bit.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import inliner
from onnx.external_data_helper import ExternalDataInfo, uses_external_data
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from model_export.attention.functions import ORT_DOMAIN
from service.runtime.session import Session

Arrays = Mapping[str, np.ndarray[Any, Any]]


class GatherElements(OpRun):  # type: ignore[misc]
    """subtle: that of onnx 1.23 selects among 64 rows at most."""

    def _run(self, data: Any, indices: Any, axis: int = 0) -> tuple[Any]:
        return (np.take_along_axis(data, indices, axis),)


class QLinearMatMul(OpRun):  # type: ignore[misc]
    """subtle: onnx's scales the exact product in double precision; torch and ONNX Runtime do in single."""

    def _run(
        self, a: Any, a_scale: Any, a_zero: Any, b: Any, b_scale: Any, b_zero: Any, scale: Any, zero: Any
    ) -> tuple[Any]:
        product = (a - a_zero.astype(np.float64)) @ (b - b_zero.astype(np.float64))
        scaled = np.rint(product.astype(np.float32) * (a_scale * b_scale / scale)) + zero
        limits = np.iinfo(zero.dtype)
        return (np.clip(scaled, limits.min, limits.max).astype(zero.dtype),)


class MatMulIntegerToFloat(OpRun):  # type: ignore[misc]
    """An operator of ONNX Runtime: a product of whole numbers, scaled in single precision."""

    op_domain = ORT_DOMAIN

    def _run(self, a: Any, b: Any, a_scale: Any, b_scale: Any, a_zero: Any) -> tuple[Any]:
        product = (a - a_zero.astype(np.float64)) @ b.astype(np.float64)
        return (product.astype(np.float32) * (a_scale * b_scale),)


NEW_OPS = [GatherElements, QLinearMatMul, MatMulIntegerToFloat]


class Referee:
    """A graph that is evaluated by its operators' definitions."""

    def __init__(self, graph: bytes, weights: bytes = b"") -> None:
        """Read a graph; `weights` are the bytes of the file that its external data is in."""
        model = inliner.inline_local_functions(_with_weights(graph, weights))
        self._evaluator = ReferenceEvaluator(model, new_ops=NEW_OPS)

    def run(self, feeds: Arrays, outputs: Sequence[str]) -> dict[str, np.ndarray[Any, Any]]:
        """Return the named outputs."""
        return dict(zip(outputs, self._evaluator.run(list(outputs), dict(feeds)), strict=True))

    def differences(self, session: Session, feeds: Arrays, outputs: Sequence[str]) -> set[str]:
        """Return the names of the outputs that a session does not give to the bit."""
        expected, actual = self.run(feeds, outputs), session.run(feeds, outputs)
        return {
            name for name, x in zip(outputs, actual, strict=True) if not np.array_equal(x, expected[name])
        }


def _with_weights(graph: bytes, weights: bytes) -> onnx.ModelProto:
    """Return a graph with its external data in it."""
    model = onnx.load_from_string(graph)
    for tensor in model.graph.initializer:
        if uses_external_data(tensor):
            data = ExternalDataInfo(tensor)
            tensor.raw_data = weights[data.offset : data.offset + data.length]
            tensor.data_location = onnx.TensorProto.DEFAULT
            tensor.ClearField("external_data")
    return model
