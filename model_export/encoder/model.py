"""The encoder: a transformer in which every head of every piece follows one piece, or nobody.

    h_i = norm(E[t_i] + P_i)                                      the first state: the piece and its place
    f_a(i) = argmax over j, nobody of <q_a(h_i), k_a(first h_j)>   for the heads a of each layer
    y_i = norm(h_i + O [v_a(h_f_a(i))]_a),   h_i <- norm(y_i + D relu(U y_i))

A head asks with the state of who follows and looks at the words themselves: its keys are static. So leaving
out pieces that were not followed changes nothing (docs/theory.md, section 7). Nobody has a key and no value.

Three ways to compute it:
    soft    softmax, keys from states, gelu: what the published weights are
    hard    the argmax with the gradient of the softmax, static keys, relu
    whole   the same in whole numbers: every product is of integers, every sum exact in any order, and all
            else a single rounded operation an element, so torch, numpy and ONNX Runtime give the same bits

Shapes: B passages, N pieces, H heads, W width, S the width of a head.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional

from service.errors import NotFound
from service.text.tokenizer import CHUNK_TOKENS

FILES = ("config.json", "model.safetensors", "vocab.txt")
PAD, CLS = 0, 101
CONSTANT = (127.0, 127.0, 127.0, 1.0)  # channels that carry the bias of what is read from a state
NOBODY_TOO = 1
EPS = 1e-12
FINE = 16.0  # mean and variance are taken of states rounded to 1/16 and cut at COARSEST / 16
COARSEST = 200.0  # 384 squares of it are below 2^24: float32 adds them exactly
FAR = -1e9


@dataclass(frozen=True)
class EncoderConfig:
    width: int = 384
    heads: int = 12
    layers: int = 6
    wide: int = 1536
    pieces: int = 30_522


@dataclass(frozen=True)
class OutputScales:
    """The value of one step of an encoder's quantized outputs, channel by channel [W]."""

    hidden: Tensor
    embedding: Tensor


def straight_through(value: Tensor, gradient: Tensor) -> Tensor:
    """`value` forward, the gradient of `gradient` backward.

    subtle: the same to the bit. `gradient + (value - gradient)` is not, and a mean of .5 was rounded down.
    """
    return value.detach() + (gradient - gradient.detach())


def fake_quantize(x: Tensor, low: float = -128.0, high: float = 127.0) -> Tensor:
    """The nearest whole numbers in a range; the gradient passes inside the range."""
    cut = x.clamp(low, high)
    return straight_through(torch.round(cut), cut)


