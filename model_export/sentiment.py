"""The sentiment model as an ONNX graph around trained weights, explanations included.

    inputs   tokens  int64 [B, N]     distinct tokens of each text, packed to the left; 0 is padding
             counts  float [B, N]     how often each occurs, 0 for padding
             detail  bool  []         whether `trajectory` and `members`, the dear ones, are wanted
    outputs  logit         float [B]
             contribution  float [B, N]         what each token adds: logit = bias + their sum
             target        int64 [B, N]         whom i attends to at the last layer; itself where C_i ties
             size          int64 [B, N]         |C_i| at the last layer
             since         int64 [B, N]         the first layer with C_i = {i}, or -1
             start, end    float [B, N, d]      the cloud before and after the layers
             trajectory    float [K+1, B, N, d] every layer; no rows without `detail`
             members       bool [B, N, N]       C at the last layer; no rows without `detail`

subtle: ONNX Runtime computes every output, asked for or not. So what costs hides in an If, and the rest are
by-products: one matrix product returns sum, weight, size and a single member's position of every argmax set.
Knows arrays only: no texts, no files.
"""
# The scripts below are graphs, read from their source and generic in the float type.
# mypy: allow-untyped-defs, allow-untyped-calls

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper
from onnxscript import opset20 as op
from onnxscript import script

from model_export.attention import ArgmaxSets, Norm, Sums, domain
from model_export.loops import settle
from model_export.model import Weights
from model_export.rows import Rows

IR_VERSION = 10
Array = NDArray[Any]
_FLOAT, _INT64, _BOOL = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64, onnx.TensorProto.BOOL
SIGNATURE: dict[str, tuple[int, list[str]]] = {
    "tokens": (_INT64, ["B", "N"]),
    "counts": (_FLOAT, ["B", "N"]),
    "detail": (_BOOL, []),
    "logit": (_FLOAT, ["B"]),
    "contribution": (_FLOAT, ["B", "N"]),
    "target": (_INT64, ["B", "N"]),
    "size": (_INT64, ["B", "N"]),
    "since": (_INT64, ["B", "N"]),
    "start": (_FLOAT, ["B", "N", "d"]),
    "end": (_FLOAT, ["B", "N", "d"]),
    "trajectory": (_FLOAT, ["L", "B", "N", "d"]),
    "members": (_BOOL, ["B", "N", "M"]),
}


@script(domain)
def Marks(counts):
    """(count, 1, position) of every token, 0 for padding: [B,N] -> [B,N,3]."""
    last = op.Constant(value_ints=[-1])
    real = op.Sign(counts)
    place = real * (op.CumSum(real, op.Constant(value_int=1)) - op.CastLike(1, counts))
    return op.Concat(op.Unsqueeze(counts, last), op.Unsqueeze(real, last), op.Unsqueeze(place, last), axis=-1)


@script(domain)
def Pull(Z, Y, marks):
    """c_i - z_i (0 for padding), |C_i|, and the sum of its members' positions: [B,N,d], [B,N,1], [B,N,1].

    subtle: sum - weight z_i is formed before dividing, so that a leader is pulled by exactly 0.
    """
    count, real, _place = op.Split(marks, axis=-1, num_outputs=3)
    sums = Sums(Y, Z, op.Concat(Z * count, marks, axis=-1))
    widths = op.Concat(op.Shape(Z, start=2, end=3), op.Constant(value_ints=[1, 1, 1]), axis=0)
    total, weight, size, places = op.Split(sums, widths, axis=-1)
    return real * (total - Z * weight) / op.Max(weight, op.CastLike(1e-30, weight)), size, places


@script(domain)
def Shrink(alpha, layers):
    """How much of c - z `layers` layers go at once when c does not change: 1 - (1 + alpha)^-layers."""
    one = op.CastLike(1, alpha)
    return one - op.Pow(one + alpha, -layers)


@script(domain)
def Layers(Z0, A, marks, alpha, depth):
    """`depth` layers (float, [1]); a text whose argmax sets are certified takes all it has left in one step.

    The certificate (docs/theory.md, section 2) for single leaders: every C_i is one leader. Ties just run on.
    ->  Z^K [B,N,d]; size, target and since int64 [B,N]
    """
    last = op.Constant(value_ints=[-1])
    _count, real, place = op.Split(marks, axis=-1, num_outputs=3)
    padding = op.Squeeze(real, last) < op.Constant(value_float=0.5)
    one = op.CastLike(1, alpha)
    here = op.Squeeze(place, last)
    left = op.Expand(depth, op.Shape(marks, start=0, end=1))  # [B] layers still to go
    size = op.Squeeze(real, last)
    target = op.Identity(here)
    since = here * op.CastLike(0, here) - one
    layer = op.CastLike(0, alpha)
    Z = op.Identity(Z0)
    going = op.ReduceMax(left, keepdims=0) > op.CastLike(0, alpha)
    while going:
        pull, sizes, places = Pull(Z, op.MatMul(Z, A), marks)
        active = op.Unsqueeze(left > op.CastLike(0, left), last)  # [B,1]
        size = op.Where(active, op.Squeeze(sizes, last), size)
        single = size == one
        target = op.Where(active, op.Where(single, op.Squeeze(places, last), here), target)
        alone = op.And(single, target == here)
        since = op.Where(op.And(alone, since < op.CastLike(0, since)), layer, since)
        led = op.GatherElements(op.CastLike(alone, here), op.Cast(target, to=7), axis=1)
        certified = op.ReduceMin(op.Where(padding, one, led), last, keepdims=0) > op.CastLike(0, led)
        step = op.Where(certified, left, op.Min(left, one))
        Z = Z + op.Unsqueeze(op.Unsqueeze(Shrink(alpha, step), last), last) * pull
        left = left - step
        layer = layer + one
        going = op.ReduceMax(left, keepdims=0) > op.CastLike(0, left)
    return Z, op.Cast(size, to=7), op.Cast(target, to=7), op.Cast(since, to=7)


