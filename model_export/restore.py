"""Restore a released encoder and its head in torch, to train them further.

Training continues from the integer weights of a bundle. A bundle does not contain the size of queries, keys,
values and hidden units, which affects only the size of gradients; it is that of the weights before.
"""

import math
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from model_export.data.training_set import TrainingSet
from model_export.encoder.graph import read_weights as read_encoder_weights
from model_export.encoder.layer import BIAS_CHANNELS, Layer, Linear, Norm
from model_export.encoder.model import Encoder
from model_export.head.graph import read_weights
from model_export.head.leader_head import LeaderHead
from model_export.stages import mean_state
from model_export.training_model import TrainingModel
from service.runtime.bundle import Bundle, read_bundle

Array = NDArray[Any]
Tensors = dict[str, Tensor]
TOKENS_PER_RUN = 6_000
INITIAL_STD = 0.05  # of the weights of a model that is restored without published layers


def restore(model: TrainingModel, released: Path, name: str) -> None:
    """Give `model` the weights of a released head and of its encoder."""
    head = read_bundle(released / name)
    restore_encoder(model.encoder, read_bundle(released / head.card["encoder"]["name"]))
    restore_head(model.head, model.encoder, head)
    with torch.no_grad():
        model.threshold.raw.fill_(math.log(math.expm1(head.card["neutral_threshold"])))


@torch.no_grad()
def initialize(encoder: Encoder) -> None:
    """Give the linear maps of an encoder random weights, whose size its restored queries and keys keep."""
    for module in encoder.modules():
        if isinstance(module, Linear):
            nn.init.normal_(module.weight, std=INITIAL_STD)


@torch.no_grad()
def restore_encoder(encoder: Encoder, bundle: Bundle) -> None:
    """Give `encoder` the weights of a bundle of the same shape."""
    stored = _tensors(read_encoder_weights(bundle.model))
    grid = encoder.norm.grid
    encoder.words.weight.copy_(stored["table"] * stored["table_unit"][:, None] / grid)
    encoder.positions.weight.copy_(stored["positions"] / grid)
    grids = [layer.norm1.grid for layer in encoder.layers]
    encoder.embedding_scale.copy_(1 / (stored["word_steps"] * grids[0]))
    _restore_norm(encoder.norm, stored, "norm", grids[0])
    n, scale = len(encoder.layers), encoder.embedding_scale
    keys, keys_unit = (stored[name].chunk(n, -1) for name in ("keys", "keys_unit"))
    biases = stored["position_bias"].chunk(n, -1) if encoder.config.position_buckets else None
    null_keys = stored["null_key"].view(n, -1)
    for i, (layer, next_grid) in enumerate(zip(encoder.layers, [*grids[1:], grids[-1]], strict=True)):
        weights = {
            name.removeprefix(f"{i}."): value for name, value in stored.items() if name.startswith(f"{i}.")
        }
        weights |= {"keys": keys[i], "keys_unit": keys_unit[i], "null_key": null_keys[i]}
        if biases:
            weights["position_bias"] = biases[i]
        _restore_layer(layer, weights, scale, encoder.embedding_scale, next_grid)
        scale = layer.hidden_scale


def _restore_layer(
    layer: Layer, stored: Tensors, scale: Tensor, embedding_scale: Tensor, next_grid: float
) -> None:
    """Set a layer; its inputs are in units of `scale`."""
    attention_grid, output_grid = layer.norm1.grid, layer.norm2.grid
    layer.attended_scale.copy_(1 / (stored["middle_steps"] * output_grid))
    layer.hidden_scale.copy_(1 / (stored["state_steps"] * next_grid))
    (query, value), (query_unit, value_unit) = (stored[name].chunk(2, -1) for name in ("query", "query_unit"))
    heads, channels, hidden = layer.heads, len(layer.value_scale), len(layer.expanded_scale)
    up, up_unit, keys, keys_unit = (stored[name] for name in ("up", "up_unit", "keys", "keys_unit"))
    _restore_projection(layer.query, layer.query_scale, query, query_unit, scale, heads)
    _restore_projection(layer.key, layer.key_scale, keys, keys_unit, embedding_scale, heads)
    _restore_projection(layer.value, layer.value_scale, value, value_unit, scale, channels)
    _restore_projection(layer.up, layer.expanded_scale, up, up_unit, layer.attended_scale, hidden)
    layer.null_key.copy_(stored["null_key"] * layer.key_scale)
    if "position_bias" in stored:
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
    """Set a linear map and the step of its output; the weights of each group of rows keep their size."""
    constants = torch.tensor(BIAS_CHANNELS)
    weight = (codes[: -len(constants)] * unit).T / scale
    bias = constants @ codes[-len(constants) :] * unit
    old_size, new_size = (w.reshape(groups, -1).norm(dim=1) for w in (linear.weight, weight))
    size = (old_size / new_size.clamp(min=1e-9)).repeat_interleave(len(bias) // groups)
    step.copy_(size)
    linear.weight.copy_(size[:, None] * weight)
    linear.bias.copy_(size * bias)


def _restore_position_bias(layer: Layer, stored: Tensor) -> None:
    """Set the biases.

    subtle: those of the last buckets do not change, since no two tokens of a chunk are that far apart.
    """
    layer.position_bias[layer.buckets] = stored[1:] * layer.score_unit()


def _restore_norm(norm: Norm, stored: Tensors, name: str, next_grid: float) -> None:
    norm.gain.copy_(stored[f"{name}.gain"] / next_grid)
    norm.shift.copy_(stored[f"{name}.shift"] / next_grid)


@torch.no_grad()
def restore_head(head: LeaderHead, encoder: Encoder, bundle: Bundle) -> None:
    """Give `head` the weights of a bundle that was made for `encoder`."""
    stored = _tensors(read_weights(onnx.load_from_string(bundle.model)))
    scales = encoder.output_scales
    head.hidden_scale.copy_(1 / stored["hidden_steps"])
    for name, linear, scale in (
        ("first", head.reach_hidden, scales.embedding),
        ("second", head.reach_output, head.hidden_scale),
        ("read", head.projection, head.input_scale(scales)),
    ):
        codes = stored[name][: len(scale)]  # rows of zeros follow if the map does not use embeddings
        linear.weight.copy_((codes * stored[f"{name}_unit"]).T / scale)
        linear.bias.copy_(stored[f"{name}_bias"])
    head.v.copy_(stored["v"])
    head.b.copy_(stored["b"])


@torch.no_grad()
def released_outputs(
    model: TrainingModel, texts: TrainingSet
) -> tuple[NDArray[np.float32], NDArray[np.float16]]:
    """Return the logits [n] of texts, and the mean hidden states [n, W] of those of one chunk."""
    scales = model.encoder.output_scales
    logits = np.empty(len(texts), np.float32)
    means = np.full((len(texts), len(scales.hidden)), np.nan, np.float16)
    for rows in texts.batches(TOKENS_PER_RUN):
        batch = texts.packed.batch(rows)
        hidden, embedding, _ = model.encoder.quantized(batch.token_ids)
        logits[rows] = model.head.classify(scales, hidden, embedding, batch).logits[:, 0].numpy()
        if len(batch.token_ids) == len(rows):
            means[rows] = mean_state(hidden * scales.hidden, batch.token_ids).numpy()
    return logits, means


def _tensors(arrays: dict[str, Array]) -> Tensors:
    return {
        name: torch.from_numpy(np.array(value, np.float64 if value.dtype == np.float64 else np.float32))
        for name, value in arrays.items()
    }
