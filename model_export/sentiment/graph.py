"""The sentiment model as an ONNX graph: words in, and everything that an explanation is made of out.

    input    tokens        int64 [B, N]          a text a row, N >= 2; 0 is padding, behind the words only
    outputs  logit         float [B, C]          bias + the sum of contributions
             bias          float [B, C]          calibrated for the length of the text, like the contributions
             contribution  float [B, C, N]       what each place adds
             target        int64 [B, N]          whom i attends to at the last layer; -1 if several tie
             since         int64 [B, N]          the first layer with C_i = {i}, or -1
             negator       int64 [B, N]          the place of the negator that i is under, or -1
             states        float [K+1, B, d, N]  the cloud before the layers and after each

The symbols are those of model.py. A score is a product and a sum of d numbers, number by number, with the
same rounding whatever the batch and the device. Places with the same coordinates are one point (twins): they
count as one member of C_i, with their number as its weight, and `target` names the first of them.
In the plane only corners of the cloud's convex hull can be attended to, so long texts look for these first.
This module knows arrays only: no texts, no files.
"""
# The scripts below are graphs, read from their source.
# mypy: allow-untyped-defs, allow-untyped-calls

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper
from onnxscript import opset20 as op
from onnxscript import script

from model_export.attention.functions import DOMAIN, OPSET, VERSION, domain
from model_export.sentiment.model import CONCEDED, PAIR, SCOPE, TRIPLE
from model_export.sentiment.rows import Stored
from service.errors import InvalidInput

IR_VERSION = 10
EDGE = 2  # words before and behind a place that can matter
PREVIOUS, WORD = PAIR
MANY = 64  # places of a text from which on corners are worth looking for
DIRECTIONS = 24  # in which extreme places are looked for
EVENTS = -1e5, 0.0, 0.5  # a word does nothing to its clause or sentence, it ENDS it, it NEGATES or CONCEDES
MARGIN = 1e-4  # of `scale`: a place that is so far inside the hull of those cannot win. Rounding does 4e-7
Array = NDArray[Any]
_FLOAT, _INT64 = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64
OUTPUTS: dict[str, tuple[int, list[str]]] = {
    "logit": (_FLOAT, ["B", "C"]),
    "bias": (_FLOAT, ["B", "C"]),
    "contribution": (_FLOAT, ["B", "C", "N"]),
    "target": (_INT64, ["B", "N"]),
    "since": (_INT64, ["B", "N"]),
    "negator": (_INT64, ["B", "N"]),
    "states": (_FLOAT, ["L", "B", "d", "N"]),
}


@script(domain)
def Widen(tokens):
    """tokens with EDGE places of padding on both sides, [B,N+2 EDGE]; 1 for words and 0 for padding, [B,1,N];
    what goes with each place: 1 and its number, [B,2,N].
    """
    rows = op.Concat(op.Shape(tokens, start=0, end=1), op.Constant(value_ints=[EDGE]), axis=0)
    edge = op.Expand(op.Constant(value_ints=[0]), rows)
    real = op.Cast(op.Unsqueeze(tokens, op.Constant(value_ints=[1])) > op.Constant(value_int=0), to=1)
    ones = op.Expand(op.Constant(value_float=1.0), op.Shape(real))
    number = op.CumSum(ones, op.Constant(value_int=2)) - op.Constant(value_float=1.0)
    return op.Concat(edge, tokens, edge, axis=1), real, op.Concat(ones, number, axis=1)


@script(domain)
def Negators(tokens, tags, clause):
    """Whether each place is under a negator, and that negator's place or -1, [B,1,N] (model.negators).

    clause [V] are EVENTS: 0 for a word that ends a clause, .5 for a negator and far below 0 for all others.
    With its number added, the last one of either kind is the largest, and a negator is no whole number.
    """
    _one, number = op.Split(tags, axis=1, num_outputs=2)
    does = op.Unsqueeze(op.Gather(clause, tokens), op.Constant(value_ints=[1]))
    last = op.MaxPool(number + does, kernel_shape=[SCOPE + 1], pads=[SCOPE, 0])
    place = op.Floor(last)
    under = op.And(last > place, number > last)
    return under, op.Cast(op.Where(under, place, op.Constant(value_float=-1.0)), to=7)


