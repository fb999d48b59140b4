"""The attention functions, dense, by matrix and streaming, against the plain numpy reference and torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxscript
import pytest
import reference
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from onnx import TensorProto, helper
from onnxscript import OnnxFunction, script
from onnxscript import opset20 as op

from model_export.attention import (
    DOMAIN,
    OPSET,
    VERSION,
    Attention,
    Certificate,
    Jump,
    Leaders,
    Members,
    Norm,
    Step,
    declare,
    domain,
)
from model_export.bounds import Unit
from model_export.dynamics import build_dynamics
from model_export.matrix import MatrixAttention
from model_export.model import HardmaxTransformer, Shape
from model_export.streaming import StreamingAttention
from service.bundle import read_bundle
from service.runtime import Runtime, Session
from service.settings import BUNDLED_MODELS

Floats = npt.NDArray[np.float64]


@script(domain)
def DenseLayer(Z, A, w, tau, alpha):
    Y = op.MatMul(Z, A)
    c, C, P = Attention(Y, Z, w, tau)
    first, size = Members(C)
    leader = Leaders(first, size)
    certified = Certificate(Y, Z, w, tau, C, P, size, leader)
    return Step(Z, c, alpha), C, first, size, leader, certified


@script(domain)
def StreamingLayer(Z, A, w, tau, alpha, reach, eps):
    _, _, rho = Unit(Z, A)
    hint = op.Range(op.Constant(value_int=0), op.Squeeze(op.Shape(w)), op.Constant(value_int=1))
    Y = op.MatMul(Z, A)
    nothing = op.CastLike(0, tau)
    c, first, size, gap, ties = StreamingAttention(Z, Y, hint, Z, Y, rho, w, A, tau, nothing, reach, eps)
    return Step(Z, c, alpha), first, size, gap, ties


@script(domain)
def MatrixLayer(Z, A, w, tau, alpha, reach, eps):
    Y = op.MatMul(Z, A)
    rho = Norm(Y, Z)
    c, first, size, gap, ties = MatrixAttention(Y, rho, Z, rho, w, tau)
    return Step(Z, c, alpha), first, size, gap, ties


@script(domain)
def Ahead(Z, c, alpha, layers):
    return Jump(Z, c, alpha, layers)


def open_function(function: OnnxFunction, inputs: str, outputs: dict[str, int], dtype: int) -> Session:
    """A session on one function, its inputs all of the float type."""
    node = helper.make_node(function.name, inputs.split(), list(outputs), domain=DOMAIN)
    graph = helper.make_graph(
        [node],
        "test",
        [helper.make_tensor_value_info(name, dtype, None) for name in inputs.split()],
        [helper.make_tensor_value_info(name, kind or dtype, None) for name, kind in outputs.items()],
    )
    functions = [function.to_function_proto(), *function.to_model_proto().functions]
    versions = [helper.make_opsetid("", OPSET), helper.make_opsetid(DOMAIN, VERSION)]
    model = helper.make_model(graph, functions=functions, opset_imports=versions, ir_version=10)
    return Runtime("cpu", 1).open(declare(model).SerializeToString())


DENSE = {"Z1": 0, "C": TensorProto.BOOL, "first": TensorProto.INT64, "size": TensorProto.INT64,
         "leader": TensorProto.BOOL, "certified": TensorProto.BOOL}  # fmt: skip
CLOUD = {
    "Z1": 0,
    "first": TensorProto.INT64,
    "size": TensorProto.INT64,
    "gap": 0,
    "ties": TensorProto.INT64,
}


WAYS = ("streaming", "matrix")
both_ways = pytest.mark.parametrize("way", WAYS)


class Graphs:
    """The layers in one float type, with the reference's face."""

    def __init__(self, dtype: type[np.floating[Any]]) -> None:
        self.dtype = dtype
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        self._dense = open_function(DenseLayer, "Z A w tau alpha", DENSE, kind)
        self._clouds = {
            way: open_function(layer, "Z A w tau alpha reach eps", CLOUD, kind)
            for way, layer in zip(WAYS, (StreamingLayer, MatrixLayer), strict=True)
        }

    def dense(self, Z: Floats, A: Floats, w: Floats, tau: float, alpha: float = 1.0) -> dict[str, Any]:
        """Batched: Z [B,N,d], w [B,N]."""
        feeds = {"Z": Z, "A": A, "w": w, "tau": tau, "alpha": alpha}
        return self._run(self._dense, feeds, DENSE)

    def cloud(
        self,
        way: str,
        Z: Floats,
        A: Floats,
        tau: float,
        w: Floats | None = None,
        reach: float = 0.0,
        alpha: float = 1.0,
    ) -> tuple[dict[str, Any], npt.NDArray[np.bool_]]:
        """The outputs, and the argmax sets they name as a matrix."""
        feeds = {"Z": Z, "A": A, "w": np.ones(len(Z)) if w is None else w, "tau": tau, "alpha": alpha}
        found = self._run(
            self._clouds[way],
            {**feeds, "reach": reach, "eps": np.finfo(self.dtype).eps / 2},
            CLOUD,
        )
        C = np.zeros((len(Z), len(Z)), np.bool_)
        C[tuple(found["ties"])] = True
        single = found["size"] == 1
        C[single, found["first"][single]] = True
        assert (C.sum(axis=1) == found["size"]).all()
        assert (C.argmax(axis=1) == found["first"]).all()
        return found, C

    def _run(self, session: Session, feeds: dict[str, Any], outputs: dict[str, int]) -> dict[str, Any]:
        typed = {name: np.asarray(value, self.dtype) for name, value in feeds.items()}
        return dict(zip(outputs, session.run(typed, list(outputs)), strict=True))


