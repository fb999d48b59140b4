"""The model all peers serve, through the service's own classes: the work on a text is the same everywhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from service.engine.bundle import read_bundle
from service.engine.runtime import Runtime
from service.settings import BUNDLED_MODELS
from service.texts.sentiment import Sentiment

Explain = Literal["leaders", "none"]


class Classifier:
    """Texts in, the items of an answer out, on one thread."""

    def __init__(self) -> None:
        self._model = Sentiment.load(read_bundle(BUNDLED_MODELS / "sentiment"), Runtime("cpu", 1))

    def classify(self, texts: Sequence[str], explain: Explain) -> list[dict[str, Any]]:
        words = [self._model.tokenise(text) for text in texts]
        items = self._model.classify(words, explain)
        return [{"index": index, **item} for index, item in enumerate(items)]
