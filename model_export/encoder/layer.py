"""A layer of the encoder, computed in three ways (model.py): its linear maps, norms and heads."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from model_export.attention.position_buckets import position_buckets
from model_export.attention.straight_through import argmax_mask, straight_through
from model_export.encoder.attention import (
    MASKED,
    NULL_KEYS,
    AttentionRecord,
    argmax_weights,
    attention_mask,
)
from model_export.encoder.fake_quantization import Observer, fake_quantize
from service.text.tokenizer import CHUNK_TOKENS

BIAS_CHANNELS = (127.0, 127.0, 127.0, 1.0)  # constant inputs that carry the bias of a product
MAX_EXACT = 2.0**24  # float32 adds whole numbers up to here exactly
MAX_BIAS = 2.0**22  # of a relative position, in units of the score

QuantizedState = tuple[Tensor, Tensor]  # whole numbers [B, N, W], and the value of one step of each channel


@dataclass(frozen=True)
class EncoderConfig:
    """The shape of an encoder and how its normalizations are quantized.

    The mean and variance of a normalization are computed on its input rounded to 1/grid and clipped at
    `max_units` / grid; `clip` clips the input itself too. Grids are powers of two, and `width` squares of
    `max_units` must stay below 2^24.
    """

    width: int = 384
    heads: int = 12
    layers: int = 6
    hidden: int = 1536
    vocabulary: int = 30_522
    position_buckets: int = 0  # 0: no relative positions
    embedding_grid: float = 16.0
    attention_grid: float = 16.0
    output_grid: float = 16.0
    max_units: float = 200.0
    clip: bool = False
    eps: float = 1e-12

    def __post_init__(self) -> None:
        if self.width * self.max_units**2 >= MAX_EXACT:
            raise ValueError("the squares of a normalization do not add up exactly in float32")


class Linear(nn.Module):
    """x W' + b. Quantized: x int8 with a scale per channel, W int8 with a scale per output."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(outputs, inputs))
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x: Tensor) -> Tensor:
        """Return the product in floating point."""
        return functional.linear(x, self.weight, self.bias)

    def codes(self, scale: Tensor, max_input: float = 128.0) -> tuple[Tensor, Tensor, Tensor]:
        """Return (W and b in whole numbers, unit [outputs]) for inputs in units of `scale` [inputs].

        The unit of a row is so large that its products never add up to more than 2^24.
        """
        weight = self.weight * scale
        size = weight.detach().abs()
        max_sum = MAX_EXACT / max_input - len(scale) / 2 - 1
        unit = torch.maximum(size.amax(1) / 127, size.sum(1) / max_sum).clamp(min=1e-9)
        max_bias = 127.0 * sum(BIAS_CHANNELS)
        return (
            fake_quantize(weight / unit[:, None], -127),
            fake_quantize(self.bias / unit, -max_bias, max_bias),
            unit,
        )

    def quantized(
        self, x: Tensor, scale: Tensor, step: Tensor, low: float = -128.0, high: float = 127.0
    ) -> Tensor:
        """Return the map of whole numbers in units of `scale`, as whole numbers of `step`."""
        if torch.is_grad_enabled():
            return fake_quantize(self(x * scale).float() / step, low, high)
        weight, bias, unit = self.codes(scale)
        return fake_quantize(functional.linear(x, weight, bias) * (unit / step), low, high)

    def on_grid(self, x: Tensor, scale: Tensor, grid: float, max_input: float = 128.0) -> Tensor:
        """Return `grid` times the map of whole numbers in units of `scale`."""
        if torch.is_grad_enabled():
            mapped: Tensor = self(x * scale)
            return grid * mapped.float()
        weight, _, unit = self.codes(scale, max_input)
        return functional.linear(x, weight) * (grid * unit) + grid * self.bias