@script(domain)
def Conceded(tokens, tags, sentence, concession):
    """`concession` where the next word that does anything to the sentence concedes what is here, else 0,
    [B,1,N] (model.conceded). sentence [V] are EVENTS; less their number, the first one is the largest.
    """
    _one, number = op.Split(tags, axis=1, num_outputs=2)
    does = op.Unsqueeze(op.Gather(sentence, tokens), op.Constant(value_ints=[1]))
    next = op.MaxPool(does - number, kernel_shape=[CONCEDED + 1], pads=[0, CONCEDED])
    return op.Cast(next > op.Floor(next), to=1) * concession


@script(domain)
def Window(wide, under, offsets, tables, rows, further):
    """The sum over offsets o of the codes T_o[x_(i+o)], [B,N,H]. tables int8 [(O+1) V,H]. rows [O,1] are
    where each T_o begins, `further` [O,1] how much later the one begins that places under a negator read.

    subtle: a sum of few eight-bit integers, so it is exact.
    """
    places = op.Range(0, op.Squeeze(op.Shape(wide, start=1, end=2) - op.Constant(value_ints=[2 * EDGE])), 1)
    words = op.Gather(wide, places + offsets, axis=1)  # [B,O,N]
    codes = op.Cast(op.Gather(tables, words + rows + op.Cast(under, to=7) * further), to=1)  # [B,O,N,H]
    return op.ReduceSum(codes, op.Constant(value_ints=[1]), keepdims=0)


@script(domain)
def Hidden(total, column, bias):
    """relu(r) / column, [B,N,h]; `column`, the scale of each code, is in what follows and in `bias`."""
    return op.Relu(total + bias)


@script(domain)
def Phrases(wide, pairs, pair_rows, triples, triple_rows, scale):
    """What the pair and the triple that end at each place add, [B,d+1,N]; both are hashed (model.hashes)."""
    axis = op.Constant(value_ints=[1])
    x = op.Slice(wide, op.Constant(value_ints=[2]), op.Constant(value_ints=[-2]), axis)
    one = op.Slice(wide, op.Constant(value_ints=[1]), op.Constant(value_ints=[-3]), axis)
    two = op.Slice(wide, op.Constant(value_ints=[0]), op.Constant(value_ints=[-4]), axis)
    pair = one * op.Constant(value_int=PREVIOUS) + x * op.Constant(value_int=WORD)
    triple = pair + two * op.Constant(value_int=TRIPLE)
    first = op.Cast(op.Gather(pairs, op.BitwiseAnd(pair, pair_rows)), to=1)
    second = op.Cast(op.Gather(triples, op.BitwiseAnd(triple, triple_rows)), to=1)
    return op.Transpose(first + second, perm=[0, 2, 1]) * scale


@script(domain)
def Places(hidden, out, tokens, own, phrases, reach, real, parts, conceded):
    """z_i [B,d,N] = reach r / sqrt(1 + |r|^2) and w_i [B,1,N]. `reach` holds the scale; parts are (d, 1)."""
    o = op.Transpose(op.MatMul(hidden, out) + op.Gather(own, tokens), perm=[0, 2, 1]) + phrases
    r, u = op.Split(o, parts, axis=1)
    axis = op.Constant(value_ints=[1])
    length = op.Sqrt(op.ReduceSum(r * r, axis, keepdims=1) + op.Constant(value_float=1.0))
    # subtle: softplus in double precision. In single precision the last bit may depend on where in a vector
    # register a number is, and so on the batch.
    power = op.Exp(op.Cast(u + conceded, to=11))
    weight = op.Cast(op.Log(power + op.CastLike(1, power)), to=1)
    return r / length * op.Unsqueeze(op.Gather(reach, tokens), axis), weight * real


@script(domain)
def EveryPlace(cloud, directions, turn, next, margin):
    """The places that may be attended to: all of them."""
    return op.Identity(cloud)


