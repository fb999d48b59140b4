"""The leader head as an ONNX graph: from the outputs of the encoder to all parts of an explanation.

    input    states        uint8 [T, W]        hidden states of all tokens, as the encoder returns them
             words         uint8 [T, W]        their input embeddings
             members       int64 [M, P]        the rows of the tokens of each word; T where there is none
             texts         int64 [B, N]        the words of each text; M where there is none
    outputs  bias          double [H, B, C]
             contribution  double [H, B, C, N]    what each word adds to the logit
             target        int64 [H, B, N]        the leader of word i after all layers; -1 if several tie
             since         int64 [H, B, N]        the first layer with C_i = {i}, or -1
             plane         double [K+1, H, B, N, d]  positions before the layers and after each
             unlike        double [H, B]          out-of-distribution score

Several heads can run as one. The weights of one head are in the graph, as inputs that need not be fed, and
are outputs too. A caller that feeds the weights of H heads, stacked along the first axis, gets the outputs of
all; missing rows of a map are zeros, so heads need not have the same number of labels. `family` is a digest
of the graph without its weights: heads of one family can run together.

The symbols are those of leader_head.py. All that is compared or added lies on grids of powers of two: exact
in double precision, whatever the batch and the device. Words with the same coordinates are treated as one
point with a weight; `target` names the first of them. In the plane only vertices of the convex hull can be
leaders, so for long texts these are searched first, and each point is a candidate once.
"""

import hashlib

import numpy as np
import onnx
from onnx import helper, numpy_helper

from model_export.attention.functions import GraphBuilder, Specs, to_tensors
from model_export.encoder.quantized import ZERO, Array, Weights
from model_export.head.functions import (
    CANDIDATES,
    HEAD_FUNCTIONS,
    CountTokens,
    GatherRows,
    HardmaxAttention,
    InitialPoints,
    LeaderSince,
    MovePoints,
    OodScore,
    ProjectWords,
    Reach,
    Readout,
    UnitCounts,
    WordMasks,
)
from model_export.head.leader_head import (
    DIRECTION_GRID,
    LAYER_GRID,
    MAX_DIRECTION,
    MIN_REACH,
    POINT_GRID,
    WEIGHT_GRID,
)

N_DIRECTIONS = 24  # in which extreme points are searched
COORDINATE_FACTOR = 2.0**26  # points are sorted by the first coordinate times this plus the second
HULL_MARGIN = 1e-6  # a point deeper inside the hull cannot be a leader; far above rounding errors
PADDING_SCORE = -1e6  # added to the scores of padding
LINEAR_MAPS = ("first", "second", "read", "near")  # of integers, in the graph as uint8; 128 is zero
UNITS = [f"{name}_{part}" for name in LINEAR_MAPS for part in ("unit", "bias")]
WEIGHT_AXES = {  # the weights of one head, and the number of axes of each
    **dict.fromkeys(("scale", "gamma", "pseudo_weight"), 0),
    **dict.fromkeys((*UNITS, "hidden_steps", "first_axis", "b"), 1),
    **dict.fromkeys((*LINEAR_MAPS, "v"), 2),
}


def to_onnx(weights: Weights) -> onnx.ModelProto:
    """Return the graph with the stored head in it."""
    layers = int(weights["layers"])
    stored = stored_weights(weights)
    specs = {name: (w.dtype, ["H", *(f"{name}.{i}" for i in range(1, w.ndim))]) for name, w in stored.items()}
    inputs, outputs = {**_inputs(len(weights["first"])), **specs}, {**_outputs(layers), **specs}
    model = _build_graph(layers).to_model("head", inputs, outputs, _constants(layers), HEAD_FUNCTIONS)
    family = hashlib.sha256(model.SerializeToString(deterministic=True)).hexdigest()
    model.graph.initializer.extend(to_tensors(stored))
    helper.set_model_props(model, {"family": family})
    onnx.checker.check_model(model)
    return model


def _build_graph(layers: int) -> GraphBuilder:
    """Return the graph: initial points, `layers` layers, the read-out, the OOD score."""
    graph = GraphBuilder()
    call, node = graph.add_call, graph.add_node
    call(CountTokens, "members states", "n_tokens")
    call(ProjectWords, "words members n_tokens first first_unit first_bias zero", "hidden")
    call(Reach, "hidden hidden_steps second second_unit second_bias zero min_reach reach_range", "reach")
    node("Concat", "states words", "both", axis=1)
    call(ProjectWords, "both members n_tokens read read_unit read_bias zero", "projected")
    grids = "direction_grid point_grid weight_grid"
    call(InitialPoints, f"projected reach scale first_axis max_direction {grids}", "z w")
    call(GatherRows, "z texts", "z0")
    call(GatherRows, "w texts", "weights")
    call(WordMasks, "z0 texts members padding_score", "is_word mask search indices penalty")
    for source, shape in {"z0": "points_shape", "indices": "shape"}.items():  # of all layers together
        node("Shape", source, f"{shape}_of_one")
        node("Concat", f"count {shape}_of_one", shape, axis=0)
    node(
        "If", "search", "plane means targets",
        then_branch=_dynamics(layers, long=True), else_branch=_dynamics(layers, long=False),
    )  # fmt: skip
    call(LeaderSince, "plane means targets", "leader_since")
    node("Where", "is_word leader_since none", "since")
    node("Gather", "targets last", "last_targets")
    node("Gather", "means last", "last_means")
    node("Where", "is_word last_targets none", "target")
    call(Readout, "last_means weights mask v b pseudo_weight", "contribution bias")
    call(ProjectWords, "both members n_tokens near near_unit near_bias zero", "ood_maps")
    call(OodScore, "ood_maps texts mask direction_grid", "unlike")
    return graph


