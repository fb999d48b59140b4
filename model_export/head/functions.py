"""The functions of the graph of a leader head (graph.py); onnxscript translates their source.

B texts of N words, M words of all texts, K candidates, d dimensions. All that is compared or added lies on
grids of powers of two: exact in double precision, whatever the batch and the device.
"""
# mypy: allow-untyped-defs, allow-untyped-calls

from onnxscript import opset20 as op
from onnxscript import script

from model_export.attention.functions import domain

MAX_WORDS_WITHOUT_SEARCH = 64  # of a text; for longer ones the candidates are searched


@script(domain)
def GatherRows(x, indices):
    """Return the rows of x [n,c] at `indices`, and zeros where an index is n."""
    return op.Gather(op.Pad(x, op.Constant(value_ints=[0, 0, 1, 0])), indices)


@script(domain)
def ProjectWords(states, members, n_tokens, weight, unit, bias, zero):
    """Return a linear map of whole numbers, its mean over the tokens of each word: [M,c].

    subtle: weights are uint8 too. Without VNNI products of uint8 and int8 overflow in a graph that is not
    optimized, as heads are served.
    """
    rows = GatherRows(op.MatMulInteger(states, weight, zero, zero), members)  # [M,P,c]
    sums = op.Cast(op.ReduceSum(rows, op.Constant(value_ints=[1]), keepdims=0), to=1)
    return sums / n_tokens * unit + bias


@script(domain)
def Reach(words, hidden_steps, weight, unit, bias, zero, min_reach, reach_range):
    """Return the reach of each word by a small network over its input embedding, [M,1]."""
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
    """Return the initial point z [M,d] and the weight w [M,1] of each word."""
    axis = op.Constant(value_ints=[1])
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
def HullCandidates(z, indices, penalty, directions, quarter_turn, next, margin):
    """Return the points in the plane that may be leaders: those not well inside the convex hull.

    <z_i, .> is largest at a vertex of the hull. The points that are extreme in `directions` [2,V], which turn
    once anticlockwise, are vertices of a polygon inside it. A point that lies deeper than `margin` in this
    polygon scores less than one of its vertices, for every query. The others are candidates: as many of each
    text as of the text with most of them.
    """
    axis = op.Constant(value_ints=[1])
    two = op.Constant(value_ints=[2])
    both = op.Constant(value_ints=[1, 1, 2])
    extreme = op.Unsqueeze(op.ArgMax(op.MatMul(z, directions), axis=1, keepdims=0), two)  # [B,V,1]
    vertex = op.GatherElements(z, op.Expand(extreme, both), axis=1)  # [B,V,2]
    side = op.Gather(vertex, next, axis=1) - vertex
    outward = op.MatMul(side, quarter_turn)  # zero where a vertex is extreme in two directions
    length = op.Sqrt(op.ReduceSum(side * side, two, keepdims=1))
    inset = margin * length - op.ReduceSum(outward * vertex, two, keepdims=1)
    beyond = op.MatMul(z, op.Transpose(outward, perm=[0, 2, 1])) + op.Transpose(inset, perm=[0, 2, 1])
    distance = op.ReduceMax(beyond, two, keepdims=0)  # [B,N], above 0: not well inside
    is_outside = distance > op.CastLike(op.Constant(value_float=0.0), distance)
    counts = op.ReduceSum(op.Cast(is_outside, to=7), axis, keepdims=0)
    n_keys = op.Reshape(op.Max(op.ReduceMax(counts, keepdims=0), op.Constant(value_int=1)), axis)
    _, first = op.TopK(distance, n_keys, axis=1)
    first, _order = op.TopK(first, n_keys, axis=1, largest=0)  # in the order of the text
    candidates = op.GatherElements(z, op.Expand(op.Unsqueeze(first, two), both), axis=1)
    return candidates, op.GatherElements(indices, first, axis=1), op.GatherElements(penalty, first, axis=1)


