"""The loaders of bundles, one for each kind, and the proof that a bundle is harmless."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Literal
from weakref import WeakValueDictionary

import numpy as np

from service.cloud.candidates import screen_keys
from service.cloud.dynamics import Dynamics, Limits
from service.runtime.bundle import Bundle
from service.runtime.card import ENCODER, HEAD
from service.runtime.proof import Prover
from service.runtime.registry import Loader
from service.runtime.session import Runtime
from service.sequences import SequenceClassifier
from service.settings import Settings
from service.text import head as heads
from service.text.encoder import Encoder
from service.text.head import Head

Loaders = Callable[[Runtime, Settings], Mapping[str, Loader]]


def domain_loaders(runtime: Runtime, settings: Settings) -> Mapping[str, Loader]:
    """Return the function that loads a bundle, for each kind."""
    bounds = settings.max_points, settings.max_dimension, settings.max_layers
    limits = Limits(*bounds, max_bytes=settings.compute_memory_bytes)
    encoders: WeakValueDictionary[str, Encoder] = WeakValueDictionary()  # by the digest of their graph

    def encoder(bundle: Bundle) -> Encoder:
        encoders[bundle.card["model_sha256"]] = loaded = Encoder.load(bundle, runtime)
        return loaded

    def head(bundle: Bundle) -> Head:
        """Load a head. The registry loads its encoder first, and keeps it."""
        return Head.load(bundle, runtime, encoders[bundle.card["encoder"]["sha256"]])

    def dynamics(bundle: Bundle) -> Dynamics:
        model = Dynamics.load(bundle, runtime, limits)
        point = np.ones((1, 1))  # small clouds do not need the graph, so it is run here once
        for _ in screen_keys(runtime.open(bundle.model), np.zeros(1, np.int64), point, point, np.zeros(1)):
            pass
        return model

    return {
        ENCODER: encoder,
        HEAD: head,
        "dynamics": dynamics,
        "sequences": lambda bundle: SequenceClassifier.load(bundle, runtime),
    }


def proving_loaders(runtime: Runtime, settings: Settings, prover: Prover) -> Mapping[str, Loader]:
    """Return functions that load a bundle once it is proved harmless, or pretrained: tests prove those."""

    def load(load_proved: Loader, bundle: Bundle) -> object:
        if not bundle.is_pretrained:
            prover.prove(bundle)
        return load_proved(bundle)

    return {kind: partial(load, loader) for kind, loader in domain_loaders(runtime, settings).items()}


def make_prover(runtime: Runtime, settings: Settings) -> Prover:
    """Return what proves bundles for a runtime."""
    arguments = runtime.graphs, runtime.intra_op_threads
    return Prover(run_bundle, *arguments, memory_bytes=settings.compute_memory_bytes)


def run_bundle(bundle: Bundle, graphs: Literal["cpu", "cuda"], threads: int) -> None:
    """Open a bundle and run it on the shortest input and the longest. It runs on the CPU.

    Dynamics and sequences run only in compute processes, so here they are loaded as the service does it.

    Args:
        graphs: The provider whose graph is run.
    """
    runtime = Runtime("cpu", threads)
    runtime.graphs = graphs
    if bundle.kind == ENCODER:
        Encoder.load(bundle, runtime).run_longest()
    elif bundle.kind == HEAD:
        heads.run_longest(heads.open_graph(bundle, runtime))
    else:
        domain_loaders(runtime, Settings())[bundle.kind](bundle)
