"""Every node that a GPU runs has a kernel of its version and types in ONNX Runtime's CUDA provider."""

from collections.abc import Iterator
from pathlib import Path

import onnx
import pytest
from encoders import RELATIVE, TINY, random_encoder, random_head
from onnx import TensorProto, defs, inliner, shape_inference

from model_export.dynamics import build_dynamics
from model_export.encoder import graph as encoder_graph
from model_export.encoder.quantization import quantize as quantize_encoder
from model_export.head import graph as head_graph
from model_export.head.float_graph import to_float
from model_export.head.quantization import quantize as quantize_head

TABLE = Path(__file__).with_name("cuda_kernels.txt").read_text().splitlines()
KERNELS = {line for line in TABLE if not line.startswith(("#", "-"))}
MISSING = {line.removeprefix("- ") for line in TABLE if line.startswith("-")}
REPLACED = {"Constant", "CastLike"}  # when a graph is loaded: by its value, and by Cast


def signatures(model: onnx.ModelProto) -> set[str]:
    """Return operator, version and input types of all nodes, as in the table."""
    flat = shape_inference.infer_shapes(inliner.inline_local_functions(model), strict_mode=True)
    (opset,) = [imported.version for imported in flat.opset_import if not imported.domain]
    return {line for line in _signatures(flat.graph, {}, opset) if line.split()[0] not in REPLACED}


def _signatures(graph: onnx.GraphProto, outer: dict[str, int], opset: int) -> Iterator[str]:
    values = [*graph.input, *graph.value_info, *graph.output]
    types = outer | {value.name: value.type.tensor_type.elem_type for value in values}
    types |= {weights.name: weights.data_type for weights in graph.initializer}
    for node in graph.node:
        version = defs.get_schema(node.op_type, opset).since_version
        names = [TensorProto.DataType.Name(types[name]).lower() for name in node.input if name]
        yield " ".join([node.op_type, str(version), *names])
        for attribute in node.attribute:
            yield from _signatures(attribute.g, types, opset)


def head(d: int = 2, labels: int = 1) -> onnx.ModelProto:
    return head_graph.to_onnx(quantize_head(random_head(d, labels), random_encoder().output_scales))


@pytest.mark.parametrize("config", [TINY, RELATIVE], ids=["absolute", "relative"])
def test_every_node_of_the_float_graph_of_an_encoder_has_a_cuda_kernel(config) -> None:
    weights = quantize_encoder(random_encoder(config))
    assert signatures(encoder_graph.to_onnx(weights, "float")) - KERNELS == set()


@pytest.mark.parametrize(("d", "labels"), [(2, 1), (5, 3)])
def test_every_node_of_the_float_graph_of_a_head_has_a_cuda_kernel(d: int, labels: int) -> None:
    assert signatures(to_float(head(d, labels))) - KERNELS == set()


def test_every_node_of_the_graph_for_clouds_has_a_cuda_kernel() -> None:
    assert signatures(build_dynamics()) - KERNELS == set()


def test_graphs_for_the_cpu_have_nodes_without_a_cuda_kernel() -> None:
    encoder = encoder_graph.to_onnx(quantize_encoder(random_encoder(RELATIVE)))
    op_types = {node.op_type for function in encoder.functions for node in function.node}
    assert {"QLinearMatMul", "MatMulIntegerToFloat"} <= op_types
    assert {line.split()[0] for line in signatures(head()) & MISSING} == {"MatMulInteger", "Pad", "ArgMax"}
