"""The model all peers serve, through the service's own classes: the work on a text is the same everywhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from service.engine.bundle import HEAD
from service.engine.registry import Registry
from service.engine.runtime import Runtime
from service.lifecycle import domain_loaders
from service.settings import BUNDLED_MODELS, Settings
from service.texts.work import How, run_all, texts_of

Explain = Literal["leaders", "none"]


class Classifier:
    """Texts in, the items of an answer out, on one thread."""

    def __init__(self) -> None:
        registry = Registry([BUNDLED_MODELS], domain_loaders(Runtime("cpu", 1), Settings()))
        registry.load("sentiment")
        self.head = registry.find("sentiment", HEAD)

    def classify(self, texts: Sequence[str], explain: Explain) -> list[dict[str, Any]]:
        found = run_all(texts_of(texts, How((self.head,), explain)))
        refused = [each for each in found if isinstance(each, Exception)]
        if refused:
            raise refused[0]
        return [{"index": i, **each[0]} for i, each in enumerate(found) if not isinstance(each, Exception)]
