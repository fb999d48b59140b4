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
by-products of one pass over the scores. Operators cost more than arithmetic on short texts: two layers are
written out, and what only ties need is in a branch that is hardly ever taken.
Knows arrays only: no texts, no files.
"""
# The scripts below are graphs, read from their source.
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
BASE = 1 << 14  # more than a text has tokens; twice as much is exact in float32 by far
MANY, KEYS = 256, 96  # texts of more tokens look at so many keys first; measured on reviews
Array = NDArray[Any]
_FLOAT, _INT64, _BOOL = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64, onnx.TensorProto.BOOL


def _number(value: float, kind: int = _FLOAT) -> onnx.TensorProto:
    """A constant of shape [1,1,1].

    subtle: on [B,N,1] ONNX Runtime takes a number without a shape 30 times as long.
    """
    return onnx.helper.make_tensor("", kind, [1, 1, 1], [value])


NOBODY, FIRST, SECOND = _number(-1, _INT64), _number(0, _INT64), _number(1, _INT64)
BELOW_BASE, ONE = _number(BASE - 1), _number(1)
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
    """What layers ask of every token, [B,N,1]: its count; 1, or 0 for padding; its place, -1 for padding
    (int64); and BASE + its place, 0 for padding, as a float.
    """
    count = op.Unsqueeze(counts, op.Constant(value_ints=[-1]))
    real = op.Sign(count)
    nth = op.CumSum(real, op.Constant(value_int=1)) * real  # 1, 2, ..
    place = op.Cast(nth - op.Constant(value=ONE), to=7)
    return count, real, place, nth + real * op.Constant(value=BELOW_BASE)


@script(domain)
def Image(Z, A):
    """A z_i: [B,N,d]."""
    return op.MatMul(Z, A)


@script(domain)
def SameImage(Z, A):
    """`Image` where A is the identity."""
    return op.Identity(Z)


@script(domain)
def Winner(Y, Z, tag):
    """The best score, after the sum of tag over C_i: BASE + j if C_i = {j}, otherwise at least twice BASE.

    subtle: no mask. Padding (z = 0, tag = 0) loses to <A z_i, z_i> > 0, and where it ties it adds nothing.
    """
    scores = op.MatMul(Y, op.Transpose(Z, perm=[0, 2, 1]))
    best = op.ReduceMax(scores, op.Constant(value_ints=[2]), keepdims=1)
    return op.MatMul(op.CastLike(scores >= best, tag), tag), best


@script(domain)
def ScreenedWinner(Y, Z, length, reach, real, tag):
    """The same for long texts: every token looks at the KEYS keys of greatest reach, and at all keys only
    where those do not prove its winner.

    length [B,N,1] is |z_i|. reach [B,N,1] says of a key k that no <A z_i, z_k> is more than |z_i| reach_k
    and the best score of i both. So a key that is not among the few can neither win nor tie where the best
    of the few is above |z_i| times the greatest reach of the others.
    """
    few, one = op.Constant(value_ints=[KEYS]), op.Constant(value_ints=[1])
    reaches, order = op.TopK(reach, few + one, axis=1)
    key = op.Slice(order, op.Constant(value_ints=[0]), few, one)
    others = op.Slice(reaches, few, few + one, one)
    sums, best = Winner(Y, op.GatherND(Z, key, batch_dims=1), op.GatherND(tag, key, batch_dims=1))
    slack = op.CastLike(1.00001, Z)  # ten times what rounding does
    unproved = op.CastLike(best <= slack * others * length, Z) * real
    most = op.ReduceMax(op.ReduceSum(unproved, one, keepdims=0), keepdims=0)
    _, row = op.TopK(unproved, op.Reshape(op.Cast(op.Max(most, op.CastLike(1, most)), to=7), one), axis=1)
    scores = op.MatMul(op.GatherND(Y, row, batch_dims=1), op.Transpose(Z, perm=[0, 2, 1]))
    chosen = scores >= op.ReduceMax(scores, op.Constant(value_ints=[2]), keepdims=1)
    return op.ScatterElements(sums, row, op.MatMul(op.CastLike(chosen, tag), tag), axis=1)


@script(domain)
def Pull(sums, Z, A, count, real, place, tag):
    """c_i - z_i [B,N,d]; |C_i|, its member (i itself if there are several), whether C_i = {i}: [B,N,1].

    `sums` are Winner's: one product with a vector says whom each token attends to; the means of several are
    only formed where there are some.
    subtle: the mean over a single member is that member, bit by bit, so that a leader is pulled by exactly 0.
    Padding has member -1, which is the last token: padding too, so that it is pulled by 0 as well.
    """
    member = (sums - op.Constant(value=BELOW_BASE)) * real - op.Constant(value=ONE)
    if op.ReduceMax(member, keepdims=0) < op.CastLike(BASE, member):
        target = op.Cast(member, to=7)
        size = op.Cast(real, to=7)
        c = op.GatherND(Z, target, batch_dims=1)
        alone = target == place
    else:
        totals = Sums(Image(Z, A), Z, op.Concat(Z * count, count, real, axis=-1))
        widths = op.Concat(op.Shape(Z, start=2, end=3), op.Constant(value_ints=[1, 1]), axis=0)
        total, weight, members = op.Split(totals, widths, axis=-1)
        size = op.Cast(members * real, to=7)
        several = size > op.Constant(value_int=1)
        target = op.Where(several, place, op.Cast(member, to=7))
        mean = total / op.Max(weight, op.CastLike(1e-30, weight))
        c = op.Where(several, mean, op.GatherND(Z, target, batch_dims=1))
        alone = op.And(target == place, op.Not(several))
    return c - Z, size, target, alone


@script(domain)
def Shrink(alpha, layers):
    """How much of c - z `layers` layers go at once when c does not change: 1 - (1 + alpha)^-layers."""
    one = op.CastLike(1, alpha)
    return one - op.Pow(one + alpha, -layers)


@script(domain)
def TwoLayers(Z0, A, count, real, place, tag, alpha, depth):
    """`Layers` for depth 2, where asking for the certificate would cost what it saves.

    Who follows a leader keeps its reach: z_k' = (1 - gamma) z_k + gamma z_l, and a score with l is no more
    than the best, for leaders do not move. So what could not win before it moved cannot win after.
    """
    step = Shrink(alpha, op.CastLike(1, alpha))
    many = op.Shape(Z0, start=1, end=2) > op.Constant(value_int=MANY)
    # subtle: Cast, because the type of what a function returns is not known inside a branch
    if many:
        Y0 = Image(Z0, A)
        reach = op.Cast(Norm(Y0, Z0), to=1)
        sums = op.Cast(ScreenedWinner(Y0, Z0, reach, reach, real, tag), to=1)
    else:
        reach = op.Cast(real, to=1)
        sums_, _best = Winner(Image(Z0, A), Z0, tag)
        sums = op.Cast(sums_, to=1)
    pull, _size, target0, first = Pull(sums, Z0, A, count, real, place, tag)
    Z1 = Z0 + step * pull
    if many:
        Y1 = Image(Z1, A)
        length = Norm(Y1, Z1)
        kept = op.Where(op.GatherElements(first, target0, axis=1), reach, length)
        sums1 = op.Cast(ScreenedWinner(Y1, Z1, length, kept, real, tag), to=1)
    else:
        sums1_, _best = Winner(Image(Z1, A), Z1, tag)
        sums1 = op.Cast(sums1_, to=1)
    pull1, size, target, second = Pull(sums1, Z1, A, count, real, place, tag)
    later = op.Where(second, op.Constant(value=SECOND), op.Constant(value=NOBODY))
    since = op.Where(first, op.Constant(value=FIRST), later)
    return Z1 + step * pull1, size, target, since


@script(domain)
def Layers(Z0, A, count, real, place, tag, alpha, depth):
    """`depth` layers (float, [1]); a text whose argmax sets are certified takes all it has left in one step.

    The certificate (docs/theory.md, section 2) for single leaders: every C_i is one leader. Ties just run on.
    ->  Z^K [B,N,d]; size, target and since int64 [B,N,1]
    """
    axes = op.Constant(value_ints=[1, 2])
    padding = place < op.Constant(value_int=0)
    left = op.Expand(depth, op.Concat(op.Shape(real, start=0, end=1), op.Constant(value_ints=[1, 1]), axis=0))
    size = op.Cast(real, to=7)
    target = op.Identity(place)
    since = op.Cast(real, to=7) * op.Constant(value_int=0) - op.Constant(value_int=1)
    layer = op.Constant(value_int=0)
    Z = op.Identity(Z0)
    going = op.ReduceMax(left, keepdims=0) > op.CastLike(0, alpha)
    while going:
        sums, _best = Winner(Image(Z, A), Z, tag)
        pull, sizes, targets, alone = Pull(sums, Z, A, count, real, place, tag)
        active = left > op.CastLike(0, left)  # [B,1,1]
        size = op.Where(active, sizes, size)
        target = op.Where(active, targets, target)
        since = op.Where(op.And(alone, since < op.Constant(value_int=0)), layer, since)
        led = op.Or(
            padding, op.And(op.GatherElements(alone, targets, axis=1), sizes == op.Constant(value_int=1))
        )
        certified = op.ReduceMin(op.Cast(led, to=6), axes, keepdims=1) > op.CastLike(0, op.Cast(led, to=6))
        step = op.Where(certified, left, op.Min(left, op.CastLike(1, left)))
        Z = Z + Shrink(alpha, step) * pull
        left = left - step
        layer = layer + op.Constant(value_int=1)
        going = op.ReduceMax(left, keepdims=0) > op.CastLike(0, left)
    return Z, size, target, since


@script(domain)
def EveryLayer(Z0, A, count, real, place, tag, alpha, depth):
    """The plain definition, layer by layer: Z^0..Z^K [K+1,B,N,d], and C at the last layer [B,N,N]."""
    zero = op.Constant(value_ints=[0])
    weights = op.Squeeze(count, op.Constant(value_ints=[-1]))
    Z = op.Identity(Z0)
    Y = op.MatMul(Z, A)
    trajectory = op.Unsqueeze(Z, zero)
    exact = op.CastLike(0, Z0)
    members = ArgmaxSets(Y, Norm(Y, Z), Y, Z, weights, exact)
    step = Shrink(alpha, op.CastLike(1, alpha))
    for _ in range(depth):
        Y = op.MatMul(Z, A)
        members = ArgmaxSets(Y, Norm(Y, Z), Y, Z, weights, exact)
        sums, _best = Winner(Y, Z, tag)
        pull, _size, _target, _alone = Pull(sums, Z, A, count, real, place, tag)
        Z = Z + step * pull
        trajectory = op.Concat(trajectory, op.Unsqueeze(Z, zero), axis=0)
    return trajectory, members


@script(domain)
def ReadOut(Z, count, w, v, b, pseudo_weight):
    """logit = b + sum_i c_i w_i <v, z_i> / (W0 + sum_i c_i w_i), and each token's part of it."""
    axes = op.Constant(value_ints=[1, 2])
    share = count * w
    whole = op.Max(pseudo_weight + op.ReduceSum(share, axes, keepdims=1), op.CastLike(1e-9, share))
    contribution = share * op.MatMul(Z, v) / whole
    logit = b + op.ReduceSum(contribution, axes, keepdims=0)
    return logit, op.Squeeze(contribution, op.Constant(value_ints=[-1]))


