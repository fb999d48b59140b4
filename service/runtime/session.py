"""ONNX Runtime, which only this module imports: sessions, providers, threads, and its exceptions."""

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, Literal

import numpy as np

from service.errors import BundleError, ConfigurationError, InferenceError, NotReady
from service.runtime.watchdog import RUN_S, Watchdog

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # read at import; its builds report models by default

import onnxruntime as ort

log = logging.getLogger(__name__)

Provider = Literal["auto", "cpu", "cuda"]
ProviderList = list[str | tuple[str, dict[str, Any]]]

CPU = "CPUExecutionProvider"
CUDA = "CUDAExecutionProvider"
SLOW_PRODUCTS = "session.x64quantprecision"  # of whole numbers: half as fast, and exact on every processor
# The memory arena of a GPU grows by what is requested, not by doubling.
# No TF32 for clouds: their bounds (service/cloud/candidates.py) rest on products that keep 24 bits.
CUDA_OPTIONS = {
    "arena_extend_strategy": "kSameAsRequested",
    "cudnn_conv_algo_search": "HEURISTIC",
    "use_tf32": "0",
}

WEIGHTS_FILE = "model.onnx"  # the only file that a graph may name, and only together with its bytes
FILES_FOLDER = "session.model_external_initializers_file_folder_path"  # of all files that a graph names

Arrays = Mapping[str, np.ndarray[Any, Any]]
Floats = np.ndarray[Any, Any]


@dataclass(frozen=True)
class TensorSpec:
    """Name, element type and shape (None: any) of one input or output."""

    name: str
    dtype: str
    shape: tuple[int | None, ...]


class Session:
    """A loaded graph. Thread-safe: ONNX Runtime allows concurrent runs of one session.

    A graph is not run again after a run that had to be stopped.
    """

    def __init__(self, session: ort.InferenceSession, model: str, watchdog: Watchdog) -> None:
        self._session = session
        self._model = model
        self._watchdog = watchdog
        self._stopped = False
        self.inputs = tuple(map(_spec, session.get_inputs()))
        self.outputs = tuple(map(_spec, session.get_outputs()))
        self.provider = "cuda" if CUDA in session.get_providers() else "cpu"

    def run(self, feeds: Arrays, outputs: Sequence[str]) -> list[np.ndarray[Any, Any]]:
        """Return the named outputs.

        subtle: ONNX Runtime also computes the others, unless the graph skips them.
        """
        if self._stopped:
            raise self._not_ready()
        options = ort.RunOptions()
        with self._watchdog.watch(self._model, options) as run:
            try:
                return self._session.run(list(outputs), dict(feeds), options)  # type: ignore[no-any-return]
            except ort_errors() as error:
                if not run.stopped:
                    raise InferenceError(f"inference failed: {error}") from error
                self._stopped = True
                raise self._not_ready() from error

    def _not_ready(self) -> NotReady:
        problem = f"a run of {self._model} took more than {RUN_S} s"
        return NotReady(f"{problem}: it runs again when its bundle is replaced or the service starts again")


class Runtime:
    """Opens sessions that share one choice of provider and threads."""

    def __init__(
        self,
        provider: Provider = "auto",
        intra_op_threads: int = 1,
        on_stop: Callable[[str, bool], None] = lambda model, goes_on: None,
    ) -> None:
        ort.disable_telemetry_events()  # subtle: before the first session exists
        ort.set_default_logger_severity(3)
        self.provider = choose_provider(provider)
        self.intra_op_threads = intra_op_threads
        self.graphs = self.provider  # the provider whose graphs of bundles are chosen
        self._watchdog = Watchdog(on_stop)

    def graph(self, model: bytes) -> "Graph":
        """Return a graph that is loaded when, and where, it is first run."""
        return Graph(model, self.provider, self.intra_op_threads)

    def open(
        self,
        model: bytes,
        weights: bytes | None = None,
        name: str = "a graph",
        *,
        optimized: bool = True,
        whole_numbers: bool = False,
    ) -> Session:
        """Load a graph.

        Args:
            model: The graph. It may not name files: ONNX Runtime would read any below the working directory.
            weights: The bundle's model.onnx, if the graph's external data is in that file.
            name: The name of the model, for errors.
            optimized: Whether a CPU runs it faster if ONNX Runtime changes it first, which takes time.
            whole_numbers: Whether it multiplies whole numbers up to 2^11 as float32, with sums below 2^24.

        Raises:
            BundleError: ONNX Runtime cannot load the graph, or it names another file.
        """
        options = ort.SessionOptions()
        options.add_session_config_entry(FILES_FOLDER, os.devnull)  # no file is below it
        if weights is not None:
            options.add_external_initializers_from_files_in_memory([WEIGHTS_FILE], [weights], [len(weights)])
        options.intra_op_num_threads = self.intra_op_threads
        options.inter_op_num_threads = 1
        if not optimized and self.provider == "cpu":
            options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        # an arena would keep the memory of the largest run as long as the model is served
        options.enable_cpu_mem_arena = False
        # idle threads that spin would take the CPU from the event loop and from other workers
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        if products_overflow():
            options.add_session_config_entry(SLOW_PRODUCTS, "1")
        providers: ProviderList = [CPU]
        if self.provider == "cuda":
            tf32 = {"use_tf32": "1"} if whole_numbers and tf32_is_exact() else {}
            providers = [(CUDA, CUDA_OPTIONS | tf32), CPU]
        try:
            session = ort.InferenceSession(model, options, providers=providers)
        except ort_errors() as error:
            raise BundleError(f"not a graph ONNX Runtime can load: {error}", param="model.onnx") from error
        return Session(session, name, self._watchdog)