def _constants(layers: int) -> dict[str, Array]:
    """Return the constants, which all heads share."""
    angles = 2 * np.pi * np.arange(N_DIRECTIONS) / N_DIRECTIONS
    double = {
        "min_reach": MIN_REACH, "reach_range": 1 - MIN_REACH, "max_direction": MAX_DIRECTION,
        "direction_grid": DIRECTION_GRID, "point_grid": POINT_GRID, "weight_grid": WEIGHT_GRID,
        "layer_grid": LAYER_GRID, "margin": HULL_MARGIN, "coordinate_factor": COORDINATE_FACTOR,
        "padding_score": PADDING_SCORE, "quarter_turn": [[0, -1], [1, 0]],
        "directions": [np.cos(angles), np.sin(angles)],
    }  # fmt: skip
    return (
        {name: np.array(value, np.float64) for name, value in double.items()}
        | {"none": np.array(-1), "last": np.array(layers), "count": np.array([layers + 1])}
        | {"next": np.roll(np.arange(N_DIRECTIONS), -1), "zero": np.array(ZERO, np.uint8)}
    )


def _inputs(width: int) -> Specs:
    return {
        "states": (np.uint8, ["T", width]), "words": (np.uint8, ["T", width]),
        "members": (np.int64, ["M", "P"]), "texts": (np.int64, ["B", "N"]),
    }  # fmt: skip


def _outputs(layers: int) -> Specs:
    return {
        "bias": (np.float64, ["H", "B", "C"]), "contribution": (np.float64, ["H", "B", "C", "N"]),
        "target": (np.int64, ["H", "B", "N"]), "since": (np.int64, ["H", "B", "N"]),
        "plane": (np.float64, [layers + 1, "H", "B", "N", "d"]), "unlike": (np.float64, ["H", "B"]),
    }  # fmt: skip


def _dynamics(layers: int, *, long: bool) -> onnx.GraphProto:
    """Return the layers as a branch: positions, means and targets of all layers, along a new first axis.

    In `long` texts the candidates are searched first; in others every word is one.
    """
    graph = GraphBuilder()
    call, node = graph.add_call, graph.add_node
    if not long:
        call(UnitCounts, "penalty", "counts")
    for k in range(layers + 1):
        keys = f"z{k} indices penalty counts"
        if long:
            keys = f"keys{k} indices{k} penalty{k} counts{k}"
            constants = "padding_score directions quarter_turn next margin coordinate_factor"
            call(CANDIDATES, f"z{k} indices penalty {constants}", keys)
        call(HardmaxAttention, f"z{k} {keys} layer_grid", f"c{k} target{k}")
        if k < layers:
            call(MovePoints, f"z{k} c{k} gamma layer_grid", f"z{k + 1}")
    outputs = {"plane": ("z", "points_shape"), "means": ("c", "points_shape"), "targets": ("target", "shape")}
    for output, (prefix, shape) in outputs.items():
        node("Concat", " ".join(f"{prefix}{k}" for k in range(layers + 1)), f"{output}_flat", axis=0)
        node("Reshape", f"{output}_flat {shape}", output)
    return graph.to_branch("long" if long else "short", list(outputs))


def stored_weights(weights: Weights) -> dict[str, Array]:
    """Return the weights of one head as the graph stores them, with a first axis of heads.

    Maps without rows for the input embeddings get rows of zeros.
    """
    W, d = len(weights["first"]), weights["read"].shape[1] - 1
    values = {
        "near": np.zeros((W, 1)), "near_unit": np.zeros(1, np.float32), "near_bias": np.zeros(1, np.float32),
        **weights, "v": weights["v"].T, "first_axis": np.eye(1, d)[0] / POINT_GRID,
    }  # fmt: skip
    for name in LINEAR_MAPS:
        n_missing = 2 * W - len(values[name]) if name in ("read", "near") else 0
        padded = np.pad(values[name].astype(np.int16), ((0, n_missing), (0, 0)))
        values[name] = (padded + ZERO).astype(np.uint8)
    axes = {"v": 4, "gamma": 4}
    arrays = {name: np.asarray(values[name]) for name in WEIGHT_AXES}
    return {name: value[(None,) * (axes.get(name, 3) - value.ndim)] for name, value in arrays.items()}


def read_weights(model: onnx.ModelProto) -> dict[str, Array]:
    """Return the weights from which `to_onnx` made the model."""
    weights = {}
    for tensor in model.graph.initializer:
        if (name := tensor.name) in WEIGHT_AXES:
            value = numpy_helper.to_array(tensor)
            value = value.reshape(value.shape[value.ndim - WEIGHT_AXES[name] :])
            is_code = name in LINEAR_MAPS and value.dtype == np.uint8
            weights[name] = (value.astype(np.int16) - ZERO).astype(np.int8) if is_code else value
    (plane,) = [output for output in model.graph.output if output.name == "plane"]
    layers = plane.type.tensor_type.shape.dim[0].dim_value - 1
    return {**weights, "v": weights["v"].T, "layers": np.array(layers)}
