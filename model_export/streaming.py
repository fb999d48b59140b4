"""Hardmax attention of large clouds, as ONNX functions: exact, in memory O(n * block).

The definition is attention.py's, with every token a query and a key; this file only avoids looking at pairs
that cannot matter. Rows are taken in tiles. Three steps, each proved in docs/theory.md, section 4:

    bound    a tile keeps the keys that can win for one of its queries: by Cauchy-Schwarz (the key's norm),
             and by the cone of the tile's directions, seen from a key already known to be extreme
    screen   the kept keys are scored in float32, and only the best of each run of 32 is looked at
    refine   runs that rounding cannot exclude are scored again in full precision; those scores decide

Clouds of few pairs are compared as a whole instead (matrix.py); `CloudAttention` chooses.

In up to three dimensions rows should come in an order in which neighbours look the same way: that is fast,
any other order is only slower. Symbols as in attention.py; u and v are the A-unit vectors of the queries and
their images, rho the keys' A-norms.
"""
# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators, allow-incomplete-defs

from typing import Any

from onnxscript import BOOL, FLOAT, INT64, graph, script
from onnxscript import opset20 as op

from model_export.attention import domain
from model_export.bounds import TRUE, WIDE, Bounds, Candidates, Cones, Extremes, Longest, Outside, Unit
from model_export.decision import Decide
from model_export.matrix import MatrixAttention

TILE = 1024  # queries that are bounded and screened together (up to 8 times as many where cones are narrow)
PROBES = 64  # keys of largest norm that give every query a first bound (up to 16 times as many in space)
RUN = 32  # keys that are screened as one; half as many where they have so many coordinates
BLOCK = 64  # runs screened at a time
NEAR = 1e-2  # a reach up to which keys are looked for below the best; wider, below the best outside
TIES = 2**24  # numbers that name ties: two a pair; and
CROWD = 2**27  # coordinates of keys that a tile may look at in full: past either its sets are left empty
FEW = 2048 * 2048  # pairs up to which all scores at once are faster
PAIRS: Any = INT64[2, None]


@script(domain)
def Screen(v, runs, first_rho, scale, slack, depth):
    """Pairs (query, run) that may hold a key within `slack` of the query's best, by float32 scores.

    v [t,d] directions, runs [r,RUN,d] keys in decreasing norm  ->  two int64 [P]. Blocks of runs are scored
    until even the longest key of the next, of A-norm first_rho [blocks], is shorter than every best so far.
    With a `depth` above the slack, runs are named too that may hold the best other key of those so deep.
    Float32 scores are off by at most (d + 3) 2^-23 |v| |k|, so twice that is added to the slack.
    """
    d = op.Shape(runs, start=2, end=3)
    width = op.Shape(runs, start=1, end=2)
    blocks = op.Shape(first_rho)
    each = op.Shape(runs, start=0, end=1) / blocks
    keys = op.Reshape(op.Cast(runs / scale, to=FLOAT.dtype), op.Concat(blocks, each * width, d, axis=0))
    directions = op.Cast(v, to=FLOAT.dtype)
    t = op.Shape(v, start=0, end=1)
    shape = op.Concat(t, each, width, axis=0)
    last = op.Constant(value_ints=[2])
    rounding = op.Cast(d + op.Constant(value_int=3), to=FLOAT.dtype) * op.Constant(value_float=2.0**-22)
    slack32 = rounding * Longest(directions) * Longest(keys) + op.Cast(slack / scale, to=FLOAT.dtype)
    depth32 = slack32 + op.Cast((depth - slack) / scale, to=FLOAT.dtype)
    ahead = op.Cast(first_rho / scale, to=FLOAT.dtype)
    final = op.Squeeze(blocks) - op.Constant(value_int=1)

    @graph()
    def Block(b: INT64, go: BOOL, best: FLOAT["t"]):
        scores = op.MatMul(directions, op.Transpose(op.Gather(keys, b, axis=0), perm=[1, 0]))
        tops = op.ReduceMax(op.Reshape(scores, shape), last, keepdims=0)  # [t, each]
        best = op.Max(best, op.ReduceMax(tops, op.Constant(value_ints=[1]), keepdims=0))
        following = op.Gather(ahead, op.Min(b + op.Constant(value_int=1), final))
        more = following >= op.ReduceMin(best, keepdims=0) - depth32
        return op.Squeeze(more), best, tops

    nothing = op.Expand(op.Constant(value_float=float("-inf")), t)
    best, tops = op.Loop(
        op.Squeeze(blocks), op.Constant(value=TRUE), nothing, body=Block
    )  # [blocks, t, each]
    sides = op.Constant(value_ints=[0, 2])
    hit = tops >= op.Unsqueeze(best - slack32, sides)
    if depth > slack:
        others = op.Where(hit, op.Constant(value_float=float("-inf")), tops)
        named = tops >= op.ReduceMax(others, sides) - slack32
    else:
        named = op.Identity(hit)
    block, query, run = op.Split(op.NonZero(named), num_outputs=3, axis=0)
    flat = op.Constant(value_ints=[-1])
    return op.Reshape(query, flat), op.Reshape(block * each + run, flat)


