"""The functions of the graph of a leader head (graph.py); onnxscript translates their source.

H heads, B texts of N words, M words of all texts, K candidates, d dimensions. All that is compared or added
lies on grids of powers of two: exact in double precision, whatever the batch and the device.

subtle: names and docstrings of the functions are part of the exported graph, and so of its `family`: heads
run together only if they are equal. After a change, write the pretrained heads again with
`to_onnx(read_weights(model))`; custom models run apart from them until they are trained again.
"""
# mypy: allow-untyped-defs, allow-untyped-calls

import onnx
from onnxscript import opset20 as op
from onnxscript import script

from model_export.attention.functions import GraphBuilder, domain

MAX_WORDS_WITHOUT_SEARCH = 64  # of a text; for longer ones the candidates are searched


@script(domain)
def GatherRows(x, indices):
    """Return the rows of each head's x [H,n,c] at `indices`, and zeros where an index is n."""
    return op.Gather(op.Pad(x, op.Constant(value_ints=[0, 0, 0, 0, 1, 0])), indices, axis=1)


@script(domain)
def ProjectWords(states, members, n_tokens, weight, unit, bias, zero):
    """Return a linear map of whole numbers, its mean over the tokens of each word: [H,M,c].

    subtle: weights are uint8 too. Without VNNI products of uint8 and int8 overflow, unless one is constant.
    """
    rows = GatherRows(op.MatMulInteger(states, weight, zero, zero), members)  # [H,M,P,c]
    sums = op.Cast(op.ReduceSum(rows, op.Constant(value_ints=[2]), keepdims=0), to=1)
    return sums / n_tokens * unit + bias


@script(domain)
def Reach(words, hidden_steps, weight, unit, bias, zero, min_reach, reach_range):
    """Return the reach of each word by a small network over its input embedding, [H,M,1]."""
    none = op.Cast(op.Constant(value_int=0), to=2)
    hidden = op.QuantizeLinear(words * hidden_steps, op.Constant(value_float=1.0), none)
    f = op.Cast(op.Cast(op.MatMulInteger(hidden, weight, none, zero), to=1) * unit + bias, to=11)
    half = op.CastLike(op.Constant(value_float=0.5), f)
    one = op.CastLike(op.Constant(value_float=1.0), f)
    return min_reach + reach_range * (half + half * f / op.Sqrt(one + f * f))


@script(domain)
def InitialPoints(
    projected, reach, scale, first_axis, max_direction, direction_grid, point_grid, weight_grid
):
    """Return the initial point z [H,M,d] and the weight w [H,M,1] of each word."""
    axis = op.Constant(value_ints=[2])
    last = op.Constant(value_ints=[-1])
    t = op.Cast(op.Slice(projected, last, op.Constant(value_ints=[9999]), axis), to=11)
    r = op.Cast(op.Slice(projected, op.Constant(value_ints=[0]), last, axis), to=11)
    one = op.CastLike(op.Constant(value_float=1.0), t)
    two = op.CastLike(op.Constant(value_float=2.0), t)
    r = op.Round(op.Clip(r, -max_direction, max_direction) * direction_grid) / direction_grid
    direction = scale * (r / op.Sqrt(one + op.ReduceSum(r * r, axis, keepdims=1)))
    z = op.Round(direction * reach * point_grid) / point_grid
    at_origin = op.ReduceMax(op.Abs(z), axis, keepdims=1) == op.CastLike(op.Constant(value_float=0.0), z)
    z = z + op.CastLike(at_origin, z) * first_axis
    w = op.Round((t + op.Sqrt(one + t * t)) / two * weight_grid) / weight_grid
    return z, w