@dataclass(frozen=True)
class Graph:
    """A graph with the options to run it: it can be pickled, and is loaded where it first runs."""

    model: bytes
    provider: Literal["cpu", "cuda"]
    intra_op_threads: int

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        _open_once(self)  # where it arrives, before the time of a job counts

    @property
    def session(self) -> Session:
        """The loaded graph, once per process."""
        return _open_once(self)


@lru_cache(maxsize=8)
def _open_once(graph: Graph) -> Session:
    return Runtime(graph.provider, graph.intra_op_threads).open(graph.model)


def check_graph(name: str, session: Session, inputs: dict[str, str], outputs: dict[str, str]) -> None:
    """Refuse a graph whose inputs and outputs are not those that this service uses."""
    for specs, expected in ((session.inputs, inputs), (session.outputs, outputs)):
        types: dict[str, Any] = {spec.name: spec.dtype for spec in specs}
        if not expected.items() <= types.items() or (expected is inputs and types != expected):
            problem = f"{name}: its graph has {types}, expected {expected}"
            raise BundleError(problem, param="model.onnx")


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
        return "this onnxruntime has no CUDA provider (see docs/operate/gpu.md)"
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


@cache
def tf32_is_exact() -> bool:
    """Return whether a GPU adds products of whole numbers exactly with TF32, whose inputs keep 11 bits."""
    session = ort.InferenceSession(_FLOAT_PRODUCT, providers=[(CUDA, CUDA_OPTIONS | {"use_tf32": "1"})])
    return sums_are_exact(lambda x, y: session.run(None, {"x": x, "y": y})[0])


def sums_are_exact(multiply: Callable[[Floats, Floats], Floats]) -> bool:
    """Return whether a product of matrices gives exact sums up to +-(2^24 - 1), in adversarial orders.

    255 times `steps`, and `rest`, are 2^24 - 1: a bit that an addition drops is missing in the result.
    """
    rng, steps, rest = np.random.default_rng(0), np.array([127] * 518 + [6]), np.array([127, 127, 1])
    x = np.concatenate([np.full(2 * len(steps), 255), np.ones(len(rest))])
    up_and_down = np.concatenate([steps, -steps])
    sums = [up_and_down, -up_and_down, rng.permutation(up_and_down), np.concatenate([steps, 0 * steps])]
    columns = [
        np.concatenate([sign * terms, end]) for terms in sums for sign in (1, -1) for end in (rest, -rest)
    ]
    y = np.tile(np.array(columns).T, 64)
    for n_rows in (1, 64, 4_096):  # for which a GPU may choose other kernels
        for order in (np.arange(len(x)), np.arange(len(x))[::-1], rng.permutation(len(x))):
            rows = np.broadcast_to(x[order], (n_rows, len(x))).astype(np.float32)
            if (multiply(rows, y[order].astype(np.float32)) != x @ y).any():
                return False
    return True


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

# z = MatMul(x, y), float32
_FLOAT_PRODUCT = bytes.fromhex(
    "08083a370a110a01780a017912017a22064d61744d756c1201675a090a017812040a0208015a090a017912040a02080162090a017a12040a02080142040a001010"
)

# z = MatMulInteger(x, y), uint8 and int8
_PRODUCT = bytes.fromhex(
    "08083a3e0a180a01780a017912017a220d4d61744d756c496e74656765721201675a090a017812040a0208025a090a017912040a02080362090a017a12040a02080642040a001010"
)
