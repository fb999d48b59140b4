"""Planes as an ONNX graph: states of pieces in, and everything that an explanation is made of out.

    input    states        uint8 [T, W]        the last states of all pieces, as the reader gives them
             words         uint8 [T, W]        their first states
             members       int64 [M, P]        the rows of the pieces of each word; T where there is none
             texts         int64 [B, N]        the word at each place of each text; M where there is none
    outputs  bias          double [H, B, C]
             contribution  double [H, B, C, N]    what each place adds to the logit
             target        int64 [H, B, N]        whom i follows in the end; -1 if several tie
             since         int64 [H, B, N]        the first layer with C_i = {i}, or -1
             plane         double [K+1, H, B, N, d]  the places before the layers and after each
             unlike        double [H, B]          above 0: unlike the rows

H heads answer together. The weights of one are in the graph, as inputs that need not be fed, and are outputs
too. Whoever feeds those of several has all their answers of one run: the linear maps of a head are a row of
its own, and zeros in front of a map change nothing, so heads need not have the same number of labels. The
graph's `family` is a digest of all the rest of it: heads of one family run together.

The symbols are those of leader_head.py. All that is compared or added lies on grids of powers of two: exact
in double precision, whatever the batch and the device. Places with the same coordinates are one (twins);
`target` names the first of them. In the plane only corners of the cloud's convex hull can be followed, so
long texts look for these first, and ask of twins only one. This module knows arrays only.
"""

from __future__ import annotations

import hashlib

import numpy as np
import onnx
from onnx import helper, numpy_helper

from model_export.attention.functions import Nodes, Specs, tensors
from model_export.encoder.quantized import ZERO, Array, Stored
from model_export.head.functions import (
    CANDIDATES,
    HEAD_FUNCTIONS,
    HardmaxAttention,
    Move,
    Once,
    Places,
    Reach,
    ReadOut,
    Rows,
    Since,
    Sizes,
    Unlike,
    Whose,
    Words,
)
from model_export.head.leader_head import (
    DIRECTION_GRID,
    LAYER_GRID,
    MAX_DIRECTION,
    MIN_REACH,
    POINT_GRID,
    WEIGHT_GRID,
)

DIRECTIONS = 24  # in which extreme places are looked for
WIDE = 2.0**26  # so far apart, in steps of the grid, that one coordinate cannot reach over the other
MARGIN = 1e-6  # a place that lies so far inside the hull of those cannot win; far above what rounding moves
NEVER = -1e6  # what is added to the score of a place that is not there
LINEAR = ("first", "second", "read", "near")  # maps of whole numbers, in the graph as uint8; 128 is zero
UNITS = [f"{name}_{part}" for name in LINEAR for part in ("unit", "bias")]
# What a head has of its own, and how many axes that has.
OWN = {
    **dict.fromkeys(("scale", "gamma", "pseudo_weight"), 0),
    **dict.fromkeys((*UNITS, "hidden_steps", "first_axis", "b"), 1),
    **dict.fromkeys((*LINEAR, "v"), 2),
}


def to_onnx(weights: Stored) -> onnx.ModelProto:
    """Return the graph with the stored head in it."""
    layers = int(weights["layers"])
    own = of_head(weights)
    held = {name: (w.dtype, ["H", *(f"{name}.{i}" for i in range(1, w.ndim))]) for name, w in own.items()}
    inputs, outputs = {**_inputs(len(weights["first"])), **held}, {**_outputs(layers), **held}
    model = _nodes(layers).model("head", inputs, outputs, _constants(layers), HEAD_FUNCTIONS)
    family = hashlib.sha256(model.SerializeToString(deterministic=True)).hexdigest()
    model.graph.initializer.extend(tensors(own))
    helper.set_model_props(model, {"family": family})
    onnx.checker.check_model(model)
    return model


def _nodes(layers: int) -> Nodes:
    """Write the graph call by call: initial points, `layers` layers, the read-out, the OOD score."""
    nodes = Nodes()
    call, plain = nodes.call, nodes.plain
    call(Sizes, "members states", "sizes")
    call(Words, "words members sizes first first_unit first_bias zero", "hidden")
    call(Reach, "hidden hidden_steps second second_unit second_bias zero least rest", "reach")
    plain("Concat", "states words", "both", axis=1)
    call(Words, "both members sizes read read_unit read_bias zero", "told")
    call(Places, "told reach scale first_axis longest direction_grid place_grid weight_grid", "z w")
    call(Rows, "z texts", "z0")
    call(Rows, "w texts", "weights")
    call(Whose, "z0 texts members never", "is_word real many number penalty")
    for like, shape in {"z0": "places_shape", "number": "shape"}.items():  # of all layers together
        plain("Shape", like, f"{shape}_of_one")
        plain("Concat", f"count {shape}_of_one", shape, axis=0)
    plain(
        "If", "many", "plane means targets",
        then_branch=_dynamics(layers, long=True), else_branch=_dynamics(layers, long=False),
    )  # fmt: skip
    call(Since, "plane means targets", "first_led")
    plain("Where", "is_word first_led nobody", "since")
    plain("Gather", "targets last", "followed")
    plain("Gather", "means last", "ends")
    plain("Where", "is_word followed nobody", "target")
    call(ReadOut, "ends weights real v b pseudo_weight", "contribution bias")
    call(Words, "both members sizes near near_unit near_bias zero", "near_words")
    call(Unlike, "near_words texts real direction_grid", "unlike")
    return nodes


