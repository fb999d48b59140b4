"""The functions of the graph of a leader head (graph.py); onnxscript translates their source.

H heads, B texts of N words, M words of all texts, K candidates, d dimensions. All that is compared or added
lies on grids of powers of two: exact in double precision, whatever the batch and the device.

subtle: names and docstrings of the functions are part of the exported graph, and so of its `family`: heads
run together only if they are equal. They are those of the released models and must not change. They mean:

    piece               token                       places (of words)     positions
    nobody              no word: padding            Places                initial positions and weights
    told                the output of `projection`  Twins, twins          words at the same position
    Corners             candidates near the hull    Once                  every word is a candidate
    Whose               masks and word indices      Since                 the layer since which a word leads
    Unlike              out-of-distribution score   Sizes                 tokens of each word
"""
# mypy: allow-untyped-defs, allow-untyped-calls

from __future__ import annotations

import onnx
from onnxscript import opset20 as op
from onnxscript import script

from model_export.attention.functions import GraphBuilder, domain

MAX_WORDS_WITHOUT_SEARCH = 64  # of a text; for longer ones the candidates are searched


@script(domain)
def Rows(x, places):
    """The rows of each head's x [H,n,c] at `places`, and zeros where these are n."""
    return op.Gather(op.Pad(x, op.Constant(value_ints=[0, 0, 0, 0, 1, 0])), places, axis=1)


@script(domain)
def Words(states, members, sizes, weight, unit, bias, zero):
    """A linear map of whole numbers, the mean over the pieces of each word: [H,M,c].

    subtle: weights are uint8 too. Without VNNI products of uint8 and int8 overflow, unless one is constant.
    """
    rows = Rows(op.MatMulInteger(states, weight, zero, zero), members)  # [H,M,P,c]
    sums = op.Cast(op.ReduceSum(rows, op.Constant(value_ints=[2]), keepdims=0), to=1)
    return sums / sizes * unit + bias


@script(domain)
def Reach(words, hidden_steps, weight, unit, bias, zero, least, rest):
    """How far from the origin a word may stand: a small network over the word alone, [H,M,1]."""
    none = op.Cast(op.Constant(value_int=0), to=2)
    hidden = op.QuantizeLinear(words * hidden_steps, op.Constant(value_float=1.0), none)
    f = op.Cast(op.Cast(op.MatMulInteger(hidden, weight, none, zero), to=1) * unit + bias, to=11)
    half = op.CastLike(op.Constant(value_float=0.5), f)
    one = op.CastLike(op.Constant(value_float=1.0), f)
    return least + rest * (half + half * f / op.Sqrt(one + f * f))


@script(domain)
def Places(told, reach, scale, first_axis, longest, direction_grid, place_grid, weight_grid):
    """z [H,M,d] and w [H,M,1] of each word."""
    axis = op.Constant(value_ints=[2])
    last = op.Constant(value_ints=[-1])
    t = op.Cast(op.Slice(told, last, op.Constant(value_ints=[9999]), axis), to=11)
    r = op.Cast(op.Slice(told, op.Constant(value_ints=[0]), last, axis), to=11)
    one = op.CastLike(op.Constant(value_float=1.0), t)
    two = op.CastLike(op.Constant(value_float=2.0), t)
    r = op.Round(op.Clip(r, -longest, longest) * direction_grid) / direction_grid
    far = scale * (r / op.Sqrt(one + op.ReduceSum(r * r, axis, keepdims=1)))
    z = op.Round(far * reach * place_grid) / place_grid
    at_origin = op.ReduceMax(op.Abs(z), axis, keepdims=1) == op.CastLike(op.Constant(value_float=0.0), z)
    z = z + op.CastLike(at_origin, z) * first_axis
    w = op.Round((t + op.Sqrt(one + t * t)) / two * weight_grid) / weight_grid
    return z, w


@script(domain)
def Twins(z, number, penalty, never, wide):
    """Of the words at each place the first, and how many they are: a text that says one thing a thousand
    times has few places. Texts with fewer than another have some that nobody stands at.

    Both coordinates make one number, by which the words are sorted.
    """
    axis = op.Constant(value_ints=[2])
    three = op.Constant(value_ints=[3])
    one = op.Constant(value_ints=[1])
    end = op.Shape(number, start=2, end=3)
    x, y = op.Split(z, axis=3, num_outputs=2)
    code = (op.Squeeze(x, three) + penalty) * wide + op.Squeeze(y, three)
    code, order = op.TopK(code, end, axis=2, largest=0)
    before = op.Slice(code, op.Constant(value_ints=[0]), op.Constant(value_ints=[-1]), axis)
    other = op.Not(op.Slice(code, one, end, axis) == before)  # from the second on
    position = op.Range(op.Constant(value_int=1), op.Squeeze(end), op.Constant(value_int=1))
    begins = op.Pad(op.Where(other, position, end), op.Constant(value_ints=[0, 0, 1, 0, 0, 0]))
    most = op.ReduceMax(op.ReduceSum(op.Cast(begins < end, to=7), axis, keepdims=0), keepdims=0)
    begins, _ = op.TopK(begins, op.Reshape(most, one), axis=2, largest=0)
    ends = op.Pad(op.Slice(begins, one, end, axis), op.Constant(value_ints=[0, 0, 0, 0, 0, 1]), end)
    which = op.GatherElements(order, op.Min(begins, end - one), axis=2)
    both = op.Constant(value_ints=[1, 1, 1, 2])
    keys = op.GatherElements(z, op.Expand(op.Unsqueeze(which, three), both), axis=2)
    numbers = op.GatherElements(number, which, axis=2)
    penalties = op.Where(begins < end, op.GatherElements(penalty, which, axis=2), never)
    return keys, numbers, penalties, op.CastLike(ends - begins, z)


