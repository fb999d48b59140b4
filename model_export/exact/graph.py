"""The exact classifier as an ONNX graph: Loops over its blocks, as small for 2,000 sequences as for two.

Parameters are stacked: `vectors` [L,10,D] holds U, W', v, w, q, k of each block, `numbers` [L,8] its eta,
rho, b and zone.

    inputs   tokens  float [B, n, d]   a batch of sequences, padded
             mask    bool  [B, n]      True for tokens, False for padding
    outputs  output  float [B, n, D]   labels: (0, its code, ..) at every token; else the target
             margin  float [B]         the output is the same while every token moves by less than this
             leader  int64 [B]         the token to which all others move in the end

Rank-one scores <q, x_i><k, x_j> are largest at the largest or at the smallest <k, x_j>, as <q, x_i> is
positive or negative: attention costs O(n), without an n x n matrix.
"""
# onnxscript translates the source of the functions below, which are generic in the float type.
# mypy: allow-untyped-defs, allow-untyped-calls

from __future__ import annotations

import numpy as np
import onnx
from onnx import numpy_helper
from onnxscript import opset20 as op
from onnxscript import script

from model_export.attention.functions import IR_VERSION, domain
from model_export.exact.blocks import Transformer


@script(domain)
def FeedForward(x, vectors, numbers):
    """eta x + W relu(U x + b) for tokens in rows: x [B,n,D], U and W' [3,D], b [3]."""
    U, W, _ = op.Split(vectors, op.Constant(value_ints=[3, 3, 4]), axis=0)
    eta, _, b, _ = op.Split(numbers, op.Constant(value_ints=[1, 1, 3, 3]), axis=0)
    return eta * x + op.MatMul(op.Relu(op.MatMul(x, op.Transpose(U)) + b), W)


@script(domain)
def MeanOver(C, y):
    """The mean of y [B,n] over the members of each row of C bool [B,n]  ->  [B,1].

    subtle: as the least of them and the mean of what is above it. So the mean of equal numbers is that
    number, and of zeros and ones the share of ones, rounded once, however many there are.
    """
    axis = op.Constant(value_ints=[1])
    zero = op.CastLike(0, y)
    infinity = op.CastLike(op.Constant(value_float=float("inf")), y)
    least = op.ReduceMin(op.Where(C, y, infinity), axis)
    above = op.ReduceSum(op.Where(C, y - least, zero), axis)
    return least + above / op.ReduceSum(op.CastLike(C, y), axis)


@script(domain)
def RankOneAttention(x, mask, vectors, numbers):
    """rho x_i + v <w, mean of x_j over C_i>, C_i = argmax_j <q, x_i><k, x_j>; x [B,n,D], mask bool [B,n].

    Also the first token of the largest <k, x_j>: int64 [B].
    """
    _, v, w, q, k = op.Split(vectors, op.Constant(value_ints=[6, 1, 1, 1, 1]), axis=0)
    _, rho, _ = op.Split(numbers, op.Constant(value_ints=[1, 1, 6]), axis=0)
    axis = op.Constant(value_ints=[1])
    last = op.Constant(value_ints=[-1])
    query = op.ReduceSum(x * q, last, keepdims=0)
    key = op.ReduceSum(x * k, last, keepdims=0)
    value = op.ReduceSum(x * w, last, keepdims=0)
    infinity = op.CastLike(op.Constant(value_float=float("inf")), x)
    high = op.Where(mask, key, -infinity)
    low = op.Where(mask, key, infinity)
    above = MeanOver(high == op.ReduceMax(high, axis), value)
    below = MeanOver(low == op.ReduceMin(low, axis), value)
    every = MeanOver(mask, value)
    zero = op.CastLike(0, x)
    mean = op.Where(query > zero, above, op.Where(query < zero, below, every))
    return rho * x + op.Unsqueeze(mean, last) * v, op.ArgMax(high, axis=1, keepdims=0)


@script(domain)
def Room(p, mask, numbers):
    """How far the nearest of p [B,n] is from the block's zone (lo, hi), in its unit  ->  [B]."""
    _, lo, hi, unit = op.Split(numbers, op.Constant(value_ints=[5, 1, 1, 1]), axis=0)
    zero = op.CastLike(0, p)
    infinity = op.CastLike(op.Constant(value_float=float("inf")), p)
    away = unit * op.Relu(op.Max(lo - p, p - hi)) + zero
    return op.ReduceMin(op.Where(mask, away, infinity), op.Constant(value_ints=[1]), keepdims=0)