@script(domain)
def Corners(cloud, directions, turn, next, margin):
    """The places that may be attended to, in the plane: those not well inside the convex hull, [B,4,K].

    <z_i, .> is largest at a corner of the hull. The places that are extreme in `directions` [M,2], which turn
    once anticlockwise, are corners of a polygon inside it. A place that lies deeper than `margin` in this
    polygon scores less than one of its corners, for every query and after rounding too. The others are kept:
    as many for each text as the text with most of them has.
    """
    axis = op.Constant(value_ints=[1])
    Z = op.Slice(cloud, op.Constant(value_ints=[0]), op.Constant(value_ints=[2]), axis)
    at = op.Unsqueeze(op.ArgMax(op.MatMul(directions, Z), axis=2, keepdims=0), axis)  # [B,1,M]
    corner = op.GatherElements(Z, op.Expand(at, op.Constant(value_ints=[1, 2, 1])), axis=2)  # [B,2,M]
    side = op.Gather(corner, next, axis=2) - corner
    outward = op.MatMul(turn, side)  # nothing where a corner is extreme in two directions
    inset = margin * op.ReduceL2(side, axis, keepdims=1) - op.ReduceSum(outward * corner, axis, keepdims=1)
    sides = op.Transpose(op.Concat(outward, inset, axis=1), perm=[0, 2, 1])  # [B,M,3]
    point = op.Slice(cloud, op.Constant(value_ints=[0]), op.Constant(value_ints=[3]), axis)
    beyond = op.ReduceMax(op.MatMul(sides, point), axis, keepdims=0)  # [B,N], above 0: not well inside
    kept = op.ReduceSum(op.Cast(beyond > op.Constant(value_float=0.0), to=7), axis, keepdims=0)
    most = op.Max(op.ReduceMax(kept, keepdims=1), axis)
    _, which = op.TopK(beyond, most, axis=1)
    every = op.Expand(op.Unsqueeze(which, axis), op.Constant(value_ints=[1, 4, 1]))
    return op.GatherElements(cloud, every, axis=2)


@script(domain)
def Scores(Z, keys, parts):
    """<z_i, z_k> [B,K,N] for the queries Z [B,2,N] and keys [B,K,4], number by number."""
    x, y = op.Split(Z, axis=1, num_outputs=2)
    key_x, key_y, _rest = op.Split(keys, op.Constant(value_ints=[1, 1, 2]), axis=2)
    return key_x * x + key_y * y


@script(domain)
def AnyScores(Z, keys, parts):
    """`Scores` in any dimension: keys are [B,K,d+2]."""
    key, _rest = op.Split(keys, parts, axis=2)
    products = op.Unsqueeze(op.Transpose(key, perm=[0, 2, 1]), [3]) * op.Unsqueeze(Z, [2])  # [B,d,K,N]
    return op.ReduceSum(products, op.Constant(value_ints=[1]), keepdims=0)


@script(domain)
def Ties(facts, chosen, parts):
    """The sums of `HardmaxAttention` where some C_i has several members: twins are one, and weigh as many."""
    Z, rest = op.Split(facts, parts, axis=1)
    two = op.Constant(value_ints=[2])
    apart = op.ReduceMax(
        op.Abs(op.Unsqueeze(Z, [2]) - op.Unsqueeze(Z, [3])), op.Constant(value_ints=[1]), keepdims=0
    )
    same = apart == op.Constant(value_float=0.0)  # [B,K,K]
    _one, number = op.Split(rest, axis=1, num_outputs=2)  # [B,1,K]
    earlier = op.And(same, number < op.Transpose(number, perm=[0, 2, 1]))
    first = op.Constant(value_float=1.0) - op.ReduceMax(op.Cast(earlier, to=1), two, keepdims=1)  # [B,K,1]
    twins = op.Transpose(op.ReduceSum(op.Cast(same, to=1), two, keepdims=1), perm=[0, 2, 1])  # [B,1,K]
    members = chosen * first
    plain, other_sums = op.Split(op.MatMul(facts, members), parts, axis=1)
    weight = op.MatMul(twins, members)
    mean = op.MatMul(Z * twins, members) / weight
    several = op.Slice(
        other_sums, op.Constant(value_ints=[0]), op.Constant(value_ints=[1]), op.Constant(value_ints=[1])
    )
    return op.Concat(op.Where(several > op.Constant(value_float=1.0), mean, plain), other_sums, axis=1)


@script(domain)
def HardmaxAttention(Z, facts, real, parts):
    """Hardmax attention of the queries Z [B,d,N] to points with what goes with them: facts [B,d+2,K].

    -> [B,d+2,N]: the mean over C_i, |C_i|, the number of the only member; 0 for padding
    subtle: the sum over one member is that member, bit by bit, so a leader is pulled by exactly 0.
    """
    keys = op.Transpose(facts, perm=[0, 2, 1])
    scores = Scores(Z, keys, parts)
    axis = op.Constant(value_ints=[1])
    chosen = op.Cast(scores >= op.ReduceMax(scores, axis, keepdims=1), to=1)  # [B,K,N]
    sums = op.MatMul(facts, chosen) * real
    size = op.Slice(sums, op.Constant(value_ints=[-2]), op.Constant(value_ints=[-1]), axis)
    if op.ReduceMax(size, keepdims=0) > op.Constant(value_float=1.0):
        answer = op.Where(
            real > op.Constant(value_float=0.0), op.Cast(Ties(facts, chosen, parts), to=1), sums
        )
    else:
        answer = op.Identity(sums)
    return answer