@script(domain)
def DistinctPoints(z, indices, penalty, padding_score, coordinate_factor):
    """Return the distinct points of each text as keys: point, first index, penalty, number of words.

    A text with many equal words has few of them. Texts with fewer keys than another are padded.
    Both coordinates make one number, by which the words are sorted.
    """
    axis = op.Constant(value_ints=[1])
    two = op.Constant(value_ints=[2])
    end = op.Shape(indices, start=1, end=2)
    x, y = op.Split(z, axis=2, num_outputs=2)
    code = (op.Squeeze(x, two) + penalty) * coordinate_factor + op.Squeeze(y, two)
    code, order = op.TopK(code, end, axis=1, largest=0)
    previous = op.Slice(code, op.Constant(value_ints=[0]), op.Constant(value_ints=[-1]), axis)
    is_new = op.Not(op.Slice(code, axis, end, axis) == previous)  # from the second on
    rank = op.Range(op.Constant(value_int=1), op.Squeeze(end), op.Constant(value_int=1))
    starts = op.Pad(op.Where(is_new, rank, end), op.Constant(value_ints=[0, 1, 0, 0]))
    n_keys = op.ReduceMax(op.ReduceSum(op.Cast(starts < end, to=7), axis, keepdims=0), keepdims=0)
    starts, _ = op.TopK(starts, op.Reshape(n_keys, axis), axis=1, largest=0)
    ends = op.Pad(op.Slice(starts, axis, end, axis), op.Constant(value_ints=[0, 0, 0, 1]), end)
    first = op.GatherElements(order, op.Min(starts, end - axis), axis=1)
    both = op.Constant(value_ints=[1, 1, 2])
    keys = op.GatherElements(z, op.Expand(op.Unsqueeze(first, two), both), axis=1)
    key_indices = op.GatherElements(indices, first, axis=1)
    penalties = op.Where(starts < end, op.GatherElements(penalty, first, axis=1), padding_score)
    return keys, key_indices, penalties, op.CastLike(ends - starts, z)


@script(domain)
def UnitCounts(penalty):
    """Return the number of words of each key where every word is a key."""
    return op.Expand(op.CastLike(op.Constant(value_int=1), penalty), op.Shape(penalty))


@script(domain)
def HardmaxAttention(z, keys, key_indices, penalty, counts, layer_grid):
    """Return c_i [B,N,d], the mean over C_i = argmax_j <z_i, z_j>, and the word i attends to [B,N].

    A key has the number of its words in `counts` [B,K]. Keys j and k are at one point if
    <z_j, z_k> = |z_j|^2 = |z_k|^2. If C_i is a single point, i attends to its first key, otherwise to -1.
    """
    key_axis = op.Constant(value_ints=[2])
    row = op.Unsqueeze(penalty, op.Constant(value_ints=[1]))  # [B,1,K]
    other = op.Transpose(keys, perm=[0, 2, 1])
    score = op.MatMul(z, other) + row
    C = op.CastLike(score >= op.ReduceMax(score, key_axis, keepdims=1), z)
    each = op.Unsqueeze(counts, key_axis)
    sums = op.MatMul(C, op.Concat(keys * each, each, axis=2))
    total = op.Slice(sums, op.Constant(value_ints=[-1]), op.Constant(value_ints=[9999]), key_axis)
    point_sum = op.Slice(sums, op.Constant(value_ints=[0]), op.Constant(value_ints=[-1]), key_axis)
    c = op.Round(point_sum / total * layer_grid) / layer_grid
    product = op.MatMul(keys, other) + row
    square = op.ReduceSum(keys * keys, key_axis, keepdims=1)  # [B,K,1]
    is_same = op.And(product == square, product == op.Transpose(square, perm=[0, 2, 1]))
    n_same = op.ReduceSum(op.CastLike(is_same, z), key_axis, keepdims=0)  # [B,K]
    first = op.ArgMax(score, axis=2, keepdims=0)
    is_point = op.ReduceSum(C, key_axis, keepdims=0) == op.GatherElements(n_same, first, axis=1)
    target = op.Where(is_point, op.GatherElements(key_indices, first, axis=1), op.Constant(value_int=-1))
    return c, target


