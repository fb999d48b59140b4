"""The model that all peers serve, through the classes of the service, so that the work on a text is equal."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hardmax.models.texts import Explain
from service.runtime.bundle import PRETRAINED_DEFAULT, read_bundle
from service.runtime.session import Runtime
from service.text.encoder import Encoder
from service.text.head import Head
from service.text.pipeline import ClassifyOptions, classify_all, make_tasks

MODELS = Path(__file__).parents[2] / "service/pretrained"
SENTIMENT_SMALL = "sentiment-small"


class Classifier:
    """A pretrained model, called in this process."""

    def __init__(self, name: str = PRETRAINED_DEFAULT, runtime: Runtime | None = None) -> None:
        runtime, bundle = runtime or Runtime("cpu", 1), read_bundle(MODELS / name)
        self.encoder = Encoder.load(read_bundle(MODELS / bundle.card["encoder"]["name"]), runtime)
        self.head = Head.load(bundle, runtime, self.encoder)

    def classify(self, texts: Sequence[str], explain: Explain = "leaders") -> list[dict[str, Any]]:
        results = classify_all(make_tasks(texts, ClassifyOptions((self.head,), explain)))
        items = []
        for index, result in enumerate(results):
            if isinstance(result, Exception):
                raise result
            items.append({"index": index, **result[0]})
        return items
