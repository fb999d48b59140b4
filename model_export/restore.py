"""A released encoder and its head in torch again, to be trained further.

The integers of a bundle are the weights that were rounded last: training goes on from them. Of what a bundle
does not say, the size of a query, key, value or hidden unit, nothing depends but the gradient's size; it is
that of the published layer.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from onnx import numpy_helper
from torch import Tensor
from torch.nn.functional import normalize

from model_export.data.training_set import TrainingSet
from model_export.encoder.graph import STORED_NAMES
from model_export.encoder.layer import BIAS_CHANNELS, Layer, Linear, Norm
from model_export.encoder.model import Encoder
from model_export.encoder.quantized import ZERO
from model_export.head.graph import weights_of
from model_export.head.leader_head import LeaderHead
from model_export.learners import Learners
from model_export.stages import mean_state, mixed_precision, published_of, token_ids_of
from service.runtime.bundle import Bundle, read_bundle

Array = NDArray[Any]
Tensors = dict[str, Tensor]
FITTED_TEXTS = 6_000
MAP_RIDGE = 1e-3


def restore(learners: Learners, released: Path, texts: TrainingSet) -> None:
    """Give new learners the weights of the bundles in a folder; `texts` have published embeddings."""
    head = read_bundle(released / "sentiment")
    restore_encoder(learners.encoder, read_bundle(released / "encoder"))
    restore_head(learners.head, learners.encoder, head)
    with torch.no_grad():
        learners.threshold.raw.fill_(math.log(math.expm1(head.card["neutral_threshold"])))
    fit_distillation(learners, texts)


@torch.no_grad()
def restore_encoder(encoder: Encoder, bundle: Bundle) -> None:
    """Give `encoder`, with the published layers in it, the weights of a bundle of the same shape."""
    graph = onnx.load_from_string(bundle.model).graph
    stored = _tensors({each.name: numpy_helper.to_array(each) for each in graph.initializer})
    grid = encoder.norm.grid
    encoder.words.weight.copy_(stored["table"] * stored["table_unit"][:, None] / grid)
    encoder.positions.weight.copy_(stored[STORED_NAMES["positions"]] / grid)
    first = encoder.layers[0].norm1.grid
    encoder.embedding_scale.copy_(1 / (stored["word_steps"] * first))
    _restore_norm(encoder.norm, stored, "norm", first)
    layers, scale = len(encoder.layers), encoder.embedding_scale
    grids = [layer.norm1.grid for layer in encoder.layers]
    shared = [part.chunk(layers, -1) for part in (stored["keys"], stored["keys_unit"])]
    null_keys = (stored[STORED_NAMES["null_keys"]] - ZERO).view(layers, -1)
    for i, (layer, next_grid) in enumerate(zip(encoder.layers, [*grids[1:], grids[-1]], strict=True)):
        own = {
            name.removeprefix(f"{i}."): value for name, value in stored.items() if name.startswith(f"{i}.")
        }
        own |= {"keys": shared[0][i], "keys_unit": shared[1][i], "null_key": null_keys[i]}
        own["position_bias"] = stored["position_bias"].chunk(layers, -1)[i]
        _restore_layer(layer, own, scale, encoder.embedding_scale, next_grid)
        scale = layer.hidden_scale


def _restore_layer(
    layer: Layer, stored: Tensors, scale: Tensor, embedding_scale: Tensor, next_grid: float
) -> None:
    """Set a layer; its inputs are in units of `scale`."""
    attention_grid, output_grid = layer.norm1.grid, layer.norm2.grid
    layer.attended_scale.copy_(1 / (stored["middle_steps"] * output_grid))
    layer.hidden_scale.copy_(1 / (stored["state_steps"] * next_grid))
    (query, value), (query_unit, value_unit) = (stored[name].chunk(2, -1) for name in ("ask", "ask_unit"))
    heads, channels, hidden = layer.heads, len(layer.value_scale), len(layer.expanded_scale)
    up, up_unit, keys, keys_unit = (stored[name] for name in ("up", "up_unit", "keys", "keys_unit"))
    _restore_projection(layer.query, layer.query_scale, query, query_unit, scale, heads)
    _restore_projection(layer.key, layer.key_scale, keys, keys_unit, embedding_scale, heads)
    _restore_projection(layer.value, layer.value_scale, value, value_unit, scale, channels)
    _restore_projection(layer.up, layer.expanded_scale, up, up_unit, layer.attended_scale, hidden)
    layer.null_key.copy_(stored["null_key"] * layer.key_scale)
    _restore_position_bias(layer, stored["position_bias"])
    for name, linear, inputs, grid in (
        ("out", layer.out, layer.value_scale, attention_grid),
        ("down", layer.down, layer.expanded_scale, output_grid),
    ):
        linear.weight.copy_((stored[name] * stored[f"{name}_unit"]).T / grid / inputs)
        linear.bias.copy_(stored[f"{name}_bias"] / grid)
    _restore_norm(layer.norm1, stored, "norm1", output_grid)
    _restore_norm(layer.norm2, stored, "norm2", next_grid)


def _restore_projection(
    linear: Linear, step: Tensor, codes: Tensor, unit: Tensor, scale: Tensor, groups: int
) -> None:
    """Set a map and the step of its output; the weights of a group of rows keep the size that they have."""
    constants = torch.tensor(BIAS_CHANNELS)
    weight = (codes[: -len(constants)] * unit).T / scale
    bias = constants @ codes[-len(constants) :] * unit
    sizes = [each.reshape(groups, -1).norm(dim=1) for each in (linear.weight, weight)]
    size = (sizes[0] / sizes[1].clamp(min=1e-9)).repeat_interleave(len(bias) // groups)
    step.copy_(size)
    linear.weight.copy_(size[:, None] * weight)
    linear.bias.copy_(size * bias)


def _restore_position_bias(layer: Layer, stored: Tensor) -> None:
    """subtle: no two tokens of a chunk are so far apart that they are in the last buckets, which stay."""
    layer.position_bias[layer.buckets] = stored[1:] * layer.score_unit()


def _restore_norm(norm: Norm, stored: Tensors, name: str, next_grid: float) -> None:
    norm.gain.copy_(stored[f"{name}.gain"] / next_grid)
    norm.shift.copy_(stored[f"{name}.shift"] / next_grid)


@torch.no_grad()
def restore_head(head: LeaderHead, encoder: Encoder, bundle: Bundle) -> None:
    """Give `head` the weights of a bundle that reads the outputs of `encoder`."""
    stored = _tensors(weights_of(onnx.load_from_string(bundle.model)))
    scales = encoder.output_scales
    head.hidden_scale.copy_(1 / stored["hidden_steps"])
    for name, linear, scale in (
        ("first", head.reach_hidden, scales.embedding),
        ("second", head.reach_output, head.hidden_scale),
        ("read", head.projection, head.input_scale(scales)),
    ):
        codes = stored[name][: len(scale)]  # the rows of embeddings are zeros where they are not read
        linear.weight.copy_((codes * stored[f"{name}_unit"]).T / scale)
        linear.bias.copy_(stored[f"{name}_bias"])
    head.v.copy_(stored["v"])
    head.b.copy_(stored["b"])


@torch.no_grad()
def fit_distillation(learners: Learners, texts: TrainingSet) -> None:
    """Fit the map that reads the published embedding, which a bundle does not hold, by ridge regression."""
    some = texts.take(np.random.default_rng(0).permutation(len(texts))[:FITTED_TEXTS])
    read, published = [], []
    for rows in some.batches(6_000):
        x = token_ids_of(learners, some, rows)
        with mixed_precision(x):
            states, _ = learners.encoder.hard(x)
        read.append(mean_state(states[-1], x))
        published.append(published_of(learners, some, rows))
    x, y = torch.cat(read).double(), normalize(torch.cat(published).double())
    gram = x.T @ x + MAP_RIDGE * len(x) * torch.eye(x.shape[1], dtype=x.dtype, device=x.device)
    learners.distillation.map.weight.copy_(torch.linalg.solve(gram, x.T @ y).T)


def _tensors(arrays: dict[str, Array]) -> Tensors:
    return {
        name: torch.from_numpy(np.array(value, np.float64 if value.dtype == np.float64 else np.float32))
        for name, value in arrays.items()
    }