@pytest.fixture(scope="module")
def graphs() -> Graphs:
    return Graphs(np.float64)


@pytest.fixture(scope="module")
def graphs32() -> Graphs:
    return Graphs(np.float32)


def integer_clouds(largest: int = 3) -> st.SearchStrategy[Floats]:
    """Small clouds of distinct nonzero integer points: full of exact ties."""
    shapes = st.tuples(st.integers(1, 12), st.integers(1, 4))
    clouds = shapes.flatmap(
        lambda s: arrays(np.float64, s, elements=st.integers(-largest, largest).map(float))
    )
    return clouds.map(lambda Z: np.unique(Z[Z.any(axis=1)], axis=0) + 0.0).filter(len)


def random_cloud(seed: int, n: int, d: int) -> tuple[Floats, Floats]:
    rng = np.random.default_rng(seed)
    B = rng.standard_normal((d, d))
    return rng.standard_normal((n, d)), B.T @ B + 0.1 * np.eye(d)


@settings(max_examples=80, deadline=None)
@given(Z=integer_clouds(), tau=st.sampled_from([0.0, 1e-12]))
def test_attention_agrees_with_the_reference_in_all_ways_on_clouds_full_of_ties(
    graphs: Graphs, Z: Floats, tau: float
) -> None:
    A, w = np.eye(Z.shape[1]), np.ones(len(Z))
    C = reference.argmax_sets(Z, tau=tau)
    later = reference.layer(Z, 1.0, tau=tau)
    dense = graphs.dense(Z[None], A, w[None], tau)
    assert (dense["C"][0] == C).all()
    np.testing.assert_allclose(dense["Z1"][0], later, rtol=0, atol=1e-12)
    for way in WAYS:
        found, sets = graphs.cloud(way, Z, A, tau)
        assert (sets == C).all()
        np.testing.assert_allclose(found["Z1"], later, rtol=0, atol=1e-12)
    assert (dense["leader"][0] == (C.sum(axis=1) == 1) & C.diagonal()).all()