class Linear(nn.Module):
    """x W' + b. In whole numbers: x int8 with a constant scale a channel, W int8 with a scale an output, b in
    units of that scale; the answer is a whole number times `unit`.
    """

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(outputs, inputs))
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x: Tensor) -> Tensor:
        return functional.linear(x, self.weight, self.bias)

    def codes(self, scale: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(W and b in whole numbers, unit [outputs]) for inputs in units of `scale` [inputs]."""
        weight = self.weight * scale
        unit = (weight.detach().abs().amax(1) / 127).clamp(min=1e-9)
        most = 127.0 * sum(CONSTANT)
        return (
            fake_quantize(weight / unit[:, None], -127),
            fake_quantize(self.bias / unit, -most, most),
            unit,
        )


class Norm(nn.Module):
    """(x - mean) / deviation * gain + shift."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gain, self.shift = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        return functional.layer_norm(x, (x.shape[-1],), self.gain, self.shift, EPS)

    def codes(self, x: Tensor) -> Tensor:
        """The same of `FINE` x; the statistics are those of states on a grid, so their sums are exact.

        subtle: torch's float32 square root is off by a bit here and there; that of a double is not, once it
        is rounded.
        """
        n = x.shape[-1]
        u = fake_quantize(x, -COARSEST, COARSEST)
        mean = u.sum(-1, keepdim=True) / n
        variance = (u * u).sum(-1, keepdim=True) / n - mean * mean
        deviation = torch.sqrt((variance + 1e-3).double()).float()
        return (x - mean) / deviation * self.gain + self.shift


class Layer(nn.Module):
    of_state: Tensor  # what one step of the whole numbers is worth, channel by channel
    of_middle: Tensor
    of_query: Tensor
    of_key: Tensor
    of_value: Tensor
    of_wide: Tensor

    def __init__(self, shape: EncoderConfig) -> None:
        super().__init__()
        W, self.heads = shape.width, shape.heads
        self.query, self.key, self.value, self.out = (Linear(W, W) for _ in range(4))
        self.up, self.down = Linear(W, shape.wide), Linear(shape.wide, W)
        self.norm1, self.norm2 = Norm(W), Norm(W)
        self.nobody = nn.Parameter(torch.zeros(W))  # its key
        for name, size in {
            "of_state": W, "of_middle": W, "of_query": W, "of_key": W, "of_value": W, "of_wide": shape.wide,
        }.items():  # fmt: skip
            self.register_buffer(name, torch.full((size,), 1 / 16))

    def split(self, x: Tensor) -> Tensor:
        """[B, N, W] -> [B, H, N, S]"""
        B, N, _ = x.shape
        return x.view(B, N, self.heads, -1).transpose(1, 2)


class Encoder(nn.Module):
    layers: list[Layer]
    of_word: Tensor

    def __init__(self, shape: EncoderConfig) -> None:
        super().__init__()
        self.shape = shape
        self.words = nn.Embedding(shape.pieces, shape.width)
        self.places = nn.Embedding(CHUNK_TOKENS, shape.width)
        self.norm = Norm(shape.width)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))  # type: ignore[assignment]
        self.register_buffer("of_word", torch.full((shape.width,), 1 / 16))  # a step of the first states

    @property
    def of_last(self) -> Tensor:
        """A step of the last states."""
        step: Tensor = self.layers[-1].of_state
        return step

    @property
    def output_scales(self) -> OutputScales:
        """What a head needs to know of the encoder's quantization."""
        return OutputScales(self.of_last, self.of_word)

    def soft(self, x: Tensor) -> list[Tensor]:
        """x [B, N] ids, 0 = padding -> the states after each layer; the published way, keys from states."""
        mask = torch.zeros(x.shape).masked_fill(x == PAD, FAR)[:, None, None]
        h, found = self.first(x), []
        for layer in self.layers:
            q, k, v = (layer.split(each(h)) for each in (layer.query, layer.key, layer.value))
            share = torch.softmax(q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5 + mask, -1)
            h = layer.norm1(h + layer.out((share @ v).transpose(1, 2).flatten(2)))
            h = layer.norm2(h + layer.down(functional.gelu(layer.up(h))))
            found.append(h)
        return found

    def first(self, x: Tensor) -> Tensor:
        h: Tensor = self.norm(self.words(x) + self.places.weight[: x.shape[1]])
        return h

    def hard(
        self,
        x: Tensor,
        hardness: float = 1.0,
        note: Callable[[int, str, Tensor], None] = lambda layer, name, x: None,
    ) -> tuple[list[Tensor], Tensor]:
        """The states after each layer and [L] how much somebody is followed, on average over heads.

        `hardness` below 1: a blend with softmax and gelu. `note` is told of every number that will be whole:
        (layer, name, [pieces, channels]).
        """
        there = x != PAD
        mask = torch.zeros(x.shape).masked_fill(~there, FAR)[:, None, None]
        mask = functional.pad(mask, (0, NOBODY_TOO))
        h = words = self.first(x)
        note(-1, "of_word", words[there])
        found, followed = [], []
        for i, layer in enumerate(self.layers):
            told = {"query": layer.query(h), "key": layer.key(words), "value": layer.value(h)}
            for name, part in told.items():
                note(i, f"of_{name}", part[there])
            note(i, "of_key", layer.nobody[None])
            q, k, v = map(layer.split, told.values())
            nobody = layer.split(layer.nobody.expand(len(x), 1, -1))
            score = q @ torch.cat([k, nobody], 2).transpose(-1, -2) / q.shape[-1] ** 0.5 + mask
            share = torch.softmax(score, -1)
            one = (score == score.amax(-1, keepdim=True)).float()
            one = one / one.sum(-1, keepdim=True)
            chosen = share + hardness * (one - share).detach()
            some = 1 - share[..., -1]
            followed.append((some * there[:, None]).sum() / (there.sum() * layer.heads))
            h = layer.norm1(h + layer.out((chosen[..., :-1] @ v).transpose(1, 2).flatten(2)))
            note(i, "of_middle", h[there])
            u = layer.up(h)
            wide = functional.gelu(u) + hardness * (functional.relu(u) - functional.gelu(u))
            note(i, "of_wide", wide[there])
            h = layer.norm2(h + layer.down(wide))
            note(i, "of_state", h[there])
            found.append(h)
        return found, torch.stack(followed)

    def quantized(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The last states and the first ones as whole numbers [B, N, W]; how much somebody is followed,
        softly [L]; how many heads of each layer and piece follow each piece [L, B, N, N].
        """
        there = x != PAD
        h = self.norm.codes(FINE * (_fine_rows(self.words.weight, x) + self.places.weight[: x.shape[1]]))
        words = state = fake_quantize(h * (1 / self.of_word))
        scale = self.of_word
        followed, follows = [], []
        for layer in self.layers:
            q = layer.split(_read(layer.query, state, scale, layer.of_query))
            k = layer.split(_read(layer.key, words, self.of_word, layer.of_key))
            v = layer.split(_read(layer.value, state, scale, layer.of_value))
            nobody = layer.split(fake_quantize(layer.nobody / layer.of_key).expand(len(x), 1, -1))
            score = q @ torch.cat([k, nobody], 2).transpose(-1, -2)  # exact: 32 products below 2^14
            score = score.masked_fill(functional.pad(~there, (0, NOBODY_TOO))[:, None, None], FAR)
            one = (score == score.amax(-1, keepdim=True)).float()
            worth = (layer.of_query * layer.of_key).view(layer.heads, -1)[:, 0]
            share = torch.softmax((score * worth[:, None, None]).clamp(min=-1e4) / q.shape[-1] ** 0.5, -1)
            some = 1 - share[..., -1]
            followed.append((some * there[:, None]).sum() / (there.sum() * layer.heads))
            follows.append((one[..., :-1] * there[:, None, :, None]).sum(1))
            read = straight_through(one[..., :-1] @ v / one.sum(-1, keepdim=True), share[..., :-1] @ v)
            read = fake_quantize(read).transpose(1, 2).flatten(2)
            h = layer.norm1.codes(FINE * h + _add(layer.out, read, layer.of_value))
            middle = fake_quantize(h * (1 / layer.of_middle))
            wide = _read(layer.up, middle, layer.of_middle, layer.of_wide, 0.0, 255.0)
            h = layer.norm2.codes(FINE * h + _add(layer.down, wide, layer.of_wide))
            scale = layer.of_state
            state = fake_quantize(h * (1 / scale))
        return state, words, torch.stack(followed), torch.stack(follows)


def _read(
    linear: Linear, x: Tensor, scale: Tensor, step: Tensor, low: float = -128.0, high: float = 127.0
) -> Tensor:
    """A linear map of whole numbers in units of `scale`, as whole numbers of `step`."""
    weight, bias, unit = linear.codes(scale)
    return fake_quantize(functional.linear(x, weight, bias) * (unit / step), low, high)


def _add(linear: Linear, x: Tensor, scale: Tensor) -> Tensor:
    """FINE times a linear map of whole numbers in units of `scale`."""
    weight, _, unit = linear.codes(scale)
    return functional.linear(x, weight) * (FINE * unit) + FINE * linear.bias


def _fine_rows(table: Tensor, x: Tensor) -> Tensor:
    """Rows of a table kept as int8 with a scale a row."""
    rows = functional.embedding(x, table)
    unit = (rows.detach().abs().amax(-1, keepdim=True) / 127).clamp(min=1e-9)
    return fake_quantize(rows / unit, -127) * unit


def published(folder: Path) -> Encoder:
    """all-MiniLM-L6-v2 (Apache 2.0) as its authors published it. Places begin behind its [CLS]."""
    if missing := [name for name in FILES if not (folder / name).exists()]:
        raise NotFound(f"{folder}: the encoder starts from {', '.join(missing)}", param="encoder")
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    state = load_file(folder / "model.safetensors")
    shape = EncoderConfig(
        config["hidden_size"], config["num_attention_heads"], config["num_hidden_layers"],
        config["intermediate_size"], config["vocab_size"],
    )  # fmt: skip
    encoder = Encoder(shape)
    kind = state["embeddings.token_type_embeddings.weight"][0]
    places = state["embeddings.position_embeddings.weight"] + kind
    found = {
        "words.weight": state["embeddings.word_embeddings.weight"],
        "places.weight": places[1 : 1 + CHUNK_TOKENS],
        "norm.gain": state["embeddings.LayerNorm.weight"],
        "norm.shift": state["embeddings.LayerNorm.bias"],
    }
    names = {
        "query": "attention.self.query", "key": "attention.self.key", "value": "attention.self.value",
        "out": "attention.output.dense", "up": "intermediate.dense", "down": "output.dense",
    }  # fmt: skip
    for i in range(shape.layers):
        ours, theirs = f"layers.{i}", f"encoder.layer.{i}"
        for name, published in names.items():
            for end in ("weight", "bias"):
                found[f"{ours}.{name}.{end}"] = state[f"{theirs}.{published}.{end}"]
        for name, published in {"norm1": "attention.output.LayerNorm", "norm2": "output.LayerNorm"}.items():
            found[f"{ours}.{name}.gain"] = state[f"{theirs}.{published}.weight"]
            found[f"{ours}.{name}.shift"] = state[f"{theirs}.{published}.bias"]
    encoder.load_state_dict(found, strict=False)
    with torch.no_grad():
        begin = functional.layer_norm(
            state["embeddings.word_embeddings.weight"][CLS] + places[0],
            (shape.width,), found["norm.gain"], found["norm.shift"], EPS,
        )  # fmt: skip
        for layer in encoder.layers:  # most heads of most pieces look at [CLS], that is at nobody
            layer.nobody.copy_(layer.key(begin))
    return encoder
