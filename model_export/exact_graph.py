"""The exact classifier as an ONNX graph: Loops over its blocks, so that it is as small for 2,000 sequences as
for two. Parameters are stacked, one row a block.

    inputs   tokens  float [B, n, d]   a batch of sequences, padded
             mask    bool  [B, n]      which tokens are there
    outputs  output  float [B, n, D]   labels: (0, its code, ..) at every token; else the target
             margin  float [B]         the output is the same while every token moves by less than this
             leader  int64 [B]         the token that all others went to in the end

Rank-one scores <q, x_i><k, x_j> are largest at the largest or at the smallest <k, x_j>, as <q, x_i> is
positive or negative: attention costs O(n), and no n x n matrix exists.

Knows nothing of how parameters were found.
"""
# The scripts below are graphs, read from their source and generic in the float type.
# mypy: allow-untyped-defs, allow-untyped-calls

from __future__ import annotations

import numpy as np
import onnx
from onnx import numpy_helper
from onnxscript import opset20 as op
from onnxscript import script

from model_export.attention import domain
from model_export.exact_blocks import Transformer


@script(domain)
def FeedForward(x, eta, U, b, W):
    """eta x + W relu(U x + b) for tokens in rows: x [B,n,D], U [D,3], b [3], W [3,D]."""
    return eta * x + op.MatMul(op.Relu(op.MatMul(x, U) + b), W)


@script(domain)
def MeanOver(C, y):
    """The mean of y [B,n] over the members of each row of C bool [B,n]  ->  [B,1]."""
    axis = op.Constant(value_ints=[1])
    zero = op.CastLike(0, y)
    return op.ReduceSum(op.Where(C, y, zero), axis) / op.ReduceSum(op.CastLike(C, y), axis)


@script(domain)
def RankOneAttention(x, mask, rho, v, w, q, k):
    """rho x_i + v <w, mean of x_j over C_i>, C_i = argmax_j <q, x_i><k, x_j>; x [B,n,D], mask bool [B,n].

    Also the first token of the largest <k, x_j>: int64 [B].
    """
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
def Room(p, mask, zone):
    """How far the nearest of p [B,n] is from the interval (zone_0, zone_1), in units of zone_2  ->  [B]."""
    lo, hi, unit = op.Split(zone, axis=0, num_outputs=3)
    zero = op.CastLike(0, p)
    infinity = op.CastLike(op.Constant(value_float=float("inf")), p)
    away = unit * op.Relu(op.Max(lo - p, p - hi)) + zero
    return op.ReduceMin(op.Where(mask, away, infinity), op.Constant(value_ints=[1]), keepdims=0)


@script(domain)
def Lift(tokens, mask, limit, embed, place):
    """Tokens of R^d in R^D, and their position in the sequence along `place` (zero: order does not count).

    Coordinates beyond the limit, which is far from all known tokens, are held there: no sum overflows.
    """
    last = op.Constant(value_ints=[-1])
    position = op.CumSum(op.CastLike(mask, tokens), op.Constant(value_int=1)) - op.CastLike(1, tokens)
    near = op.Clip(tokens, -limit, limit)
    return op.MatMul(near, embed) + op.Unsqueeze(position, last) * place


@script()
def ExactClassifier(
    tokens,
    mask,
    limit,
    embed,
    place,
    eta,
    U,
    b,
    W,
    rho,
    v,
    w,
    q,
    k,
    attends,
    zone,
    unbounded,
    nobody,
    splitting,
    reading,
):
    x = Lift(tokens, mask, limit, embed, place)
    batch = op.Shape(mask, start=0, end=1)
    room = op.Expand(unbounded, batch)
    front = op.Expand(nobody, batch)
    for i in range(splitting):
        flag = op.Gather(x, op.Constant(value_int=1), axis=2)
        room = op.Min(room, Room(flag, mask, op.Gather(zone, i)))
        x = FeedForward(x, op.Gather(eta, i), op.Gather(U, i), op.Gather(b, i), op.Gather(W, i))
        if op.Gather(attends, i):
            moved, first = RankOneAttention(
                x,
                mask,
                op.Gather(rho, i),
                op.Gather(v, i),
                op.Gather(w, i),
                op.Gather(q, i),
                op.Gather(k, i),
            )
        else:
            moved = op.Identity(x)
            first = op.Identity(front)
        x = op.Identity(moved)
        front = op.Identity(first)
    code = op.Gather(x, op.Constant(value_int=0), axis=2)
    for j in range(reading):
        n = splitting + j
        room = op.Min(room, Room(code, mask, op.Gather(zone, n)))
        y = FeedForward(x, op.Gather(eta, n), op.Gather(U, n), op.Gather(b, n), op.Gather(W, n))
        x = op.Gather(rho, n) * y
    output = op.Identity(x)
    margin = op.Identity(room)
    leader = op.Identity(front)
    return output, margin, leader


def to_onnx(model: Transformer, dtype: str, inputs: int, *, positions: bool) -> onnx.ModelProto:
    """The graph for tokens of R^inputs, with the parameters in it as initializers."""
    proto: onnx.ModelProto = ExactClassifier.to_model_proto(ir_version=10)
    values = _parameters(model, dtype, inputs, positions)
    graph, D = proto.graph, model.dimension
    kept = [argument for argument in graph.input if argument.name not in values]
    del graph.input[:]
    graph.input.extend(kept)
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
    blocks, D = model.blocks, model.dimension
    stacks = {
        "eta": [block.eta for block in blocks],
        "U": [block.U.T for block in blocks],  # transposed: a token is a row
        "b": [block.b for block in blocks],
        "W": [block.W.T for block in blocks],
        "rho": [block.rho for block in blocks],
        **{name: [getattr(block, name) for block in blocks] for name in "vwqk"},
        "zone": [block.zone for block in blocks],
        "limit": model.limit,
        "embed": np.eye(inputs, D),
        "place": np.eye(D)[inputs] if positions else np.zeros(D),
        "unbounded": np.inf,
    }
    return {
        **{name: np.array(value, dtype) for name, value in stacks.items()},
        "attends": np.array([block.attends for block in blocks]),
        "nobody": np.array(-1, np.int64),
        "splitting": np.array(model.read_out, np.int64),
        "reading": np.array(len(blocks) - model.read_out, np.int64),
    }
