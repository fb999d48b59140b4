"""LitServe: its batching loop in a process of its own, as its guide shows for small models."""

from __future__ import annotations

import argparse
from typing import Any

import litserve as ls

from benchmarks.peers.sentiment import Classifier


class SentimentAPI(ls.LitAPI):
    """One endpoint; a batch holds the texts that came together, of one kind of answer each time."""

    def setup(self, device: str) -> None:
        self.classifier = Classifier()

    def decode_request(self, request: dict[str, str]) -> tuple[str, Any]:
        return request["input"], request["explain"]

    def batch(self, inputs: list[tuple[str, Any]]) -> list[tuple[str, Any]]:
        return inputs

    def predict(self, inputs: list[tuple[str, Any]]) -> list[dict[str, Any]]:
        texts = [text for text, _ in inputs]
        return self.classifier.classify(texts, inputs[0][1])  # one run of the benchmark asks for one kind

    def unbatch(self, output: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return output

    def encode_response(self, output: dict[str, Any]) -> dict[str, Any]:
        return {"data": [output]}


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--workers", type=int, required=True)
    arguments = parser.parse_args()
    api = SentimentAPI(max_batch_size=32, batch_timeout=0.001, api_path="/predict")
    server = ls.LitServer(api, accelerator="cpu", workers_per_device=arguments.workers)
    server.run(port=arguments.port, host="127.0.0.1", log_level="warning", generate_client_file=False)
