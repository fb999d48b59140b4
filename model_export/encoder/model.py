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

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn import functional

from service.text.tokenizer import CHUNK_TOKENS

PAD = 0
BIAS_CHANNELS = (127.0, 127.0, 127.0, 1.0)  # constant inputs that carry the bias of a product
NULL_KEYS = 1
MASKED = -1e9
MAX_EXACT = 2.0**24  # float32 adds whole numbers up to here exactly
MAX_BIAS = 2.0**22  # of a relative position, in units of the score
NEAR, FAR = 8, 128  # distances up to NEAR have a bucket each, further ones logarithmic ones


@dataclass(frozen=True)
class EncoderConfig:
    """The shape of an encoder and how its normalizations are quantized.

    The mean and variance of a normalization are taken of its input rounded to 1/grid and cut at
    `max_units` / grid; `clip` cuts the input itself too. Grids are powers of two, and `width` squares of
    `max_units` must stay below 2^24.
    """

    width: int = 384
    heads: int = 12
    layers: int = 6
    hidden: int = 1536
    vocabulary: int = 30_522
    position_buckets: int = 0  # of the relative positions; 0: none
    embedding_grid: float = 16.0
    attention_grid: float = 16.0
    output_grid: float = 16.0
    max_units: float = 200.0
    clip: bool = False
    eps: float = 1e-12

    def __post_init__(self) -> None:
        if self.width * self.max_units**2 >= MAX_EXACT:
            raise ValueError("the squares of a normalization do not add up exactly in float32")


@dataclass(frozen=True)
class OutputScales:
    """The value of one step of an encoder's quantized outputs, channel by channel [W]."""

    hidden: Tensor
    embedding: Tensor


@dataclass
class Attention:
    """What the heads did, for the losses and the tests."""

    attending: list[Tensor] = field(default_factory=list)  # [] each: the share that attends to a token
    counts: list[Tensor] = field(default_factory=list)  # [B, N, N]: by how many heads i attends to j
    field: Tensor | None = None  # [B, N, N] how much of the state of i has read j


def straight_through(value: Tensor, gradient: Tensor) -> Tensor:
    """Return `value` forward, with the gradient of `gradient` backward.

    subtle: the same to the bit. `gradient + (value - gradient)` is not, and a mean of .5 was rounded down.
    """
    return value.detach() + (gradient - gradient.detach())


def fake_quantize(x: Tensor, low: float = -128.0, high: float = 127.0) -> Tensor:
    """Return the nearest whole numbers in a range; the gradient passes inside the range."""
    cut = x.clamp(low, high)
    return straight_through(torch.round(cut), cut)


class Linear(nn.Module):
    """x W' + b. Quantized: x int8 with a scale per channel, W int8 with a scale per output."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(outputs, inputs))
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x: Tensor) -> Tensor:
        return functional.linear(x, self.weight, self.bias)

    def codes(self, scale: Tensor, max_input: float = 128.0) -> tuple[Tensor, Tensor, Tensor]:
        """Return (W and b in whole numbers, unit [outputs]) for inputs in units of `scale` [inputs].

        A row whose products could add up to more than 2^24 has a larger unit, so that they do not.
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
        if clip:
            x = x.clamp(-self._config.max_units / self.grid, self._config.max_units / self.grid)
        return functional.layer_norm(x, (x.shape[-1],), self.gain, self.shift, self._config.eps)

    def quantized(self, x: Tensor) -> Tensor:
        """Return the same of `grid` x; the statistics are sums of whole numbers, so they are exact.

        subtle: torch's float32 square root is off by a bit here and there; that of a double is not, once it
        is rounded.
        """
        n, limit = x.shape[-1], self._config.max_units
        u = fake_quantize(x, -limit, limit)
        mean = u.sum(-1, keepdim=True) / n
        variance = (u * u).sum(-1, keepdim=True) / n - mean * mean
        deviation = torch.sqrt((variance + 1e-3).double()).float()
        x = x.clamp(-limit, limit) if self._config.clip else x
        return (x - mean) / deviation * self.gain + self.shift


class Layer(nn.Module):
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
        for name in ("hidden", "attended", "query", "key", "value", "expanded"):
            size = config.hidden if name == "expanded" else W
            self.register_buffer(f"{name}_scale", torch.full((size,), 1 / 16))

    def split(self, x: Tensor) -> Tensor:
        """[B, N, W] -> [B, H, N, S]"""
        B, N, _ = x.shape
        return x.view(B, N, self.heads, -1).transpose(1, 2)

    def with_null_key(self, keys: Tensor, null_key: Tensor) -> Tensor:
        """[B, H, N, S] -> [B, H, N + 1, S]"""
        null = self.split(null_key.to(keys.dtype).expand(len(keys), 1, -1))
        return torch.cat([keys, null], 2)

    def position_scores(self, n: int) -> Tensor | float:
        """[H, N, N + 1] what is added to the score for the distance; nothing for the null key."""
        if not len(self.position_bias):
            return 0.0
        i = torch.arange(n)
        bucket = position_buckets(len(self.position_bias))[i[:, None] - i[None] + CHUNK_TOKENS - 1]
        return functional.pad(self.position_bias[bucket].permute(2, 0, 1), (0, NULL_KEYS))

    def score_unit(self) -> Tensor:
        """[H] the value of one unit of a quantized score, which is a sum of products."""
        per_head = (self.query_scale * self.key_scale).view(self.heads, -1)
        unit: Tensor = per_head[:, 0] / per_head.shape[1] ** 0.5
        return unit


