"""ONNX Runtime, which only this module imports: sessions, providers, threads, and its exceptions."""

import logging
import os
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, Literal

import numpy as np

from service.errors import BundleError, ConfigurationError, InferenceError
from service.runtime.graph import external_locations

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # read at import; its builds report models by default

import onnxruntime as ort

log = logging.getLogger(__name__)

Provider = Literal["auto", "cpu", "cuda"]
ProviderList = list[str | tuple[str, dict[str, Any]]]

CPU = "CPUExecutionProvider"
CUDA = "CUDAExecutionProvider"
SLOW_PRODUCTS = "session.x64quantprecision"  # of whole numbers: half as fast, and exact on every processor
# The memory arena of a GPU grows by what is requested, not by doubling.
# No TF32: products of float32 keep 24 bits, which the bounds of service/cloud/candidates.py rest on.
CUDA_OPTIONS = {
    "arena_extend_strategy": "kSameAsRequested",
    "cudnn_conv_algo_search": "HEURISTIC",
    "use_tf32": "0",
}

WEIGHTS_FILE = "model.onnx"  # the only file that a graph may name, and only together with its bytes

Arrays = Mapping[str, np.ndarray[Any, Any]]


@dataclass(frozen=True)
class TensorSpec:
    """Name, element type and shape (None: any) of one input or output."""

    name: str
    dtype: str
    shape: tuple[int | None, ...]


class Session:
    """A loaded graph. Thread-safe: ONNX Runtime allows concurrent runs of one session."""

    def __init__(self, session: ort.InferenceSession, options: ort.RunOptions | None = None) -> None:
        self._session = session
        self._options = options
        self.inputs = tuple(map(_spec, session.get_inputs()))
        self.outputs = tuple(map(_spec, session.get_outputs()))
        self.defaults = tuple(spec.name for spec in session.get_overridable_initializers())  # optional inputs
        self.provider = "cuda" if CUDA in session.get_providers() else "cpu"

    def run(self, feeds: Arrays, outputs: Sequence[str]) -> list[np.ndarray[Any, Any]]:
        """Return the named outputs.

        subtle: ONNX Runtime also computes the others, unless the graph skips them.
        """
        try:
            return self._session.run(list(outputs), dict(feeds), self._options)  # type: ignore[no-any-return]
        except ort_errors() as error:
            raise InferenceError(f"inference failed: {error}") from error


class Runtime:
    """Opens sessions that share one choice of provider and threads."""

    def __init__(self, provider: Provider = "auto", intra_op_threads: int = 1) -> None:
        ort.disable_telemetry_events()  # subtle: before the first session exists
        ort.set_default_logger_severity(3)
        self.provider = choose_provider(provider)
        self.intra_op_threads = intra_op_threads
        self._limits = threading.local()  # .options of the sessions that a thread opens

    def graph(self, model: bytes) -> "Graph":
        """Return a graph that is loaded when, and where, it is first run."""
        return Graph(model, self.provider, self.intra_op_threads)

    @contextmanager
    def limit(self, seconds: float) -> Iterator[None]:
        """Stop the runs of sessions that are opened meanwhile after this time: a graph may never end."""
        self._limits.options = options = ort.RunOptions()
        timer = threading.Timer(seconds, setattr, (options, "terminate", True))
        timer.daemon = True
        timer.start()
        late = BundleError(f"it took more than {seconds:g} s to load and run once; SIGHUP tries again")
        try:
            yield
        except InferenceError as error:
            if not options.terminate:
                raise
            raise late from error
        finally:
            timer.cancel()
            timer.join()
            del self._limits.options
        if options.terminate:  # every later run would be stopped at once
            raise late

    def open(self, model: bytes, weights: bytes | None = None) -> Session:
        """Load a graph.

        Args:
            model: The graph. It may not name files: ONNX Runtime would read any below the working directory.
            weights: The bundle's model.onnx, if the graph's external data is in that file.

        Raises:
            BundleError: ONNX Runtime cannot load the graph, or it names another file.
        """
        if external_locations(model) - ({WEIGHTS_FILE} if weights is not None else set()):
            raise BundleError("the graph names files other than its own model.onnx", param="model.onnx")
        options = ort.SessionOptions()
        if weights is not None:
            options.add_external_initializers_from_files_in_memory([WEIGHTS_FILE], [weights], [len(weights)])
        options.intra_op_num_threads = self.intra_op_threads
        options.inter_op_num_threads = 1
        # an arena would keep the memory of the largest run as long as the model is served
        options.enable_cpu_mem_arena = False
        # idle threads that spin would take the CPU from the event loop and from other workers
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        if products_overflow():
            options.add_session_config_entry(SLOW_PRODUCTS, "1")
        providers: ProviderList = [(CUDA, CUDA_OPTIONS), CPU] if self.provider == "cuda" else [CPU]
        try:
            limits = getattr(self._limits, "options", None)
            return Session(ort.InferenceSession(model, options, providers=providers), limits)
        except ort_errors() as error:
            raise BundleError(f"not a graph ONNX Runtime can load: {error}", param="model.onnx") from error


