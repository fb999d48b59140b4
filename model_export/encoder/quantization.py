"""The quantized weights of an encoder, as its graph stores them.

`*_unit` is the value of one step of a product, in steps of its output. The residual stream is in units of the
grid of the next normalization.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from model_export.encoder.layer import BIAS_CHANNELS, MAX_BIAS, Layer, Linear, Norm
from model_export.encoder.model import Encoder
from service.errors import InvalidInput

Array = NDArray[Any]
Weights = Mapping[str, Array]
ZERO = 128  # the code of 0 in states, which are uint8
MAX_EXACT_FLOAT32 = 2**24


@torch.no_grad()
def quantize(encoder: Encoder) -> dict[str, Array]:
    """Return the weights that a graph stores."""
    config, grid = encoder.config, encoder.norm.grid
    rows = encoder.words.weight
    unit = (rows.abs().amax(-1, keepdim=True) / 127).clamp(min=1e-9)
    stored = {
        "table": _int8(torch.round(rows / unit)),
        "table_unit": _float(unit * grid),
        "positions": _float(encoder.positions.weight * grid),
        "word_steps": _float(1 / encoder.embedding_scale / encoder.layers[0].norm1.grid),
        "null_key": np.concatenate([_round(x.null_key / x.key_scale) for x in encoder.layers])[None],
        "heads": np.array(config.heads, np.int64),
        "limit": np.array(config.max_units, np.float32),
        "clip": np.array(config.clip),
        **_quantize_norm("norm", encoder.norm, encoder.layers[0].norm1.grid),
    }
    if config.position_buckets:
        stored["position_bias"] = np.concatenate([_position_bias(layer) for layer in encoder.layers], 1)
    scale, grids = encoder.embedding_scale, [layer.norm1.grid for layer in encoder.layers]
    keys = [_quantize_projection(layer.key, scale, layer.key_scale) for layer in encoder.layers]
    stored["keys"], stored["keys_unit"] = (np.concatenate(parts, -1) for parts in zip(*keys, strict=True))
    for i, (layer, next_grid) in enumerate(zip(encoder.layers, [*grids[1:], grids[-1]], strict=True)):
        stored |= {f"{i}.{name}": value for name, value in _quantize_layer(layer, scale, next_grid).items()}
        scale = layer.hidden_scale
    return stored


def _quantize_layer(layer: Layer, scale: Tensor, next_grid: float) -> dict[str, Array]:
    """Return the weights of a layer; the products that are added to a state are in units of the next grid."""
    attention_grid, output_grid = layer.norm1.grid, layer.norm2.grid
    query = _quantize_projection(layer.query, scale, layer.query_scale)
    value = _quantize_projection(layer.value, scale, layer.value_scale)
    query_value, query_value_unit = (np.concatenate(parts, -1) for parts in zip(query, value, strict=True))
    up, up_unit = _quantize_projection(layer.up, layer.attended_scale, layer.expanded_scale)
    return {
        "query": query_value, "query_unit": query_value_unit, "up": up, "up_unit": up_unit,
        **_quantize_output("out", layer.out, layer.value_scale, attention_grid, 128.0),
        **_quantize_output("down", layer.down, layer.expanded_scale, output_grid, 255.0),
        **_quantize_norm("norm1", layer.norm1, output_grid),
        **_quantize_norm("norm2", layer.norm2, next_grid),
        "middle_steps": _float(1 / layer.attended_scale / output_grid),
        "state_steps": _float(1 / layer.hidden_scale / next_grid),
    }  # fmt: skip


def _position_bias(layer: Layer) -> Array:
    """Return what is added to the scores at each distance, [2 CHUNK_TOKENS, H]; row 0 is for the null key."""
    bias = layer.position_bias[layer.buckets] / layer.score_unit()
    bias = torch.round(bias).clamp(-MAX_BIAS, MAX_BIAS)
    return np.concatenate([np.zeros((1, layer.heads), np.float32), _float(bias)])


def _quantize_projection(linear: Linear, scale: Tensor, step: Tensor) -> tuple[Array, Array]:
    """Return the weights [inputs + constants, outputs] and the value of a step of the product."""
    weight, bias, unit = linear.codes(scale)
    remainder, rows = bias, []
    for constant in BIAS_CHANNELS[:-1]:
        rows.append(torch.round(remainder / constant).clamp(-127, 127))
        remainder = remainder - constant * rows[-1]
    if remainder.abs().max() > 127:
        raise InvalidInput("a bias is too large to be carried by the constant channels", param="bias")
    return _int8(torch.cat([weight.T, torch.stack([*rows, remainder])])), _float(unit / step)


def _quantize_output(
    name: str, linear: Linear, scale: Tensor, grid: float, max_input: float
) -> dict[str, Array]:
    """Return the weights of a product that is added to the residual stream."""
    weight, _, unit = linear.codes(scale, max_input)
    if float(weight.abs().sum(1).max()) * max_input >= MAX_EXACT_FLOAT32:
        raise InvalidInput(f"a sum of {name} may not be exact in float32", param=name)
    return {
        name: _int8(weight.T),
        f"{name}_unit": _float(grid * unit),
        f"{name}_bias": _float(grid * linear.bias),
    }


def _quantize_norm(name: str, norm: Norm, next_grid: float) -> dict[str, Array]:
    """Return the weights of a normalization, whose output is in the units of the next one."""
    return {f"{name}.gain": _float(next_grid * norm.gain), f"{name}.shift": _float(next_grid * norm.shift)}


def _int8(x: Tensor) -> Array:
    return x.detach().numpy().astype(np.int8)


def _float(x: Tensor) -> Array:
    return x.detach().numpy().astype(np.float32).squeeze()


def _round(x: Tensor) -> Array:
    return np.clip(np.round(x.detach().numpy()), -128, 127).astype(np.int8)