def position_buckets(buckets: int) -> Tensor:
    """Return the bucket of each distance i - j between the tokens of a chunk, as MPNet and T5 have them."""
    away = torch.arange(1 - CHUNK_TOKENS, CHUNK_TOKENS)
    far, half = away.abs(), buckets // 2
    beyond = torch.log(far.clamp(min=1).float() / NEAR) / math.log(FAR / NEAR) * (half - NEAR)
    wide = (NEAR + beyond.long()).clamp(max=half - 1)
    return (away < 0).long() * half + torch.where(far < NEAR, far, wide)


class Encoder(nn.Module):
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
            q, k, v = (layer.split(part(h)) for part in (layer.query, layer.key, layer.value))
            keys = layer.with_null_key(k, layer.null_key) if self.config.position_buckets else k
            score = (q @ keys.transpose(-1, -2)).float() / q.shape[-1] ** 0.5
            score = score + layer.position_scores(x.shape[1]) + mask[..., : score.shape[-1]]
            share = torch.softmax(score, -1)[..., : x.shape[1]].to(v.dtype)
            h = layer.norm1(h + layer.out((share @ v).transpose(1, 2).flatten(2)))
            h = layer.norm2(h + layer.down(functional.gelu(layer.up(h))))
            states.append(h)
        return states

    def embed(self, x: Tensor, *, clip: bool = False) -> Tensor:
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
            q, k, v = layer.query(h), layer.key(embedding), layer.value(h)
            for name, part in {"query": q, "key": k, "value": v}.items():
                ranges.observe(layer, name, part, x)
            ranges.observe(layer, "key", layer.null_key)
            q, v, keys = layer.split(q), layer.split(v), layer.with_null_key(layer.split(k), layer.null_key)
            score = (q @ keys.transpose(-1, -2)).float() / q.shape[-1] ** 0.5
            share = torch.softmax(score + layer.position_scores(x.shape[1]) + mask_of(x), -1)
            chosen = share + hardness * (argmax_share(share) - share).detach()
            _record(attention, share, chosen, x)
            h = layer.norm1(
                h + layer.out((chosen[..., :-1].to(v.dtype) @ v).transpose(1, 2).flatten(2)), clip=clip
            )
            ranges.observe(layer, "attended", h, x)
            u = layer.up(h)
            expanded = functional.gelu(u) + hardness * (functional.relu(u) - functional.gelu(u))
            ranges.observe(layer, "expanded", expanded, x)
            h = layer.norm2(h + layer.down(expanded), clip=clip)
            ranges.observe(layer, "hidden", h, x)
            states.append(h)
        return states, attention

    def quantized(self, x: Tensor) -> tuple[Tensor, Tensor, Attention]:
        """Return the last states and the input embeddings as whole numbers [B, N, W], and what the heads did.

        While gradients are recorded the weights are not rounded, only what they are multiplied by.
        """
        n, attention = x.shape[1], Attention()
        rows = _quantized_rows(self.words.weight, x) + self.positions.weight[:n]
        h = self.norm.quantized(self.norm.grid * rows)
        embedding = state = fake_quantize(h * (1 / self.embedding_scale))
        scale = self.embedding_scale
        for layer in self.layers:
            q = layer.split(_project(layer.query, state, scale, layer.query_scale))
            k = layer.split(_project(layer.key, embedding, self.embedding_scale, layer.key_scale))
            v = layer.split(_project(layer.value, state, scale, layer.value_scale))
            keys = layer.with_null_key(k, fake_quantize(layer.null_key / layer.key_scale))
            read = fake_quantize(_attend(layer, q, keys, v, x, attention)).transpose(1, 2).flatten(2)
            grid = layer.norm1.grid
            h = layer.norm1.quantized(grid * h + _add(layer.out, read, layer.value_scale, grid))
            attended = fake_quantize(h * (1 / layer.attended_scale))
            expanded = _project(layer.up, attended, layer.attended_scale, layer.expanded_scale, 0.0, 255.0)
            grid = layer.norm2.grid
            h = layer.norm2.quantized(
                grid * h + _add(layer.down, expanded, layer.expanded_scale, grid, 255.0)
            )
            scale = layer.hidden_scale
            state = fake_quantize(h * (1 / scale))
        return state, embedding, attention


