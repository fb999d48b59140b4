"""The graph of heads for GPUs: double precision replaces the integer operators that CUDA has no kernel for.

Whole numbers below 2^53 are exact in double precision, so both graphs give the same bits.
"""
# onnxscript translates the source of the functions below.
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators

from collections.abc import Iterator, Sequence

import onnx
from onnxscript import opset20 as op
from onnxscript import script

from model_export.attention.functions import DOMAIN, domain


@script(domain, default_opset=op)
def Product(x, weight, x_zero, weight_zero):
    """MatMulInteger."""
    a = op.Cast(x, to=11) - op.Cast(x_zero, to=11)
    return op.Cast(op.MatMul(a, op.Cast(weight, to=11) - op.Cast(weight_zero, to=11)), to=6)


@script(domain)
def PadZeros(x, pads):
    """Pad with zeros."""
    return op.CastLike(op.Pad(op.Cast(x, to=11), pads), x)


@script(domain)
def PadValue(x, pads, value):
    """Pad with a value."""
    return op.CastLike(op.Pad(op.Cast(x, to=11), pads, op.Cast(value, to=11)), x)


@script(domain)
def FirstLargest(x, axis: int, keepdims: int):
    """ArgMax."""
    return op.ArgMax(op.Cast(x, to=11), axis=axis, keepdims=keepdims)


@script(domain)
def StableTopK(x, k, axis: int, largest: int):
    """TopK; of equal values the first comes first, as ONNX defines it. CUDA gives them in any order."""
    values, order = op.TopK(x, k, axis=axis, largest=largest)
    one = op.Constant(value_int=1)
    before = op.Range(op.Constant(value_int=0), op.Squeeze(k), one) - one
    other = op.Not(values == op.Gather(values, op.Max(before, op.Constant(value_int=0)), axis=axis))
    group = op.CumSum(op.Cast(other, to=7), op.Constant(value_int=axis)) * op.Shape(x, start=1, end=2)
    ranked, _ = op.TopK(group + order, k, axis=axis, largest=0)  # all different
    return values, ranked - group


# by operator and number of inputs
REPLACEMENTS = {
    ("MatMulInteger", 4): Product,
    ("Pad", 2): PadZeros,
    ("Pad", 3): PadValue,
    ("ArgMax", 1): FirstLargest,
    ("TopK", 2): StableTopK,
}


def to_float(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the graph for GPUs that computes what the graph of heads computes."""
    floats = onnx.ModelProto()
    floats.CopyFrom(model)
    for node in _all_nodes([*floats.graph.node, *(node for f in floats.functions for node in f.node)]):
        replacement = REPLACEMENTS.get((node.op_type, len(node.input)))
        if replacement is not None:
            node.domain, node.op_type = DOMAIN, replacement.name
    floats.functions.extend(function.to_function_proto() for function in REPLACEMENTS.values())
    onnx.checker.check_model(floats)
    return floats


def _all_nodes(nodes: Sequence[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """Yield the nodes and those of their subgraphs."""
    for node in nodes:
        yield node
        for attribute in node.attribute:
            yield from _all_nodes(attribute.g.node)
