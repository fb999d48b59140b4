"""The encoder: a transformer in which every head of every token attends to one token or to a null key.

    h_i = norm(E[t_i] + P_i)                                                   the input embedding of token i
    f_a(i) = argmax over j, null of <q_a(h_i), k_a(embedding_j)> + b_a(i - j)   for the heads a of each layer
    y_i = norm(h_i + O [v_a(h_f_a(i))]_a),   h_i <- norm(y_i + D relu(U y_i))

Keys are static: they are computed from the input embeddings. So leaving out tokens that were not attended to
changes nothing (docs/theory.md, section 7). The null key has no value and no position. b is 0 in encoders
without relative positions.

One set of weights, three ways to compute it:
    soft       softmax, keys from hidden states, gelu: what the published weights are
    hard       argmax with the gradient of the softmax, static keys, relu
    quantized  the same in whole numbers: every product is of integers, every sum exact in any order, and all
               else a single rounded operation an element, so torch, numpy and ONNX Runtime give the same bits

Shapes: B chunks, N tokens, H heads, L layers, W width, S the width of a head.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from model_export.encoder.attention import Attention, mask_of
from model_export.encoder.fake_quantization import Ranges, fake_quantize, fake_quantize_rows
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
        """What a head needs to know of the encoder's quantization."""
        return OutputScales(self.layers[-1].hidden_scale, self.embedding_scale)

    def soft(self, x: Tensor) -> list[Tensor]:
        """x [B, N] ids, 0 = padding -> the states after each layer; as published, keys from states."""
        h, states, mask = self.embed(x), [], mask_of(x)
        for layer in self.layers:
            h = layer.soft(h, mask, with_null_key=self.config.position_buckets > 0)
            states.append(h)
        return states

    def embed(self, x: Tensor, *, clip: bool = False) -> Tensor:
        """Return the input embeddings [B, N, W]."""
        h: Tensor = self.norm(self.words(x) + self.positions.weight[: x.shape[1]], clip=clip)
        return h

    def hard(
        self, x: Tensor, hardness: float = 1.0, ranges: Ranges | None = None
    ) -> tuple[list[Tensor], Attention]:
        """Return the states after each layer, and what the heads did.

        Args:
            x: [B, N] ids, 0 = padding.
            hardness: below 1, a blend with softmax and gelu.
            ranges: observes every number that will be quantized.
        """
        clip, attention, states = self.config.clip, Attention(), []
        h = embedding = self.embed(x, clip=clip)
        ranges = ranges or Ranges()
        ranges.observe(self, "embedding", h, x)
        for layer in self.layers:
            h = layer.hard(h, embedding, x, hardness, ranges, attention, clip=clip)
            states.append(h)
        return states, attention

    def quantized(self, x: Tensor) -> tuple[Tensor, Tensor, Attention]:
        """Return the last states and the input embeddings as whole numbers [B, N, W], and what the heads did.

        While gradients are recorded the weights are not rounded, only what they are multiplied by.
        """
        attention = Attention()
        rows = fake_quantize_rows(self.words.weight, x) + self.positions.weight[: x.shape[1]]
        h = self.norm.quantized(self.norm.grid * rows)
        embedding = state = fake_quantize(h * (1 / self.embedding_scale)), self.embedding_scale
        for layer in self.layers:
            h, state = layer.quantized(h, state, embedding, x, attention)
        return state[0], embedding[0], attention
