"""A plane as an ONNX graph: states of pieces in, and everything that an explanation is made of out.

    input    states        uint8 [T, W]        the last states of all pieces, as the reader gives them
             words         uint8 [T, W]        their first states
             members       int64 [M, P]        the rows of the pieces of each word; T where there is none
             texts         int64 [B, N]        the word at each place of each text; M where there is none
    outputs  bias          double [B, C]
             contribution  double [B, C, N]    what each place adds to the logit
             target        int64 [B, N]        whom i follows in the end; -1 if several tie
             since         int64 [B, N]        the first layer with C_i = {i}, or -1
             plane         double [K+1, B, N, d]  the places before the layers and after each
             certified     bool [B]            nobody will ever follow anybody else
             unlike        double [B]          above 0: unlike the rows; only of planes that know theirs

The symbols are those of plane.py. All that is compared or added lies on grids of powers of two: exact in
double precision, whatever the batch and the device. Places with the same coordinates are one (twins);
`target` names the first of them. In the plane only corners of the cloud's convex hull can be followed, so
long texts look for these first. This module knows arrays only.
"""
# The scripts below are graphs, read from their source.
# mypy: allow-untyped-defs, allow-untyped-calls

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnxscript import opset20 as op
from onnxscript import script

from model_export.attention.functions import DOMAIN, OPSET, VERSION, domain
from model_export.heads.plane import (
    DIRECTION_GRID,
    LAYER_GRID,
    LEAST_REACH,
    LONGEST_DIRECTION,
    PLACE_GRID,
    WEIGHT_GRID,
)
from model_export.reader.graph import IR_VERSION, functions
from model_export.reader.stored import ZERO, Stored

MANY = 64  # places of a text from which on corners are worth looking for
DIRECTIONS = 24  # in which extreme places are looked for
MARGIN = 1e-3  # a place that lies so far inside the hull of those cannot win
NEVER = -1e6  # what is added to the score of a place that is not there
_TYPES = {"bool": onnx.TensorProto.BOOL, "int64": onnx.TensorProto.INT64, "double": onnx.TensorProto.DOUBLE}


@script(domain)
def Words(states, members, weight, unit, bias, zero):
    """A linear map of whole numbers, the mean over the pieces of each word: [M,c]."""
    product = op.MatMulInteger(states, weight, zero)
    none = op.Expand(
        op.Cast(op.Constant(value_int=0), to=6), op.Concat([1], op.Shape(product, start=1, end=2), axis=0)
    )
    rows = op.Gather(op.Concat(product, none, axis=0), members)  # [M,P,c]
    sums = op.Cast(op.ReduceSum(rows, op.Constant(value_ints=[1]), keepdims=0), to=1)
    there = op.Cast(members < op.Shape(states, start=0, end=1), to=1)
    sizes = op.ReduceSum(there, op.Constant(value_ints=[1]), keepdims=1)
    return sums / sizes * unit + bias


@script(domain)
def Reach(words, hidden_steps, weight, unit, bias, least, rest):
    """How far from the origin a word may stand: a small network over the word alone, [M,1]."""
    hidden = op.QuantizeLinear(
        words * hidden_steps, op.Constant(value_float=1.0), op.Cast(op.Constant(value_int=0), to=2)
    )
    f = op.Cast(op.Cast(op.MatMulInteger(hidden, weight), to=1) * unit + bias, to=11)
    half = op.CastLike(op.Constant(value_float=0.5), f)
    one = op.CastLike(op.Constant(value_float=1.0), f)
    return least + rest * (half + half * f / op.Sqrt(one + f * f))


@script(domain)
def Places(told, reach, parts, scale, longest, direction_grid, place_grid, weight_grid, first_axis):
    """z [M,d] and w [M,1] of each word."""
    r, t = op.Split(op.Cast(told, to=11), parts, axis=1)
    one = op.CastLike(op.Constant(value_float=1.0), t)
    two = op.CastLike(op.Constant(value_float=2.0), t)
    axis = op.Constant(value_ints=[1])
    r = op.Round(op.Clip(r, -longest, longest) * direction_grid) / direction_grid
    far = scale * (r / op.Sqrt(one + op.ReduceSum(r * r, axis, keepdims=1)))
    z = op.Round(far * reach * place_grid) / place_grid
    at_origin = op.ReduceMax(op.Abs(z), axis, keepdims=1) == op.CastLike(op.Constant(value_float=0.0), z)
    z = z + op.CastLike(at_origin, z) * first_axis
    w = op.Round((t + op.Sqrt(one + t * t)) / two * weight_grid) / weight_grid
    return z, w