@script(domain)
def Corners(z, number, penalty, directions, turn, next, margin):
    """The places that may be followed, in the plane: those not well inside the convex hull.

    <z_i, .> is largest at a corner of the hull. The places that are extreme in `directions` [2,M], which turn
    once anticlockwise, are corners of a polygon inside it. A place that lies deeper than `margin` in this
    polygon scores less than one of its corners, for every query. The others are kept: as many for each text
    as the text with most of them has; whether these are `many`.
    """
    axis = op.Constant(value_ints=[2])
    three = op.Constant(value_ints=[3])
    both = op.Constant(value_ints=[1, 1, 1, 2])
    at = op.Unsqueeze(op.ArgMax(op.MatMul(z, directions), axis=2, keepdims=0), three)  # [H,B,M,1]
    corner = op.GatherElements(z, op.Expand(at, both), axis=2)  # [H,B,M,2]
    side = op.Gather(corner, next, axis=2) - corner
    outward = op.MatMul(side, turn)  # nothing where a corner is extreme in two directions
    length = op.Sqrt(op.ReduceSum(side * side, three, keepdims=1))
    inset = margin * length - op.ReduceSum(outward * corner, three, keepdims=1)
    beyond = op.MatMul(z, op.Transpose(outward, perm=[0, 1, 3, 2])) + op.Transpose(inset, perm=[0, 1, 3, 2])
    far = op.ReduceMax(beyond, three, keepdims=0)  # [H,B,N], above 0: not well inside
    kept = op.ReduceSum(op.Cast(far > op.CastLike(op.Constant(value_float=0.0), far), to=7), axis, keepdims=0)
    most = op.Reshape(
        op.Max(op.ReduceMax(kept, keepdims=0), op.Constant(value_int=1)), op.Constant(value_ints=[1])
    )
    _, which = op.TopK(far, most, axis=2)
    which, _order = op.TopK(which, most, axis=2, largest=0)  # in the order of reading
    keys = op.GatherElements(z, op.Expand(op.Unsqueeze(which, three), both), axis=2)
    numbers, penalties = op.GatherElements(number, which, axis=2), op.GatherElements(penalty, which, axis=2)
    return keys, numbers, penalties, most > op.Constant(value_ints=[MAX_WORDS_WITHOUT_SEARCH])


@script(domain)
def Once(penalty):
    """How often each place stands where there are no twins."""
    return op.Expand(op.CastLike(op.Constant(value_int=1), penalty), op.Shape(penalty))


@script(domain)
def HardmaxAttention(z, keys, number, penalty, times, layer_grid):
    """C_i = argmax_j <z_i, z_j>: c_i, its mean [H,B,N,d]; whom i follows or -1 [H,B,N].

    A key may stand for several words: `times` [H,B,K].
    A twin is a key with <z_j, z_k> = |z_j|^2 = |z_k|^2. If C_i is one point, with its twins, i follows that.
    """
    key_axis = op.Constant(value_ints=[3])
    row = op.Unsqueeze(penalty, op.Constant(value_ints=[2]))  # [H,B,1,K]
    other = op.Transpose(keys, perm=[0, 1, 3, 2])
    score = op.MatMul(z, other) + row
    C = op.CastLike(score >= op.ReduceMax(score, key_axis, keepdims=1), z)
    each = op.Unsqueeze(times, key_axis)
    sums = op.MatMul(C, op.Concat(keys * each, each, axis=3))
    count = op.Slice(sums, op.Constant(value_ints=[-1]), op.Constant(value_ints=[9999]), key_axis)
    whole = op.Slice(sums, op.Constant(value_ints=[0]), op.Constant(value_ints=[-1]), key_axis)
    c = op.Round(whole / count * layer_grid) / layer_grid
    between = op.MatMul(keys, other) + row
    own = op.ReduceSum(keys * keys, key_axis, keepdims=1)  # [H,B,K,1]
    same = op.And(between == own, between == op.Transpose(own, perm=[0, 1, 3, 2]))
    twins = op.ReduceSum(op.CastLike(same, z), key_axis, keepdims=0)  # [H,B,K]
    first = op.ArgMax(score, axis=3, keepdims=0)
    alone = op.ReduceSum(C, key_axis, keepdims=0) == op.GatherElements(twins, first, axis=2)
    target = op.Where(alone, op.GatherElements(number, first, axis=2), op.Constant(value_int=-1))
    return c, target


