"""A encoder as the whole numbers that a graph keeps, and the same computed in numpy, as the definition.

Numbers are kept as the graph keeps them. `*_unit` says what one step of a product is worth in steps of the
answer. States that are added to stand in units of 1/16 (FINE).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from model_export.encoder.model import COARSEST, CONSTANT, FINE, Encoder, Layer, Linear, Norm
from service.errors import InvalidInput

Array = NDArray[Any]
Stored = Mapping[str, Array]
ZERO = 128  # states are kept as uint8
LARGEST_EXACT = 2**24


@torch.no_grad()
def quantize(encoder: Encoder) -> dict[str, Array]:
    rows = encoder.words.weight
    unit = (rows.abs().amax(-1, keepdim=True) / 127).clamp(min=1e-9)
    found = {
        "table": _int8(torch.round(rows / unit)),
        "table_unit": _float(unit * FINE),
        "places": _float(encoder.places.weight * FINE),
        **_norm("norm", encoder.norm),
        "word_steps": _float(1 / encoder.of_word / FINE),
        "nobody": np.concatenate([_whole(each.nobody / each.of_key) for each in encoder.layers])[None],
        "heads": np.array(encoder.shape.heads, np.int64),
    }
    keys = [_read(each.key, encoder.of_word, each.of_key) for each in encoder.layers]
    found["keys"], found["keys_unit"] = (np.concatenate(parts, -1) for parts in zip(*keys, strict=True))
    scale = encoder.of_word
    for i, layer in enumerate(encoder.layers):
        found |= {f"{i}.{name}": value for name, value in _layer(layer, scale).items()}
        scale = layer.of_state
    return found


def _layer(layer: Layer, scale: Tensor) -> dict[str, Array]:
    asks = [
        _read(part, scale, step)
        for part, step in ((layer.query, layer.of_query), (layer.value, layer.of_value))
    ]
    (asked, asked_unit) = (np.concatenate(parts, -1) for parts in zip(*asks, strict=True))
    up, up_unit = _read(layer.up, layer.of_middle, layer.of_wide)
    return {
        "ask": asked, "ask_unit": asked_unit, "up": up, "up_unit": up_unit,
        **_add("out", layer.out, layer.of_value, 128), **_add("down", layer.down, layer.of_wide, 255),
        **_norm("norm1", layer.norm1), **_norm("norm2", layer.norm2),
        "middle_steps": _float(1 / layer.of_middle / FINE), "state_steps": _float(1 / layer.of_state / FINE),
    }  # fmt: skip


def _read(linear: Linear, scale: Tensor, step: Tensor) -> tuple[Array, Array]:
    """[inputs + constants, outputs] and what a step of the product is in steps of the answer."""
    weight, bias, unit = linear.codes(scale)
    rest, rows = bias, []
    for constant in CONSTANT[:-1]:
        part = torch.round(rest / constant).clamp(-127, 127)
        rows.append(part)
        rest = rest - constant * part
    if rest.abs().max() > 127:
        raise InvalidInput("a bias is too large to be carried by the constant channels", param="bias")
    return _int8(torch.cat([weight.T, torch.stack([*rows, rest])])), _float(unit / step)


def _add(name: str, linear: Linear, scale: Tensor, most: int) -> dict[str, Array]:
    weight, _, unit = linear.codes(scale)
    if float(weight.abs().sum(1).max()) * most >= LARGEST_EXACT:
        raise InvalidInput(f"a sum of {name} may not be exact in float32", param=name)
    return {
        name: _int8(weight.T),
        f"{name}_unit": _float(FINE * unit),
        f"{name}_bias": _float(FINE * linear.bias),
    }


def _norm(name: str, norm: Norm) -> dict[str, Array]:
    return {f"{name}.gain": _float(FINE * norm.gain), f"{name}.shift": _float(FINE * norm.shift)}


def _int8(x: Tensor) -> Array:
    return x.detach().numpy().astype(np.int8)


def _float(x: Tensor) -> Array:
    return x.detach().numpy().astype(np.float32).squeeze()


def _whole(x: Tensor) -> Array:
    return np.clip(np.round(x.detach().numpy()), -128, 127).astype(np.int8)


# ---- the definition, in numpy: one passage


def run(weights: Stored, pieces: Array, places: Array) -> tuple[Array, Array, Array]:
    """(last states [N, W], first states [N, W], follows [L, N, N]) of one passage, as the graph gives them.

    C_a(i) = argmax over j and nobody; what head a reads is the mean over C_a(i), and nobody's value is 0.
    """
    N, H = len(pieces), int(weights["heads"])
    layers = sum(name.endswith(".ask") for name in weights)
    x = (
        weights["table"][pieces].astype(np.float32) * weights["table_unit"][pieces, None]
        + weights["places"][places]
    )
    h = _normed(x, weights, "norm")
    first = state = _steps(h * weights["word_steps"])
    keys = _product(first, weights["keys"]) * weights["keys_unit"]
    keys = np.concatenate([_steps(keys), weights["nobody"]]).astype(np.int64)
    follows = np.zeros((layers, N, N), np.uint8)
    for i in range(layers):
        asked = _steps(_product(state, weights[f"{i}.ask"]) * weights[f"{i}.ask_unit"]).astype(np.int64)
        q, v = (part.reshape(N, H, -1).swapaxes(0, 1) for part in np.split(asked, 2, axis=1))
        k = np.split(keys, layers, axis=1)[i].reshape(N + 1, H, -1).swapaxes(0, 1)
        score = q @ k.swapaxes(1, 2)  # [H, N, N+1]
        C = score == score.max(-1, keepdims=True)
        follows[i] = C[..., :-1].sum(0)
        read = (C[..., :-1] @ v).astype(np.float32) / C.sum(-1, keepdims=True).astype(np.float32)
        read = _steps(read.swapaxes(0, 1).reshape(N, -1))
        h = _normed(h + _added(read, weights, f"{i}.out"), weights, f"{i}.norm1")
        middle = _steps(h * weights[f"{i}.middle_steps"])
        wide = _steps(_product(middle, weights[f"{i}.up"]) * weights[f"{i}.up_unit"], 0, 255)
        h = _normed(h + _added(wide, weights, f"{i}.down"), weights, f"{i}.norm2")
        state = _steps(h * weights[f"{i}.state_steps"])
    return (state + ZERO).astype(np.uint8), (first + ZERO).astype(np.uint8), follows


def _steps(x: Array, low: int = -128, high: int = 127) -> Array:
    return np.clip(np.round(x), low, high).astype(np.int32)


def _product(x: Array, weight: Array) -> Array:
    """x W + b, exactly, as float32. Whole numbers add up exactly in float64, and numpy multiplies it fast."""
    extra = len(weight) - x.shape[1]
    constant = np.broadcast_to(np.array(CONSTANT[:extra]), (len(x), extra))
    return (np.concatenate([x, constant], 1) @ weight.astype(np.float64)).astype(np.float32)


def _added(x: Array, weights: Stored, name: str) -> Array:
    return _product(x, weights[name]) * weights[f"{name}_unit"] + weights[f"{name}_bias"]


def _normed(x: Array, weights: Stored, name: str) -> Array:
    n = np.float32(x.shape[-1])
    u = np.clip(np.round(x), -COARSEST, COARSEST)
    mean = u.sum(-1, keepdims=True) / n
    variance = (u * u).sum(-1, keepdims=True) / n - mean * mean
    deviation = np.sqrt(variance + np.float32(1e-3))
    normed: Array = (x - mean) / deviation * weights[f"{name}.gain"] + weights[f"{name}.shift"]
    return normed
