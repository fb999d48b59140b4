"""Puts the state of every Loop in one order, by name.

onnxscript 0.7 lists the variables that a loop carries by iterating two equal sets, whose orders may differ
with Python's hash seed: inputs and outputs of the Loop then belong to different variables. Names still tell
which is which (`size`, `size_9`, `size_48`), so the order is made again here. Knows protos only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import onnx


def settle(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model itself, its loops in order."""
    for nodes in (model.graph.node, *(function.node for function in model.functions)):
        _settle(nodes)
    return model


def _settle(nodes: Iterable[onnx.NodeProto]) -> None:
    for node in nodes:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                _settle(attribute.g.node)
        if node.op_type == "Loop":
            _order(node)


def _order(loop: onnx.NodeProto) -> None:
    """subtle: only the outputs stray; the body and the loop's inputs share one order."""
    (body,) = (attribute.g for attribute in loop.attribute if attribute.name == "body")
    stems = [_stem(parameter.name) for parameter in body.input[2:]]
    order = sorted(range(len(stems)), key=stems.__getitem__)
    _reorder(loop.input, 2, order)
    _reorder(body.input, 2, order)
    _reorder(body.output, 1, order)
    outputs = sorted(loop.output, key=_stem)
    if [_stem(name) for name in outputs] != sorted(stems) or len(set(stems)) < len(stems):
        raise ValueError(f"the loop over {stems} cannot be put in order: it returns {list(loop.output)}")
    loop.output[:] = outputs


def _reorder(field: object, skip: int, order: Sequence[int]) -> None:
    values = list(field)  # type: ignore[call-overload]
    moved = values[:skip] + [values[skip + i] for i in order]
    del field[:]  # type: ignore[attr-defined]
    field.extend(moved)  # type: ignore[attr-defined]


def _stem(name: str) -> str:
    return re.sub(r"_\d+$", "", name)