@pytest.mark.parametrize(("n", "d"), [(1, 1), (2, 3), (40, 2), (700, 3), (1500, 5), (1100, 17)])
def test_attention_agrees_with_torch_and_the_reference_in_all_ways_on_random_clouds(
    graphs: Graphs, n: int, d: int
) -> None:
    Z, A = random_cloud(n, n, d)
    C = reference.argmax_sets(Z, A, 1e-12)
    later = reference.layer(Z, 0.7, A, 1e-12)
    dense = graphs.dense(Z[None], A, np.ones((1, n)), 1e-12, alpha=0.7)
    model = HardmaxTransformer(Shape(vocabulary=2, dimension=d, alpha=0.7, learn_metric=True)).double()
    model.B.data = torch.from_numpy(np.linalg.cholesky(A).T.copy())
    assert (dense["C"][0] == C).all()
    assert (model.attend(torch.from_numpy(Z[None]))[0].numpy() == C.argmax(axis=1)).all()
    np.testing.assert_allclose(dense["Z1"][0], later, rtol=0, atol=1e-12)
    for way in WAYS:
        found, sets = graphs.cloud(way, Z, A, 1e-12, alpha=0.7)
        assert (sets == C).all()
        np.testing.assert_allclose(found["Z1"], later, rtol=0, atol=1e-12)
    np.testing.assert_allclose(
        model.layer(torch.from_numpy(Z[None]))[0].detach().numpy(), later, rtol=0, atol=1e-7
    )  # torch keeps log alpha in float32


def shapes_of_clouds() -> dict[str, Floats]:
    """Clouds that are hard on bounds: every point extreme, all in one direction, ties in long rows."""
    rng = np.random.default_rng(5)
    turn = np.linspace(0, 2 * np.pi, 3000, endpoint=False)
    circle = np.stack([np.cos(turn), np.sin(turn)], axis=1)
    side = np.arange(-25.0, 26.0)
    grid = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
    ball = rng.standard_normal((2500, 3))
    return {
        "circle": circle,
        "sphere": ball / np.linalg.norm(ball, axis=1, keepdims=True),
        "square": rng.uniform(-1, 1, (3000, 2)),
        "needle": rng.standard_normal((3000, 3)) * [1e3, 1.0, 1e-2],
        "far away": rng.standard_normal((3000, 2)) + 1e4,
        "crumbs": np.concatenate([[[1.0, 0.0]], 0.01 * rng.standard_normal((3000, 2)) + [0.0, 0.1]]),
        "clusters": rng.standard_normal((9, 4))[rng.integers(0, 9, 2500)]
        + 0.05 * rng.standard_normal((2500, 4)),
        "grid": grid[grid.any(axis=1)],
        "cube": np.stack(np.meshgrid(*[np.arange(-5.0, 6.0)] * 3), axis=-1).reshape(-1, 3)[1:] + 0.0,
    }


@both_ways
@pytest.mark.parametrize("name", list(shapes_of_clouds()))
def test_cloud_attention_names_the_sets_of_hard_clouds(graphs: Graphs, name: str, way: str) -> None:
    Z = shapes_of_clouds()[name]
    Z = Z[Z.any(axis=1)]
    C = reference.argmax_sets(Z, tau=1e-12)
    found, sets = graphs.cloud(way, Z, np.eye(Z.shape[1]), 1e-12)
    assert (sets == C).all()
    np.testing.assert_allclose(
        found["Z1"], reference.layer(Z, 1.0, tau=1e-12), rtol=0, atol=1e-12 * abs(Z).max()
    )


@pytest.mark.parametrize("name", list(shapes_of_clouds()))
def test_streaming_attention_finds_every_gap_of_hard_clouds_where_asked(graphs: Graphs, name: str) -> None:
    """The best key outside a set may be far from the best, or the next of many that tie."""
    Z = shapes_of_clouds()[name]
    Z = Z[Z.any(axis=1)]
    scores = Z @ Z.T
    C = reference.argmax_sets(Z, tau=1e-12)
    gap = scores.max(axis=1) - np.where(C, -np.inf, scores).max(axis=1)
    gap /= reference.norms(Z) * reference.norms(Z).max()
    found, sets = graphs.cloud("streaming", Z, np.eye(Z.shape[1]), 1e-12, reach=2.5)
    assert (sets == C).all()
    np.testing.assert_allclose(found["gap"], gap, rtol=0, atol=1e-13)


def test_streaming_attention_in_many_blocks_and_tiles_equals_the_reference(graphs: Graphs) -> None:
    """High dimension and nearly equal norms: no key is dropped, so screening takes several blocks."""
    rng = np.random.default_rng(2)
    Z = rng.standard_normal((5000, 40))
    Z *= rng.uniform(1, 1.001, (5000, 1)) / np.linalg.norm(Z, axis=1, keepdims=True)
    Z[1:4000] = Z[1:4000] * 0.3 + 0.01 * Z[0]
    _, sets = graphs.cloud("streaming", Z, np.eye(40), 1e-12)
    assert (sets == reference.argmax_sets(Z, tau=1e-12)).all()