@script(domain)
def Corners(z, number, penalty, directions, turn, next, margin):
    """The places that may be followed, in the plane: those not well inside the convex hull.

    <z_i, .> is largest at a corner of the hull. The places that are extreme in `directions` [2,M], which turn
    once anticlockwise, are corners of a polygon inside it. A place that lies deeper than `margin` in this
    polygon scores less than one of its corners, for every query. The others are kept: as many for each text
    as the text with most of them has.
    """
    axis = op.Constant(value_ints=[1])
    two = op.Constant(value_ints=[2])
    at = op.Unsqueeze(op.ArgMax(op.MatMul(z, directions), axis=1, keepdims=0), two)  # [B,M,1]
    corner = op.GatherElements(z, op.Expand(at, op.Constant(value_ints=[1, 1, 2])), axis=1)  # [B,M,2]
    side = op.Gather(corner, next, axis=1) - corner
    outward = op.MatMul(side, turn)  # nothing where a corner is extreme in two directions
    length = op.Sqrt(op.ReduceSum(side * side, two, keepdims=1))
    inset = margin * length - op.ReduceSum(outward * corner, two, keepdims=1)
    beyond = op.MatMul(z, op.Transpose(outward, perm=[0, 2, 1])) + op.Transpose(inset, perm=[0, 2, 1])
    far = op.ReduceMax(beyond, two, keepdims=0)  # [B,N], above 0: not well inside
    kept = op.ReduceSum(op.Cast(far > op.CastLike(op.Constant(value_float=0.0), far), to=7), axis, keepdims=0)
    most = op.Max(op.ReduceMax(kept, keepdims=1), axis)
    _, which = op.TopK(far, most, axis=1)
    which, _order = op.TopK(which, most, axis=1, largest=0)  # in the order of reading
    keys = op.GatherElements(
        z, op.Expand(op.Unsqueeze(which, two), op.Constant(value_ints=[1, 1, 2])), axis=1
    )
    return keys, op.GatherElements(number, which, axis=1), op.GatherElements(penalty, which, axis=1)


@script(domain)
def EveryPlace(z, number, penalty, directions, turn, next, margin):
    """The places that may be followed: all of them."""
    return op.Identity(z), op.Identity(number), op.Identity(penalty)


@script(domain)
def HardmaxAttention(z, keys, number, penalty, layer_grid):
    """C_i = argmax_j <z_i, z_j>: c_i, its mean [B,N,d]; whom i follows or -1 [B,N]; C_i itself [B,N,K].

    A twin is a key with <z_j, z_k> = |z_j|^2 = |z_k|^2. If C_i is one point, with its twins, i follows that.
    """
    key_axis = op.Constant(value_ints=[2])
    row = op.Unsqueeze(penalty, op.Constant(value_ints=[1]))  # [B,1,K]
    other = op.Transpose(keys, perm=[0, 2, 1])
    score = op.MatMul(z, other) + row
    C = op.CastLike(score >= op.ReduceMax(score, key_axis, keepdims=1), z)
    count = op.ReduceSum(C, key_axis, keepdims=1)
    c = op.Round(op.MatMul(C, keys) / count * layer_grid) / layer_grid
    between = op.MatMul(keys, other) + row
    own = op.ReduceSum(keys * keys, key_axis, keepdims=1)  # [B,K,1]
    same = op.And(between == own, between == op.Transpose(own, perm=[0, 2, 1]))
    twins = op.ReduceSum(op.CastLike(same, z), key_axis, keepdims=0)  # [B,K]
    first = op.ArgMax(score, axis=2, keepdims=0)
    alone = op.Squeeze(count, key_axis) == op.GatherElements(twins, first, axis=1)
    target = op.Where(alone, op.GatherElements(number, first, axis=1), op.Constant(value_int=-1))
    return c, target, C


@script(domain)
def Leads(z, c, target):
    """C_i = {i}: [B,N]. subtle: i may be a twin of the one whom `target` names, so places are compared."""
    apart = op.ReduceMax(op.Abs(c - z), op.Constant(value_ints=[2]), keepdims=0)
    still = apart == op.CastLike(op.Constant(value_float=0.0), z)
    return op.And(target >= op.Constant(value_int=0), still)


@script(domain)
def Move(z, c, gamma, layer_grid):
    """z + gamma (c - z): a leader stays where it is, bit by bit."""
    return op.Round((z + gamma * (c - z)) * layer_grid) / layer_grid


