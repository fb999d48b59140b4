"""BentoML: adaptive batching."""

from __future__ import annotations

from typing import Any

import bentoml

from benchmarks.peers.sentiment import Classifier


@bentoml.service(workers=1, traffic={"timeout": 60})
class Reviews:
    def __init__(self) -> None:
        self.classifier = Classifier()

    @bentoml.api(batchable=True, max_batch_size=32, max_latency_ms=10_000)
    def predict(self, input: list[str]) -> list[dict[str, Any]]:
        return self.classifier.classify(input)