def _attend(layer: Layer, q: Tensor, keys: Tensor, v: Tensor, x: Tensor, attention: Attention) -> Tensor:
    """Return the mean value over the argmax set of each head, [B, H, N, S]. Scores are exact."""
    unit = layer.score_unit()[:, None, None]
    with torch.autocast("cpu", enabled=False):
        bias = layer.position_scores(x.shape[1])
        if isinstance(bias, Tensor):
            bias = fake_quantize(bias / unit, -MAX_BIAS, MAX_BIAS)
        score = (q @ keys.transpose(-1, -2) + bias).masked_fill(mask_of(x) < 0, MASKED)
        one = (score == score.amax(-1, keepdim=True)).float()
        share = torch.softmax((score * unit).clamp(min=-1e4), -1)
        _record(attention, share, straight_through(one / one.sum(-1, keepdim=True), share), x, one)
        value = one[..., :-1] @ v / one.sum(-1, keepdim=True)
        return straight_through(value, share[..., :-1] @ v) if torch.is_grad_enabled() else value


def mask_of(x: Tensor) -> Tensor:
    """[B, 1, 1, N + 1]: MASKED for padding, 0 for tokens and the null key."""
    mask = torch.zeros(x.shape).masked_fill(x == PAD, MASKED)[:, None, None]
    return functional.pad(mask, (0, NULL_KEYS))


def argmax_share(share: Tensor) -> Tensor:
    """Return the same share to all that are largest."""
    one = (share == share.amax(-1, keepdim=True)).float()
    return one / one.sum(-1, keepdim=True)


def _record(
    attention: Attention, share: Tensor, chosen: Tensor, x: Tensor, one: Tensor | None = None
) -> None:
    there = x != PAD
    heads = share.shape[1]
    attending = (1 - share[..., -1]) * there[:, None]
    attention.attending.append(attending.sum() / (there.sum() * heads))
    if one is not None:
        attention.counts.append((one[..., :-1] * there[:, None, :, None]).sum(1))
    if torch.is_grad_enabled():
        if attention.field is None:
            attention.field = torch.eye(x.shape[1]).expand(len(x), -1, -1)
        attention.field = _grow(attention.field, chosen[..., :-1])


def _grow(field: Tensor, chosen: Tensor) -> Tensor:
    """Return how much of each state has read each token after one layer more, a smooth "or" of the heads."""
    by_no_head: Tensor = torch.log1p(-chosen.clamp(0, 0.999)).sum(1).exp()
    unread: Tensor = (1 - field) * torch.exp(-1.5 * ((1 - by_no_head) @ field))
    return 1 - unread


def _project(
    linear: Linear, x: Tensor, scale: Tensor, step: Tensor, low: float = -128.0, high: float = 127.0
) -> Tensor:
    """Return a linear map of whole numbers in units of `scale`, as whole numbers of `step`."""
    if torch.is_grad_enabled():
        return fake_quantize(linear(x * scale).float() / step, low, high)
    weight, bias, unit = linear.codes(scale)
    return fake_quantize(functional.linear(x, weight, bias) * (unit / step), low, high)


def _add(linear: Linear, x: Tensor, scale: Tensor, grid: float, max_input: float = 128.0) -> Tensor:
    """Return `grid` times a linear map of whole numbers in units of `scale`."""
    if torch.is_grad_enabled():
        added: Tensor = linear(x * scale)
        return grid * added.float()
    weight, _, unit = linear.codes(scale, max_input)
    return functional.linear(x, weight) * (grid * unit) + grid * linear.bias


def _quantized_rows(table: Tensor, x: Tensor) -> Tensor:
    """Return rows of a table kept as int8 with a scale per row."""
    rows = functional.embedding(x, table)
    unit = (rows.detach().abs().amax(-1, keepdim=True) / 127).clamp(min=1e-9)
    return fake_quantize(rows / unit, -127) * unit


class Ranges:
    """Observes how large the numbers are that will be quantized; this one forgets them."""

    def observe(self, owner: nn.Module, name: str, values: Tensor, x: Tensor | None = None) -> None:
        """Take note of `values` [.., channels] of the tokens of `x`, or of all."""


class MaxRanges(Ranges):
    """Keeps the largest absolute value of each channel, and sets the scales by them."""

    def __init__(self) -> None:
        self._largest: dict[tuple[nn.Module, str], Tensor] = {}

    def observe(self, owner: nn.Module, name: str, values: Tensor, x: Tensor | None = None) -> None:
        values = values.detach().float().abs()
        high = (
            (values if x is None else values[x != PAD]).flatten(0, -2).amax(0) if values.ndim > 1 else values
        )
        key = owner, name
        self._largest[key] = torch.maximum(self._largest.get(key, high), high)

    @torch.no_grad()
    def set_scales(self, heads: int) -> None:
        """Set the scales of all that was observed. A head compares its numbers, so they share one."""
        for (owner, name), high in self._largest.items():
            if name in ("query", "key"):
                width = len(high) // heads
                high = high.view(heads, -1).amax(1, keepdim=True).expand(-1, width).flatten()
            scale: Tensor = getattr(owner, f"{name}_scale")
            scale.copy_(_scale(high, 255 if name == "expanded" else 127))


def _scale(high: Tensor, steps: int) -> Tensor:
    """subtle: rarely used channels get a step of usual size, or their noise would take all steps."""
    return torch.maximum(high, 0.3 * high.median()).clamp(min=1e-4) * 1.05 / steps