@dataclass(frozen=True)
class Graph:
    """A graph with the options to run it: it can be pickled, and is loaded where it first runs."""

    model: bytes
    provider: Literal["cpu", "cuda"]
    intra_op_threads: int

    @property
    def session(self) -> Session:
        """The loaded graph, once per process."""
        return _open_once(self)


@lru_cache(maxsize=8)
def _open_once(graph: Graph) -> Session:
    return Runtime(graph.provider, graph.intra_op_threads).open(graph.model)


def check_graph(
    name: str,
    session: Session,
    inputs: dict[str, str],
    outputs: dict[str, str],
    weights: Collection[str] = (),
) -> None:
    """Refuse a graph whose inputs and outputs are not those that this service uses.

    `weights` are the inputs that need not be fed.
    """
    for specs, expected in ((session.inputs, inputs), (session.outputs, outputs)):
        types: dict[str, Any] = {spec.name: spec.dtype for spec in specs}
        if not expected.items() <= types.items() or (expected is inputs and types != expected):
            problem = f"{name}: its graph has {types}, expected {expected}"
            raise BundleError(problem, param="model.onnx")
    if set(session.defaults) != set(weights):
        raise BundleError(f"{name}: weights of its graph cannot be read", param="model.onnx")


def choose_provider(requested: Provider) -> Literal["cpu", "cuda"]:
    """Return `cuda` only if CUDA starts; `auto` falls back to the CPU, with a warning if CUDA is broken."""
    if requested == "cpu":
        return "cpu"
    reason = _cuda_failure()
    if reason is None:
        return "cuda"
    if requested == "cuda":
        raise ConfigurationError(f"PROVIDER is cuda, but {reason}", param="PROVIDER")
    if CUDA in ort.get_available_providers():
        log.warning("CUDA is installed but cannot be used (%s); serving on the CPU", reason)
    return "cpu"


def _cuda_failure() -> str | None:
    """Return why CUDA cannot be used, or None if a graph of one node runs on it."""
    if CUDA not in ort.get_available_providers():
        return "this onnxruntime has no CUDA provider (see docs/gpu.md)"
    if hasattr(ort, "preload_dlls"):
        ort.preload_dlls()  # finds the CUDA and cuDNN libraries that came as wheels
    try:
        session = ort.InferenceSession(_IDENTITY, providers=[CUDA])
        session.run(None, {"x": np.zeros(1, np.float32)})
    except ort_errors() as error:
        return f"CUDA does not start: {error}"
    return None if CUDA in session.get_providers() else "ONNX Runtime found no CUDA device"


@cache
def products_overflow() -> bool:
    """Return whether products of uint8 and int8 add in 16 bits, as on processors without VNNI.

    It runs one. subtle: ONNX Runtime says yes wherever its kernels for int8 and uint8 differ.
    """
    x, y = np.full((2, 64), 255, np.uint8), np.full((64, 32), 127, np.int8)
    session = ort.InferenceSession(_PRODUCT, providers=[CPU])
    return bool((session.run(None, {"x": x, "y": y})[0] != 64 * 255 * 127).any())


def ort_errors() -> tuple[type[Exception], ...]:
    """Return the exceptions of ONNX Runtime, which share no base class but RuntimeError and ValueError."""
    state = ort.capi.onnxruntime_pybind11_state
    types = [kind for kind in vars(state).values() if isinstance(kind, type) and issubclass(kind, Exception)]
    return (*types, RuntimeError, ValueError)


def _spec(argument: Any) -> TensorSpec:
    shape = tuple(size if isinstance(size, int) else None for size in argument.shape)
    return TensorSpec(argument.name, argument.type.removeprefix("tensor(").removesuffix(")"), shape)


# y = Identity(x), float32: an ONNX model of 67 bytes, so that probing CUDA needs no file and no onnx package.
_IDENTITY = bytes.fromhex(
    "08083a390a100a017812017922084964656e746974791201695a100a0178120b0a09080112050a0312016e62100a0179120b0a09080112050a0312016e42040a00100d"
)

# z = MatMulInteger(x, y), uint8 and int8
_PRODUCT = bytes.fromhex(
    "08083a3e0a180a01780a017912017a220d4d61744d756c496e74656765721201675a090a017812040a0208025a090a017912040a02080362090a017a12040a02080642040a001010"
)