@script(domain)
def Runs(K, index, rho):
    """Keys [k,d], positions, norms in runs of RUN and equal blocks: [r,RUN,d], [r,RUN], first norms [blocks].

    The filling is the zero vector: its score is 0, and a best score is at least |z|_A^2 > 0.
    """
    one = op.Constant(value_ints=[1])
    zero = op.Constant(value_ints=[0])
    many = op.Shape(K, start=1, end=2) >= op.Constant(value_int=RUN)
    width = op.Where(many, op.Constant(value_ints=[RUN // 2]), op.Constant(value_ints=[RUN]))
    size = op.Shape(K, start=0, end=1)
    runs = (size + width - one) / width
    blocks = (runs + op.Constant(value_ints=[BLOCK - 1])) / op.Constant(value_ints=[BLOCK])
    each = (runs + blocks - one) / blocks
    blocks = (runs + each - one) / each
    missing = blocks * each * width - size
    keys = op.Pad(K, op.Concat(zero, zero, missing, zero, axis=0))
    places = op.Pad(index, op.Concat(zero, missing, axis=0))
    shape = op.Concat(blocks * each, width, axis=0)
    starts = op.Range(op.Constant(value_int=0), op.Squeeze(size), op.Squeeze(each * width))
    return (
        op.Reshape(keys, op.Concat(shape, op.Shape(K, start=1, end=2), axis=0)),
        op.Reshape(places, shape),
        op.Squeeze(op.Gather(rho, starts), one),
    )


@script(domain)
def Refine(Y, margin, query, run, runs, places, count, w, Z):
    """The argmax sets of t queries from full-precision scores <y_i, z_j> of the runs that Screen left.

    margin [t] is tau |z_i|_A max |z|_A.  ->  the mean c [t,d], the first member and the size [t], best -
    (best score outside the set) among the keys looked at [t], the pairs (row, member) [2,M] of all sets.
    """
    two = op.Constant(value_ints=[2])
    y = op.Unsqueeze(op.Gather(Y, query), two)  # [P,d,1]
    scores = op.Squeeze(op.MatMul(op.Gather(runs, run), y), two)  # [P,RUN]
    width = op.Squeeze(op.Shape(runs, start=1, end=2))
    slots = op.Range(op.Constant(value_int=0), width, op.Constant(value_int=1))
    filling = slots >= op.Unsqueeze(count - run * width, op.Constant(value_ints=[1]))
    scores = op.Where(filling, op.CastLike(op.Constant(value_float=float("-inf")), scores), scores)
    flat = op.Reshape(places, op.Constant(value_ints=[-1]))
    c, first, size, best, runner, sets = Decide(scores, query, run, flat, margin, w, Z)
    return c, first, size, best - runner, sets


@script(domain)
def Tiles(x, rows, count):
    """The given rows of x [q,..] as `count` equal tiles [count,t,..]."""
    whole = op.Constant(value_ints=[-1])
    return op.Reshape(op.Gather(x, rows), op.Concat(count, whole, op.Shape(x, start=1), axis=0))


@script(domain)
def StreamingAttention(Q, QY, hint, Z, Y, rho, w, A, tau, guard, reach, eps):
    """Hardmax attention of queries Q [q,d] (images QY) to keys Z [n,d] (images Y, A-norms rho, weights w).

    hint int64 [q] names a key per query that is thought to be good. tau is the tie tolerance, eps the unit
    rounding of the type; keys within `guard` (relative, as tau) of the best are looked at, and the best key
    outside C_i if it is within `reach`; all scalars.
    ->  c [q,d] weighted mean over C_i; first int64 [q] and size int64 [q] of C_i; gap [q], the relative
    distance from the best score to the best outside C_i, exact below guard and reach; ties int64
    [2,M], the pairs (i, member) of all C_i with several members. Where too much ties, sizes are 0.
    """
    one = op.Constant(value_ints=[1])
    zero = op.Constant(value_ints=[0])
    n = op.Shape(Z, start=0, end=1)
    d = op.Shape(Z, start=1, end=2)
    q = op.Shape(Q, start=0, end=1)
    u, v, length = Unit(Q, A)
    live = op.Unsqueeze(w > op.CastLike(0, w), one)
    X = op.Where(live, Z, op.CastLike(0, Z))
    rho = op.Where(
        live, rho, op.CastLike(op.Constant(value_float=float("-inf")), rho)
    )  # what no key test passes
    scale = op.ReduceMax(rho, keepdims=0)
    flat = d <= op.Constant(value_int=3)

    # Tiles of t rows, about 64 of them where cones are narrow; the last row fills up.
    part = op.Clip(
        q / op.Constant(value_int=64), op.Constant(value_int=TILE // 2), op.Constant(value_int=8 * TILE)
    )
    t = op.Min(q, op.Where(flat, part, op.Constant(value_ints=[TILE])))
    tiles = (q + t - one) / t
    slots = op.Range(op.Constant(value_int=0), op.Squeeze(tiles * t), op.Constant(value_int=1))
    slots = op.Min(slots, q - one)
    given = Tiles(v, slots, tiles)

    # Probes: extreme keys of the tiles' mean directions and keys of largest norm give every query a bound h.
    least = op.Constant(value_int=PROBES)
    most = op.Where(flat, least, op.Constant(value_int=16 * PROBES))
    wanted = op.Min(op.Clip(n / op.Constant(value_int=64), least, op.Squeeze(most)), n)
    _, longest = op.TopK(op.Squeeze(rho, one), wanted)
    probe = op.Concat(Extremes(op.ReduceMean(given, one, keepdims=0), X), longest, axis=0)
    E, E_rho = op.Gather(X, probe), op.Gather(rho, probe)
    E_image = op.MatMul(E, A)
    hinted = op.ReduceSum(v * op.Gather(X, hint), one, keepdims=0)
    probed = op.Slice(op.Reshape(Bounds(given, E), op.Constant(value_ints=[-1])), zero, q)
    h = op.Max(probed, hinted)

    # Where directions are too many to be neighbours, tiles of similar bounds do better.
    if op.Squeeze(flat):
        order = op.Range(op.Constant(value_int=0), op.Squeeze(q), op.Constant(value_int=1))
    else:
        _, order = op.TopK(h, q)
    rows = op.Gather(order, slots)
    vt = Tiles(v, rows, tiles)
    Yt = Tiles(QY, rows, tiles)
    norm = Tiles(op.Squeeze(length, one), rows, tiles)
    image, spread = Cones(Tiles(u, rows, tiles), vt)
    terms = op.CastLike(d + op.Constant(value_int=3), Z)
    rounding = op.Squeeze(op.CastLike(16, Z) * terms * eps * Longest(X))
    slack = (tau + guard) * scale + rounding * Longest(v)
    far = reach > op.CastLike(NEAR, reach)
    endless = op.CastLike(op.Constant(value_float=float("inf")), Z)
    depth = op.Where(far, endless, slack + reach * scale)
    slope = op.Where(far, slack, depth)
    fuzz = rounding * Longest(Y)

    # Each tile is seen from its best probe; for wide gaps, from its best that is outside all of its sets.
    ahead = op.MatMul(image, op.Transpose(E, perm=[1, 0]))  # [tiles, e]
    ht = Tiles(h, rows, tiles)
    wide = op.CastLike(WIDE, E)

    @graph()
    def Others():
        second, outside = Outside(vt, E, ht - slack)
        lowest = op.CastLike(op.Constant(value_float=float("-inf")), E)
        seen = op.Where(outside, ahead, lowest)
        blind = op.ReduceMax(seen, one) == lowest
        return second, op.ArgMax(seen, axis=1, keepdims=0), op.Where(blind, wide, spread)

    @graph()
    def Best():
        return op.Identity(ht), op.ArgMax(ahead, axis=1, keepdims=0), op.Identity(spread)

    floor, top, width = op.If(far, then_branch=Others, else_branch=Best)
    least_h = op.ReduceMin(floor, one, keepdims=0)
    found = Candidates(
        image, width, op.Gather(E, top), op.Gather(E_image, top), op.Gather(E_rho, top),
        op.ReduceMin(least_h, keepdims=0), X, rho, slope, fuzz,
    )  # fmt: skip
    _, decreasing = op.TopK(op.Squeeze(op.Gather(rho, found), one), op.Shape(found))
    found = op.Gather(found, decreasing)
    K, K_rho = op.Gather(X, found), op.Gather(rho, found)

    crowd, most = op.Constant(value_int=CROWD), op.Constant(value_int=TIES)

    @graph()
    def Tile(i: INT64, go: BOOL, ties: PAIRS):
        at = op.Reshape(i, one)
        e = op.Gather(top, at)
        keep = Candidates(
            op.Gather(image, at), op.Gather(width, at), op.Gather(E, e), op.Gather(E_image, e),
            op.Gather(E_rho, e), op.Gather(least_h, i), K, K_rho, slope, fuzz,
        )  # fmt: skip
        runs, places, first_rho = Runs(op.Gather(K, keep), op.Gather(found, keep), op.Gather(K_rho, keep))
        query, run = Screen(op.Gather(vt, i), runs, first_rho, scale, slack, depth)
        work = op.Size(query) * op.Size(op.Gather(runs, op.Constant(value_int=0)))
        fits = op.And(work <= crowd, op.Size(ties) <= most)
        allowed = op.Reshape(op.Where(fits, op.Size(query), op.Constant(value_int=0)), one)
        query, run = op.Slice(query, zero, allowed), op.Slice(run, zero, allowed)
        unit = op.Gather(norm, i) * scale
        c, first, size, gap, sets = Refine(
            op.Gather(Yt, i), tau * unit, query, run, runs, places, op.Shape(keep), w, Z
        )
        row, key = op.Split(sets, num_outputs=2, axis=0)
        slot = row + at * t
        real = op.Squeeze(slot < q, zero)  # the filling is not a row
        here = op.Compress(op.Concat(slot, key, axis=0), real, axis=1)
        return op.Identity(go), op.Concat(ties, here, axis=1), c, first, size, gap / unit

    untied = op.Expand(op.Constant(value_int=0), op.Constant(value_ints=[2, 0]))
    pairs, c, first, size, gap = op.Loop(op.Squeeze(tiles), op.Constant(value=TRUE), untied, body=Tile)
    back = op.Slice(op.ScatterElements(slots, order, op.Slice(slots, zero, q), axis=0), zero, q)
    whole = op.Constant(value_ints=[-1])
    slot, key = op.Split(pairs, num_outputs=2, axis=0)
    return (
        op.Gather(op.Reshape(c, op.Concat(whole, d, axis=0)), back),
        op.Gather(op.Reshape(first, whole), back),
        op.Gather(op.Reshape(size, whole), back),
        op.Gather(op.Reshape(gap, whole), back),
        op.Concat(op.Gather(order, slot), key, axis=0),
    )


@script(domain)
def CloudAttention(Q, QY, length, hint, Z, Y, rho, w, A, tau, guard, reach, eps):
    """Attention of Q (of A-norms length [q,1]) to Z, the faster way; all else as StreamingAttention."""

    @graph()
    def Matrix():
        c, first, size, gap, ties = MatrixAttention(QY, length, Z, rho, w, tau)
        return c, first, size, gap, ties

    @graph()
    def Streaming():
        c, first, size, gap, ties = StreamingAttention(Q, QY, hint, Z, Y, rho, w, A, tau, guard, reach, eps)
        return c, first, size, gap, ties

    few = op.Size(hint) * op.Size(w) <= op.Constant(value_int=FEW)
    c, first, size, gap, ties = op.If(few, then_branch=Matrix, else_branch=Streaming)
    return c, first, size, gap, ties