@script(domain)
def MovePoints(z, c, gamma, layer_grid):
    """Return z + gamma (c - z); a leader keeps its position to the bit."""
    return op.Round((z + gamma * (c - z)) * layer_grid) / layer_grid


@script(domain)
def LeaderSince(points, means, targets):
    """Return the first layer with C_i = {i}, or -1 [B,N].

    It takes z and c [K+1,B,N,d] and the targets [K+1,B,N] of all layers.

    subtle: `targets` may name another word at the same point, so points are compared.
    """
    distance = op.ReduceMax(op.Abs(means - points), op.Constant(value_ints=[3]), keepdims=0)
    stays = distance == op.CastLike(op.Constant(value_float=0.0), points)
    leads = op.Cast(op.And(targets >= op.Constant(value_int=0), stays), to=7)
    ever_leads = op.Cast(op.ReduceMax(leads, op.Constant(value_ints=[0]), keepdims=0), to=9)
    return op.Where(ever_leads, op.ArgMax(leads, axis=0, keepdims=0), op.Constant(value_int=-1))


@script(domain)
def Readout(c, w, mask, v, b, pseudo_weight):
    """Return the contributions w_i <v, c_i> / (W0 + sum_i w_i), [B,C,N], and the bias [B,C]."""
    weight = op.Squeeze(w, op.Constant(value_ints=[2])) * mask  # [B,N]
    total = op.ReduceSum(weight, op.Constant(value_ints=[1]), keepdims=1) + pseudo_weight
    share = op.Unsqueeze(weight / total, op.Constant(value_ints=[1]))
    contribution = op.Transpose(op.MatMul(c, v), perm=[0, 2, 1]) * share
    return contribution, op.Expand(b, op.Shape(contribution, start=0, end=2))


@script(domain)
def OodScore(projected, texts, mask, grid):
    """Return the largest of some linear maps of the mean over the words of each text, [B], exactly."""
    axis = op.Constant(value_ints=[1])
    rows = GatherRows(op.Round(op.Cast(projected, to=11) * grid) / grid, texts)  # [B,N,k]
    n_words = op.ReduceSum(mask, axis, keepdims=1)  # [B,1]
    return op.ReduceMax(op.ReduceSum(rows, axis, keepdims=0) / n_words, axis, keepdims=0)


@script(domain)
def CountTokens(members, states):
    """Return the number of tokens of each word, [M,1]."""
    is_token = op.Cast(members < op.Shape(states, start=0, end=1), to=1)
    return op.ReduceSum(is_token, op.Constant(value_ints=[1]), keepdims=1)


@script(domain)
def WordMasks(texts, members, padding_score):
    """Return where words are [B,N]; the same as numbers; the index of each word in its text, and what is
    added to the scores of it, [B,N]; whether candidates should be searched.
    """
    is_word = texts < op.Shape(members, start=0, end=1)
    n_words = op.Squeeze(op.Shape(texts, start=1, end=2))
    indices = op.Range(op.Constant(value_int=0), n_words, op.Constant(value_int=1))
    penalty = op.CastLike(op.Not(is_word), padding_score) * padding_score
    is_long = n_words > op.Constant(value_int=MAX_WORDS_WITHOUT_SEARCH)
    return is_word, op.CastLike(is_word, padding_score), op.Expand(indices, op.Shape(texts)), penalty, is_long


HEAD_FUNCTIONS = (
    GatherRows, ProjectWords, Reach, InitialPoints, HullCandidates, DistinctPoints, UnitCounts,
    HardmaxAttention, MovePoints, LeaderSince, Readout, OodScore, CountTokens, WordMasks,
)  # fmt: skip