@both_ways
@pytest.mark.parametrize(("reach", "d"), [(2.5, 3), (0.1, 2), (1e-3, 6)])
def test_cloud_attention_gap_is_exact_below_reach(graphs: Graphs, reach: float, d: int, way: str) -> None:
    Z, A = random_cloud(11, 900, d)
    C = reference.argmax_sets(Z, A, 1e-12)
    scores = Z @ A @ Z.T
    gap = scores.max(axis=1) - np.where(C, -np.inf, scores).max(axis=1)
    gap /= reference.norms(Z, A) * reference.norms(Z, A).max()
    found, _ = graphs.cloud(way, Z, A, 1e-12, reach=reach)
    near = gap < reach
    assert near.any()
    np.testing.assert_allclose(found["gap"][near], gap[near], rtol=0, atol=1e-13)
    assert (found["gap"][~near] >= reach).all()
    if way == "matrix":
        np.testing.assert_allclose(found["gap"], gap, rtol=0, atol=1e-13)


@both_ways
def test_attention_weights_equal_repeated_tokens(graphs: Graphs, way: str) -> None:
    Z = np.array([[1.0, 1.0], [1.0, -1.0], [0.5, 0.0], [-1.0, 0.0]])
    w = np.array([3.0, 1.0, 1.0, 2.0])
    repeated = reference.layer(np.repeat(Z, w.astype(int), axis=0), 1.0)[[0, 3, 4, 5]]
    dense = graphs.dense(Z[None], np.eye(2), w[None], 0.0)
    cloud, _ = graphs.cloud(way, Z, np.eye(2), 0.0, w)
    np.testing.assert_allclose(dense["Z1"][0], repeated, rtol=0, atol=1e-15)
    np.testing.assert_allclose(cloud["Z1"], repeated, rtol=0, atol=1e-15)
    assert repeated[2].tolist() == [0.75, 0.25]  # half-way to (1, 1/2), the mean of three and one


@both_ways
def test_attention_ignores_padding_and_zero_weights(graphs: Graphs, way: str) -> None:
    Z = np.zeros((2, 5, 2))
    Z[0, :3] = [[2.0, 0.0], [1.0, 0.5], [0.0, -1.0]]
    Z[1] = [[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0], [9.0, 9.0]]
    w = np.array([[1.0, 1, 1, 0, 0], [1, 1, 1, 1, 0]])
    dense = graphs.dense(Z, np.eye(2), w, 0.0)
    assert not dense["C"][:, :, 4].any()
    assert dense["first"][:, :4].tolist() == [[0, 0, 2, 0], [0, 1, 2, 3]]
    assert dense["certified"].tolist() == [True, True]
    assert np.isfinite(dense["Z1"]).all()
    _, sets = graphs.cloud(way, Z[1], np.eye(2), 0.0, w[1])
    assert not sets[:, 4].any()
    assert sets[:4, :4].tolist() == np.eye(4, dtype=bool).tolist()


@both_ways
def test_attention_leader_stays_to_the_bit(graphs: Graphs, way: str) -> None:
    Z, A = random_cloud(3, 300, 3)
    w = np.random.default_rng(0).uniform(0.1, 7, 300)
    dense = graphs.dense(Z[None], A, w[None], 1e-12, alpha=0.3)
    cloud, sets = graphs.cloud(way, Z, A, 1e-12, w, alpha=0.3)
    leader = (sets.sum(axis=1) == 1) & sets.diagonal()
    assert leader.sum() > 3
    assert (dense["Z1"][0][leader] == Z[leader]).all()
    assert (cloud["Z1"][leader] == Z[leader]).all()