@script(domain)
def Layer(Z, tags, real, gamma, parts, three, directions, turn, next, margin):
    """z_i + gamma (mean of C_i - z_i), [B,d,N]. -> it; whether i leads; whom it attends to, -1: several
    [B,1,N]

    Increment form: a leader stays where it is, bit by bit.
    """
    cloud = op.Concat(Z, tags, axis=1)
    if op.Shape(Z, start=2, end=3) > op.Constant(value_ints=[MANY]):
        facts = op.Cast(Corners(cloud, directions, turn, next, margin), to=1)
    else:
        facts = op.Cast(EveryPlace(cloud, directions, turn, next, margin), to=1)
    mean, size, number = op.Split(HardmaxAttention(Z, facts, real, parts), three, axis=1)
    pull = mean - Z
    still = op.ReduceMax(op.Abs(pull), op.Constant(value_ints=[1]), keepdims=1) == op.Constant(
        value_float=0.0
    )
    alone = size == op.Constant(value_float=1.0)
    target = op.Where(alone, op.Cast(number, to=7), op.Constant(value_int=-1))
    return Z + gamma * pull, op.And(alone, still), target


@script(domain)
def ReadOut(Z, weight, real, readout, bias, pseudo_weight, calibration, parts):
    """logit_c = s(n) (b_c + sum_i w_i <v_c, z_i> / (W0 + sum_i w_i)), b_c's part of it, and each place's.

    readout [1,C,d+2] are the v_c as keys, bias [1,C,1].
    """
    axis = op.Constant(value_ints=[2])
    length = op.Cast(op.ReduceSum(real, axis, keepdims=1), to=7)
    last = op.Shape(calibration) - op.Constant(value_ints=[1])
    factor = op.Gather(calibration, op.Min(length, last))  # [B,1,1]
    # subtle: in double precision the sum of so many floats is exact, the same in any order and any batch
    whole = op.Cast(op.ReduceSum(op.Cast(weight, to=11), axis, keepdims=1), to=1) + pseudo_weight
    share = weight * (factor / op.Max(whole, op.Constant(value_float=1e-9)))
    contribution = Scores(Z, readout, parts) * share  # [B,C,N]
    start = bias * factor
    return start + op.ReduceSum(contribution, axis, keepdims=1), start, contribution


def to_onnx(stored: Stored) -> onnx.ModelProto:
    """The graph with the stored model in it."""
    weights, depth = stored.weights, stored.weights.layers
    values = _values(stored)
    places = ["hidden", "out", "tokens", "own", "phrases", "reach", "real", "two_parts", "conceded"]
    corners = ["gamma", "parts", "three", "directions", "turn", "next", "margin"]
    nodes = [
        _call(Widen, ["tokens"], ["wide", "real", "tags"]),
        _call(Negators, ["tokens", "tags", "clause"], ["under", "place"]),
        _call(Conceded, ["tokens", "tags", "sentence", "concession"], ["conceded"]),
        _call(Window, ["wide", "under", "offsets", "tables", "rows", "further"], ["total"]),
        _call(Hidden, ["total", "column", "hidden_bias"], ["hidden"]),
        _call(Phrases, ["wide", "pairs", "pair_rows", "triples", "triple_rows", "scale"], ["phrases"]),
        _call(Places, places, ["Z0", "weight"]),
    ]
    for k in range(depth):
        nodes.append(
            _call(Layer, [f"Z{k}", "tags", "real", *corners], [f"Z{k + 1}", f"leads{k}", f"target{k}"])
        )
    readout = ["weight", "real", "readout", "bias_of", "pseudo_weight", "calibration", "parts"]
    nodes.append(_call(ReadOut, [f"Z{depth}", *readout], ["logits", "biases", "contribution"]))
    for k in reversed(range(depth)):
        later = f"since{k + 1}" if k + 1 < depth else "never"
        nodes.append(helper.make_node("Where", [f"leads{k}", f"layer{k}", later], [f"since{k}"]))
    for name, of, axis in (
        ("logit", "logits", "two"),
        ("bias", "biases", "two"),
        ("target", f"target{depth - 1}", "one"),
        ("since", "since0", "one"),
        ("negator", "place", "one"),
    ):
        nodes.append(helper.make_node("Squeeze", [of, axis], [name]))
    clouds = [f"Z{k}" for k in range(depth + 1)]
    nodes += [helper.make_node("Unsqueeze", [name, "zero"], [f"one_{name}"]) for name in clouds]
    nodes.append(helper.make_node("Concat", [f"one_{name}" for name in clouds], ["states"], axis=0))
    sizes: Mapping[str, int] = {"d": len(weights.readout[0]), "C": len(weights.bias), "L": depth + 1}
    graph = helper.make_graph(
        nodes,
        "sentiment",
        [helper.make_tensor_value_info("tokens", _INT64, ["B", "N"])],
        [
            helper.make_tensor_value_info(name, kind, [sizes.get(size, size) for size in shape])
            for name, (kind, shape) in OUTPUTS.items()
        ],
        [numpy_helper.from_array(np.array(value, order="C"), name) for name, value in values.items()],
    )
    model = helper.make_model(
        graph,
        functions=_functions(plane=sizes["d"] == 2),
        opset_imports=[helper.make_opsetid("", OPSET), helper.make_opsetid(DOMAIN, VERSION)],
        ir_version=IR_VERSION,
    )
    onnx.checker.check_model(model)
    return model