@script(domain)
def DistinctPoints(z, indices, penalty, padding_score, coordinate_factor):
    """Return the distinct points of each text as keys: point, first index, penalty, number of words.

    A text with many equal words has few of them. Texts with fewer keys than another are padded.
    Both coordinates make one number, by which the words are sorted.
    """
    axis = op.Constant(value_ints=[2])
    three = op.Constant(value_ints=[3])
    one = op.Constant(value_ints=[1])
    end = op.Shape(indices, start=2, end=3)
    x, y = op.Split(z, axis=3, num_outputs=2)
    code = (op.Squeeze(x, three) + penalty) * coordinate_factor + op.Squeeze(y, three)
    code, order = op.TopK(code, end, axis=2, largest=0)
    previous = op.Slice(code, op.Constant(value_ints=[0]), op.Constant(value_ints=[-1]), axis)
    is_new = op.Not(op.Slice(code, one, end, axis) == previous)  # from the second on
    rank = op.Range(op.Constant(value_int=1), op.Squeeze(end), op.Constant(value_int=1))
    starts = op.Pad(op.Where(is_new, rank, end), op.Constant(value_ints=[0, 0, 1, 0, 0, 0]))
    n_keys = op.ReduceMax(op.ReduceSum(op.Cast(starts < end, to=7), axis, keepdims=0), keepdims=0)
    starts, _ = op.TopK(starts, op.Reshape(n_keys, one), axis=2, largest=0)
    ends = op.Pad(op.Slice(starts, one, end, axis), op.Constant(value_ints=[0, 0, 0, 0, 0, 1]), end)
    first = op.GatherElements(order, op.Min(starts, end - one), axis=2)
    both = op.Constant(value_ints=[1, 1, 1, 2])
    keys = op.GatherElements(z, op.Expand(op.Unsqueeze(first, three), both), axis=2)
    key_indices = op.GatherElements(indices, first, axis=2)
    penalties = op.Where(starts < end, op.GatherElements(penalty, first, axis=2), padding_score)
    return keys, key_indices, penalties, op.CastLike(ends - starts, z)


@script(domain)
def HullCandidates(z, indices, penalty, directions, quarter_turn, next, margin):
    """Return as keys the points in the plane that may be leaders: those not well inside the convex hull.

    <z_i, .> is largest at a vertex of the hull. The points that are extreme in `directions` [2,M], which turn
    once anticlockwise, are vertices of a polygon inside it. A point that lies deeper than `margin` in this
    polygon scores less than one of its vertices, for every query. The others are candidates: as many of each
    text as of the text with most of them. The last output is whether there are many.
    """
    axis = op.Constant(value_ints=[2])
    three = op.Constant(value_ints=[3])
    both = op.Constant(value_ints=[1, 1, 1, 2])
    extreme = op.Unsqueeze(op.ArgMax(op.MatMul(z, directions), axis=2, keepdims=0), three)  # [H,B,M,1]
    vertex = op.GatherElements(z, op.Expand(extreme, both), axis=2)  # [H,B,M,2]
    side = op.Gather(vertex, next, axis=2) - vertex
    outward = op.MatMul(side, quarter_turn)  # zero where a vertex is extreme in two directions
    length = op.Sqrt(op.ReduceSum(side * side, three, keepdims=1))
    inset = margin * length - op.ReduceSum(outward * vertex, three, keepdims=1)
    beyond = op.MatMul(z, op.Transpose(outward, perm=[0, 1, 3, 2])) + op.Transpose(inset, perm=[0, 1, 3, 2])
    distance = op.ReduceMax(beyond, three, keepdims=0)  # [H,B,N], above 0: not well inside
    is_outside = distance > op.CastLike(op.Constant(value_float=0.0), distance)
    counts = op.ReduceSum(op.Cast(is_outside, to=7), axis, keepdims=0)
    n_keys = op.Reshape(
        op.Max(op.ReduceMax(counts, keepdims=0), op.Constant(value_int=1)), op.Constant(value_ints=[1])
    )
    _, first = op.TopK(distance, n_keys, axis=2)
    first, _order = op.TopK(first, n_keys, axis=2, largest=0)  # in the order of the text
    keys = op.GatherElements(z, op.Expand(op.Unsqueeze(first, three), both), axis=2)
    key_indices = op.GatherElements(indices, first, axis=2)
    penalties = op.GatherElements(penalty, first, axis=2)
    return keys, key_indices, penalties, n_keys > op.Constant(value_ints=[MAX_WORDS_WITHOUT_SEARCH])


