"""The leader head as an ONNX graph: from the outputs of the encoder to all parts of an explanation.

    input    states        uint8 [T, W]        hidden states of all tokens, as the encoder returns them
             words         uint8 [T, W]        their input embeddings
             members       int64 [M, P]        the rows of the tokens of each word; T where there is none
             texts         int64 [B, N]        the words of each text; M where there is none
    outputs  bias          double [B, C]
             contribution  double [B, C, N]    what each word adds to the logit
             target        int64 [B, N]        the leader of word i after all layers; -1 if several tie
             since         int64 [B, N]        the first layer with C_i = {i}, or -1
             plane         double [K+1, B, N, d]  positions before the layers and after each
             unlike        double [B]          out-of-distribution score, if the head has one

The symbols are those of leader_head.py. All that is compared or added lies on grids of powers of two: exact
in double precision, whatever the batch and the device. Words with the same coordinates are treated as one
point with a weight; `target` names the first of them. In the plane only vertices of the convex hull can be
leaders, so for long texts these are searched first, and each point is a candidate once.
"""

import numpy as np
import onnx
from onnx import numpy_helper

from model_export.attention.functions import GraphBuilder, Specs
from model_export.encoder.quantization import ZERO, Array, Weights
from model_export.head.functions import (
    HEAD_FUNCTIONS,
    CountTokens,
    DistinctPoints,
    GatherRows,
    HardmaxAttention,
    HullCandidates,
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
WEIGHTS = ("scale", "gamma", "pseudo_weight", *UNITS, "hidden_steps", "b", *LINEAR_MAPS, "v")


def to_onnx(weights: Weights) -> onnx.ModelProto:
    """Return the graph with the head in it."""
    builder = _HeadGraphBuilder(weights)
    builder.add_points()
    builder.add_dynamics()
    builder.add_readout()
    stored = {name: weights[name] for name in WEIGHTS if name in weights} | {"v": weights["v"].T}
    stored |= {name: _codes(stored[name]) for name in LINEAR_MAPS if name in stored}
    width, d = len(weights["first"]), builder.dimension
    model = builder.to_model(
        "head", _inputs(width), builder.outputs(), {**_constants(builder.layers, d), **stored}, HEAD_FUNCTIONS
    )
    onnx.checker.check_model(model)
    return model


class _HeadGraphBuilder(GraphBuilder):
    """Builds the parts of the graph."""

    def __init__(self, weights: Weights) -> None:
        super().__init__()
        self.layers, self.dimension = int(weights["layers"]), weights["read"].shape[1] - 1
        self._n_rows = {name: len(weights[name]) for name in LINEAR_MAPS if name in weights}
        self._width = len(weights["first"])

    def add_points(self) -> None:
        """Add the initial points of the words and their weights, text by text."""
        call = self.add_call
        call(CountTokens, "members states", "n_tokens")
        if 2 * self._width in self._n_rows.values():
            self.add_node("Concat", "states words", "both", axis=1)
        self._add_projection("words", "first", "hidden")
        call(Reach, "hidden hidden_steps second second_unit second_bias zero min_reach reach_range", "reach")
        self._add_projection(self._inputs_of("read"), "read", "projected")
        grids = "direction_grid point_grid weight_grid"
        call(InitialPoints, f"projected reach scale first_axis max_direction {grids}", "z w")
        call(GatherRows, "z texts", "z0")
        call(GatherRows, "w texts", "weights")
        call(WordMasks, "texts members padding_score", "is_word mask indices penalty is_long")

    def add_dynamics(self) -> None:
        """Add the layers; in the plane, candidates are searched in long texts."""
        outputs = ["plane", "means", "targets"]
        for source, shape in {"z0": "points_shape", "texts": "shape"}.items():  # of all layers together
            self.add_node("Shape", source, f"{shape}_of_one")
            self.add_node("Concat", f"count {shape}_of_one", shape, axis=0)
        if self.dimension == 2:
            long, short = (_dynamics(self.layers, search=search) for search in (True, False))
            self.add_node(
                "If", "is_long", " ".join(outputs),
                then_branch=long.to_branch("long", outputs), else_branch=short.to_branch("short", outputs),
            )  # fmt: skip
        else:
            self.extend(_dynamics(self.layers, search=False))

    def add_readout(self) -> None:
        """Add the outputs."""
        call, node = self.add_call, self.add_node
        call(LeaderSince, "plane means targets", "leader_since")
        node("Where", "is_word leader_since none", "since")
        node("Gather", "targets last", "last_targets")
        node("Gather", "means last", "last_means")
        node("Where", "is_word last_targets none", "target")
        call(Readout, "last_means weights mask v b pseudo_weight", "contribution bias")
        if "near" in self._n_rows:
            self._add_projection(self._inputs_of("near"), "near", "ood_maps")
            call(OodScore, "ood_maps texts mask direction_grid", "unlike")

    def outputs(self) -> Specs:
        """Return the outputs of the graph."""
        score = {"unlike": (np.float64, ["B"])} if "near" in self._n_rows else {}
        return {
            "bias": (np.float64, ["B", "C"]), "contribution": (np.float64, ["B", "C", "N"]),
            "target": (np.int64, ["B", "N"]), "since": (np.int64, ["B", "N"]),
            "plane": (np.float64, [self.layers + 1, "B", "N", self.dimension]), **score,
        }  # fmt: skip

    def _inputs_of(self, name: str) -> str:
        return "states" if self._n_rows[name] == self._width else "both"

    def _add_projection(self, source: str, name: str, output: str) -> None:
        self.add_call(ProjectWords, f"{source} members n_tokens {name} {name}_unit {name}_bias zero", output)


def _constants(layers: int, d: int) -> dict[str, Array]:
    """Return the constants, which all heads share."""
    angles = 2 * np.pi * np.arange(N_DIRECTIONS) / N_DIRECTIONS
    double = {
        "min_reach": MIN_REACH, "reach_range": 1 - MIN_REACH, "max_direction": MAX_DIRECTION,
        "direction_grid": DIRECTION_GRID, "point_grid": POINT_GRID, "weight_grid": WEIGHT_GRID,
        "layer_grid": LAYER_GRID, "padding_score": PADDING_SCORE, "first_axis": np.eye(1, d)[0] / POINT_GRID,
    }  # fmt: skip
    search = {
        "margin": HULL_MARGIN, "coordinate_factor": COORDINATE_FACTOR, "quarter_turn": [[0, -1], [1, 0]],
        "directions": [np.cos(angles), np.sin(angles)],
    }  # fmt: skip
    constants = {name: np.array(value, np.float64) for name, value in double.items()} | {
        "none": np.array(-1), "last": np.array(layers), "count": np.array([layers + 1]),
        "zero": np.array(ZERO, np.uint8),
    }  # fmt: skip
    if d != 2:
        return constants
    next_direction = {"next": np.roll(np.arange(N_DIRECTIONS), -1)}
    return constants | {name: np.array(value, np.float64) for name, value in search.items()} | next_direction


def _inputs(width: int) -> Specs:
    return {
        "states": (np.uint8, ["T", width]), "words": (np.uint8, ["T", width]),
        "members": (np.int64, ["M", "P"]), "texts": (np.int64, ["B", "N"]),
    }  # fmt: skip


def _dynamics(layers: int, *, search: bool) -> GraphBuilder:
    """Return the layers: positions, means and targets of all layers, along a new first axis.

    With `search`, each layer compares words with candidates; otherwise with all words.
    """
    graph = GraphBuilder()
    call, node = graph.add_call, graph.add_node
    if not search:
        call(UnitCounts, "penalty", "counts")
    for k in range(layers + 1):
        keys = f"z{k} indices penalty counts"
        if search:
            hull = f"hull{k} hull_indices{k} hull_penalty{k}"
            keys = f"keys{k} indices{k} penalty{k} counts{k}"
            call(HullCandidates, f"z{k} indices penalty directions quarter_turn next margin", hull)
            call(DistinctPoints, f"{hull} padding_score coordinate_factor", keys)
        call(HardmaxAttention, f"z{k} {keys} layer_grid", f"c{k} target{k}")
        if k < layers:
            call(MovePoints, f"z{k} c{k} gamma layer_grid", f"z{k + 1}")
    outputs = {"plane": ("z", "points_shape"), "means": ("c", "points_shape"), "targets": ("target", "shape")}
    for output, (prefix, shape) in outputs.items():
        node("Concat", " ".join(f"{prefix}{k}" for k in range(layers + 1)), f"{output}_flat", axis=0)
        node("Reshape", f"{output}_flat {shape}", output)
    return graph


def _codes(weight: Array) -> Array:
    return (weight.astype(np.int16) + ZERO).astype(np.uint8)


def read_weights(model: onnx.ModelProto) -> dict[str, Array]:
    """Return the weights from which `to_onnx` made the model."""
    weights = {}
    for tensor in model.graph.initializer:
        if (name := tensor.name) in WEIGHTS:
            value = numpy_helper.to_array(tensor)
            is_code = name in LINEAR_MAPS
            weights[name] = (value.astype(np.int16) - ZERO).astype(np.int8) if is_code else value
    (plane,) = [output for output in model.graph.output if output.name == "plane"]
    layers = plane.type.tensor_type.shape.dim[0].dim_value - 1
    return {**weights, "v": weights["v"].T, "layers": np.array(layers)}