@script(domain)
def EveryLayer(Z0, A, marks, alpha, depth):
    """The plain definition, layer by layer: Z^0..Z^K [K+1,B,N,d], and C at the last layer [B,N,N]."""
    zero = op.Constant(value_ints=[0])
    count, _real, _place = op.Split(marks, axis=-1, num_outputs=3)
    weights = op.Squeeze(count, op.Constant(value_ints=[-1]))
    Z = op.Identity(Z0)
    Y = op.MatMul(Z, A)
    trajectory = op.Unsqueeze(Z, zero)
    exact = op.CastLike(0, Z0)
    members = ArgmaxSets(Y, Norm(Y, Z), Y, Z, weights, exact)
    gamma = Shrink(alpha, op.CastLike(1, alpha))
    for _ in range(depth):
        Y = op.MatMul(Z, A)
        members = ArgmaxSets(Y, Norm(Y, Z), Y, Z, weights, exact)
        pull, _size, _places = Pull(Z, Y, marks)
        Z = Z + gamma * pull
        trajectory = op.Concat(trajectory, op.Unsqueeze(Z, zero), axis=0)
    return trajectory, members


@script(domain)
def ReadOut(Z, marks, weights, v, b, pseudo_weight):
    """logit = b + sum_i c_i w_i <v, z_i> / (W0 + sum_i c_i w_i), and each token's part of it."""
    last = op.Constant(value_ints=[-1])
    count, _real, _place = op.Split(marks, axis=-1, num_outputs=3)
    share = op.Squeeze(count, last) * weights
    whole = op.Max(pseudo_weight + op.ReduceSum(share, last, keepdims=1), op.CastLike(1e-9, share))
    contribution = share * op.Squeeze(op.MatMul(Z, v), last) / whole
    return b + op.ReduceSum(contribution, last, keepdims=0), contribution


@script()
def Sentiment(tokens, counts, detail, E, scale, w, A, v, b, pseudo_weight, alpha, depth):
    start = op.CastLike(op.Gather(E, tokens), counts) * op.CastLike(op.Gather(scale, tokens), counts)
    marks = Marks(counts)
    end, size, target, since = Layers(start, A, marks, alpha, depth)
    logit, contribution = ReadOut(end, marks, op.CastLike(op.Gather(w, tokens), counts), v, b, pseudo_weight)
    if detail:
        every, last = EveryLayer(start, A, marks, alpha, op.Squeeze(op.Cast(depth, to=7)))
    else:
        every = op.CastLike(op.ConstantOfShape(op.Constant(value_ints=[0, 0, 0, 0])), counts)
        last = op.Cast(op.ConstantOfShape(op.Constant(value_ints=[0, 0, 0])), to=9)
    trajectory = op.Identity(every)
    members = op.Identity(last)
    return logit, contribution, target, size, since, start, end, trajectory, members


def to_onnx(weights: Weights, rows: Rows) -> onnx.ModelProto:
    """The graph with `weights` in it as initializers; `rows` are its embedding and word weights as stored."""
    d = weights.embedding.shape[1]
    metric = np.eye(d) if weights.metric is None else weights.metric
    values: dict[str, Array] = {
        "E": rows.codes,
        "scale": rows.scale,
        "w": rows.weights,
        "A": np.asarray(metric, np.float32),
        "v": np.asarray(weights.readout, np.float32)[:, None],
        "b": np.array(weights.bias, np.float32),
        "pseudo_weight": np.array(weights.pseudo_weight, np.float32),
        "alpha": np.array(weights.alpha, np.float32),
        "depth": np.array([weights.layers], np.float32),
    }
    proto = settle(Sentiment.to_model_proto(ir_version=IR_VERSION))
    for function in proto.functions:  # subtle: onnxscript does not see calls inside a function's loops
        if all(known.domain != domain.domain for known in function.opset_import):
            function.opset_import.append(onnx.helper.make_opsetid(domain.domain, domain.version))
    graph = proto.graph
    kept = [argument for argument in graph.input if argument.name not in values]
    del graph.input[:]
    graph.input.extend(kept)
    graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in values.items())
    for value in (*graph.input, *graph.output):
        kind, shape = SIGNATURE[value.name]
        sizes = [d if size == "d" else size for size in shape]
        value.CopyFrom(onnx.helper.make_tensor_value_info(value.name, kind, sizes))
    onnx.checker.check_model(proto)
    return proto
