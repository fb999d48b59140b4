"""The encoder: a transformer in which every head of every token attends to one token or to a null key.

    h_i = norm(E[t_i] + P_i)                                                   the input embedding of token i
    f_a(i) = argmax over j, null of <q_a(h_i), k_a(embedding_j)> + b_a(i - j)   for the heads a of each layer
    y_i = norm(h_i + O [v_a(h_f_a(i))]_a),   h_i <- norm(y_i + D relu(U y_i))

Keys are static: they are computed from the input embeddings. Leaving out tokens that were not attended to
therefore changes nothing (theory.md, section 7). The null key has no value and no position. b is 0 in
encoders without relative positions.

One set of weights, three ways to compute it:
    soft       softmax, keys from hidden states, gelu: what the published weights are
    hard       argmax with the gradient of the softmax, static keys, relu
    quantized  the same in whole numbers: products of integers, sums that are exact in any order, and else
               single rounded operations per element, so torch, numpy and ONNX Runtime give the same bits

Shapes: B chunks, N tokens, H heads, L layers, W width, S the width of a head.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from model_export.encoder.attention import AttentionRecord, attention_mask
from model_export.encoder.fake_quantization import Observer, fake_quantize, fake_quantize_rows
from model_export.encoder.layer import EncoderConfig, Layer, Norm
from service.text.tokenizer import CHUNK_TOKENS


@dataclass(frozen=True)
class OutputScales:
    """The value of one step of an encoder's quantized outputs, channel by channel [W]."""

    hidden: Tensor
    embedding: Tensor


class Encoder(nn.Module):
    """The encoder in torch."""

    layers: list[Layer]
    embedding_scale: Tensor

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.config = config
        self.words = nn.Embedding(config.vocabulary, config.width)
        self.positions = nn.Embedding(CHUNK_TOKENS, config.width)
        self.norm = Norm(config, config.embedding_grid)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.layers))  # type: ignore[assignment]
        self.register_buffer("embedding_scale", torch.full((config.width,), 1 / 16))

    @property
    def output_scales(self) -> OutputScales:
        """The scales of the outputs, which a head needs."""
        return OutputScales(self.layers[-1].hidden_scale, self.embedding_scale)

    def soft(self, x: Tensor) -> list[Tensor]:
        """Return the states after each layer, computed as published, for ids x [B, N]; 0 is padding."""
        h, states, mask = self.embed(x), [], attention_mask(x)
        for layer in self.layers:
            h = layer.soft(h, mask, with_null_key=self.config.position_buckets > 0)
            states.append(h)
        return states

    def embed(self, x: Tensor, *, clip: bool = False) -> Tensor:
        """Return the input embeddings [B, N, W]."""
        h: Tensor = self.norm(self.words(x) + self.positions.weight[: x.shape[1]], clip=clip)
        return h

    def hard(
        self, x: Tensor, hardness: float = 1.0, observer: Observer | None = None
    ) -> tuple[list[Tensor], AttentionRecord]:
        """Return the states after each layer, and a record of the attention.

        Args:
            x: [B, N] ids, 0 = padding.
            hardness: below 1, a blend with softmax and gelu.
            observer: observes every number that will be quantized.
        """
        clip, record, states = self.config.clip, AttentionRecord(), []
        h = embedding = self.embed(x, clip=clip)
        observer = observer or Observer()
        observer.observe(self, "embedding", h, x)
        for layer in self.layers:
            h = layer.hard(h, embedding, x, hardness, observer, record, clip=clip)
            states.append(h)
        return states, record

    def quantized(self, x: Tensor) -> tuple[Tensor, Tensor, AttentionRecord]:
        """Return the last states and the input embeddings as whole numbers [B, N, W], and the attention.

        While gradients are recorded, activations are rounded and weights are not.
        """
        record = AttentionRecord()
        rows = fake_quantize_rows(self.words.weight, x) + self.positions.weight[: x.shape[1]]
        h = self.norm.quantized(self.norm.grid * rows)
        embedding = state = fake_quantize(h * (1 / self.embedding_scale)), self.embedding_scale
        for layer in self.layers:
            h, state = layer.quantized(h, state, embedding, x, record)
        return state[0], embedding[0], record
