"""The models that are measured in process: ours as served, and softmax transformers of known sizes.

    served(SENTIMENT)                                the pretrained model and its encoder, on one thread
    SoftTransformer(tokenize, load_minilm(folder))   the weights of all-MiniLM-L6-v2, as published
    SoftTransformer(tokenize, random_twin())         random weights in the shape of our encoder, for its speed
    SoftTransformer(tokenize, encoder, int8=True)    quantized by onnxruntime's quantize_dynamic

Soft transformers get the tokens and chunks of a served encoder, so only the transformers differ.
"""

import json
import tempfile
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnxruntime
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file

from model_export.encoder.attention import PAD
from model_export.encoder.layer import EncoderConfig, Norm
from model_export.encoder.model import Encoder
from model_export.measure.served import ServedModel
from service.runtime.bundle import PRETRAINED_DEFAULT
from service.runtime.session import Runtime
from service.settings import PRETRAINED_FOLDER
from service.text.tokenizer import CHUNK_TOKENS, TokenizedText

Floats = NDArray[np.float32]
SENTIMENT, SENTIMENT_SMALL = PRETRAINED_DEFAULT, "sentiment-small"
DISTILBERT = EncoderConfig(width=768, hidden=3072, max_units=147.0)
OPSET = 18
SEED = 0
CONFIG = ("hidden_size", "num_attention_heads", "num_hidden_layers", "intermediate_size", "vocab_size")
LINEAR = {
    "query": "attention.self.query", "key": "attention.self.key", "value": "attention.self.value",
    "out": "attention.output.dense", "up": "intermediate.dense", "down": "output.dense",
}  # fmt: skip
NORMS = {"norm1": "attention.output.LayerNorm", "norm2": "output.LayerNorm"}
# Our name of each weight of a layer, and the published one.
PARTS = {
    **{f"{name}.{p}": f"{module}.{p}" for name, module in LINEAR.items() for p in ("weight", "bias")},
    **{f"{name}.gain": f"{module}.weight" for name, module in NORMS.items()},
    **{f"{name}.shift": f"{module}.bias" for name, module in NORMS.items()},
}


def served(name: str = SENTIMENT, runtime: Runtime | None = None) -> ServedModel:
    """Return a pretrained model as the service loads it."""
    return ServedModel(PRETRAINED_FOLDER, name, runtime or Runtime("cpu", 1))


def load_minilm(folder: Path) -> Encoder:
    """Return all-MiniLM-L6-v2 (Apache 2.0) from the folder of its config.json and model.safetensors.

    Positions begin after the published first token, [CLS].
    """
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    state = load_file(folder / "model.safetensors")
    encoder = Encoder(EncoderConfig(*(config[name] for name in CONFIG)))
    kinds, positions = (state[f"embeddings.{name}_embeddings.weight"] for name in ("token_type", "position"))
    weights = {
        "words.weight": state["embeddings.word_embeddings.weight"],
        "positions.weight": (positions + kinds[0])[1 : 1 + CHUNK_TOKENS],
        "norm.gain": state["embeddings.LayerNorm.weight"],
        "norm.shift": state["embeddings.LayerNorm.bias"],
    }
    for i in range(len(encoder.layers)):
        for name, published in PARTS.items():
            weights[f"layers.{i}.{name}"] = state[f"encoder.layer.{i}.{published}"]
    encoder.load_state_dict(weights, strict=False)
    return encoder


@torch.no_grad()
def random_twin(config: EncoderConfig = DISTILBERT) -> Encoder:
    """Return an encoder whose weights are drawn as BERT's are before training.

    subtle: an `Encoder` starts from zeros. Zero weights are not what a product of trained weights costs.
    """
    torch.manual_seed(SEED)
    encoder = Encoder(config)
    for parameter in encoder.parameters():
        parameter.normal_(0.0, 0.02)
    for part in encoder.modules():
        if isinstance(part, Norm):
            part.gain.add_(1.0)
    return encoder


class Pooled(torch.nn.Module):
    """The mean hidden state [B, W] of chunks of tokens [B, N]; 0 is padding."""

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mask = (x != PAD).float()[:, :, None]
        return (self.encoder.soft(x)[-1] * mask).sum(1) / mask.sum(1)


class SoftTransformer:
    """A session of the exported transformer, on one thread: texts in, mean hidden states out."""

    def __init__(
        self, tokenize: Callable[[str], TokenizedText], encoder: Encoder, *, int8: bool = False
    ) -> None:
        self._tokenize = tokenize
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        with tempfile.TemporaryDirectory() as folder:
            path = str(export(Pooled(encoder).eval(), Path(folder), int8=int8))
            self._session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])

    def __call__(self, texts: Sequence[str]) -> Floats:
        """Return the mean hidden state of each text [texts, W]; all chunks run as one batch."""
        chunks = [
            (i, token_ids) for i, text in enumerate(texts) for token_ids, _ in self._tokenize(text).chunks()
        ]
        feed = np.full((len(chunks), max(len(token_ids) for _, token_ids in chunks)), PAD, np.int64)
        for row, (_, token_ids) in zip(feed, chunks, strict=True):
            row[: len(token_ids)] = token_ids
        (pooled,) = self._session.run(None, {"token_ids": feed})
        sizes = np.array([len(token_ids) for _, token_ids in chunks], np.float32)
        of_text = np.array([i for i, _ in chunks])
        sums = np.zeros((len(texts), pooled.shape[1]), np.float32)
        np.add.at(sums, of_text, pooled * sizes[:, None])
        counts = np.bincount(of_text, sizes, len(texts)).clip(1).astype(np.float32)
        return (sums / counts[:, None]).astype(np.float32)


def export(model: torch.nn.Module, folder: Path, *, int8: bool = False) -> Path:
    """Write the model as ONNX; return the path of its file."""
    path = folder / "model.onnx"
    shapes = {0: torch.export.Dim("chunks"), 1: torch.export.Dim("positions", max=CHUNK_TOKENS)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            model, (torch.ones(2, 8, dtype=torch.int64),), str(path), dynamo=True, verbose=False,
            input_names=["token_ids"], opset_version=OPSET, external_data=False, dynamic_shapes=(shapes,),
        )  # fmt: skip
    if int8:
        from onnxruntime.quantization import quantize_dynamic

        quantize_dynamic(path, folder / "int8.onnx", per_channel=True)
        return folder / "int8.onnx"
    return path