@script(domain)
def Certified(c, keys, penalty, C, real):
    """Whether all members of all C_i lead and the argmax set of each c_i is C_i: [B] (docs/theory.md, 3).

    A member leads when it is the argmax of itself alone; that of a mean of several is asked again.
    """
    key_axis = op.Constant(value_ints=[2])
    row = op.Unsqueeze(penalty, op.Constant(value_ints=[1]))
    other = op.Transpose(keys, perm=[0, 2, 1])
    between = op.MatMul(keys, other) + row
    own = op.ReduceSum(keys * keys, key_axis, keepdims=1)
    beaten = op.CastLike(
        op.Or(between > own, op.And(between == own, op.Transpose(own, perm=[0, 2, 1]) > own)), c
    )
    none = op.CastLike(op.Constant(value_float=0.0), c)
    follower = op.ReduceSum(op.MatMul(C, beaten), key_axis, keepdims=0)  # [B,N] some member does not lead
    again = op.MatMul(c, other) + row
    same = op.CastLike(again >= op.ReduceMax(again, key_axis, keepdims=1), c)
    changed = op.ReduceSum(op.Abs(same - C), key_axis, keepdims=0)
    doubt = op.ReduceSum((follower + changed) * real, op.Constant(value_ints=[1]), keepdims=0)
    return doubt == none


@script(domain)
def ReadOut(c, w, real, v, b, pseudo_weight):
    """What each place adds: w_i <v, c_i> / (W0 + sum_i w_i), [B,C,N]; the bias [B,C]."""
    weight = w * real  # [B,N]
    whole = op.ReduceSum(weight, op.Constant(value_ints=[1]), keepdims=1) + pseudo_weight
    share = op.Unsqueeze(weight / whole, op.Constant(value_ints=[1]))
    contribution = op.Transpose(op.MatMul(c, v), perm=[0, 2, 1]) * share
    start = op.Expand(op.Unsqueeze(b, [0]), op.Shape(contribution, start=0, end=2))
    return contribution, start


@script(domain)
def Unlike(near, texts, grid):
    """The largest of some linear maps of the mean over the words of each text, [B]. Sums are exact."""
    axis = op.Constant(value_ints=[1])
    told = op.Round(op.Cast(near, to=11) * grid) / grid  # [M,k]
    none = op.Expand(
        op.Cast(op.Constant(value_int=0), to=11), op.Concat([1], op.Shape(told, start=1, end=2), axis=0)
    )
    sums = op.ReduceSum(op.Gather(op.Concat(told, none, axis=0), texts), axis, keepdims=0)  # [B,k]
    there = op.Cast(texts < op.Shape(told, start=0, end=1), to=11)
    return op.ReduceMax(sums / op.ReduceSum(there, axis, keepdims=1), axis, keepdims=0)


PARTS = (Words, Reach, Places, HardmaxAttention, Leads, Move, Certified, ReadOut)


