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

import numpy as np
import onnx
from onnxscript import opset20 as op
from onnxscript import script

from model_export.attention.functions import Nodes, domain
from model_export.reader.model import CONSTANT
from model_export.reader.stored import ZERO, Stored


@script(domain)
def Norm(x, gain, shift):
    """(x - mean) / deviation * gain + shift; x in units of 1/16. The statistics are sums of whole numbers.

    subtle: ONNX Runtime makes one division of x * (1 / d), which rounds otherwise; so it is written as one.
    """
    axis = op.Constant(value_ints=[-1])
    size = op.Cast(op.Shape(x, start=1, end=2), to=1)
    u = op.Round(op.Clip(x, op.Constant(value_float=-200.0), op.Constant(value_float=200.0)))
    mean = op.ReduceSum(u, axis, keepdims=1) / size
    variance = op.ReduceSumSquare(u, axis, keepdims=1) / size - mean * mean
    return (x - mean) / op.Sqrt(variance + op.Constant(value_float=1e-3)) * gain + shift


@script(domain)
def Steps(x):
    """The nearest whole numbers as uint8, 128 for zero."""
    return op.QuantizeLinear(x, op.Constant(value_float=1.0), op.Cast(op.Constant(value_int=128), to=2))


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


@script(domain)
def FirstStates(pieces, places, table, table_unit, of_place):
    """What a piece is and where it stands, in units of 1/16."""
    rows = op.Cast(op.Gather(table, pieces), to=1)
    return rows * op.Unsqueeze(op.Gather(table_unit, pieces), [1]) + op.Gather(of_place, places)


@script(domain)
def Everybody(rows, x):
    """The rows with nobody behind them, [B,N+1]; 1 for pieces, 0 for nobody [B,N+1,1]; what each counts in a
    tie: of many nobodies only the last one, [B,1,N+1,1].
    """
    last = op.Shape(x, start=0, end=1)
    one = op.Constant(value_ints=[1])
    nobody = op.Expand(last, op.Concat(op.Shape(rows, start=0, end=1), one, axis=0))
    every = op.Concat(rows, nobody, axis=1)
    real = op.Cast(every < last, to=1)
    counts = op.Concat(op.Cast(rows < last, to=1), op.Cast(nobody >= last, to=1), axis=1)
    return every, op.Unsqueeze(real, [2]), op.Unsqueeze(counts, [1, 3])


@script(domain)
def Keys(first, every, nobody, split):
    """The keys of all layers, made of the first states: [L,B,H,S,N+1]."""
    rows = op.Gather(op.Concat(first, nobody, axis=0), every)
    keys = op.Cast(rows, to=1) - op.Constant(value_float=128.0)
    return op.Transpose(op.Reshape(keys, split), perm=[2, 0, 3, 4, 1])


@script(domain)
def HardmaxHeads(asked, keys, layer, every, real, counts, split, nothing):
    """C_a(i) = argmax over j and nobody of <q_a(i), k_a(j)>; the mean of the values over it [T,W], and how
    many heads of i follow j [B,N,N]. Nobody's value is 0.
    """
    rows = op.Gather(op.Concat(asked, nothing, axis=0), every)  # [B,N+1,2W]
    q_and_v = op.Transpose(
        op.Reshape(op.Cast(rows, to=1) - op.Constant(value_float=128.0), split), perm=[2, 0, 3, 1, 4]
    )
    q = op.Gather(q_and_v, op.Constant(value_int=0), axis=0)  # [B,H,N+1,S]
    v = op.Gather(q_and_v, op.Constant(value_int=1), axis=0)
    score = op.MatMul(q, op.Gather(keys, layer, axis=0))  # [B,H,N+1,N+1]
    C = op.Cast(score >= op.ReduceMax(score, op.Constant(value_ints=[3]), keepdims=1), to=1)
    read = op.Transpose(op.MatMul(C, v) / op.MatMul(C, counts), perm=[0, 2, 1, 3])
    some = op.Cast(op.Squeeze(real, [2]) > op.Constant(value_float=0.0), to=9)
    flat = op.Reshape(read, op.Constant(value_ints=[0, 0, -1]))
    flat = op.Reshape(flat, op.Concat(op.Constant(value_ints=[-1]), op.Shape(flat, start=2, end=3), axis=0))
    packed = op.Compress(flat, op.Reshape(some, op.Constant(value_ints=[-1])), axis=0)
    count = (
        op.ReduceSum(C, op.Constant(value_ints=[1]), keepdims=0) * real * op.Transpose(real, perm=[0, 2, 1])
    )
    inner = op.Slice(
        count,
        op.Constant(value_ints=[0, 0]),
        op.Constant(value_ints=[-1, -1]),
        op.Constant(value_ints=[1, 2]),
    )
    return packed, op.Unsqueeze(op.Cast(inner, to=2), [0])


