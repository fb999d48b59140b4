"""LitServe: its batching loop in a process of its own, as its guide shows for small models."""

from __future__ import annotations

import sys
from typing import Any

import litserve as ls

from benchmarks.peers.sentiment import Classifier


class SentimentAPI(ls.LitAPI):
    """One endpoint; a batch holds the texts that came together."""

    def setup(self, device: str) -> None:
        self.classifier = Classifier()

    def decode_request(self, request: dict[str, str]) -> str:
        return request["input"]

    def batch(self, inputs: list[str]) -> list[str]:
        return inputs

    def predict(self, inputs: list[str]) -> list[dict[str, Any]]:
        return self.classifier.classify(inputs)

    def unbatch(self, output: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return output

    def encode_response(self, output: dict[str, Any]) -> dict[str, Any]:
        return {"data": [output]}


if __name__ == "__main__":
    api = SentimentAPI(max_batch_size=32, batch_timeout=0.001, api_path="/predict")
    server = ls.LitServer(api, accelerator="cpu", workers_per_device=1)
    server.run(port=int(sys.argv[1]), host="127.0.0.1", log_level="warning", generate_client_file=False)
