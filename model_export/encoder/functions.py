"""The functions of the encoder's graphs (graph.py); onnxscript translates their source.

B chunks of N tokens, T tokens of all chunks, L layers, H heads, W width, S width of a head.
"""
# mypy: allow-untyped-defs, allow-untyped-calls

from onnxscript import opset20 as op
from onnxscript import script
from onnxscript.values import Opset

from model_export.attention.functions import ORT_DOMAIN, domain

ort = Opset(ORT_DOMAIN, 1)


@script(domain)
def Units(x, limit):
    """x clipped and rounded, from which the statistics of a normalization are computed."""
    return op.Round(op.Clip(x, op.Neg(limit), limit))


@script(domain)
def ClippedUnits(x, limit):
    """x clipped, and rounded too."""
    clipped = op.Clip(x, op.Neg(limit), limit)
    return clipped, op.Round(clipped)


@script(domain)
def Moments(u):
    """The means of whole numbers and of their squares. The sums are exact."""
    axis = op.Constant(value_ints=[-1])
    return op.ReduceMean(u, axis, keepdims=1), op.ReduceMean(u * u, axis, keepdims=1)


@script(domain)
def FloatMoments(u, width):
    """`Moments` on a GPU, whose means are not sums divided by a number."""
    axis = op.Constant(value_ints=[-1])
    return op.ReduceSum(u, axis, keepdims=1) / width, op.ReduceSum(u * u, axis, keepdims=1) / width


@script(domain)
def Standardized(x, mean, squares, gain, shift):
    """(x - mean) / deviation * gain + shift.

    subtle: ONNX Runtime makes one division of x * (1 / d), which rounds otherwise; so it is written as one.
    """
    variance = squares - mean * mean
    return (x - mean) / op.Sqrt(variance + op.Constant(value_float=1e-3)) * gain + shift


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


@script(domain, default_opset=op)
def Add(h, x, zero, weight, unit, bias):
    """h + a linear map of whole numbers.

    subtle: the operator could add the bias too, but may round product and sum together on some processors.
    """
    return h + (ort.MatMulIntegerToFloat(x, weight, op.Constant(value_float=1.0), unit, zero) + bias)


# The same for GPUs: codes are int8, 0 for zero, and products are of float32. Their sums stay below 2^24, so
# they are exact in any order, and with TF32 too, whose inputs keep whole numbers up to 2^11. The weights stay
# int8; sessions cast them once, when they are loaded.


@script(domain)
def FloatSteps(x):
    """The nearest whole numbers as int8."""
    return op.QuantizeLinear(x, op.Constant(value_float=1.0), op.Cast(op.Constant(value_int=0), to=3))


@script(domain)
def FloatNumbers(steps):
    """The whole numbers that `FloatSteps` keeps, as float32."""
    return op.Cast(steps, to=1)


@script(domain, default_opset=op)
def FloatProject(x, constants, weight, unit, zero_out):
    """`Project`, whose one rounding QLinearMatMul has inside."""
    product = op.MatMul(op.Cast(op.Concat(x, constants, axis=1), to=1), op.Cast(weight, to=1))
    return op.QuantizeLinear(product * unit, op.Constant(value_float=1.0), zero_out)


@script(domain, default_opset=op)
def FloatAdd(h, x, weight, unit, bias):
    """`Add`; x is int8, or uint8 with 0 for zero."""
    return h + (op.MatMul(op.Cast(x, to=1), op.Cast(weight, to=1)) * unit + bias)


@script(domain)
def InputEmbeddings(token_ids, position_ids, table, table_unit, positions):
    """The embedding of each token plus that of its position, in units of the grid."""
    rows = op.Cast(op.Gather(table, token_ids), to=1)
    return rows * op.Unsqueeze(op.Gather(table_unit, token_ids), [1]) + op.Gather(positions, position_ids)


@script(domain)
def Constants(token_ids, constant):
    """The channels that carry the bias, for each token [T,4]."""
    return op.Expand(constant, op.Concat(op.Shape(token_ids), op.Shape(constant, start=1), axis=0))


