"""Write dynamics.onnx, which scores many queries and keys in float32 and returns the pairs near the best.

    hardmax-export dynamics --models-dir service/pretrained

No other part of the dynamics costs queries times keys. The graph is generic in their number and dimension;
every operator has a kernel for CPU and CUDA: Transpose, MatMul, Reshape, ReduceMax, Max, Sub, Unsqueeze,
GreaterOrEqual, NonZero, Gather. The service runs it (service/cloud/candidates.py), proves that the keys it
leaves out are not best, and decides among the others.
"""
# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators, allow-incomplete-defs

import argparse
from pathlib import Path

import numpy as np
import onnxscript
from onnx import ModelProto
from onnx.helper import make_graph, make_model, make_node, make_opsetid
from onnxscript import opset20 as op
from onnxscript import script

from model_export.attention.functions import DOMAIN, DOMAIN_VERSION, IR_VERSION, OPSET, domain, value_infos
from model_export.bundle import write_bundle

KEYS_PER_RUN = 32  # keys that are returned together; their number must be a multiple of it
BUNDLE_NAME = "dynamics"
CREATED = "2026-11-21"  # fixed, so that building the graph again changes no byte


@script(domain)
def Screen(queries, keys, best, slack):
    """Runs of RUN keys in which some key comes within slack [q] of the best score so far.

    queries [q,d], keys [k,d], best [q]  ->  the best score now [q]; the runs, int64 [p], numbered along all
    keys of the first query, then of the second; and their scores [p,RUN].
    """
    last = op.Constant(value_ints=[-1])
    scores = op.Reshape(
        op.MatMul(queries, op.Transpose(keys, perm=[1, 0])), op.Constant(value_ints=[0, -1, KEYS_PER_RUN])
    )
    tops = op.ReduceMax(scores, last, keepdims=0)  # [q, k / KEYS_PER_RUN]
    best = op.Max(best, op.ReduceMax(tops, last, keepdims=0))
    near = op.Reshape(tops >= op.Unsqueeze(best - slack, last), last)
    runs = op.Reshape(op.NonZero(near), last)
    return best, runs, op.Gather(op.Reshape(scores, op.Constant(value_ints=[-1, KEYS_PER_RUN])), runs, axis=0)


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
