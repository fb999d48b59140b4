"""BentoML: adaptive batching over two endpoints, one for each kind of answer."""

from __future__ import annotations

import os
from typing import Any

import bentoml

from benchmarks.peers.sentiment import Classifier


@bentoml.service(workers=int(os.environ.get("BENTO_WORKERS", "1")), traffic={"timeout": 60})
class Reviews:
    def __init__(self) -> None:
        self.classifier = Classifier()

    @bentoml.api(batchable=True, max_batch_size=32, max_latency_ms=1000)
    def leaders(self, input: list[str]) -> list[dict[str, Any]]:
        return self.classifier.classify(input, "leaders")

    @bentoml.api(batchable=True, max_batch_size=32, max_latency_ms=1000)
    def none(self, input: list[str]) -> list[dict[str, Any]]:
        return self.classifier.classify(input, "none")
