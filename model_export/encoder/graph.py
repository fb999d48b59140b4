"""The reader as an ONNX graph: pieces of passages in, their states and whom they follow out.

    input    pieces   int64 [T]          of all passages, one after the other
             places   int64 [T]          the position of each in its passage
             rows     int64 [B, N]       the row of each piece of each passage: 0..T-1, in order; T for none
    outputs  states   uint8 [T, W]       the last states; 128 is zero
             words    uint8 [T, W]       the first states
             follows  uint8 [L, B, N, N] by how many heads piece i follows piece j

The symbols are those of model.py, the numbers those of stored.py. Linear parts see rows without padding; only
scores are padded, and nobody stands on every padded place. A score is a sum of 32 products of whole numbers,
exact in float32, so a head's choice does not depend on what it was computed with. This module knows arrays
only.
"""
# The scripts below are graphs, read from their source.
# mypy: allow-untyped-defs, allow-untyped-calls

from __future__ import annotations

from typing import Literal

import numpy as np
import onnx
from onnxscript import opset20 as op
from onnxscript import script

from model_export.attention.functions import Nodes, domain
from model_export.encoder.layer import BIAS_CHANNELS
from model_export.encoder.quantized import ZERO, Stored

NOWHERE = 1 << 20  # the position of what is no token: no distance from it is in the table


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


Products = Literal["integer", "float"]
READ_AND_ADD = {"integer": (Read, Add), "float": (FloatRead, FloatAdd)}


def to_onnx(weights: Stored, products: Products = "integer") -> onnx.ModelProto:
    """Return the graph with the quantized encoder in it.

    Args:
        weights: of `quantize`.
        products: of integers, as CPUs are fast at, or of float32, for which GPUs have kernels. Both give the
            same bits, and their initializers are the same.
    """
    read, add = READ_AND_ADD[products]
    layers = sum(name.endswith(".ask") for name in weights)
    W, H = weights["table"].shape[1], int(weights["heads"])
    nodes = Nodes()
    call, plain = nodes.call, nodes.plain

    def steps(source: str, by: str, output: str) -> None:
        plain("Mul", f"{source} {by}", f"{output}_exact")
        call(Steps, f"{output}_exact", output)

    def norm(source: str, of: str, output: str) -> None:
        call(ClippedNorm if weights["clip"] else Norm, f"{source} {of}.gain {of}.shift width limit", output)

    call(FirstStates, "pieces places table table_unit of_place", "begin")
    norm("begin", "norm", "h")
    steps("h", "word_steps", "words")
    plain("Shape", "pieces", "T")
    plain("Concat", "T four", "constants_shape", axis=0)
    plain("Expand", "constant constants_shape", "constants")
    call(Everybody, "rows pieces", "every counts there")
    call(read, "words constants keys keys_unit zero", "all_keys")
    call(Keys, "all_keys every nobody split_keys same", "looked_at")
    plain("Split", "looked_at", " ".join(f"{i}.keys" for i in range(layers)), axis=0, num_outputs=layers)
    if "position_bias" in weights:
        call(PositionScores, "places every position_bias nowhere", "all_bias")
        plain("Split", "all_bias", " ".join(f"{i}.bias" for i in range(layers)), axis=1, num_outputs=layers)
    h, state = "h", "words"
    for i in range(layers):
        bias = f"{i}.bias" if "position_bias" in weights else "no_bias"
        call(read, f"{state} constants {i}.ask {i}.ask_unit zero", f"{i}.asked")
        call(
            HardmaxHeads,
            f"{i}.asked {i}.keys {bias} every counts there split_asked nothing flat",
            f"{i}.read {i}.heads",
        )
        call(add, f"{h} {i}.read zero {i}.out {i}.out_unit {i}.out_bias", f"{i}.sum")
        norm(f"{i}.sum", f"{i}.norm1", f"{i}.h")
        steps(f"{i}.h", f"{i}.middle_steps", f"{i}.middle")
        call(read, f"{i}.middle constants {i}.up {i}.up_unit none", f"{i}.wide")  # 0 is the least: a relu
        call(add, f"{i}.h {i}.wide none {i}.down {i}.down_unit {i}.down_bias", f"{i}.end")
        norm(f"{i}.end", f"{i}.norm2", f"{i}.last")
        h, state = f"{i}.last", f"{i}.state" if i + 1 < layers else "states"
        steps(h, f"{i}.state_steps", state)
    plain("Concat", " ".join(f"{i}.heads" for i in range(layers)), "heads", axis=0)
    call(Follows, "heads counts", "follows")
    values = {
        name: value for name, value in weights.items() if name not in ("heads", "places", "nobody", "clip")
    } | {
        "of_place": weights["places"],
        "nobody": (weights["nobody"].astype(np.int16) + ZERO).astype(np.uint8),
        "nothing": np.full((1, 2 * W), ZERO, np.uint8),
        "zero": np.array(ZERO, np.uint8),
        "none": np.array(0, np.uint8),
        "four": np.array([len(BIAS_CHANNELS)], np.int64),
        "constant": np.array([BIAS_CHANNELS], np.float32).astype(np.uint8) + np.uint8(ZERO),
        "split_keys": np.array([0, 0, layers, H, W // H], np.int64),
        "split_asked": np.array([0, 0, 2, H, W // H], np.int64),
        "same": np.array([0, 0, H, -1, W // H], np.int64),
        "flat": np.array([-1, W], np.int64),
        "width": np.array(W, np.float32),
        "nowhere": np.array([NOWHERE], np.int64),
    }
    if "position_bias" not in weights:
        values["no_bias"] = np.array(0, np.float32)
    inputs = {"pieces": (np.int64, ["T"]), "places": (np.int64, ["T"]), "rows": (np.int64, ["B", "N"])}
    outputs = {
        "states": (np.uint8, ["T", W]), "words": (np.uint8, ["T", W]),
        "follows": (np.uint8, [layers, "B", "N", "N"]),
    }  # fmt: skip
    model = nodes.model("reader", inputs, outputs, values, FUNCTIONS)
    onnx.checker.check_model(model)
    return model
