"""The ONNX domain `hardmax`, whose functions exported graphs show by name, and a builder of graphs.

The functions consist of standard operators. They are defined next to the graphs that call them.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnxscript.values import Opset

DOMAIN = "hardmax"
DOMAIN_VERSION = 1
ORT_DOMAIN = "com.microsoft"  # ONNX Runtime's own operators
OPSET = 20
IR_VERSION = 10
Specs = Mapping[str, tuple[Any, Any]]  # types and shapes by name

domain = Opset(DOMAIN, DOMAIN_VERSION)


class GraphBuilder:
    """Builds a graph node by node."""

    def __init__(self) -> None:
        self._nodes: list[onnx.NodeProto] = []

    def add_call(self, function: Any, inputs: str, outputs: str) -> None:
        """Add a call of a function of the domain."""
        self._nodes.append(helper.make_node(function.name, inputs.split(), outputs.split(), domain=DOMAIN))

    def add_node(self, op_type: str, inputs: str, outputs: str, **attributes: Any) -> None:
        """Add a node of a standard operator."""
        self._nodes.append(helper.make_node(op_type, inputs.split(), outputs.split(), **attributes))

    def extend(self, other: "GraphBuilder") -> None:
        """Add the nodes of another builder."""
        self._nodes += other._nodes

    def to_branch(self, name: str, outputs: Sequence[str]) -> onnx.GraphProto:
        """Return the nodes as a branch of an If node, which can use every name of the outer graph."""
        values = [onnx.ValueInfoProto(name=output) for output in outputs]
        return onnx.GraphProto(node=self._nodes, name=name, output=values)

    def to_model(
        self, name: str, inputs: Specs, outputs: Specs, values: Mapping[str, Any], functions: Iterable[Any]
    ) -> onnx.ModelProto:
        """Return the nodes as a model; `functions` are those of the domain that the graph needs."""
        graph = helper.make_graph(
            self._nodes, name, value_infos(inputs), value_infos(outputs), to_tensors(values)
        )
        protos = [function.to_function_proto() for function in functions]
        for proto in protos:
            if all(opset.domain != DOMAIN for opset in proto.opset_import):
                proto.opset_import.append(helper.make_opsetid(DOMAIN, DOMAIN_VERSION))
        opsets = _opsets()
        if any(opset.domain == ORT_DOMAIN for proto in protos for opset in proto.opset_import):
            opsets.append(helper.make_opsetid(ORT_DOMAIN, 1))
        return helper.make_model(graph, functions=protos, opset_imports=opsets, ir_version=IR_VERSION)


def _opsets() -> list[onnx.OperatorSetIdProto]:
    return [helper.make_opsetid("", OPSET), helper.make_opsetid(DOMAIN, DOMAIN_VERSION)]


def value_infos(specs: Specs) -> list[onnx.ValueInfoProto]:
    """Return the ONNX types of inputs or outputs."""
    return [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape)
        for name, (dtype, shape) in specs.items()
    ]


def to_tensors(values: Mapping[str, Any]) -> list[onnx.TensorProto]:
    """Return arrays as ONNX tensors."""
    return [numpy_helper.from_array(np.array(value, order="C"), name) for name, value in values.items()]
