"""Hardmax attention of a small cloud, as ONNX functions: one matrix of all scores, read once.

Where the n^2 scores fit a cache, one matrix product is faster than any bound that avoids it. Every score is
one of full precision, and where somebody ties the same function decides as in streaming.py. Symbols as in
attention.py.
"""
# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators, allow-incomplete-defs

from onnxscript import graph, script
from onnxscript import opset20 as op

from model_export.attention import domain
from model_export.decision import Decide

# Keys in a run, of which only the largest score is looked at first. subtle: no multiple of 8, for rows of
# scores that begin a multiple of 4096 bytes apart are written at half the speed.
WIDTH = 36


@script(domain)
def Scores(QY, K):
    """<q_i, k_j>: images QY [q,d], keys K [m,d] -> [q,R,WIDTH], R >= 2 runs, filled up with -inf.

    subtle: the filling costs no pass over the scores: it is one coordinate more, 1 of queries, 0 of keys.
    """
    one = op.Constant(value_ints=[1])
    two = op.Constant(value_ints=[2])
    width = op.Constant(value_ints=[WIDTH])
    count = op.Shape(K, start=0, end=1)
    runs = op.Max((count + width - one) / width, two)
    missing = runs * width - count
    lowest = op.CastLike(op.Constant(value_float=float("-inf")), K)
    zeros = op.Expand(op.CastLike(0, K), op.Concat(count, one, axis=0))
    filling = op.Expand(lowest, op.Concat(missing, one, axis=0))
    filled = op.Pad(
        K, op.Concat(op.Constant(value_ints=[0, 0]), missing, op.Constant(value_ints=[0]), axis=0)
    )
    keys = op.Concat(filled, op.Concat(zeros, filling, axis=0), axis=1)
    queries = op.Pad(QY, op.Constant(value_ints=[0, 0, 0, 1]), op.CastLike(1, QY))
    scores = op.MatMul(queries, op.Transpose(keys, perm=[1, 0]))
    return op.Reshape(scores, op.Concat(op.Shape(QY, start=0, end=1), runs, width, axis=0))


@script(domain)
def MatrixAttention(QY, length, Z, rho, w, tau):
    """Attention of queries with images QY [q,d] and A-norms length [q,1] to keys Z [n,d] (A-norms rho [n,1]).

    ->  as StreamingAttention, but that the gap is exact for every query.
    """
    one = op.Constant(value_ints=[1])
    zero = op.Constant(value_ints=[0])
    two = op.Constant(value_ints=[2])
    lowest = op.CastLike(op.Constant(value_float=float("-inf")), Z)
    live = op.Squeeze(op.NonZero(w > op.CastLike(0, w)), zero)
    scores = Scores(QY, op.Gather(Z, live))
    runs = op.Shape(scores, start=1, end=2)
    width = op.Shape(scores, start=2, end=3)
    flat = op.Reshape(scores, op.Concat(op.Constant(value_ints=[-1]), width, axis=0))
    tops = op.ReduceMax(scores, two, keepdims=0)  # [q,R]
    # subtle: numbers are [1,1], for on [q,1] ONNX Runtime takes one without that shape 30 times as long.
    unit = length * op.ReduceMax(op.Gather(rho, live), keepdims=1)
    margin = op.Unsqueeze(tau, op.Constant(value_ints=[0, 1])) * unit

    # Nearly always nobody ties: the two best scores of every query say so, and name the single member.
    top, run = op.TopK(tops, two)
    best, runner = op.Split(top, num_outputs=2, axis=1)
    run, _ = op.Split(run, num_outputs=2, axis=1)
    row = op.Range(op.Constant(value_int=0), op.Squeeze(op.Size(length)), op.Constant(value_int=1))
    within, slot = op.TopK(op.Gather(flat, row * runs + op.Squeeze(run, one)), two)
    _, second = op.Split(within, num_outputs=2, axis=1)
    slot, _ = op.Split(slot, num_outputs=2, axis=1)
    runner = op.Max(second, runner)

    @graph()
    def Single():
        first = op.Gather(live, op.Squeeze(run, one) * width + op.Squeeze(slot, one))
        size = op.Expand(op.Constant(value_int=1), op.Shape(first))
        gap = op.Squeeze((best - runner) / unit, one)
        ties = op.Expand(op.Constant(value_int=0), op.Constant(value_ints=[2, 0]))
        return op.Gather(Z, first), first, size, gap, ties

    @graph()
    def Several():
        hit = tops >= best - margin
        query, part = op.Split(op.NonZero(hit), num_outputs=2, axis=0)
        query, part = op.Squeeze(query, zero), op.Squeeze(part, zero)
        c, first, size, most, rest, ties = Decide(
            op.Gather(flat, query * runs + part), query, part, live, op.Squeeze(margin, one), w, Z
        )
        elsewhere = op.ReduceMax(op.Where(hit, lowest, tops), one, keepdims=0)
        return c, first, size, (most - op.Max(rest, elsewhere)) / op.Squeeze(unit, one), ties

    alone = op.ReduceMin(best - margin - runner, keepdims=0) > op.CastLike(0, tau)
    c, first, size, gap, ties = op.If(alone, then_branch=Single, else_branch=Several)
    return c, first, size, gap, ties