def _constants(layers: int) -> dict[str, Array]:
    """Return the numbers that all heads have in common."""
    angles = 2 * np.pi * np.arange(DIRECTIONS) / DIRECTIONS
    double = {
        "least": MIN_REACH, "rest": 1 - MIN_REACH, "longest": MAX_DIRECTION, "never": NEVER,
        "direction_grid": DIRECTION_GRID, "place_grid": POINT_GRID, "weight_grid": WEIGHT_GRID,
        "layer_grid": LAYER_GRID, "margin": MARGIN, "wide": WIDE, "turn": [[0, -1], [1, 0]],
        "directions": [np.cos(angles), np.sin(angles)],
    }  # fmt: skip
    return (
        {name: np.array(value, np.float64) for name, value in double.items()}
        | {"nobody": np.array(-1), "last": np.array(layers), "count": np.array([layers + 1])}
        | {"next": np.roll(np.arange(DIRECTIONS), -1), "zero": np.array(ZERO, np.uint8)}
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
    """All layers from z0: along a new first axis the places before each, their means, whom they follow. In a
    `long` text candidates are looked for; in others everybody is one.
    """
    nodes = Nodes()
    call, plain = nodes.call, nodes.plain
    if not long:
        call(Once, "penalty", "once")
    for k in range(layers + 1):
        keys = f"z{k} number penalty once"
        if long:
            keys = f"keys{k} number{k} penalty{k} times{k}"
            call(CANDIDATES, f"z{k} number penalty never directions turn next margin wide", keys)
        call(HardmaxAttention, f"z{k} {keys} layer_grid", f"c{k} target{k}")
        if k < layers:
            call(Move, f"z{k} c{k} gamma layer_grid", f"z{k + 1}")
    told = {"plane": ("z", "places_shape"), "means": ("c", "places_shape"), "targets": ("target", "shape")}
    for output, (of, shape) in told.items():
        plain("Concat", " ".join(f"{of}{k}" for k in range(layers + 1)), f"{output}_flat", axis=0)
        plain("Reshape", f"{output}_flat {shape}", output)
    return nodes.branch("long" if long else "short", list(told))


def of_head(weights: Stored) -> dict[str, Array]:
    """What the graph holds of one head, with a first axis of heads. What a map does not see has zeros."""
    W, d = len(weights["first"]), weights["read"].shape[1] - 1
    values = {
        "near": np.zeros((W, 1)), "near_unit": np.zeros(1, np.float32), "near_bias": np.zeros(1, np.float32),
        **weights, "v": weights["v"].T, "first_axis": np.eye(1, d)[0] / POINT_GRID,
    }  # fmt: skip
    for name in LINEAR:
        unseen = 2 * W - len(values[name]) if name in ("read", "near") else 0
        padded = np.pad(values[name].astype(np.int16), ((0, unseen), (0, 0)))
        values[name] = (padded + ZERO).astype(np.uint8)
    axes = {"v": 4, "gamma": 4}
    own = {name: np.asarray(values[name]) for name in OWN}
    return {name: value[(None,) * (axes.get(name, 3) - value.ndim)] for name, value in own.items()}


def weights_of(model: onnx.ModelProto) -> dict[str, Array]:
    """What `to_onnx` was given."""
    found = {}
    for each in model.graph.initializer:
        if each.name in OWN:
            value = numpy_helper.to_array(each)
            value = value.reshape(value.shape[value.ndim - OWN[each.name] :])
            coded = each.name in LINEAR and value.dtype == np.uint8
            found[each.name] = (value.astype(np.int16) - ZERO).astype(np.int8) if coded else value
    (plane,) = [each for each in model.graph.output if each.name == "plane"]
    layers = plane.type.tensor_type.shape.dim[0].dim_value - 1
    return {**found, "v": found["v"].T, "layers": np.array(layers)}
