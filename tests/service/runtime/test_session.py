"""The runtime: graphs run, and every failure of ONNX Runtime becomes an error of the service."""

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from graphs import loop_forever
from onnx import TensorProto, helper, numpy_helper

from service.errors import BundleError, ConfigurationError, InferenceError, NotReady
from service.runtime import session, watchdog
from service.runtime.session import _IDENTITY, CUDA, SLOW_PRODUCTS, Runtime, TensorSpec, sums_are_exact
from service.runtime.watchdog import RUN_S, STOP_S, Watchdog

HAS_CUDA = CUDA in ort.get_available_providers()


def test_session_runs_its_graph() -> None:
    session = Runtime("cpu").open(_IDENTITY)
    (y,) = session.run({"x": np.float32([1, 2])}, ["y"])
    assert y.tolist() == [1, 2]
    assert session.inputs == (TensorSpec("x", "float", (None,)),)
    assert session.provider == "cpu"


@pytest.mark.parametrize(
    "feeds", [{}, {"x": np.zeros(2)}, {"x": np.zeros((1, 1), np.float32)}, {"z": np.zeros(1)}]
)
def test_session_failure_becomes_an_inference_error(feeds: dict[str, np.ndarray]) -> None:
    session = Runtime("cpu").open(_IDENTITY)
    with pytest.raises(InferenceError):
        session.run(feeds, ["y"])


