"""Who belongs to an argmax set, decided from scores in full precision, as an ONNX function.

Keys come in runs of equal width. Whoever calls has found the few runs that can hold a member (matrix.py by
looking at all scores, streaming.py by bounds); the rule that decides among them, the tie tolerance and the
mean are here, once for both. Symbols as in attention.py.
"""
# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators, allow-incomplete-defs

from onnxscript import opset20 as op
from onnxscript import script

from model_export.attention import domain


@script(domain)
def Decide(scores, query, run, places, margin, w, Z):
    """The argmax sets of t queries from scores [P,width] of pairs (query, run), int64 [P] each.

    Key s of run r stands at places[r * width + s] of Z; what is no key has the score -inf. margin [t] is
    tau |z_i|_A max |z|_A.  ->  the mean c [t,d]; the first member and the size int64 [t]; the best score and
    the best outside the set, of those given [t]; the pairs (row, member) of sets with several, int64 [2,M].
    """
    width = op.Squeeze(op.Shape(scores, start=1, end=2))
    one = op.Constant(value_ints=[1])
    zero = op.Constant(value_ints=[0])
    lowest = op.CastLike(op.Constant(value_float=float("-inf")), Z)
    start = op.Expand(lowest, op.Shape(margin))
    best = op.ScatterElements(start, query, op.ReduceMax(scores, one, keepdims=0), axis=0, reduction="max")
    member = scores >= op.Unsqueeze(op.Gather(best - margin, query), one)
    rest = op.ReduceMax(op.Where(member, lowest, scores), one, keepdims=0)
    runner = op.ScatterElements(start, query, rest, axis=0, reduction="max")

    pair, slot = op.Split(op.NonZero(member), num_outputs=2, axis=0)
    pair, slot = op.Squeeze(pair, zero), op.Squeeze(slot, zero)  # [M]
    row = op.Gather(query, pair)
    key = op.Gather(places, op.Gather(run, pair) * width + slot)
    none = op.Expand(op.Constant(value_int=0), op.Shape(margin))
    once = op.Expand(op.Constant(value_int=1), op.Shape(row))
    size = op.ScatterElements(none, row, once, axis=0, reduction="add")
    latest = op.Expand(op.Shape(w) - one, op.Shape(margin))
    first = op.ScatterElements(latest, row, key, axis=0, reduction="min")

    weight = op.Gather(w, key)
    total = op.ScatterElements(op.CastLike(none, w), row, weight, axis=0, reduction="add")
    share = op.Unsqueeze(weight / op.Gather(total, row), one)
    part = share * op.Gather(Z, key)  # exactly z for a single member
    nowhere = op.Expand(op.CastLike(0, Z), op.Concat(op.Shape(margin), op.Shape(Z, start=1), axis=0))
    c = op.ScatterND(nowhere, op.Unsqueeze(row, one), part, reduction="add")
    several = op.Gather(size, row) > op.Constant(value_int=1)
    ties = op.Concat(op.Unsqueeze(row, zero), op.Unsqueeze(key, zero), axis=0)
    return c, first, size, best, runner, op.Compress(ties, several, axis=1)
