"""The loaders of bundles, one for each kind."""

from collections.abc import Callable, Mapping
from weakref import WeakValueDictionary

import numpy as np

from service.cloud.candidates import screen_keys
from service.cloud.dynamics import Dynamics, Limits
from service.runtime.bundle import Bundle
from service.runtime.card import ENCODER, HEAD
from service.runtime.registry import Loader
from service.runtime.session import Runtime
from service.sequences import SequenceClassifier
from service.settings import Settings
from service.text.encoder import Encoder
from service.text.head import Head

Loaders = Callable[[Runtime, Settings], Mapping[str, Loader]]

LOAD_S = 60.0  # how long a bundle may take to load and run once


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

    loaders: Mapping[str, Loader] = {
        ENCODER: encoder,
        HEAD: head,
        "dynamics": dynamics,
        "sequences": lambda bundle: SequenceClassifier.load(bundle, runtime),
    }
    return {kind: runtime.limit(LOAD_S)(load) for kind, load in loaders.items()}
