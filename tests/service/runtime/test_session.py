"""The runtime: arrays in, arrays out, and every failure of ONNX Runtime as one of ours."""

import time

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper, numpy_helper

from service.errors import BundleError, ConfigurationError, InferenceError
from service.runtime import session
from service.runtime.session import _IDENTITY, CUDA, SLOW_PRODUCTS, Runtime, Session, TensorSpec

HAS_CUDA = CUDA in ort.get_available_providers()


def test_session_runs_what_is_asked() -> None:
    session = Runtime("cpu").open(_IDENTITY)
    (y,) = session.run({"x": np.float32([1, 2])}, ["y"])
    assert y.tolist() == [1, 2]
    assert session.inputs == (TensorSpec("x", "float", (None,)),)
    assert session.provider == "cpu"


@pytest.mark.parametrize(
    "feeds", [{}, {"x": np.zeros(2)}, {"x": np.zeros((1, 1), np.float32)}, {"z": np.zeros(1)}]
)
def test_session_failure_becomes_ours(feeds: dict[str, np.ndarray]) -> None:
    session = Runtime("cpu").open(_IDENTITY)
    with pytest.raises(InferenceError):
        session.run(feeds, ["y"])


def test_runtime_refuses_a_damaged_graph() -> None:
    with pytest.raises(BundleError) as refused:
        Runtime("cpu").open(_IDENTITY[:-9])
    assert refused.value.param == "model.onnx"


def test_load_that_takes_too_long_is_refused_even_if_no_graph_ran() -> None:
    """It was served, and every run of it was ended at once."""
    own = Runtime("cpu")

    def load(for_s: float) -> Session:
        session = own.open(_IDENTITY)
        time.sleep(for_s)
        return session

    with pytest.raises(BundleError, match=r"it took more than 0.01 s"):
        own.limit(0.01)(load)(0.2)
    session = own.limit(60)(load)(0)
    assert session.run({"x": np.float32([3])}, ["y"])[0].tolist() == [3]


def test_every_exception_of_onnxruntime_has_a_counterpart() -> None:
    state = ort.capi.onnxruntime_pybind11_state
    theirs = {e for e in vars(state).values() if isinstance(e, type) and issubclass(e, Exception)}
    assert theirs
    assert theirs <= set(session.ort_errors())


@pytest.mark.skipif(HAS_CUDA, reason="this onnxruntime has CUDA")
def test_provider_cuda_without_cuda_is_an_error_and_auto_is_not() -> None:
    with pytest.raises(ConfigurationError, match="no CUDA provider"):
        session.choose_provider("cuda")
    assert session.choose_provider("auto") == "cpu"


@pytest.mark.gpu
@pytest.mark.skipif(not HAS_CUDA, reason="no CUDA provider")
def test_provider_cuda_really_runs_on_the_device() -> None:
    session = Runtime("cuda").open(_IDENTITY)
    assert session.provider == "cuda"
    assert session.run({"x": np.float32([3])}, ["y"])[0].tolist() == [3]


@pytest.mark.parametrize("sign", [1, -1])
def test_products_of_whole_numbers_are_exact_on_every_processor(sign: int) -> None:
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
def test_slow_products_are_asked_for_only_where_the_usual_ones_overflow(
    overflows: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "products_overflow", lambda: overflows)
    options = Runtime("cpu").open(_IDENTITY)._session.get_session_options()
    if overflows:
        assert options.get_session_config_entry(SLOW_PRODUCTS) == "1"
    else:
        with pytest.raises(RuntimeError):
            options.get_session_config_entry(SLOW_PRODUCTS)
