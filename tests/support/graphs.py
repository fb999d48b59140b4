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


def loop_forever(model: onnx.ModelProto) -> None:
    """Make the first output wait for an endless loop."""
    name, original = model.graph.output[0].name, "before"
    (node,) = [node for node in model.graph.node if name in node.output]
    node.output[list(node.output).index(name)] = original
    info, flag = helper.make_tensor_value_info, TensorProto.BOOL
    number = model.graph.output[0].type.tensor_type.elem_type
    continues = [info("going", flag, []), info("goes_on", flag, [])]
    value = [info("value", number, None), info("next", number, None)]
    iteration = info("turn", TensorProto.INT64, [])
    identities = [helper.make_node("Identity", [x.name], [y.name]) for x, y in (continues, value)]
    body = helper.make_graph(
        identities, "body", [iteration, continues[0], value[0]], [continues[1], value[1]]
    )
    model.graph.initializer.append(helper.make_tensor("always", flag, [], [True]))
    model.graph.node.append(helper.make_node("Loop", ["", "always", original], [name], body=body))
