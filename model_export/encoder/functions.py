"""The functions of the graph of the encoder (graph.py), read from their source by onnxscript."""
# mypy: allow-untyped-defs, allow-untyped-calls

from __future__ import annotations

from onnxscript import opset20 as op
from onnxscript import script

from model_export.attention.functions import domain


@script(domain)
def Standardized(x, u, gain, shift, width):
    """(x - mean) / deviation * gain + shift. The statistics are sums of the whole numbers u.

    subtle: ONNX Runtime makes one division of x * (1 / d), which rounds otherwise; so it is written as one.
    """
    axis = op.Constant(value_ints=[-1])
    mean = op.ReduceSum(u, axis, keepdims=1) / width
    variance = op.ReduceSumSquare(u, axis, keepdims=1) / width - mean * mean
    return (x - mean) / op.Sqrt(variance + op.Constant(value_float=1e-3)) * gain + shift


@script(domain)
def Norm(x, gain, shift, width, limit):
    """The normalization of x, with statistics of x clipped and rounded."""
    return Standardized(x, op.Round(op.Clip(x, op.Neg(limit), limit)), gain, shift, width)


@script(domain)
def ClippedNorm(x, gain, shift, width, limit):
    """The normalization of x clipped."""
    clipped = op.Clip(x, op.Neg(limit), limit)
    return Standardized(clipped, op.Round(clipped), gain, shift, width)


@script(domain)
def Steps(x):
    """The nearest whole numbers as uint8, 128 for zero."""
    return op.QuantizeLinear(x, op.Constant(value_float=1.0), op.Cast(op.Constant(value_int=128), to=2))


@script(domain)
def Numbers(steps):
    """The whole numbers that `Steps` keeps, as float32."""
    zero = op.Cast(op.Constant(value_int=128), to=2)
    return op.DequantizeLinear(steps, op.Constant(value_float=1.0), zero)


@script(domain)
def Read(x, constants, weight, unit, zero_out):
    """A linear map of whole numbers: exact products, one rounding. `constants` carry the bias."""
    one = op.Constant(value_float=1.0)
    zero = op.Cast(op.Constant(value_int=128), to=2)
    none = op.Cast(op.Expand(op.Constant(value_int=0), op.Shape(unit)), to=3)
    return op.QLinearMatMul(op.Concat(x, constants, axis=1), one, zero, weight, unit, none, one, zero_out)


@script(domain)
def Add(h, x, zero, weight, unit, bias):
    """h + a linear map of whole numbers."""
    return h + (op.Cast(op.MatMulInteger(x, weight, zero), to=1) * unit + bias)


# The same products of float32, for devices without kernels for integers: their sums stay below 2^24, so they
# are exact in any order without TF32. The weights stay int8; sessions cast them once, when they are loaded.


@script(domain)
def Product(x, zero, weight):
    """The product of whole numbers as float32."""
    return op.MatMul(op.Cast(x, to=1) - op.Cast(zero, to=1), op.Cast(weight, to=1))


@script(domain)
def FloatRead(x, constants, weight, unit, zero_out):
    """`Read` with one rounding and one cut more, which QLinearMatMul has inside."""
    zero = op.Cast(op.Constant(value_int=128), to=2)
    rounded = op.Round(Product(op.Concat(x, constants, axis=1), zero, weight) * unit)
    shifted = rounded + op.Cast(zero_out, to=1)
    return op.Cast(op.Clip(shifted, op.Constant(value_float=0.0), op.Constant(value_float=255.0)), to=2)


@script(domain, default_opset=op)
def FloatAdd(h, x, zero, weight, unit, bias):
    """`Add`."""
    return h + (Product(x, zero, weight) * unit + bias)


@script(domain)
def FirstStates(pieces, places, table, table_unit, of_place):
    """What a piece is and where it stands, in units of 1/16."""
    rows = op.Cast(op.Gather(table, pieces), to=1)
    return rows * op.Unsqueeze(op.Gather(table_unit, pieces), [1]) + op.Gather(of_place, places)


