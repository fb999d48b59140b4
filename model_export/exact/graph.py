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
def MaskedMean(C, y):
    """Return the mean of y [B,n] over the members of each row of C bool [B,n]: [B,1].

    subtle: it is computed as the minimum plus the mean of the differences from it. So the mean of equal
    numbers is that number, and of zeros and ones the share of ones, rounded once, however many there are.
    """
    axis = op.Constant(value_ints=[1])
    zero = op.CastLike(0, y)
    infinity = op.CastLike(op.Constant(value_float=float("inf")), y)
    minimum = op.ReduceMin(op.Where(C, y, infinity), axis)
    differences = op.ReduceSum(op.Where(C, y - minimum, zero), axis)
    return minimum + differences / op.ReduceSum(op.CastLike(C, y), axis)


@script(domain)
def RankOneAttention(x, mask, vectors, numbers):
    """Return rho x_i + v <w, mean of x_j over C_i> with C_i = argmax_j <q, x_i><k, x_j>; x [B,n,D].

    The second output is the first token with the largest <k, x_j>, int64 [B].
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
    of_largest = MaskedMean(high == op.ReduceMax(high, axis), value)
    of_smallest = MaskedMean(low == op.ReduceMin(low, axis), value)
    of_all = MaskedMean(mask, value)
    zero = op.CastLike(0, x)
    mean = op.Where(query > zero, of_largest, op.Where(query < zero, of_smallest, of_all))
    return rho * x + op.Unsqueeze(mean, last) * v, op.ArgMax(high, axis=1, keepdims=0)


@script(domain)
def ZoneDistance(p, mask, numbers):
    """Return the distance of the nearest of p [B,n] from the block's zone (lo, hi), in its unit: [B]."""
    _, lo, hi, unit = op.Split(numbers, op.Constant(value_ints=[5, 1, 1, 1]), axis=0)
    zero = op.CastLike(0, p)
    infinity = op.CastLike(op.Constant(value_float=float("inf")), p)
    distance = unit * op.Relu(op.Max(lo - p, p - hi)) + zero
    return op.ReduceMin(op.Where(mask, distance, infinity), op.Constant(value_ints=[1]), keepdims=0)


@script(domain)
def Lift(tokens, mask, limit, position_axis):
    """Return tokens of R^d in R^D, plus their position along `position_axis` (zero: order does not count).

    Coordinates are clipped to the limit, so that nothing rounds more than tokens of the training set.
    """
    last = op.Constant(value_ints=[-1])
    position = op.CumSum(op.CastLike(mask, tokens), op.Constant(value_int=1)) - op.CastLike(1, tokens)
    n_zeros = op.Shape(position_axis) - op.Shape(tokens, start=2)
    lifted = op.Pad(tokens, op.Concat(op.Constant(value_ints=[0, 0, 0, 0, 0]), n_zeros, axis=0))
    return op.Clip(lifted + op.Unsqueeze(position, last) * position_axis, -limit, limit)


@script()
def ExactClassifier(tokens, mask, vectors, numbers, attends, limit, position_axis, n_attention_blocks):
    x = Lift(tokens, mask, limit, position_axis)
    batch = op.Shape(mask, start=0, end=1)
    smallest = op.Expand(op.CastLike(op.Constant(value_float=float("inf")), tokens), batch)
    first = op.Expand(op.Constant(value_int=-1), batch)
    for i in range(n_attention_blocks):
        flag = op.Gather(x, op.Constant(value_int=1), axis=2)
        block_numbers = op.Gather(numbers, i)
        smallest = op.Min(smallest, ZoneDistance(flag, mask, block_numbers))
        x = FeedForward(x, op.Gather(vectors, i), block_numbers)
        if op.Gather(attends, i):
            next_x, next_first = RankOneAttention(x, mask, op.Gather(vectors, i), block_numbers)
        else:
            next_x = op.Identity(x)
            next_first = op.Identity(first)
        x = op.Identity(next_x)
        first = op.Identity(next_first)
    code = op.Gather(x, op.Constant(value_int=0), axis=2)
    n_output_blocks = op.Squeeze(op.Shape(attends)) - n_attention_blocks
    for j in range(n_output_blocks):
        n = n_attention_blocks + j
        block_numbers = op.Gather(numbers, n)
        smallest = op.Min(smallest, ZoneDistance(code, mask, block_numbers))
        y = FeedForward(x, op.Gather(vectors, n), block_numbers)
        rho = op.Slice(block_numbers, op.Constant(value_ints=[1]), op.Constant(value_ints=[2]))
        x = rho * y  # without attention
    output = op.Identity(x)
    margin = op.Identity(smallest)
    leader = op.Identity(first)
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
        "n_attention_blocks": np.array(model.read_out, np.int64),
    }
