"""A transformer of DistilBERT's size with random weights, as an ONNX graph: it shows what such a model costs.

6 layers of 768 numbers, 12 heads, 30,522 words, at most 512 of them in a text: 66 million float32 weights.
A text is read alone, so nothing is padded. Every word is one piece with a hashed number: a real tokenizer
takes longer and makes more pieces.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable

import numpy as np
import onnxruntime
import torch
from numpy.typing import NDArray

WIDTH, HEADS, LAYERS, WORDS, LONGEST = 768, 12, 6, 30_522, 512


class Transformer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = torch.nn.Embedding(WORDS, WIDTH)
        self.places = torch.nn.Parameter(torch.randn(LONGEST, WIDTH))
        layer = torch.nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, activation="gelu", batch_first=True)
        self.layers = torch.nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.verdict = torch.nn.Linear(WIDTH, 2)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        started = self.words(ids) + self.places[: ids.shape[1]]  # [1, words, 768]
        return self.verdict(self.layers(started)[:, 0])  # [1, 2]


def transformer(threads: int = 1) -> Callable[[str], NDArray[np.float32]]:
    """Two scores for a text, by ONNX Runtime on the CPU."""
    torch.manual_seed(0)
    graph = io.BytesIO()
    torch.backends.mha.set_fastpath_enabled(False)  # one fused operator that ONNX does not have
    example = torch.zeros(1, 8, dtype=torch.int64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            Transformer().eval(), (example,), dynamo=True, verbose=False,
            input_names=["ids"], dynamic_shapes=({1: torch.export.Dim("words", max=LONGEST)},),
        )  # fmt: skip
    assert program is not None
    program.save(graph)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(graph.getvalue(), options, providers=["CPUExecutionProvider"])

    def scores(text: str) -> NDArray[np.float32]:
        ids = [hash(word) % WORDS for word in text.lower().split()[:LONGEST]]
        (found,) = session.run(None, {"ids": np.array([ids], np.int64)})
        return found[0]

    return scores