@both_ways
@pytest.mark.parametrize(("n", "d"), [(9, 2), (400, 3), (1200, 8)])
def test_attention_in_float32_finds_the_sets_of_separated_scores(
    graphs32: Graphs, n: int, d: int, way: str
) -> None:
    Z = random_cloud(n, n, d)[0].astype(np.float32).astype(np.float64)
    tau = 2e-6
    scores = Z @ Z.T
    gap = scores.max(axis=1, keepdims=True) - scores
    relative = gap / (reference.norms(Z)[:, None] * reference.norms(Z).max())
    blurred = ((relative > tau / 2) & (relative < 2 * tau)).any(
        axis=1
    )  # float32 cannot tell: either is right
    C = reference.argmax_sets(Z, tau=tau)
    dense = graphs32.dense(Z[None], np.eye(d), np.ones((1, n)), tau)
    _, sets = graphs32.cloud(way, Z, np.eye(d), tau)
    assert blurred.mean() < 0.05
    assert (dense["C"][0] == C)[~blurred].all()
    assert (sets == C)[~blurred].all()


@both_ways
@pytest.mark.parametrize("n", [1, 2, 35, 36, 37, 71, 72, 73, 108])
def test_cloud_attention_of_one_and_of_many_runs_names_its_sets_and_gaps(
    graphs: Graphs, n: int, way: str
) -> None:
    """Runs are filled up; where all scores are negative, the filling is still neither best nor second."""
    rng = np.random.default_rng(n)
    Z = rng.standard_normal((n, 2))
    Z[:, 0] += 9
    Z[0] = [-1.0, 0.0]
    C = reference.argmax_sets(Z)
    scores = Z @ Z.T
    rest = np.where(C, -np.inf, scores).max(axis=1)
    gap = (scores.max(axis=1) - rest) / (reference.norms(Z) * reference.norms(Z).max())
    found, sets = graphs.cloud(way, Z, np.eye(2), 1e-12, reach=2.5)
    assert (sets == C).all()
    np.testing.assert_allclose(found["gap"], gap, rtol=0, atol=1e-13)


def test_certificate_of_the_square_asks_for_stable_means(graphs: Graphs) -> None:
    """A token drawn between two corners is settled only while the mean of the corners ties between them."""
    Z = np.array([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0], [0.5, 0.0]])
    even, odd = np.ones(5), np.array([2.0, 1.0, 1.0, 1.0, 1.0])
    certified = graphs.dense(np.stack([Z, Z]), np.eye(2), np.stack([even, odd]), 0.0)["certified"]
    assert certified.tolist() == [True, False]


def test_jump_equals_running_the_layers(graphs: Graphs) -> None:
    session = open_function(Ahead, "Z c alpha layers", {"later": 0}, TensorProto.DOUBLE)
    Z = np.array([[[2.0, 0.0], [1.0, 0.5], [-1.0, 0.25], [-1.5, -0.5]]])
    target = Z[:, [0, 0, 3, 3]]
    walked = Z
    for _ in range(7):
        walked = graphs.dense(walked, np.eye(2), np.ones((1, 4)), 0.0, alpha=0.4)["Z1"]
    feeds = {"Z": Z, "c": target, "alpha": np.array(0.4), "layers": np.array(7.0)}
    (later,) = session.run(feeds, ["later"])
    np.testing.assert_allclose(later, walked, rtol=0, atol=1e-14)


def test_exported_graph_shows_attention_by_name_and_uses_standard_operators_only() -> None:
    model = build_dynamics()
    names = {function.name for function in model.functions}
    assert {"Dynamics", "Layer", "MatrixAttention", "StreamingAttention", "Screen", "Decide", "Step"} <= names
    assert [node.op_type for node in model.graph.node] == ["Dynamics"]
    for function in model.functions:
        for node in walk(function.node):
            assert node.op_type in names if node.domain == DOMAIN else onnx.defs.has(node.op_type), (
                node.op_type
            )
    onnx.checker.check_model(model)


def test_bundled_graph_is_the_one_built_here() -> None:
    bundle = read_bundle(BUNDLED_MODELS / "dynamics")
    if bundle.card["versions"]["onnxscript"] != onnxscript.__version__:
        pytest.skip("another onnxscript than the one that wrote the bundle")
    assert build_dynamics().SerializeToString() == bundle.model


def walk(nodes: Any) -> list[Any]:
    """Nodes and those of the graphs inside them."""
    inner = [a.g.node for node in nodes for a in node.attribute if a.type == onnx.AttributeProto.GRAPH]
    return [*nodes, *(node for graph in inner for node in walk(graph))]
