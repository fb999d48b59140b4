"""Writes dynamics.onnx: layers of hardmax attention in a Loop that ends in a proof (docs/theory.md, 3).

    hardmax-export dynamics --out service/models

The graph is generic in the number of points, their dimension, the form A and alpha. Its outputs can be fed
back as inputs, so a run may be cut into chunks of layers without changing one bit of its result. It knows
nothing of clusters, requests or plots: service/dynamics.py reads its argmax sets.
"""
# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators, allow-incomplete-defs

import argparse
import hashlib
import json
from pathlib import Path

import onnxscript
from onnx import ModelProto, TensorProto
from onnx.helper import (
    make_graph,
    make_model,
    make_node,
    make_opsetid,
    make_tensor,
    make_tensor_value_info,
)
from onnxscript import BOOL, INT64, graph, script
from onnxscript import opset20 as op

from model_export.attention import DOMAIN, OPSET, VERSION, Norm, Step, declare, domain
from model_export.bounds import TRUE
from model_export.streaming import PAIRS, CloudAttention

NAME = "dynamics"
CREATED = "2026-11-21"  # of the graph's present form: rebuilding changes no byte
IR_VERSION = 10
UNIT_ROUNDING = 2.0**-53


@script(domain)
def All(x):
    """Whether every entry of a bool vector holds; of none, every one does."""
    wrong = op.Concat(op.Constant(value_ints=[0]), op.Cast(op.Not(x), to=INT64.dtype), axis=0)
    return op.ReduceMax(wrong, keepdims=0) == op.Constant(value_int=0)


@script(domain)
def Settled(first, size, ties, since):
    """Condition (a): whether all members of C_i are leaders.  ->  bool [n]"""
    zero = op.Constant(value_ints=[0])
    row, member = op.Split(ties, num_outputs=2, axis=0)
    row = op.Squeeze(row, zero)
    earliest = op.Squeeze(op.Gather(since, member), zero)
    worst = op.ScatterElements(op.Gather(since, first), row, earliest, axis=0, reduction="min")
    return worst > op.Constant(value_int=-1)


@script(domain)
def StableGap(c, size, first, ties, Z, Y, rho, w, A, tau, guard, reach, eps):
    """Condition (b) for the rows with several members: the argmax set of the mean c_i is C_i.

    ->  the smallest gap seen from a mean, or -1 where a set changes. Sets are compared as sorted pairs.
    """
    zero = op.Constant(value_ints=[0])
    tied = op.Squeeze(op.NonZero(size > op.Constant(value_int=1)), zero)
    mean = op.Gather(c, tied)
    hint = op.Gather(first, tied)
    image = op.MatMul(mean, A)
    _, _, _, gap, again = CloudAttention(
        mean, image, Norm(image, mean), hint, Z, Y, rho, w, A, tau, guard, reach, eps
    )
    n = op.Shape(size)
    row, member = op.Split(ties, num_outputs=2, axis=0)
    row_again, member_again = op.Split(again, num_outputs=2, axis=0)
    code = op.Squeeze(row * n + member, zero)
    code_again = op.Squeeze(op.Gather(tied, row_again) * n + member_again, zero)
    known, _ = op.TopK(code, op.Shape(code))
    seen, _ = op.TopK(code_again, op.Shape(code_again))
    if op.Squeeze(op.Shape(known) == op.Shape(seen)):
        same = All(known == seen)
    else:
        same = op.Not(op.Constant(value=TRUE))
    return op.Where(same, op.ReduceMin(gap, keepdims=0), op.CastLike(-1, gap))


@script(domain)
def Layer(Z, w, since, hint, clear, k, A, tau, guard, reach, eps):
    """Attention at layer k, the leaders known by then, and whether the certificate holds.

    ->  c, first, size, ties and the smallest gap as in StreamingAttention; since int64 [n], the first layer
    at which C_i = {i} (-1: none yet); settled bool [n], condition (a); clear bool, whether no gap in any
    layer was so small that rounding could have decided; certified bool; the largest A-norm, which never
    changes: the longest token leads.
    """
    Y = op.MatMul(Z, A)
    rho = Norm(Y, Z)
    c, first, size, gap, ties = CloudAttention(Z, Y, rho, hint, Z, Y, rho, w, A, tau, guard, reach, eps)
    self = op.Range(op.Constant(value_int=0), op.Squeeze(op.Shape(size)), op.Constant(value_int=1))
    leads = op.And(size == op.Constant(value_int=1), first == self)
    since = op.Where(op.And(leads, since < op.Constant(value_int=0)), k, since)
    settled = Settled(first, size, ties, since)
    margin = op.ReduceMin(gap, keepdims=0)
    clear = op.And(clear, margin > guard)
    promising = op.And(All(settled), clear)
    several = op.ReduceMax(size, keepdims=0) > op.Constant(value_int=1)
    if op.And(promising, several):
        mean_gap = StableGap(c, size, first, ties, Z, Y, rho, w, A, tau, guard, reach, eps)
    else:
        mean_gap = op.CastLike(op.Constant(value_float=float("inf")), margin)
    certified = op.And(promising, mean_gap > guard)
    margin = op.Where(certified, op.Min(margin, mean_gap), margin)
    return c, first, size, ties, margin, since, settled, clear, certified, op.ReduceMax(rho, keepdims=0)