@script(domain)
def HeadRows(rows, token_ids, heads, key_heads):
    """Where the parts of heads are among rows of one head each: queries [B,H,N], values [B,H,N+1] and keys of
    all layers [B,L H,N+1]; the null key is last, and padding has its row.

    `heads` are 0..H-1 [H,1], `key_heads` 0..L H-1 [L H,1]. A token has H queries followed by H values.
    """
    H = op.Shape(heads, start=0, end=1)
    each = H + H
    null = op.Expand(op.Shape(token_ids), op.Concat(op.Shape(rows, start=0, end=1), [1], axis=0))
    key_rows = op.Unsqueeze(op.Concat(rows, null, axis=1), [1])
    queries = op.Unsqueeze(rows, [1]) * each + heads
    values = key_rows * each + (heads + H)
    return queries, values, key_rows * op.Shape(key_heads, start=0, end=1) + key_heads


@script(domain)
def OneHead(projected, null, one_head):
    """Rows of one head each of all tokens, and of the null key: [(T+1) .., S]."""
    return op.Reshape(op.Concat(projected, null, axis=0), one_head)


@script(domain)
def Padding(rows, token_ids, never):
    """What is added to the score of each key, [B,1,1,N+1]: padding is in no argmax."""
    is_padding = op.Cast(rows >= op.Shape(token_ids), to=1)
    return op.Unsqueeze(op.Pad(is_padding * never, op.Constant(value_ints=[0, 0, 0, 1])), [1, 2])


@script(domain)
def PositionScores(position_ids, rows, table, nowhere, never):
    """What is added to the scores for the distance i - j, [B,L H,N,N+1]: a row of the table.

    For the null key it is the first row, which is zero; for padding `never`: it is in no argmax.
    """
    at = op.Gather(op.Concat(position_ids, op.Neg(nowhere), axis=0), rows)  # [B,N]
    null = op.Expand(nowhere, op.Concat(op.Shape(rows, start=0, end=1), [1], axis=0))
    away = op.Unsqueeze(at, [2]) - op.Unsqueeze(op.Concat(at, null, axis=1), [1]) + op.Constant(value_int=64)
    row = op.Clip(away, op.Constant(value_int=0), op.Constant(value_int=128))
    return op.Transpose(op.Gather(op.Concat(table, never, axis=0), row), perm=[0, 3, 1, 2])


@script(domain)
def HardmaxHeads(q, k, v, bias):
    """C_a(i) = argmax over tokens j and the null key of <q_a(i), k_a(j)> + b_a(i - j); the mean of the values
    over it [B,H,N,S], and by how many heads i attends to j [1,B,N,N+1]. The value of the null key is 0.
    """
    score = op.MatMul(q, op.Transpose(k, perm=[0, 1, 3, 2])) + bias  # [B,H,N,N+1]
    axis = op.Constant(value_ints=[3])
    C = op.Cast(score >= op.ReduceMax(score, axis, keepdims=1), to=1)
    read = op.MatMul(C, v) / op.ReduceSum(C, axis, keepdims=1)
    return read, op.Unsqueeze(op.ReduceSum(C, op.Constant(value_ints=[1]), keepdims=0), [0])


@script(domain)
def Merge(heads, token_rows, states):
    """[B,H,N,S] as the rows of the tokens [T,W]."""
    return op.Gather(op.Reshape(op.Transpose(heads, perm=[0, 2, 1, 3]), states), token_rows)


@script(domain)
def AttentionCounts(heads, rows, token_ids):
    """By how many heads token i attends to token j [L,B,N,N]: of [L,B,N,N+1] the part of the tokens."""
    is_token = op.Unsqueeze(op.Cast(rows < op.Shape(token_ids), to=1), [2])
    to_tokens = op.Slice(
        heads, op.Constant(value_ints=[0]), op.Constant(value_ints=[-1]), op.Constant(value_ints=[3])
    )
    return op.Cast(to_tokens * is_token, to=2)


COMMON = (
    Units, ClippedUnits, Standardized, InputEmbeddings, Constants, HeadRows, OneHead, Padding, PositionScores,
    HardmaxHeads, Merge, AttentionCounts,
)  # fmt: skip
INTEGER = (Steps, Numbers, Project, Add, Moments)
FLOAT = (FloatSteps, FloatNumbers, FloatProject, FloatAdd, FloatMoments)