@script(domain)
def Move(z, c, gamma, layer_grid):
    """z + gamma (c - z): a leader stays where it is, bit by bit."""
    return op.Round((z + gamma * (c - z)) * layer_grid) / layer_grid


@script(domain)
def Since(plane, means, targets):
    """The first layer with C_i = {i}, or -1 [H,B,N]; z, c [K+1,H,B,N,d] and target [K+1,H,B,N] of all layers.

    subtle: i may be a twin of the one whom `target` names, so places are compared.
    """
    apart = op.ReduceMax(op.Abs(means - plane), op.Constant(value_ints=[4]), keepdims=0)
    still = apart == op.CastLike(op.Constant(value_float=0.0), plane)
    leads = op.Cast(op.And(targets >= op.Constant(value_int=0), still), to=7)
    ever = op.Cast(op.ReduceMax(leads, op.Constant(value_ints=[0]), keepdims=0), to=9)
    return op.Where(ever, op.ArgMax(leads, axis=0, keepdims=0), op.Constant(value_int=-1))


@script(domain)
def ReadOut(c, w, real, v, b, pseudo_weight):
    """What each place adds: w_i <v, c_i> / (W0 + sum_i w_i), [H,B,C,N]; the bias [H,B,C]."""
    weight = op.Squeeze(w, op.Constant(value_ints=[3])) * real  # [H,B,N]
    whole = op.ReduceSum(weight, op.Constant(value_ints=[2]), keepdims=1) + pseudo_weight
    share = op.Unsqueeze(weight / whole, op.Constant(value_ints=[2]))
    contribution = op.Transpose(op.MatMul(c, v), perm=[0, 1, 3, 2]) * share
    return contribution, op.Expand(b, op.Shape(contribution, start=0, end=3))


@script(domain)
def Unlike(near, texts, real, grid):
    """The largest of some linear maps of the mean over the words of each text, [H,B]. Sums are exact."""
    axis = op.Constant(value_ints=[2])
    rows = Rows(op.Round(op.Cast(near, to=11) * grid) / grid, texts)  # [H,B,N,k]
    count = op.ReduceSum(real, op.Constant(value_ints=[1]), keepdims=1)  # [B,1]
    return op.ReduceMax(op.ReduceSum(rows, axis, keepdims=0) / count, axis, keepdims=0)


def _candidates() -> onnx.FunctionProto:
    """Return the function that finds the candidates of a long text: hull vertices, each position once.

    subtle: it is not an onnxscript function, because onnxscript orders the outputs of an If like a set: the
    order, and with it the family, would differ from process to process.
    """
    outputs = "keys numbers penalties times".split()
    corners = "corners corner_numbers corner_penalties"
    few, many, graph = GraphBuilder(), GraphBuilder(), GraphBuilder()
    many.add_call(Twins, f"{corners} never wide", " ".join(outputs))
    for corner, output in zip(corners.split(), outputs[:3], strict=True):
        few.add_node("Identity", corner, output)
    few.add_call(Once, "corner_penalties", "times")
    graph.add_call(Corners, "z number penalty directions turn next margin", f"{corners} many")
    graph.add_node(
        "If", "many", " ".join(outputs),
        then_branch=many.to_branch("many", outputs), else_branch=few.to_branch("few", outputs),
    )  # fmt: skip
    inputs = "z number penalty never directions turn next margin wide".split()
    return graph.to_function("Candidates", inputs, outputs)


@script(domain)
def Sizes(members, states):
    """How many pieces each word has, [M,1]."""
    there = op.Cast(members < op.Shape(states, start=0, end=1), to=1)
    return op.ReduceSum(there, op.Constant(value_ints=[1]), keepdims=1)


@script(domain)
def Whose(z, texts, members, never):
    """Where words are [B,N], the same as numbers; whether there are many in the plane; of each place its
    number in its text and what is added to its scores, [H,B,N].
    """
    is_word = texts < op.Shape(members, start=0, end=1)
    real = op.CastLike(is_word, never)
    every = op.Shape(z, start=0, end=3)
    places = op.Shape(texts, start=1, end=2)
    many = op.And(
        places > op.Constant(value_ints=[MAX_WORDS_WITHOUT_SEARCH]),
        op.Shape(z, start=3, end=4) == op.Constant(value_ints=[2]),
    )
    number = op.Range(op.Constant(value_int=0), op.Squeeze(places), op.Constant(value_int=1))
    missing = op.CastLike(op.Not(is_word), never)
    return is_word, real, many, op.Expand(number, every), op.Expand(missing * never, every)


CANDIDATES = _candidates()
HEAD_FUNCTIONS = (
    Rows, Words, Reach, Places, Corners, Once, Twins, CANDIDATES,
    HardmaxAttention, Move, Since, ReadOut, Unlike, Sizes, Whose,
)  # fmt: skip