@pytest.mark.parametrize(("module", "writes"), [("onnxruntime", True), ("service.runtime.session", False)])
def test_onnxruntime_sends_no_telemetry(tmp_path: Path, module: str, writes: bool) -> None:
    """Events to be sent are first written below HOME. A plain import writes some, so the test can fail."""
    base = {name: value for name, value in os.environ.items() if name != "CI" and not name.startswith("ORT_")}
    environment = {**base, "HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)}
    subprocess.run([sys.executable, "-c", f"import {module}"], env=environment, check=True, timeout=60)
    assert bool(list(tmp_path.rglob("*"))) == writes


def test_runtime_refuses_a_damaged_graph() -> None:
    with pytest.raises(BundleError) as exc_info:
        Runtime("cpu").open(_IDENTITY[:-9])
    assert exc_info.value.param == "model.onnx"


def endless_loop() -> bytes:
    """Return a graph that never ends for two numbers, and ends at once for one."""
    model = onnx.load_from_string(_IDENTITY)
    loop_forever(model, min_tokens=2)
    return bytes(model.SerializeToString())


def test_run_that_takes_too_long_is_stopped_and_its_model_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such a run once blocked all texts for ever."""
    monkeypatch.setattr(watchdog, "TICK_S", 0.02)
    stopped: list[tuple[str, bool]] = []
    runtime = Runtime("cpu", 1, on_stop=lambda model, goes_on: stopped.append((model, goes_on)))
    session, other = runtime.open(endless_loop(), name="hostile"), runtime.open(_IDENTITY)
    assert session.run({"x": np.float32([3])}, ["y"])[0].tolist() == [3]
    for x in ([1, 2], [3]):  # it is not run again
        with pytest.raises(NotReady, match="a run of hostile took more than 30 s: it runs again when its"):
            session.run({"x": np.float32(x)}, ["y"])
    assert stopped == [("hostile", False)]
    assert other.run({"x": np.float32([1, 2])}, ["y"])[0].tolist() == [1, 2]


def test_run_that_goes_on_after_it_was_stopped_is_reported() -> None:
    stopped: list[tuple[str, bool]] = []
    dog = Watchdog(on_stop=lambda model, goes_on: stopped.append((model, goes_on)))
    options = ort.RunOptions()
    with dog.watch("stuck", options) as run:
        for _ in range(RUN_S - 1):
            dog.tick()
        assert (run.stopped, options.terminate) == (False, False)
        for _ in range(1 + STOP_S):
            dog.tick()
        assert (run.stopped, options.terminate) == (True, True)
    dog.tick()
    assert stopped == [("stuck", False), ("stuck", True)]


def test_every_exception_of_onnxruntime_has_a_counterpart() -> None:
    state = ort.capi.onnxruntime_pybind11_state
    exceptions = {e for e in vars(state).values() if isinstance(e, type) and issubclass(e, Exception)}
    assert exceptions
    assert exceptions <= set(session.ort_errors())


@pytest.mark.skipif(HAS_CUDA, reason="this onnxruntime has CUDA")
def test_provider_cuda_without_cuda_is_an_error_and_auto_is_not() -> None:
    message = r"^PROVIDER is cuda, but this onnxruntime has no CUDA provider \(see docs/operate/gpu.md\)$"
    with pytest.raises(ConfigurationError, match=message):
        session.choose_provider("cuda")
    assert session.choose_provider("auto") == "cpu"


@pytest.mark.parametrize("sign", [1, -1])
def test_integer_products_are_exact_on_every_processor(sign: int) -> None:
    """Two neighbouring products of 255 and 127 do not fit in 16 bits, in which old kernels add them."""
    weight = np.full((64, 8), sign * 127, np.int8)
    graph = helper.make_graph(
        [helper.make_node("MatMulInteger", ["x", "weight"], ["y"])],
        "product",
        [helper.make_tensor_value_info("x", onnx.TensorProto.UINT8, ["n", 64])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.INT32, ["n", 8])],
        [numpy_helper.from_array(weight, "weight")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    x = np.full((3, 64), 255, np.uint8)
    (y,) = Runtime("cpu").open(model.SerializeToString()).run({"x": x}, ["y"])
    assert y.tolist() == (x.astype(np.int32) @ weight.astype(np.int32)).tolist()


@pytest.mark.parametrize("overflows", [True, False])
def test_slow_products_are_enabled_only_where_the_usual_ones_overflow(
    overflows: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "products_overflow", lambda: overflows)
    options = Runtime("cpu").open(_IDENTITY)._session.get_session_options()
    if overflows:
        assert options.get_session_config_entry(SLOW_PRODUCTS) == "1"
    else:
        with pytest.raises(RuntimeError):
            options.get_session_config_entry(SLOW_PRODUCTS)


def external_tensor(location: str, offset: int = 0, length: int = 4) -> TensorProto:
    tensor = TensorProto(name="w", data_type=TensorProto.UINT8, dims=[length])
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", offset), ("length", length)):
        tensor.external_data.add(key=key, value=str(value))
    return tensor


def as_initializer(w: TensorProto) -> onnx.ModelProto:
    return model([helper.make_node("Identity", ["w"], ["y"])], [w])


def as_constant(w: TensorProto) -> onnx.ModelProto:
    return model([helper.make_node("Constant", [], ["y"], value=w)])


def in_a_branch(w: TensorProto) -> onnx.ModelProto:
    true = helper.make_tensor("true", TensorProto.BOOL, [], [True])
    output = helper.make_tensor_value_info("output", TensorProto.UINT8, None)
    branch = helper.make_graph([helper.make_node("Identity", ["w"], ["output"])], "branch", [], [output], [w])
    return model([helper.make_node("If", ["true"], ["y"], then_branch=branch, else_branch=branch)], [true])


def in_a_function(w: TensorProto) -> onnx.ModelProto:
    opsets = [helper.make_opsetid("", 20)]
    nodes = [helper.make_node("Constant", [], ["output"], value=w)]
    function = helper.make_function("custom", "Weight", [], ["output"], nodes, opsets)
    return model([helper.make_node("Weight", [], ["y"], domain="custom")], functions=[function])


def in_a_sparse_tensor(w: TensorProto) -> onnx.ModelProto:
    indices = numpy_helper.from_array(np.arange(4), "indices")
    sparse = helper.make_sparse_tensor(w, indices, [4])
    return model([helper.make_node("Constant", [], ["y"], sparse_value=sparse)])


def model(
    nodes: list[onnx.NodeProto],
    weights: list[TensorProto] | None = None,
    functions: list[onnx.FunctionProto] | None = None,
) -> onnx.ModelProto:
    y = helper.make_tensor_value_info("y", TensorProto.UINT8, None)
    graph = helper.make_graph(nodes, "graph", [], [y], weights)
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("custom", 1)]
    return helper.make_model(graph, functions=functions, opset_imports=opsets, ir_version=10)


HIDING_PLACES = [as_initializer, as_constant, in_a_branch, in_a_function, in_a_sparse_tensor]
NAMES = ("/etc/passwd", "../secret", "./secret", "secret", "model.onnx/../secret", "model.onnx")


@pytest.mark.parametrize("hide", HIDING_PLACES)
@pytest.mark.parametrize(("weights", "names"), [(None, NAMES), (b"weights", NAMES[:-1])])
def test_runtime_reads_no_file_that_a_graph_names(
    hide: Callable[[TensorProto], onnx.ModelProto],
    weights: bytes | None,
    names: Sequence[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """ONNX Runtime reads files below the working directory, such as a .env with keys."""
    for name in ("secret", "model.onnx"):
        (tmp_path / name).write_bytes(b"key!")
    monkeypatch.chdir(tmp_path)
    for name in (*names, str(tmp_path / "secret")):
        with pytest.raises(BundleError, match="not a graph ONNX Runtime can load"):
            Runtime("cpu").open(hide(external_tensor(name)).SerializeToString(), weights)


def test_runtime_reads_external_data_of_the_given_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "model.onnx").write_bytes(b"another file")
    monkeypatch.chdir(tmp_path)
    graph = as_initializer(external_tensor("model.onnx", offset=2)).SerializeToString()
    session = Runtime("cpu").open(graph, b"weights")
    assert bytes(session.run({}, ["y"])[0]) == b"ight"


@pytest.mark.parametrize(("offset", "length"), [(4, 4), (0, 1 << 40), (1 << 40, 4), (-1, 4)])
def test_runtime_refuses_external_data_outside_of_the_weights(offset: int, length: int) -> None:
    graph = as_initializer(external_tensor("model.onnx", offset, length)).SerializeToString()
    with pytest.raises(BundleError):
        Runtime("cpu").open(graph, b"weights")


def test_sums_of_float32_are_exact() -> None:
    assert sums_are_exact(np.matmul)


@pytest.mark.parametrize("bits", [23, 22])
def test_sums_that_drop_a_bit_are_found(bits: int) -> None:
    """An accumulator of fewer bits rounds large sums, as a GPU might."""

    def multiply(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        sums = np.zeros((1, y.shape[1]))
        for term in x[0, :, None] * y.astype(np.float64):
            sums += term
            exponent = np.frexp(sums)[1] - bits
            sums = np.ldexp(np.trunc(np.ldexp(sums, -exponent)), exponent)
        return np.repeat(sums, len(x), 0)

    assert not sums_are_exact(multiply)