@script(domain)
def UnitCounts(penalty):
    """Return the number of words of each key where every word is a key."""
    return op.Expand(op.CastLike(op.Constant(value_int=1), penalty), op.Shape(penalty))


@script(domain)
def HardmaxAttention(z, keys, key_indices, penalty, counts, layer_grid):
    """Return c_i [H,B,N,d], the mean over C_i = argmax_j <z_i, z_j>, and the word i attends to [H,B,N].

    A key has the number of its words in `counts` [H,B,K]. Keys j and k are at one point if
    <z_j, z_k> = |z_j|^2 = |z_k|^2. If C_i is a single point, i attends to its first key, otherwise to -1.
    """
    key_axis = op.Constant(value_ints=[3])
    row = op.Unsqueeze(penalty, op.Constant(value_ints=[2]))  # [H,B,1,K]
    other = op.Transpose(keys, perm=[0, 1, 3, 2])
    score = op.MatMul(z, other) + row
    C = op.CastLike(score >= op.ReduceMax(score, key_axis, keepdims=1), z)
    each = op.Unsqueeze(counts, key_axis)
    sums = op.MatMul(C, op.Concat(keys * each, each, axis=3))
    total = op.Slice(sums, op.Constant(value_ints=[-1]), op.Constant(value_ints=[9999]), key_axis)
    point_sum = op.Slice(sums, op.Constant(value_ints=[0]), op.Constant(value_ints=[-1]), key_axis)
    c = op.Round(point_sum / total * layer_grid) / layer_grid
    product = op.MatMul(keys, other) + row
    square = op.ReduceSum(keys * keys, key_axis, keepdims=1)  # [H,B,K,1]
    is_same = op.And(product == square, product == op.Transpose(square, perm=[0, 1, 3, 2]))
    n_same = op.ReduceSum(op.CastLike(is_same, z), key_axis, keepdims=0)  # [H,B,K]
    first = op.ArgMax(score, axis=3, keepdims=0)
    is_point = op.ReduceSum(C, key_axis, keepdims=0) == op.GatherElements(n_same, first, axis=2)
    target = op.Where(is_point, op.GatherElements(key_indices, first, axis=2), op.Constant(value_int=-1))
    return c, target


@script(domain)
def MovePoints(z, c, gamma, layer_grid):
    """Return z + gamma (c - z); a leader keeps its position to the bit."""
    return op.Round((z + gamma * (c - z)) * layer_grid) / layer_grid


@script(domain)
def LeaderSince(points, means, targets):
    """Return the first layer with C_i = {i}, or -1 [H,B,N].

    It takes z and c [K+1,H,B,N,d] and the targets [K+1,H,B,N] of all layers.

    subtle: `targets` may name another word at the same point, so points are compared.
    """
    distance = op.ReduceMax(op.Abs(means - points), op.Constant(value_ints=[4]), keepdims=0)
    stays = distance == op.CastLike(op.Constant(value_float=0.0), points)
    leads = op.Cast(op.And(targets >= op.Constant(value_int=0), stays), to=7)
    ever_leads = op.Cast(op.ReduceMax(leads, op.Constant(value_ints=[0]), keepdims=0), to=9)
    return op.Where(ever_leads, op.ArgMax(leads, axis=0, keepdims=0), op.Constant(value_int=-1))


