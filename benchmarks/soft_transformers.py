"""Softmax transformers of known sizes as ONNX graphs, to compare the served encoder with.

    SoftTransformer(tokenize, load_minilm(folder))             the weights of all-MiniLM-L6-v2
    SoftTransformer(tokenize, load_minilm(folder), int8=True)  quantized by onnxruntime's quantize_dynamic
    SoftTransformer(tokenize, Encoder(DISTILBERT))             random weights, to measure its speed only

They get the tokens and chunks of a served encoder, so only the transformers differ.
"""

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
    """The mean hidden state [B, W] of chunks of tokens [B, N]; 0 is padding."""

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mask = (x != PAD).float()[:, :, None]
        return (self.encoder.soft(x)[-1] * mask).sum(1) / mask.sum(1)


class SoftTransformer:
    """A session of the exported transformer: texts in, mean hidden states out."""

    def __init__(
        self,
        tokenize: Callable[[str], TokenizedText],
        encoder: Encoder,
        *,
        int8: bool = False,
        threads: int = 1,
    ) -> None:
        self._tokenize = tokenize
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        with tempfile.TemporaryDirectory() as folder:
            path = export(Pooled(encoder).eval(), Path(folder), int8=int8)
            self._session = onnxruntime.InferenceSession(
                str(path), options, providers=["CPUExecutionProvider"]
            )

    def states(self, tokenized: Sequence[TokenizedText]) -> Floats:
        """Return the mean hidden state of each text [texts, W]; all chunks run as one batch."""
        chunks = [(i, token_ids) for i, text in enumerate(tokenized) for token_ids, _ in text.chunks()]
        feed = np.full((len(chunks), max(len(token_ids) for _, token_ids in chunks)), PAD, np.int64)
        for row, (_, token_ids) in zip(feed, chunks, strict=True):
            row[: len(token_ids)] = token_ids
        (pooled,) = self._session.run(None, {"token_ids": feed})
        sizes = np.array([len(token_ids) for _, token_ids in chunks], np.float32)
        texts = np.array([i for i, _ in chunks])
        sums = np.zeros((len(tokenized), pooled.shape[1]), np.float32)
        np.add.at(sums, texts, pooled * sizes[:, None])
        counts = np.bincount(texts, sizes, len(tokenized)).clip(1).astype(np.float32)
        return (sums / counts[:, None]).astype(np.float32)

    def __call__(self, texts: Sequence[str]) -> Floats:
        return self.states([self._tokenize(text) for text in texts])


def export(model: torch.nn.Module, folder: Path, *, int8: bool = False) -> Path:
    path = folder / "model.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            model, (torch.ones(2, 8, dtype=torch.int64),), str(path), dynamo=True, verbose=False,
            input_names=["token_ids"], opset_version=OPSET, external_data=False,
            dynamic_shapes=(
                {0: torch.export.Dim("chunks"), 1: torch.export.Dim("positions", max=CHUNK_TOKENS)},
            ),
        )  # fmt: skip
    if int8:
        from onnxruntime.quantization import quantize_dynamic

        quantize_dynamic(path, folder / "int8.onnx", per_channel=True)
        return folder / "int8.onnx"
    return path


def fit_logistic(states: Floats, truth: NDArray[np.bool_]) -> Any:
    """Fit a logistic regression on frozen states, as users of sentence encoders do."""
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(C=10, max_iter=500).fit(states, truth)
