"""Graphs of bundles, changed by who means harm. Needs no torch."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import onnx
from onnx import TensorProto, helper


def change_graph(folder: Path, change: Callable[[onnx.ModelProto], None]) -> None:
    """Change a bundle's graph in place; its card stays true."""
    model = onnx.load(folder / "model.onnx")
    change(model)
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    card = json.loads((folder / "card.json").read_text())
    card["model_sha256"] = hashlib.sha256((folder / "model.onnx").read_bytes()).hexdigest()
    (folder / "card.json").write_text(json.dumps(card))


def claim_family(model: onnx.ModelProto) -> None:
    """A stranger's graph, with the metadata of a well-known one: it negates every contribution."""
    (node,) = [each for each in model.graph.node if "contribution" in each.output]
    node.output[list(node.output).index("contribution")] = "before"
    model.graph.node.append(onnx.helper.make_node("Neg", ["before"], ["contribution"]))


def never_end(model: onnx.ModelProto) -> None:
    """Its first output waits for a loop without end."""
    name, before = model.graph.output[0].name, "before"
    (node,) = [node for node in model.graph.node if name in node.output]
    node.output[list(node.output).index(name)] = before
    info, flag = helper.make_tensor_value_info, TensorProto.BOOL
    number = model.graph.output[0].type.tensor_type.elem_type
    going = [info("going", flag, []), info("goes_on", flag, [])]
    value = [info("value", number, None), info("next", number, None)]
    turn = info("turn", TensorProto.INT64, [])
    same = [helper.make_node("Identity", [x.name], [y.name]) for x, y in (going, value)]
    body = helper.make_graph(same, "body", [turn, going[0], value[0]], [going[1], value[1]])
    model.graph.initializer.append(helper.make_tensor("always", flag, [], [True]))
    model.graph.node.append(helper.make_node("Loop", ["", "always", before], [name], body=body))
