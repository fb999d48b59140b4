"""The domain `hardmax`, under which exported graphs show their functions by name; how graphs are built.

Functions use standard operators alone. They stand where they are used: screen.py and graph.py of each kind.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnxscript.values import Opset

DOMAIN = "hardmax"
DOMAIN_VERSION = 1
OPSET = 20
IR_VERSION = 10
Specs = Mapping[str, tuple[Any, Any]]  # types and shapes by name

domain = Opset(DOMAIN, DOMAIN_VERSION)


class Nodes:
    """A graph that is written call by call; numbers by name make a model of it."""

    def __init__(self) -> None:
        self._nodes: list[onnx.NodeProto] = []

    def call(self, function: Any, inputs: str, outputs: str) -> None:
        """Add a call of a function of the domain."""
        self._nodes.append(helper.make_node(function.name, inputs.split(), outputs.split(), domain=DOMAIN))

    def plain(self, kind: str, inputs: str, outputs: str, **attributes: Any) -> None:
        """Add a node of a standard operator."""
        self._nodes.append(helper.make_node(kind, inputs.split(), outputs.split(), **attributes))

    def branch(self, name: str, outputs: Sequence[str]) -> onnx.GraphProto:
        """One side of an If: it sees every name around it."""
        values = [onnx.ValueInfoProto(name=each) for each in outputs]
        return onnx.GraphProto(node=self._nodes, name=name, output=values)

    def function(self, name: str, inputs: Sequence[str], outputs: Sequence[str]) -> onnx.FunctionProto:
        """Return the nodes as a function of the domain."""
        return helper.make_function(DOMAIN, name, inputs, outputs, self._nodes, _opsets())

    def model(
        self, name: str, inputs: Specs, outputs: Specs, values: Mapping[str, Any], functions: Iterable[Any]
    ) -> onnx.ModelProto:
        """`functions`: of the domain, those that are called and those that these call."""
        graph = helper.make_graph(self._nodes, name, infos(inputs), infos(outputs), tensors(values))
        protos = [
            each if isinstance(each, onnx.FunctionProto) else each.to_function_proto() for each in functions
        ]
        for proto in protos:
            if all(known.domain != DOMAIN for known in proto.opset_import):
                proto.opset_import.append(helper.make_opsetid(DOMAIN, DOMAIN_VERSION))
        return helper.make_model(graph, functions=protos, opset_imports=_opsets(), ir_version=IR_VERSION)


def _opsets() -> list[onnx.OperatorSetIdProto]:
    return [helper.make_opsetid("", OPSET), helper.make_opsetid(DOMAIN, DOMAIN_VERSION)]


def infos(specs: Specs) -> list[onnx.ValueInfoProto]:
    """Return the ONNX types of inputs or outputs."""
    return [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(kind)), shape)
        for name, (kind, shape) in specs.items()
    ]


def tensors(values: Mapping[str, Any]) -> list[onnx.TensorProto]:
    """Return arrays as ONNX tensors."""
    return [numpy_helper.from_array(np.array(value, order="C"), name) for name, value in values.items()]