def _values(stored: Stored) -> dict[str, Array]:
    """The initializers of the graph."""
    weights = stored.weights
    if min(weights.offsets) < -EDGE or max(weights.offsets) > EDGE:
        raise InvalidInput(f"offsets {weights.offsets} reach further than {EDGE} words", param="offsets")
    V, d = len(weights.words), weights.readout.shape[1]
    column = stored.tables.scale
    parts, centre = len(weights.offsets), weights.offsets.index(0)
    angles = 2 * np.pi * np.arange(DIRECTIONS) / DIRECTIONS
    return {
        "offsets": EDGE + np.array(weights.offsets, np.int64)[:, None],
        "tables": stored.tables.codes.reshape(-1, stored.tables.codes.shape[-1]),
        "rows": V * np.arange(parts, dtype=np.int64)[:, None],
        "further": V * np.where(np.arange(parts) == centre, parts - centre, 0)[:, None],
        "column": column,
        "clause": np.array(EVENTS, np.float32)[weights.clause],
        "sentence": np.array(EVENTS, np.float32)[weights.sentence],
        "concession": np.array(weights.concession, np.float32),
        "hidden_bias": weights.hidden_bias / column,
        "out": weights.out * column[:, None],
        "pairs": stored.pairs,
        "pair_rows": np.array(len(stored.pairs) - 1, np.int64),
        "triples": stored.triples,
        "triple_rows": np.array(len(stored.triples) - 1, np.int64),
        "scale": stored.phrase_scale[:, None],
        "own": weights.own + weights.out_bias,
        "reach": np.float32(weights.scale) * weights.reach,
        "two_parts": np.array([d, 1], np.int64),
        "parts": np.array([d, 2], np.int64),
        "three": np.array([d, 1, 1], np.int64),
        "gamma": np.array(weights.alpha / (1 + weights.alpha), np.float32),
        "directions": np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32),
        "turn": np.array([[0, 1], [-1, 0]], np.float32),
        "next": np.roll(np.arange(DIRECTIONS, dtype=np.int64), -1),
        "margin": np.array(MARGIN * weights.scale, np.float32),
        "readout": np.pad(weights.readout, ((0, 0), (0, 2)))[None],
        "bias_of": weights.bias[None, :, None],
        "pseudo_weight": np.array(weights.pseudo_weight, np.float32),
        "calibration": weights.calibration,
        "never": np.full((1, 1, 1), -1, np.int64),
        **{name: np.array([axis], np.int64) for axis, name in enumerate(("zero", "one", "two"))},
        **{f"layer{k}": np.full((1, 1, 1), k, np.int64) for k in range(weights.layers)},
    }


def _functions(plane: bool) -> list[onnx.FunctionProto]:
    """The functions that the graph calls. subtle: onnxscript does not see calls inside a branch."""
    called = [Widen, Negators, Conceded, Window, Hidden, Phrases, Places, EveryPlace, Ties]
    protos = [each.to_function_proto() for each in (*called, HardmaxAttention, Layer, ReadOut)]
    for special, general in ((Corners, EveryPlace), (Scores, AnyScores)):
        proto = (special if plane else general).to_function_proto()
        proto.name = special.name
        protos.append(proto)
    for proto in protos:
        if all(known.domain != DOMAIN for known in proto.opset_import):
            proto.opset_import.append(helper.make_opsetid(DOMAIN, VERSION))
    return protos


def _call(function: Any, inputs: list[str], outputs: list[str]) -> onnx.NodeProto:
    return helper.make_node(function.name, inputs, outputs, domain=DOMAIN)
