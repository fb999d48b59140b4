"""The functions of the encoder's graph (graph.py); onnxscript translates their source.

B chunks of N tokens, T tokens of all chunks, L layers, H heads, W width, S width of a head.
"""
# mypy: allow-untyped-defs, allow-untyped-calls

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
def Project(x, constants, weight, unit, zero_out):
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
def FloatProject(x, constants, weight, unit, zero_out):
    """`Project` with one rounding and one cut more, which QLinearMatMul has inside."""
    zero = op.Cast(op.Constant(value_int=128), to=2)
    rounded = op.Round(Product(op.Concat(x, constants, axis=1), zero, weight) * unit)
    shifted = rounded + op.Cast(zero_out, to=1)
    return op.Cast(op.Clip(shifted, op.Constant(value_float=0.0), op.Constant(value_float=255.0)), to=2)


@script(domain, default_opset=op)
def FloatAdd(h, x, zero, weight, unit, bias):
    """`Add`."""
    return h + (Product(x, zero, weight) * unit + bias)


@script(domain)
def InputEmbeddings(token_ids, position_ids, table, table_unit, positions):
    """The embedding of each token plus that of its position, in units of the grid."""
    rows = op.Cast(op.Gather(table, token_ids), to=1)
    return rows * op.Unsqueeze(op.Gather(table_unit, token_ids), [1]) + op.Gather(positions, position_ids)


@script(domain)
def WithNullKey(rows, token_ids):
    """The rows of the keys of each chunk, the null key last [B,N+1]; what each counts in a tie [B,N+1,1];
    where the tokens are among all of these [T].

    Padding has the row of the null key too, and counts nothing.
    """
    last = op.Shape(token_ids)
    one = op.Constant(value_ints=[1])
    null = op.Expand(last, op.Concat(op.Shape(rows, start=0, end=1), one, axis=0))
    key_rows = op.Concat(rows, null, axis=1)
    counts = op.Concat(op.Cast(rows < last, to=1), op.Cast(null >= last, to=1), axis=1)
    tokens = op.NonZero(op.Reshape(key_rows < last, op.Constant(value_ints=[-1])))
    return key_rows, op.Unsqueeze(counts, [2]), op.Squeeze(tokens, [0])


@script(domain)
def Keys(projected, key_rows, null_key, split, same):
    """The keys of all layers, projections of the input embeddings: [L,B,H,N+1,S].

    subtle: the Reshape to the same shape keeps ONNX Runtime from merging this transposition with that in
    HardmaxHeads, which it would then compute byte by byte.
    """
    rows = op.Gather(op.Concat(projected, null_key, axis=0), key_rows)
    return op.Reshape(op.Transpose(op.Reshape(rows, split), perm=[2, 0, 3, 1, 4]), same)


@script(domain)
def PositionScores(position_ids, key_rows, table, nowhere):
    """What is added to the scores for the distance i - j, [B,L H,N+1,N+1]: a row of the table.

    Where j is no token it is the first row, which is zero.
    """
    at = op.Gather(op.Concat(position_ids, nowhere, axis=0), key_rows)  # [B,N+1]
    away = op.Unsqueeze(at, [2]) - op.Unsqueeze(at, [1]) + op.Constant(value_int=64)
    row = op.Clip(away, op.Constant(value_int=0), op.Constant(value_int=127))
    return op.Transpose(op.Gather(table, row), perm=[0, 3, 1, 2])


@script(domain)
def HardmaxHeads(projected, keys, bias, key_rows, counts, tokens, split, nothing, states):
    """C_a(i) = argmax over tokens j and the null key of <q_a(i), k_a(j)> + b_a(i - j); the mean of the values
    over it [T,W], and by how many heads i attends to j [1,B,N+1,N+1]. The value of the null key is 0.
    """
    rows = op.Gather(op.Concat(projected, nothing, axis=0), key_rows)  # [B,N+1,2W]
    both = op.Transpose(op.Reshape(rows, split), perm=[2, 0, 3, 1, 4])
    q, v = op.Split(both, axis=0, num_outputs=2)  # [1,B,H,N+1,S]
    score = op.MatMul(Numbers(q), op.Transpose(Numbers(keys), perm=[0, 1, 2, 4, 3])) + bias  # [1,B,H,N+1,N+1]
    C = op.Cast(score >= op.ReduceMax(score, op.Constant(value_ints=[4]), keepdims=1), to=1)
    read = op.MatMul(C, Numbers(v)) / op.MatMul(C, op.Unsqueeze(counts, [1]))
    flat = op.Reshape(op.Transpose(read, perm=[0, 1, 3, 2, 4]), states)
    return op.Gather(Steps(flat), tokens), op.ReduceSum(C, op.Constant(value_ints=[2]), keepdims=0)


@script(domain)
def AttentionCounts(heads, counts):
    """By how many heads token i attends to token j [L,B,N,N]: of [L,B,N+1,N+1] the part of the tokens."""
    real = counts * op.Transpose(counts, perm=[0, 2, 1])
    zero, last = op.Constant(value_ints=[0, 0]), op.Constant(value_ints=[-1, -1])
    return op.Cast(op.Slice(heads * real, zero, last, op.Constant(value_ints=[2, 3])), to=2)


FUNCTIONS = (
    Standardized, Norm, ClippedNorm, Steps, Numbers, Project, Add, InputEmbeddings, WithNullKey, Keys,
    PositionScores, HardmaxHeads, AttentionCounts, Product, FloatProject, FloatAdd,
)  # fmt: skip