class Norm(nn.Module):
    """(x - mean) / deviation * gain + shift."""

    def __init__(self, config: EncoderConfig, grid: float) -> None:
        super().__init__()
        self.grid, self._config = grid, config
        self.gain, self.shift = (
            nn.Parameter(torch.ones(config.width)),
            nn.Parameter(torch.zeros(config.width)),
        )

    def forward(self, x: Tensor, *, clip: bool = False) -> Tensor:
        """Return the normalization in floating point."""
        if clip:
            x = x.clamp(-self._config.max_units / self.grid, self._config.max_units / self.grid)
        return functional.layer_norm(x, (x.shape[-1],), self.gain, self.shift, self._config.eps)

    def quantized(self, x: Tensor) -> Tensor:
        """Return the normalization of x in units of 1 / `grid`; its statistics are exact.

        subtle: torch's float32 square root is sometimes off by a bit; a rounded double square root never is.
        """
        n, limit = x.shape[-1], self._config.max_units
        u = fake_quantize(x, -limit, limit)
        mean = u.sum(-1, keepdim=True) / n
        variance = (u * u).sum(-1, keepdim=True) / n - mean * mean
        deviation = torch.sqrt((variance + 1e-3).double()).float()
        x = x.clamp(-limit, limit) if self._config.clip else x
        return (x - mean) / deviation * self.gain + self.shift