@script(domain)
def Readout(c, w, mask, v, b, pseudo_weight):
    """Return the contributions w_i <v, c_i> / (W0 + sum_i w_i), [H,B,C,N], and the bias [H,B,C]."""
    weight = op.Squeeze(w, op.Constant(value_ints=[3])) * mask  # [H,B,N]
    total = op.ReduceSum(weight, op.Constant(value_ints=[2]), keepdims=1) + pseudo_weight
    share = op.Unsqueeze(weight / total, op.Constant(value_ints=[2]))
    contribution = op.Transpose(op.MatMul(c, v), perm=[0, 1, 3, 2]) * share
    return contribution, op.Expand(b, op.Shape(contribution, start=0, end=3))


@script(domain)
def OodScore(projected, texts, mask, grid):
    """Return the largest of some linear maps of the mean over the words of each text, [H,B], exactly."""
    axis = op.Constant(value_ints=[2])
    rows = GatherRows(op.Round(op.Cast(projected, to=11) * grid) / grid, texts)  # [H,B,N,k]
    n_words = op.ReduceSum(mask, op.Constant(value_ints=[1]), keepdims=1)  # [B,1]
    return op.ReduceMax(op.ReduceSum(rows, axis, keepdims=0) / n_words, axis, keepdims=0)


def _candidates() -> onnx.FunctionProto:
    """Return the function that finds the candidates of a long text: hull vertices, each position once.

    subtle: it is not an onnxscript function, because onnxscript orders the outputs of an If like a set: the
    order, and with it the family, would differ from process to process.
    """
    outputs = "keys key_indices penalties counts".split()
    hull = "hull_keys hull_indices hull_penalties"
    few, many, graph = GraphBuilder(), GraphBuilder(), GraphBuilder()
    many.add_call(DistinctPoints, f"{hull} padding_score coordinate_factor", " ".join(outputs))
    for found, output in zip(hull.split(), outputs[:3], strict=True):
        few.add_node("Identity", found, output)
    few.add_call(UnitCounts, "hull_penalties", "counts")
    graph.add_call(HullCandidates, "z indices penalty directions quarter_turn next margin", f"{hull} many")
    graph.add_node(
        "If", "many", " ".join(outputs),
        then_branch=many.to_branch("many", outputs), else_branch=few.to_branch("few", outputs),
    )  # fmt: skip
    inputs = "z indices penalty padding_score directions quarter_turn next margin coordinate_factor".split()
    return graph.to_function("Candidates", inputs, outputs)


@script(domain)
def CountTokens(members, states):
    """Return the number of tokens of each word, [M,1]."""
    is_token = op.Cast(members < op.Shape(states, start=0, end=1), to=1)
    return op.ReduceSum(is_token, op.Constant(value_ints=[1]), keepdims=1)


@script(domain)
def WordMasks(z, texts, members, padding_score):
    """Return where words are [B,N]; the same as numbers; whether candidates should be searched; the index of
    each word in its text and what is added to the scores of it, [H,B,N].
    """
    is_word = texts < op.Shape(members, start=0, end=1)
    mask = op.CastLike(is_word, padding_score)
    shape = op.Shape(z, start=0, end=3)
    n_words = op.Shape(texts, start=1, end=2)
    search = op.And(
        n_words > op.Constant(value_ints=[MAX_WORDS_WITHOUT_SEARCH]),
        op.Shape(z, start=3, end=4) == op.Constant(value_ints=[2]),
    )
    indices = op.Range(op.Constant(value_int=0), op.Squeeze(n_words), op.Constant(value_int=1))
    is_padding = op.CastLike(op.Not(is_word), padding_score)
    return is_word, mask, search, op.Expand(indices, shape), op.Expand(is_padding * padding_score, shape)


CANDIDATES = _candidates()
HEAD_FUNCTIONS = (
    GatherRows, ProjectWords, Reach, InitialPoints, HullCandidates, UnitCounts, DistinctPoints, CANDIDATES,
    HardmaxAttention, MovePoints, LeaderSince, Readout, OodScore, CountTokens, WordMasks,
)  # fmt: skip