@script()
def Sentiment(tokens, counts, detail, E, scale, w, A, v, b, pseudo_weight, alpha, depth):
    start = op.CastLike(op.Gather(E, tokens), counts) * op.CastLike(op.Gather(scale, tokens), counts)
    count, real, place, tag = Marks(counts)
    end, sizes, targets, layers = Layers(start, A, count, real, place, tag, alpha, depth)
    logit, contribution = ReadOut(end, count, op.CastLike(op.Gather(w, tokens), counts), v, b, pseudo_weight)
    if detail:
        every, last = EveryLayer(start, A, count, real, place, tag, alpha, op.Squeeze(op.Cast(depth, to=7)))
    else:
        every = op.CastLike(op.ConstantOfShape(op.Constant(value_ints=[0, 0, 0, 0])), counts)
        last = op.Cast(op.ConstantOfShape(op.Constant(value_ints=[0, 0, 0])), to=9)
    trajectory = op.Identity(every)
    members = op.Identity(last)
    column = op.Constant(value_ints=[-1])
    size = op.Squeeze(sizes, column)
    target = op.Squeeze(op.Max(targets, op.Constant(value=FIRST)), column)  # of padding 0 again
    since = op.Squeeze(layers, column)
    return logit, contribution, target, size, since, start, end, trajectory, members


