"""Write dynamics.onnx, which screens the scores of many queries and keys (model_export/attention/screen.py).

    hardmax-export dynamics --models-dir service/pretrained

The graph is generic in the number of queries and keys and in their dimension. The service runs it
(service/cloud/candidates.py), proves that the keys it leaves out are not best, and decides among the others.
"""

import argparse
from pathlib import Path

import numpy as np
import onnxscript
from onnx import ModelProto
from onnx.helper import make_graph, make_model, make_node, make_opsetid

from model_export.attention.functions import DOMAIN, DOMAIN_VERSION, IR_VERSION, OPSET, value_infos
from model_export.attention.screen import KEYS_PER_RUN, Screen
from model_export.bundle import write_bundle

BUNDLE_NAME = "dynamics"
CREATED = "2026-11-21"  # fixed, so that building the graph again changes no byte


def build_dynamics() -> ModelProto:
    """Return the graph, in float32; `Screen` describes its inputs and outputs."""
    shapes = {"queries": ["q", "d"], "keys": ["k", "d"], "best": ["q"], "slack": ["q"]}
    inputs = {name: (np.float32, shape) for name, shape in shapes.items()}
    outputs = {
        "best_out": (np.float32, ["q"]),
        "runs": (np.int64, ["p"]),
        "scores": (np.float32, ["p", KEYS_PER_RUN]),
    }
    node = make_node("Screen", [*inputs], [*outputs], domain=DOMAIN, name="screen")
    return make_model(
        make_graph([node], BUNDLE_NAME, value_infos(inputs), value_infos(outputs)),
        functions=[Screen.to_function_proto()],
        opset_imports=[make_opsetid("", OPSET), make_opsetid(DOMAIN, DOMAIN_VERSION)],
        ir_version=IR_VERSION,
    )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.add_argument(
        "--models-dir", type=Path, default=Path("service/pretrained"), help="folder of models"
    )


def run(arguments: argparse.Namespace) -> int:
    """Write the bundle of the graph into the folder of models; return 0."""
    card = {
        "format": 2,
        "name": BUNDLE_NAME,
        "description": "Hardmax attention on a cloud of points, run until their limits are certain.",
        "created": CREATED,
        "versions": {"onnx_opset": OPSET, "onnxscript": onnxscript.__version__},
    }
    print(arguments.models_dir / write_bundle(arguments.models_dir, BUNDLE_NAME, card, build_dynamics()).name)
    return 0
