"""Malicious changes of the graphs of bundles. Needs no torch."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import onnx
from onnx import TensorProto, helper


def change_graph(folder: Path, change: Callable[[onnx.ModelProto], None]) -> None:
    """Change a bundle's graph in place, and the digest in its card."""
    model = onnx.load(folder / "model.onnx")
    change(model)
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    card = json.loads((folder / "card.json").read_text())
    card["model_sha256"] = hashlib.sha256((folder / "model.onnx").read_bytes()).hexdigest()
    (folder / "card.json").write_text(json.dumps(card))


def negate_contributions(model: onnx.ModelProto) -> None:
    """Negate every contribution; the metadata stay those of the original graph."""
    (node,) = [node for node in model.graph.node if "contribution" in node.output]
    node.output[list(node.output).index("contribution")] = "before"
    model.graph.node.append(onnx.helper.make_node("Neg", ["before"], ["contribution"]))


def take_memory(model: onnx.ModelProto) -> None:
    """Make the first output wait for 16 GB of ones, which take a few bytes in the file."""
    name, kind = model.graph.output[0].name, model.graph.output[0].type.tensor_type.elem_type
    (node,) = [node for node in model.graph.node if name in node.output]
    node.output[list(node.output).index(name)] = "before"
    model.graph.initializer.append(helper.make_tensor("many", TensorProto.INT64, [1], [4_000_000_000]))
    one = helper.make_tensor("one", TensorProto.FLOAT, [1], [1.0])
    model.graph.node.extend(
        [
            helper.make_node("ConstantOfShape", ["many"], ["ones"], value=one),
            helper.make_node("ReduceMin", ["ones"], ["smallest"], keepdims=0),
            helper.make_node("Cast", ["smallest"], ["unit"], to=kind),
            helper.make_node("Mul", ["before", "unit"], [name]),
        ]
    )


def loop_forever(model: onnx.ModelProto, min_tokens: int = 0) -> None:
    """Make the first output wait for an endless loop, if the first input has so many tokens."""
    name, original = model.graph.output[0].name, "loop_before"
    (node,) = [node for node in model.graph.node if name in node.output]
    node.output[list(node.output).index(name)] = original
    info, flag = helper.make_tensor_value_info, TensorProto.BOOL
    number = model.graph.output[0].type.tensor_type.elem_type
    continues = [info("loop_going", flag, []), info("loop_goes_on", flag, [])]
    value = [info("loop_value", number, None), info("loop_next", number, None)]
    iteration = info("loop_turn", TensorProto.INT64, [])
    identities = [helper.make_node("Identity", [x.name], [y.name]) for x, y in (continues, value)]
    body = helper.make_graph(
        identities, "body", [iteration, continues[0], value[0]], [continues[1], value[1]]
    )
    for constant, value in (("loop_bound", min_tokens), ("loop_axis", 0)):
        model.graph.initializer.append(helper.make_tensor(constant, TensorProto.INT64, [], [value]))
    first = model.graph.input[0].name
    model.graph.node.append(helper.make_node("Shape", [first], ["loop_shape"]))
    model.graph.node.append(helper.make_node("Gather", ["loop_shape", "loop_axis"], ["loop_tokens"]))
    model.graph.node.append(
        helper.make_node("GreaterOrEqual", ["loop_tokens", "loop_bound"], ["loop_always"])
    )
    model.graph.node.append(helper.make_node("Loop", ["", "loop_always", original], [name], body=body))