def to_onnx(weights: Stored) -> onnx.ModelProto:
    """The graph with the stored plane in it."""
    W, d = len(weights["first"]), weights["read"].shape[1] - 1
    K, labels = int(weights["layers"]), len(weights["b"])
    nodes: list[onnx.NodeProto] = []

    def call(function: Any, inputs: str, outputs: str) -> None:
        name = function if isinstance(function, str) else function.name
        nodes.append(helper.make_node(name, inputs.split(), outputs.split(), domain=DOMAIN))

    def plain(kind: str, inputs: str, output: str, **attributes: Any) -> None:
        nodes.append(helper.make_node(kind, inputs.split(), [output], **attributes))

    def seen(name: str) -> str:
        return "both" if len(weights[name]) == 2 * W else "states"

    call(Words, "words members first first_unit first_bias zero", "hidden")
    call(Reach, "hidden hidden_steps second second_unit second_bias least rest", "reach")
    if any(seen(name) == "both" for name in ("read", "near") if name in weights):
        plain("Concat", "states words", "both", axis=1)
    call(Words, f"{seen('read')} members read read_unit read_bias zero", "told")
    call(Places, "told reach parts scale longest direction_grid place_grid weight_grid first_axis", "z w")
    plain("Concat", "z no_place", "z_and_none", axis=0)
    plain("Gather", "z_and_none texts", "Z0")
    plain("Concat", "w no_weight", "w_and_none", axis=0)
    plain("Gather", "w_and_none texts", "weights_3d")
    plain("Squeeze", "weights_3d axis_2", "weights")
    plain("Shape", "members", "M", start=0, end=1)
    plain("Less", "texts M", "is_word")
    plain("Cast", "is_word", "real", to=onnx.TensorProto.DOUBLE)
    plain("Sub", "one real", "missing")
    plain("Mul", "missing never", "penalty")
    plain("CumSum", "ones_like axis", "counted")
    nodes.insert(-1, helper.make_node("Sub", ["texts", "texts"], ["zeros_like"]))
    nodes.insert(-1, helper.make_node("Add", ["zeros_like", "one_int"], ["ones_like"]))
    plain("Sub", "counted one_int", "number")
    for k in range(K + 1):
        call(
            "Candidates", f"Z{k} number penalty directions turn next margin", f"keys{k} number{k} penalty{k}"
        )
        call(HardmaxAttention, f"Z{k} keys{k} number{k} penalty{k} layer_grid", f"c{k} target{k} C{k}")
        call(Leads, f"Z{k} c{k} target{k}", f"leads{k}")
        if k < K:
            call(Move, f"Z{k} c{k} gamma layer_grid", f"Z{k + 1}")
    for k in reversed(range(K + 1)):
        plain("Where", f"leads{k} layer{k} {f'since{k + 1}' if k < K else 'no_layer'}", f"since{k}")
    plain("Where", "is_word since0 no_layer", "since")
    plain("Where", f"is_word target{K} no_layer", "target")
    call(Certified, f"c{K} keys{K} penalty{K} C{K} real", "certified")
    call(ReadOut, f"c{K} weights real v b pseudo_weight", "contribution bias")
    if knows_rows := "near" in weights:
        call(Words, f"{seen('near')} members near near_unit near_bias zero", "near_words")
        call(Unlike, "near_words texts direction_grid", "unlike")
    for k in range(K + 1):
        plain("Unsqueeze", f"Z{k} axis_0", f"one_Z{k}")
    plain("Concat", " ".join(f"one_Z{k}" for k in range(K + 1)), "plane", axis=0)
    angles = 2 * np.pi * np.arange(DIRECTIONS) / DIRECTIONS
    double = {
        "least": LEAST_REACH, "rest": 1 - LEAST_REACH, "longest": LONGEST_DIRECTION, "one": 1.0,
        "never": NEVER,
        "direction_grid": DIRECTION_GRID, "place_grid": PLACE_GRID, "weight_grid": WEIGHT_GRID,
        "layer_grid": LAYER_GRID, "margin": MARGIN, "no_place": np.zeros((1, d)),
        "no_weight": np.zeros((1, 1)),
        "first_axis": np.eye(1, d) / PLACE_GRID, "v": weights["v"].T, "turn": np.array([[0, -1], [1, 0]]),
        "directions": np.stack([np.cos(angles), np.sin(angles)]),
    }  # fmt: skip
    whole = {
        "parts": [d, 1], "axis": 1, "axis_0": [0], "axis_2": [2], "one_int": 1, "no_layer": -1,
        "next": np.roll(np.arange(DIRECTIONS), -1), **{f"layer{k}": k for k in range(K + 1)},
    }  # fmt: skip
    values = (
        {name: value for name, value in weights.items() if name not in ("layers", "v")}
        | {name: np.array(value, np.float64) for name, value in double.items()}
        | {name: np.array(value, np.int64) for name, value in whole.items()}
        | {"zero": np.array(ZERO, np.uint8)}
    )
    outputs = {
        "bias": ("double", ["B", labels]), "contribution": ("double", ["B", labels, "N"]),
        "target": ("int64", ["B", "N"]), "since": ("int64", ["B", "N"]),
        "plane": ("double", [K + 1, "B", "N", d]), "certified": ("bool", ["B"]),
    }  # fmt: skip
    if knows_rows:
        outputs["unlike"] = ("double", ["B"])
    inputs = {
        "states": (2, ["T", W]),
        "words": (2, ["T", W]),
        "members": (7, ["M", "P"]),
        "texts": (7, ["B", "N"]),
    }
    graph = helper.make_graph(
        nodes,
        "head",
        [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in inputs.items()],
        [helper.make_tensor_value_info(name, _TYPES[kind], shape) for name, (kind, shape) in outputs.items()],
        [numpy_helper.from_array(np.array(value, order="C"), name) for name, value in values.items()],
    )
    model = helper.make_model(
        graph,
        functions=_functions((*PARTS, Unlike) if knows_rows else PARTS, plane=d == 2),
        opset_imports=[helper.make_opsetid("", OPSET), helper.make_opsetid(DOMAIN, VERSION)],
        ir_version=IR_VERSION,
    )
    onnx.checker.check_model(model)
    return model


@script(domain)
def Candidates(z, number, penalty, directions, turn, next, margin):
    """Whom anybody may follow: of a long text in the plane its corners."""
    if op.Shape(z, start=1, end=2) > op.Constant(value_ints=[MANY]):
        keys, numbers, penalties = Corners(z, number, penalty, directions, turn, next, margin)
    else:
        keys, numbers, penalties = EveryPlace(z, number, penalty, directions, turn, next, margin)
    return keys, numbers, penalties


def _functions(parts: tuple[Any, ...], plane: bool) -> list[onnx.FunctionProto]:
    """The functions that the graph calls. subtle: onnxscript does not see calls inside a branch."""
    if plane:
        return functions((*parts, Corners, EveryPlace, Candidates))
    every = functions((EveryPlace,))[0]
    every.name = Candidates.name
    return [*functions(parts), every]