@script(domain)
def Dynamics(
    points, leading, offered, hints, unblurred, layer, weights, layers, last, A, alpha, tau, guard, reach,
    tolerance, eps,
):  # fmt: skip
    """Up to `layers` layers from layer `layer`, until the certificate holds, nothing moves, or layer `last`.

    leading int64 [n] is each token's first layer as a leader so far, offered bool [n] the tokens that are
    still keys. A follower within rounding of the mean of leaders that it follows is withdrawn: in exact
    arithmetic it never gets there, and the leaders stay to be attended to. The state of the layer that ends
    the run is handed back as it is, with its argmax sets; `finished` says that the run did end.
    """
    n = op.Shape(weights)
    near = op.Max(guard, op.CastLike(8, eps) * eps)
    gamma = alpha / (op.CastLike(1, alpha) + alpha)
    true = op.Constant(value=TRUE)
    false = op.Not(true)
    endless = op.CastLike(op.Constant(value_float=float("inf")), points)
    nobody = op.Expand(op.Constant(value_int=0), n)
    untied = op.Expand(op.Constant(value_int=0), op.Constant(value_ints=[2, 0]))

    @graph()
    def Next(
        i: INT64, go: BOOL, Z, since, key, hint, clear: BOOL, k: INT64,
        c_, size_, ties_: PAIRS, holds_: BOOL, gap_, way_, over: BOOL,
    ):  # fmt: skip
        w = op.Where(key, weights, op.CastLike(0, weights))
        c, first, size, ties, gap, since_now, settled, clear_now, holds, scale = Layer(
            Z, w, since, hint, clear, k, A, tau, guard, reach, eps
        )
        way = c - Z
        distance = op.Squeeze(Norm(op.MatMul(way, A), way), op.Constant(value_ints=[1]))
        movement = gamma * op.ReduceMax(distance, keepdims=0) / scale
        more = op.And(op.And(k < last, op.Not(holds)), movement > tolerance)
        arrived = op.And(op.And(settled, since_now < op.Constant(value_int=0)), distance <= near * scale)
        Z_next = op.Where(more, Step(Z, c, alpha), Z)
        key_next = op.And(key, op.Not(op.And(more, arrived)))
        k_next = k + op.Cast(more, to=INT64.dtype)
        done = op.Not(more)
        return (
            more, Z_next, since_now, key_next, first, clear_now, k_next,
            c, size, ties, holds, gap, movement, done,
        )  # fmt: skip

    Z, since, key, first, clear, k, c, size, ties, certified, gap, movement, finished = op.Loop(
        layers, true, points, leading, offered, hints, unblurred, layer,
        points, nobody, untied, false, endless, endless, false, body=Next,
    )  # fmt: skip
    return Z, since, key, first, clear, k, c, size, ties, certified, gap, movement, finished


def build_dynamics() -> ModelProto:
    """The graph, in float64; what its inputs and outputs mean stands at `Dynamics`."""
    real = TensorProto.DOUBLE
    flag, whole, n, d = TensorProto.BOOL, TensorProto.INT64, "n", "d"
    state = {
        "points": (real, [n, d]), "since": (whole, [n]), "key": (flag, [n]), "hint": (whole, [n]),
        "clear": (flag, []), "layer": (whole, []),
    }  # fmt: skip
    inputs = {
        **state, "weights": (real, [n]), "layers": (whole, []), "last": (whole, []), "A": (real, [d, d]),
        "alpha": (real, []), "tie_tolerance": (real, []), "guard": (real, []), "reach": (real, []),
        "tolerance": (real, []),
    }  # fmt: skip
    outputs = {
        **state, "target": (real, [n, d]), "size": (whole, [n]), "ties": (whole, [2, "pairs"]),
        "certified": (flag, []), "margin": (real, []), "movement": (real, []), "finished": (flag, []),
    }  # fmt: skip
    node = make_node(
        "Dynamics",
        [*inputs, "eps"],
        [f"{name}_out" for name in outputs],
        domain=domain.domain,
        name="dynamics",
    )
    network = make_graph(
        [node],
        "dynamics",
        [make_tensor_value_info(name, *spec) for name, spec in inputs.items()],
        [make_tensor_value_info(f"{name}_out", *spec) for name, spec in outputs.items()],
        initializer=[make_tensor("eps", real, [], [UNIT_ROUNDING])],
    )
    functions = [Dynamics.to_function_proto(), *Dynamics.to_model_proto().functions]
    versions = [make_opsetid("", OPSET), make_opsetid(DOMAIN, VERSION)]
    model = make_model(network, functions=functions, opset_imports=versions, ir_version=IR_VERSION)
    return declare(model)


def write_bundle(models_dir: Path) -> Path:
    """Put the graph and its card where the service looks for bundles."""
    model = build_dynamics().SerializeToString()
    folder = models_dir / NAME
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.onnx").write_bytes(model)
    (folder / "card.json").write_text(json.dumps(card(model), indent=2) + "\n")
    return folder


def card(model: bytes) -> dict[str, object]:
    """What the bundle says of itself."""
    return {
        "format": 1,
        "name": NAME,
        "kind": "dynamics",
        "description": "Hardmax attention on a cloud of points, run until their limits are certain.",
        "licence": "Apache-2.0",
        "created": CREATED,
        "model_sha256": hashlib.sha256(model).hexdigest(),
        "versions": {"onnx_opset": OPSET, "onnxscript": onnxscript.__version__},
    }


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", type=Path, default=Path("service/models"), help="folder of bundles")


def run(arguments: argparse.Namespace) -> int:
    print(write_bundle(arguments.out))
    return 0
