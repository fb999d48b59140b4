"""Hardmax attention, written once, as ONNX functions of the domain `hardmax`.

Every graph this project exports calls the functions of this file by name, and no other place defines what
attention is. They use standard operators alone, hold for float32 and float64, and run on any execution
provider. The symbols are those of docs/theory.md: tokens Z with weights w, their images Y = Z A under the
symmetric positive definite form A (for A = I pass Z itself), tau the tie tolerance, C the argmax sets,
P the row-stochastic matrix that averages over them.

This module knows nothing of texts, models, layers in a loop or files.
"""
# The scripts below are graphs, read from their source and generic in the float type.
# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators, allow-incomplete-defs

from onnx import ModelProto
from onnxscript import opset20 as op
from onnxscript import script
from onnxscript.values import Opset

DOMAIN = "hardmax"
VERSION = 1
OPSET = 20
TIE_TOLERANCE = {"float64": 1e-12, "float32": 2e-6}  # about ten roundings of an inner product of moderate d

domain = Opset(DOMAIN, VERSION)


@script(domain)
def AnyLast(x):
    """Whether any entry along the last axis holds: bool [.., N] -> bool [..]"""
    found = op.ReduceMax(op.Cast(x, to=7), op.Constant(value_ints=[-1]), keepdims=0)
    return found > op.Constant(value_int=0)


@script(domain)
def Norm(Y, Z):
    """|z_i|_A = sqrt(<A z_i, z_i>): [.., N, d] -> [.., N, 1]."""
    square = op.ReduceSum(Y * Z, op.Constant(value_ints=[-1]), keepdims=1)
    return op.Sqrt(op.Relu(square))


@script(domain)
def ArgmaxSets(Q, norm, Y, Z, w, tau):
    """C_i = {j : <q_i, z_j> >= max_l <q_i, z_l> - tau |q_i| max_l |z_l|}, over the keys of positive weight.

    Q [B,N,d] are the queries' images under A and norm [B,N,1] their A-norms.  ->  C bool [B,N,N]
    """
    key = op.Unsqueeze(w > op.CastLike(0, w), op.Constant(value_ints=[1]))  # [B,1,N]
    lowest = op.CastLike(op.Constant(value_float=float("-inf")), Q)
    scores = op.Where(key, op.MatMul(Q, op.Transpose(Z, perm=[0, 2, 1])), lowest)
    largest = op.ReduceMax(Norm(Y, Z), op.Constant(value_ints=[1]), keepdims=1)
    best = op.ReduceMax(scores, op.Constant(value_ints=[2]), keepdims=1)
    return op.And(key, scores >= best - tau * norm * largest)


@script(domain)
def Hardmax(C, w):
    """P_ij = w_j / (weight of C_i) for j in C_i, otherwise 0. A single member gets exactly 1.  ->  [B,N,N]"""
    chosen = op.CastLike(C, w) * op.Unsqueeze(w, op.Constant(value_ints=[1]))
    total = op.ReduceSum(chosen, op.Constant(value_ints=[2]), keepdims=1)
    one = op.CastLike(1, w)
    return chosen / op.Where(total > op.CastLike(0, w), total, one)


@script(domain)
def Attention(Y, Z, w, tau):
    """Hardmax attention of every token to the keys of positive weight.

    Y, Z [B,N,d], w [B,N] (0 = padding: no key; what a padded row itself attends to means nothing),
    tau scalar  ->  c [B,N,d] the weighted means over the argmax sets, C bool [B,N,N], P [B,N,N].
    """
    C = ArgmaxSets(Y, Norm(Y, Z), Y, Z, w, tau)
    P = Hardmax(C, w)
    return op.MatMul(P, Z), C, P


@script(domain)
def Step(Z, c, alpha):
    """z + gamma (c - z), gamma = alpha / (1 + alpha). Increment form: a leader (c = z) stays bitwise."""
    return Z + alpha / (op.CastLike(1, alpha) + alpha) * (c - Z)


@script(domain)
def Jump(Z, c, alpha, layers):
    """`layers` layers at once when the targets c are final: c + (1 + alpha)^-layers (z - c)."""
    shrink = op.Pow(op.CastLike(1, alpha) + alpha, -op.CastLike(layers, alpha))
    return Z + (op.CastLike(1, alpha) - shrink) * (c - Z)


@script(domain)
def Members(C):
    """first int64 [B,N] and size int64 [B,N] of each argmax set; (i, 1) says that i leads itself."""
    member = op.Cast(C, to=7)
    first = op.ArgMax(op.Cast(C, to=6), axis=2, keepdims=0, select_last_index=0)
    return first, op.ReduceSum(member, op.Constant(value_ints=[2]), keepdims=0)


@script(domain)
def Leaders(first, size):
    """Tokens with C_i = {i}.  ->  bool [B,N]"""
    position = op.CumSum(op.Expand(op.Constant(value_int=1), op.Shape(size)), op.Constant(value_int=1))
    one = op.Constant(value_int=1)
    return op.And(size == one, first == position - one)


@script(domain)
def Certificate(Y, Z, w, tau, C, P, size, leader):
    """Whether no argmax set will ever change again (docs/theory.md, section 2).  ->  bool [B]

    (a) every member of every C_i is a leader; (b) the argmax set of the mean c_i is C_i again, which is free
    for a single leader, so the second score matrix is only computed when some C_i has several members.
    """
    real = w > op.CastLike(0, w)  # [B,N]
    stranger = op.And(C, op.Not(op.Unsqueeze(leader, op.Constant(value_ints=[1]))))
    follows = op.Not(AnyLast(stranger))
    tied = op.And(real, size > op.Constant(value_int=1))
    zero = op.Constant(value_int=0)
    if op.ReduceMax(op.Cast(tied, to=7), keepdims=0) > zero:
        mean_image = op.MatMul(P, Y)
        again = ArgmaxSets(mean_image, Norm(mean_image, op.MatMul(P, Z)), Y, Z, w, tau)
        stable = op.Not(AnyLast(op.Xor(again, C)))
    else:
        stable = op.Not(tied)
    broken = op.And(real, op.Not(op.And(follows, op.Or(stable, op.Not(tied)))))
    return op.Not(AnyLast(broken))


def declare(model: ModelProto) -> ModelProto:
    """Let every function import this domain: onnxscript misses calls that are made inside a loop's body."""
    for function in model.functions:
        if all(entry.domain != DOMAIN for entry in function.opset_import):
            function.opset_import.add(domain=DOMAIN, version=VERSION)
    return model


@script(domain)
def Sums(Y, Z, V):
    """The sum of V_j over C_i, for values V [B,N,m] that carry their own weights.  ->  [B,N,m]

    Half of `Attention` for a fifth of its time, where many texts are served. Tokens tie when their products
    are equal to the bit (tau = 0): trained tokens hardly ever do.
    subtle: no mask. Padding (z = 0, V = 0) loses to <A z_i, z_i> > 0, and where it ties it adds nothing.
    """
    scores = op.MatMul(Y, op.Transpose(Z, perm=[0, 2, 1]))
    best = op.ReduceMax(scores, op.Constant(value_ints=[2]), keepdims=1)
    return op.MatMul(op.CastLike(scores >= best, V), V)