@script(domain)
def Lift(tokens, mask, limit, position_axis):
    """Tokens of R^d in R^D, plus their position along `position_axis` (zero: order does not count).

    Coordinates are held within the limit, so that nothing rounds more than known tokens may.
    """
    last = op.Constant(value_ints=[-1])
    position = op.CumSum(op.CastLike(mask, tokens), op.Constant(value_int=1)) - op.CastLike(1, tokens)
    missing = op.Shape(position_axis) - op.Shape(tokens, start=2)
    lifted = op.Pad(tokens, op.Concat(op.Constant(value_ints=[0, 0, 0, 0, 0]), missing, axis=0))
    return op.Clip(lifted + op.Unsqueeze(position, last) * position_axis, -limit, limit)


@script()
def ExactClassifier(tokens, mask, vectors, numbers, attends, limit, position_axis, splitting):
    x = Lift(tokens, mask, limit, position_axis)
    batch = op.Shape(mask, start=0, end=1)
    room = op.Expand(op.CastLike(op.Constant(value_float=float("inf")), tokens), batch)
    front = op.Expand(op.Constant(value_int=-1), batch)
    for i in range(splitting):
        flag = op.Gather(x, op.Constant(value_int=1), axis=2)
        own = op.Gather(numbers, i)
        room = op.Min(room, Room(flag, mask, own))
        x = FeedForward(x, op.Gather(vectors, i), own)
        if op.Gather(attends, i):
            moved, first = RankOneAttention(x, mask, op.Gather(vectors, i), own)
        else:
            moved = op.Identity(x)
            first = op.Identity(front)
        x = op.Identity(moved)
        front = op.Identity(first)
    code = op.Gather(x, op.Constant(value_int=0), axis=2)
    reading = op.Squeeze(op.Shape(attends)) - splitting
    for j in range(reading):
        n = splitting + j
        own = op.Gather(numbers, n)
        room = op.Min(room, Room(code, mask, own))
        y = FeedForward(x, op.Gather(vectors, n), own)
        x = op.Slice(own, op.Constant(value_ints=[1]), op.Constant(value_ints=[2])) * y  # rho, attention off
    output = op.Identity(x)
    margin = op.Identity(room)
    leader = op.Identity(front)
    return output, margin, leader


def to_onnx(model: Transformer, dtype: str, inputs: int, *, positions: bool) -> onnx.ModelProto:
    """Return the graph for tokens of R^inputs, with the parameters as initializers."""
    proto: onnx.ModelProto = ExactClassifier.to_model_proto(ir_version=IR_VERSION)
    values = _parameters(model, dtype, inputs, positions)
    graph, D = proto.graph, model.dimension
    inputs_without_values = [argument for argument in graph.input if argument.name not in values]
    del graph.input[:]
    graph.input.extend(inputs_without_values)
    graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in values.items())
    element = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    shapes = {
        "tokens": (element, ["B", "n", inputs]),
        "mask": (onnx.TensorProto.BOOL, ["B", "n"]),
        "output": (element, ["B", "n", D]),
        "margin": (element, ["B"]),
        "leader": (onnx.TensorProto.INT64, ["B"]),
    }
    for value in (*graph.input, *graph.output):
        kind, shape = shapes[value.name]
        value.CopyFrom(onnx.helper.make_tensor_value_info(value.name, kind, shape))
    onnx.checker.check_model(proto)
    return proto


def _parameters(model: Transformer, dtype: str, inputs: int, positions: bool) -> dict[str, np.ndarray]:
    """Return the parameters by name: 10 D + 5 numbers for each block, and its zone."""
    vectors = [[*block.U, *block.W.T, block.v, block.w, block.q, block.k] for block in model.blocks]
    numbers = [[block.eta, block.rho, *block.b, *block.zone] for block in model.blocks]
    position_axis = np.eye(model.dimension)[inputs] if positions else np.zeros(model.dimension)
    return {
        "vectors": np.array(vectors, dtype),  # [L, 10, D]
        "numbers": np.array(numbers, dtype),  # [L, 8]
        "attends": np.array([block.attends for block in model.blocks]),
        "limit": np.array(model.limit, dtype),
        "position_axis": position_axis.astype(dtype),
        "splitting": np.array(model.read_out, np.int64),
    }