FUNCTIONS = (Norm, Steps, Read, Add, FirstStates, Everybody, Keys, HardmaxHeads)


def to_onnx(weights: Stored) -> onnx.ModelProto:
    """The graph with the stored reader in it."""
    layers = sum(name.endswith(".ask") for name in weights)
    W, H = weights["table"].shape[1], int(weights["heads"])
    nodes = Nodes()
    call, plain = nodes.call, nodes.plain

    def steps(source: str, by: str, output: str) -> None:
        plain("Mul", f"{source} {by}", f"{output}_exact")
        call(Steps, f"{output}_exact", output)

    call(FirstStates, "pieces places table table_unit of_place", "begin")
    call(Norm, "begin norm.gain norm.shift", "h")
    steps("h", "word_steps", "words")
    plain("Shape", "pieces", "T")
    plain("Concat", "T four", "constants_shape", axis=0)
    plain("Expand", "constant constants_shape", "constants")
    call(Everybody, "rows words", "every real counts")
    call(Read, "words constants keys keys_unit zero", "all_keys")
    call(Keys, "all_keys every nobody split_keys", "looked_at")
    h, state = "h", "words"
    for i in range(layers):
        call(Read, f"{state} constants {i}.ask {i}.ask_unit zero", f"{i}.asked")
        call(
            HardmaxHeads,
            f"{i}.asked looked_at {i}.number every real counts split_asked nothing",
            f"{i}.heard {i}.follows",
        )
        call(Steps, f"{i}.heard", f"{i}.read")
        call(Add, f"{h} {i}.read zero {i}.out {i}.out_unit {i}.out_bias", f"{i}.sum")
        call(Norm, f"{i}.sum {i}.norm1.gain {i}.norm1.shift", f"{i}.h")
        steps(f"{i}.h", f"{i}.middle_steps", f"{i}.middle")
        call(Read, f"{i}.middle constants {i}.up {i}.up_unit none", f"{i}.wide")  # 0 is the least: a relu
        call(Add, f"{i}.h {i}.wide none {i}.down {i}.down_unit {i}.down_bias", f"{i}.end")
        call(Norm, f"{i}.end {i}.norm2.gain {i}.norm2.shift", f"{i}.last")
        h, state = f"{i}.last", f"{i}.state" if i + 1 < layers else "states"
        steps(h, f"{i}.state_steps", state)
    plain("Concat", " ".join(f"{i}.follows" for i in range(layers)), "follows", axis=0)
    values = {name: value for name, value in weights.items() if name not in ("heads", "places", "nobody")} | {
        "of_place": weights["places"],
        "nobody": (weights["nobody"].astype(np.int16) + ZERO).astype(np.uint8),
        "nothing": np.full((1, 2 * W), ZERO, np.uint8),
        "zero": np.array(ZERO, np.uint8),
        "none": np.array(0, np.uint8),
        "four": np.array([len(CONSTANT)], np.int64),
        "constant": np.array([CONSTANT], np.float32).astype(np.uint8) + np.uint8(ZERO),
        "split_keys": np.array([0, 0, layers, H, W // H], np.int64),
        "split_asked": np.array([0, 0, 2, H, W // H], np.int64),
        **{f"{i}.number": np.array(i, np.int64) for i in range(layers)},
    }
    fed = {"pieces": (np.int64, ["T"]), "places": (np.int64, ["T"]), "rows": (np.int64, ["B", "N"])}
    told = {
        "states": (np.uint8, ["T", W]), "words": (np.uint8, ["T", W]),
        "follows": (np.uint8, [layers, "B", "N", "N"]),
    }  # fmt: skip
    model = nodes.model("reader", fed, told, values, FUNCTIONS)
    onnx.checker.check_model(model)
    return model
