"""Soft transformers of known sizes as ONNX graphs: the reader's soft twin, and one of DistilBERT's size.

    twin = Twin(pieces, load_minilm(folder))        all-MiniLM-L6-v2's weights, softmax and gelu
    twin = Twin(pieces, Encoder(DISTILBERT))         random weights: a speed and no accuracy
    twin = Twin(pieces, load_minilm(folder), int8=True) by onnxruntime.quantization.quantize_dynamic

They read the pieces and passages that the served reader reads, so only the transformers differ.
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch
from numpy.typing import NDArray

from model_export.encoder.attention import PAD
from model_export.encoder.layer import EncoderConfig
from model_export.encoder.model import Encoder
from service.text.tokenizer import CHUNK_TOKENS, TokenizedText

DISTILBERT = EncoderConfig(width=768, hidden=3072, max_units=147.0)
Floats = NDArray[np.float32]
OPSET = 18


class Pooled(torch.nn.Module):
    """Passages [B, N], 0 = padding -> the mean of the last states of each [B, W]."""

    def __init__(self, reader: Encoder) -> None:
        super().__init__()
        self.reader = reader

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        there = (x != PAD).float()[:, :, None]
        return (self.reader.soft(x)[-1] * there).sum(1) / there.sum(1)


class Twin:
    def __init__(
        self, read: Callable[[str], TokenizedText], reader: Encoder, *, int8: bool = False, threads: int = 1
    ) -> None:
        self._read = read
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        with tempfile.TemporaryDirectory() as folder:
            path = export(Pooled(reader).eval(), Path(folder), int8=int8)
            self._session = onnxruntime.InferenceSession(
                str(path), options, providers=["CPUExecutionProvider"]
            )

    def states(self, readings: Sequence[TokenizedText]) -> Floats:
        """[texts, W] the mean over all pieces of each text; all passages in one inference."""
        passages = [(i, pieces) for i, reading in enumerate(readings) for pieces, _ in reading.chunks()]
        feed = np.full((len(passages), max(len(pieces) for _, pieces in passages)), PAD, np.int64)
        for row, (_, pieces) in zip(feed, passages, strict=True):
            row[: len(pieces)] = pieces
        (pooled,) = self._session.run(None, {"pieces": feed})
        sizes = np.array([len(pieces) for _, pieces in passages], np.float32)
        texts = np.array([i for i, _ in passages])
        sums = np.zeros((len(readings), pooled.shape[1]), np.float32)
        np.add.at(sums, texts, pooled * sizes[:, None])
        return sums / np.bincount(texts, sizes, len(readings)).clip(1)[:, None].astype(np.float32)

    def __call__(self, texts: Sequence[str]) -> Floats:
        return self.states([self._read(text) for text in texts])


def export(model: torch.nn.Module, folder: Path, *, int8: bool = False) -> Path:
    path = folder / "model.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            model, (torch.ones(2, 8, dtype=torch.int64),), str(path), dynamo=True, verbose=False,
            input_names=["pieces"], opset_version=OPSET, external_data=False,
            dynamic_shapes=(
                {0: torch.export.Dim("passages"), 1: torch.export.Dim("places", max=CHUNK_TOKENS)},
            ),
        )  # fmt: skip
    if int8:
        from onnxruntime.quantization import quantize_dynamic

        quantize_dynamic(path, folder / "int8.onnx", per_channel=True)
        return folder / "int8.onnx"
    return path


def logistic(states: Floats, truth: NDArray[np.bool_]) -> Any:
    """A verdict on frozen states, as the users of sentence encoders fit one."""
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(C=10, max_iter=500).fit(states, truth)