class Layer(nn.Module):
    """The parameters of one layer and the scales of its quantized numbers."""

    buckets: Tensor  # of each distance between tokens
    hidden_scale: Tensor  # the value of one step of the whole numbers, channel by channel
    attended_scale: Tensor
    query_scale: Tensor
    key_scale: Tensor
    value_scale: Tensor
    expanded_scale: Tensor

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        W, self.heads = config.width, config.heads
        self.query, self.key, self.value, self.out = (Linear(W, W) for _ in range(4))
        self.up, self.down = Linear(W, config.hidden), Linear(config.hidden, W)
        self.norm1, self.norm2 = Norm(config, config.attention_grid), Norm(config, config.output_grid)
        self.null_key = nn.Parameter(torch.zeros(W))
        self.position_bias = nn.Parameter(torch.zeros(config.position_buckets, config.heads))
        distance = torch.arange(1 - CHUNK_TOKENS, CHUNK_TOKENS)
        buckets = position_buckets(distance, config.position_buckets)
        self.register_buffer("buckets", buckets, persistent=False)
        for name in ("hidden", "attended", "query", "key", "value", "expanded"):
            size = config.hidden if name == "expanded" else W
            self.register_buffer(f"{name}_scale", torch.full((size,), 1 / 16))

    def split(self, x: Tensor) -> Tensor:
        """Return [B, H, N, S] of [B, N, W]."""
        B, N, _ = x.shape
        return x.view(B, N, self.heads, -1).transpose(1, 2)

    def with_null_key(self, keys: Tensor, null_key: Tensor) -> Tensor:
        """Return [B, H, N + 1, S] of keys [B, H, N, S]."""
        null = self.split(null_key.to(keys.dtype).expand(keys.shape[0], 1, -1))
        return torch.cat([keys, null], 2)

    def position_scores(self, n: int) -> Tensor | float:
        """Return what is added to the scores for relative positions, [H, N, N + 1]; 0 for the null key."""
        if not len(self.position_bias):
            return 0.0
        i = torch.arange(n, device=self.buckets.device)
        bucket = self.buckets[i[:, None] - i[None] + CHUNK_TOKENS - 1]
        return functional.pad(self.position_bias[bucket].permute(2, 0, 1), (0, NULL_KEYS))

    def score_unit(self) -> Tensor:
        """Return the value of one unit of a quantized score, a sum of products, [H]."""
        per_head = (self.query_scale * self.key_scale).view(self.heads, -1)
        unit: Tensor = per_head[:, 0] / per_head.shape[1] ** 0.5
        return unit

    def soft(self, h: Tensor, mask: Tensor, *, with_null_key: bool) -> Tensor:
        """Run the layer as published: softmax, keys from the states `h`, gelu."""
        q, k, v = (self.split(part(h)) for part in (self.query, self.key, self.value))
        keys = self.with_null_key(k, self.null_key) if with_null_key else k
        score = (q @ keys.transpose(-1, -2)).float() / q.shape[-1] ** 0.5
        score = score + self.position_scores(h.shape[1]) + mask[..., : score.shape[-1]]
        probs = torch.softmax(score, -1)[..., : h.shape[1]].to(v.dtype)
        h = self.norm1(h + self.out(_merge(probs @ v)))
        h = self.norm2(h + self.down(functional.gelu(self.up(h))))
        return h

    def hard(
        self, h: Tensor, embedding: Tensor, x: Tensor, hardness: float, observer: Observer,
        record: AttentionRecord, *, clip: bool,
    ) -> Tensor:  # fmt: skip
        """Run the layer with static keys, blended with softmax and gelu where `hardness` is below 1."""
        q, k, v = self.query(h), self.key(embedding), self.value(h)
        for name, values in {"query": q, "key": k, "value": v}.items():
            observer.observe(self, name, values, x)
        observer.observe(self, "key", self.null_key)
        q, v, keys = self.split(q), self.split(v), self.with_null_key(self.split(k), self.null_key)
        score = (q @ keys.transpose(-1, -2)).float() / q.shape[-1] ** 0.5
        probs = torch.softmax(score + self.position_scores(x.shape[1]) + attention_mask(x), -1)
        weights = probs + hardness * (argmax_weights(probs) - probs).detach()
        record.add(probs, x)
        h = self.norm1(h + self.out(_merge(weights[..., :-1].to(v.dtype) @ v)), clip=clip)
        observer.observe(self, "attended", h, x)
        u = self.up(h)
        expanded = functional.gelu(u) + hardness * (functional.relu(u) - functional.gelu(u))
        observer.observe(self, "expanded", expanded, x)
        h = self.norm2(h + self.down(expanded), clip=clip)
        observer.observe(self, "hidden", h, x)
        return h

    def quantized(
        self, h: Tensor, state: QuantizedState, embedding: QuantizedState, x: Tensor, record: AttentionRecord
    ) -> tuple[Tensor, QuantizedState]:
        """Run the layer in whole numbers; return the next h, and the same as a quantized state."""
        q = self.split(self.query.quantized(*state, self.query_scale))
        k = self.split(self.key.quantized(*embedding, self.key_scale))
        v = self.split(self.value.quantized(*state, self.value_scale))
        keys = self.with_null_key(k, fake_quantize(self.null_key / self.key_scale))
        context = _merge(fake_quantize(self._attend(q, keys, v, x, record)))
        grid = self.norm1.grid
        h = self.norm1.quantized(grid * h + self.out.on_grid(context, self.value_scale, grid))
        attended = fake_quantize(h * (1 / self.attended_scale))
        expanded = self.up.quantized(attended, self.attended_scale, self.expanded_scale, 0.0, 255.0)
        grid = self.norm2.grid
        h = self.norm2.quantized(grid * h + self.down.on_grid(expanded, self.expanded_scale, grid, 255.0))
        return h, (fake_quantize(h * (1 / self.hidden_scale)), self.hidden_scale)

    def _attend(self, q: Tensor, keys: Tensor, v: Tensor, x: Tensor, record: AttentionRecord) -> Tensor:
        """Return the mean value over the argmax set of each head, [B, H, N, S]. Scores are exact."""
        unit = self.score_unit()[:, None, None]
        with torch.autocast(q.device.type, enabled=False):
            bias = self.position_scores(x.shape[1])
            if isinstance(bias, Tensor):
                bias = fake_quantize(bias / unit, -MAX_BIAS, MAX_BIAS)
            score = (q @ keys.transpose(-1, -2) + bias).masked_fill(attention_mask(x) < 0, MASKED)
            C = argmax_mask(score)
            probs = torch.softmax((score * unit).clamp(min=-1e4), -1)
            record.add(probs, x, C)
            mean = C[..., :-1] @ v / C.sum(-1, keepdim=True)
            return straight_through(mean, probs[..., :-1] @ v) if torch.is_grad_enabled() else mean


def _merge(heads: Tensor) -> Tensor:
    """Return [B, N, W] of [B, H, N, S]."""
    return heads.transpose(1, 2).flatten(2)
