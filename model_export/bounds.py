"""Which keys can matter to a tile of queries, as ONNX functions: the first step of streaming.py.

A key is left out only where an inequality of docs/theory.md, section 4, says that it cannot win. Symbols as
in attention.py; u and v are A-unit vectors and their images, rho A-norms.
"""
# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators, allow-incomplete-defs

from onnx import TensorProto
from onnx.helper import make_tensor
from onnxscript import BOOL, INT64, graph, script
from onnxscript import opset20 as op

from model_export.attention import Norm, domain

CHUNK = 16384  # keys bounded at a time
WIDE = 1  # a cone of this radius bounds nothing
TRUE = make_tensor("true", TensorProto.BOOL, [], [True])


@script(domain)
def Unit(Z, A):
    """u = z / |z|_A, v = u A, rho = |z|_A [n,1]; the largest entry is divided out: any scale is fine."""
    largest = op.ReduceMax(op.Abs(Z), op.Constant(value_ints=[-1]), keepdims=1)
    shape = Z / largest
    image = op.MatMul(shape, A)
    norm = Norm(image, shape)
    return shape / norm, image / norm, norm * largest


@script(domain)
def Longest(X):
    """The largest Euclidean length of a row of X: what bounds the rounding of an inner product."""
    return op.Sqrt(op.ReduceMax(op.ReduceSum(X * X, op.Constant(value_ints=[-1]), keepdims=0), keepdims=0))


@script(domain)
def Extremes(U, K):
    """For each row of U [g,d] the position of a key of K [n,d] with the largest <u, k>, in chunks of keys."""
    one = op.Constant(value_ints=[1])
    chunk = op.Constant(value_ints=[CHUNK])
    rows = op.Shape(U, start=0, end=1)
    lowest = op.Expand(op.CastLike(op.Constant(value_float=float("-inf")), U), rows)
    nobody = op.Expand(op.Constant(value_int=0), rows)
    chunks = op.Squeeze((op.Shape(K, start=0, end=1) + chunk - one) / chunk)

    @graph()
    def Chunk(i: INT64, go: BOOL, best, where):
        start = op.Reshape(i, one) * chunk
        scores = op.MatMul(U, op.Transpose(op.Slice(K, start, start + chunk), perm=[1, 0]))  # [g, chunk]
        top = op.ReduceMax(scores, one, keepdims=0)
        better = top > best
        place = op.ArgMax(scores, axis=1, keepdims=0) + start
        return op.Identity(go), op.Where(better, top, best), op.Where(better, place, where)

    _, found = op.Loop(chunks, op.Constant(value=TRUE), lowest, nobody, body=Chunk)
    return found


@script(domain)
def Cones(u, v):
    """Of tiles of units u [g,t,d], images v: the mean's image [g,d], the longest distance to it [g,1]."""
    axis = op.Constant(value_ints=[1])
    image = op.ReduceMean(v, axis, keepdims=1)
    eps = op.ReduceMax(Norm(v - image, u - op.ReduceMean(u, axis, keepdims=1)), axis, keepdims=0)
    return op.Squeeze(image, axis), eps


@script(domain)
def Bounds(v, E):
    """The best score of each direction among the probes E [e,d]: [g,t,d] -> [g,t], one tile at a time."""
    Et = op.Transpose(E, perm=[1, 0])
    last = op.Constant(value_ints=[1])

    @graph()
    def Tile(g: INT64, go: BOOL):
        scores = op.MatMul(op.Gather(v, g, axis=0), Et)
        return op.Identity(go), op.ReduceMax(scores, last, keepdims=0)

    h = op.Loop(op.Squeeze(op.Shape(v, start=0, end=1)), op.Constant(value=TRUE), body=Tile)
    return h


@script(domain)
def Outside(v, E, limit):
    """What the probes E [e,d] say of the best key outside each argmax set, one tile of v [g,t,d] at a time.

    A probe that scores less than limit [g,t] is no member for sure.  ->  the best such score [g,t] (-inf:
    there is none), and whether a probe is outside for all queries of a tile, bool [g,e].
    """
    Et = op.Transpose(E, perm=[1, 0])
    last = op.Constant(value_ints=[1])
    lowest = op.CastLike(op.Constant(value_float=float("-inf")), E)

    @graph()
    def Tile(g: INT64, go: BOOL):
        scores = op.MatMul(op.Gather(v, g, axis=0), Et)
        edge = op.Unsqueeze(op.Gather(limit, g, axis=0), last)
        second = op.ReduceMax(op.Where(scores < edge, scores, lowest), last, keepdims=0)
        nearest = op.ReduceMax(scores - edge, op.Constant(value_ints=[0]), keepdims=0)
        return op.Identity(go), second, nearest < op.CastLike(0, nearest)

    second, outside = op.Loop(op.Squeeze(op.Shape(v, start=0, end=1)), op.Constant(value=TRUE), body=Tile)
    return second, outside


@script(domain)
def Reachable(image, eps, e, e_image, e_rho, K, rho, slack, fuzz):
    """Keys that may come within `slack` of the best for a direction of some cone.  ->  bool [n]

    For a direction v of the cone (u, eps) and a known key e:  <v, k - e> <= <u, k - e> + eps |k - e|_A.
    `fuzz` bounds the rounding of a squared distance that is computed from scores.
    """
    axis = op.Constant(value_ints=[1])
    Kt = op.Transpose(K, perm=[1, 0])
    ahead = op.MatMul(image, Kt) - op.ReduceSum(image * e, axis, keepdims=1)
    squares = op.Transpose(rho * rho, perm=[1, 0]) + e_rho * e_rho
    distance = op.Sqrt(op.Relu(squares - op.CastLike(2, rho) * op.MatMul(e_image, Kt)) + fuzz)
    reach = op.ReduceMax(ahead + eps * distance, op.Constant(value_ints=[0]), keepdims=0)
    return reach >= op.Neg(slack)


@script(domain)
def Candidates(image, eps, e, e_image, e_rho, least, K, rho, slack, fuzz):
    """Positions of the keys of norm at least `least` - `slack` that some cone can reach, chunk by chunk."""
    one = op.Constant(value_ints=[1])
    zero = op.Constant(value_ints=[0])
    near = op.Squeeze(op.NonZero(op.Squeeze(rho, one) >= least - slack), zero)
    chunk = op.Constant(value_ints=[CHUNK])
    chunks = op.Squeeze((op.Shape(near) + chunk - one) / chunk)

    @graph()
    def Chunk(i: INT64, go: BOOL, found):
        start = op.Reshape(i, one) * chunk
        part = op.Slice(near, start, start + chunk)
        keep = Reachable(image, eps, e, e_image, e_rho, op.Gather(K, part), op.Gather(rho, part), slack, fuzz)
        return op.Identity(go), op.Concat(found, op.Compress(part, keep, axis=0), axis=0)

    if op.ReduceMin(eps, keepdims=0) < op.CastLike(WIDE, eps):
        found = op.Loop(chunks, op.Constant(value=TRUE), op.Slice(near, zero, zero), body=Chunk)
    else:
        found = op.Identity(near)
    return found