@script(domain)
def Everybody(rows, pieces):
    """The rows with nobody behind them [B,N+1]; what each counts in a tie, of many nobodies only the last one
    [B,N+1,1]; where the pieces are among all of these [T].
    """
    last = op.Shape(pieces)
    one = op.Constant(value_ints=[1])
    nobody = op.Expand(last, op.Concat(op.Shape(rows, start=0, end=1), one, axis=0))
    every = op.Concat(rows, nobody, axis=1)
    counts = op.Concat(op.Cast(rows < last, to=1), op.Cast(nobody >= last, to=1), axis=1)
    there = op.NonZero(op.Reshape(every < last, op.Constant(value_ints=[-1])))
    return every, op.Unsqueeze(counts, [2]), op.Squeeze(there, [0])


@script(domain)
def Keys(first, every, nobody, split, same):
    """The keys of all layers, made of the first states: [L,B,H,N+1,S].

    subtle: without a Reshape to the shape that it has ONNX Runtime would make one transposition of this and
    that in HardmaxHeads, byte by byte; so it multiplies by the transposed keys as they lie.
    """
    rows = op.Gather(op.Concat(first, nobody, axis=0), every)
    return op.Reshape(op.Transpose(op.Reshape(rows, split), perm=[2, 0, 3, 1, 4]), same)


@script(domain)
def PositionScores(places, every, table, nowhere):
    """What is added to the scores for the distance i - j, [B,L H,N+1,N+1]: a row of the table, the first one,
    of zeros, where j is no token.
    """
    at = op.Gather(op.Concat(places, nowhere, axis=0), every)  # [B,N+1]
    away = op.Unsqueeze(at, [2]) - op.Unsqueeze(at, [1]) + op.Constant(value_int=64)
    row = op.Clip(away, op.Constant(value_int=0), op.Constant(value_int=127))
    return op.Transpose(op.Gather(table, row), perm=[0, 3, 1, 2])


@script(domain)
def HardmaxHeads(asked, keys, bias, every, counts, there, split, nothing, states):
    """C_a(i) = argmax over j and nobody of <q_a(i), k_a(j)> + b_a(i - j); the mean of the values over it
    [T,W], and how many heads of i follow j [1,B,N+1,N+1]. Nobody's value is 0.
    """
    rows = op.Gather(op.Concat(asked, nothing, axis=0), every)  # [B,N+1,2W]
    both = op.Transpose(op.Reshape(rows, split), perm=[2, 0, 3, 1, 4])
    q, v = op.Split(both, axis=0, num_outputs=2)  # [1,B,H,N+1,S]
    score = op.MatMul(Numbers(q), op.Transpose(Numbers(keys), perm=[0, 1, 2, 4, 3])) + bias  # [1,B,H,N+1,N+1]
    C = op.Cast(score >= op.ReduceMax(score, op.Constant(value_ints=[4]), keepdims=1), to=1)
    read = op.MatMul(C, Numbers(v)) / op.MatMul(C, op.Unsqueeze(counts, [1]))
    flat = op.Reshape(op.Transpose(read, perm=[0, 1, 3, 2, 4]), states)
    return op.Gather(Steps(flat), there), op.ReduceSum(C, op.Constant(value_ints=[2]), keepdims=0)


@script(domain)
def Follows(heads, counts):
    """By how many heads piece i follows piece j [L,B,N,N]: of [L,B,N+1,N+1] what is said of pieces."""
    real = counts * op.Transpose(counts, perm=[0, 2, 1])
    zero, last = op.Constant(value_ints=[0, 0]), op.Constant(value_ints=[-1, -1])
    return op.Cast(op.Slice(heads * real, zero, last, op.Constant(value_ints=[2, 3])), to=2)


FUNCTIONS = (
    Standardized, Norm, ClippedNorm, Steps, Numbers, Read, Add, FirstStates, Everybody, Keys, PositionScores,
    HardmaxHeads, Follows, Product, FloatRead, FloatAdd,
)  # fmt: skip