def to_onnx(weights: Weights, rows: Rows) -> onnx.ModelProto:
    """The graph with `weights` in it as initializers; `rows` are its embedding and word weights as stored."""
    d = weights.embedding.shape[1]
    metric = np.eye(d) if weights.metric is None else weights.metric
    values: dict[str, Array] = {
        "E": rows.codes,
        "scale": rows.scale,
        "w": rows.weights[:, None],
        "A": np.asarray(metric, np.float32),
        "v": np.asarray(weights.readout, np.float32)[:, None],
        "b": np.array(weights.bias, np.float32),
        "pseudo_weight": np.array(weights.pseudo_weight, np.float32),
        "alpha": np.array([[[weights.alpha]]], np.float32),
        "depth": np.array([weights.layers], np.float32),
    }
    proto = settle(Sentiment.to_model_proto(ir_version=IR_VERSION))
    if weights.metric is None:
        _replace(proto, Image, SameImage)
    if weights.layers == 2:
        _replace(proto, Layers, TwoLayers)
        proto.functions.append(ScreenedWinner.to_function_proto())
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


def _replace(proto: onnx.ModelProto, general: Any, special: Any) -> None:
    """Lets the function `general` do what `special` does, which is faster where it holds."""
    body = special.to_function_proto()
    for function in proto.functions:
        if function.name == general.name:
            name = function.name
            function.CopyFrom(body)
            function.name = name
