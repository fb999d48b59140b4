"""The quantized weights of a leader head, as its graph stores them, and its definition on them in numpy.

The ONNX graph (graph.py) must give the numbers of `run` to the bit: verification.py and
tests/model_export/head/test_leader_head.py compare them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from model_export.attention.reference import argmax_sets, means
from model_export.encoder.layer import Linear
from model_export.encoder.model import OutputScales
from model_export.encoder.quantized import ZERO, Array, Weights
from model_export.head.leader_head import (
    DIRECTION_GRID,
    LAYER_GRID,
    MAX_DIRECTION,
    MIN_REACH,
    POINT_GRID,
    WEIGHT_GRID,
    LeaderHead,
)


@torch.no_grad()
def quantize(head: LeaderHead, scales: OutputScales) -> dict[str, Array]:
    """Return the weights of a head by their names in its graph."""
    config = head.config
    return {
        **_quantize_linear("first", head.reach_hidden, scales.embedding),
        **_quantize_linear("second", head.reach_output, head.hidden_scale),
        **_quantize_linear("read", head.projection, head.input_scale(scales)),
        "hidden_steps": (1 / head.hidden_scale).numpy(),
        "v": np.round(head.v.numpy() * WEIGHT_GRID) / WEIGHT_GRID,
        "b": head.b.numpy(),
        "scale": np.array(config.scale),
        "gamma": np.array(config.alpha / (1 + config.alpha)),
        "pseudo_weight": np.array(config.pseudo_weight),
        "layers": np.array(config.n_layers, np.int64),
    }


def _quantize_linear(name: str, linear: Linear, scale: torch.Tensor) -> dict[str, Array]:
    weight, _, unit = linear.codes(scale)
    return {
        name: weight.T.numpy().astype(np.int8),
        f"{name}_unit": unit.numpy(),
        f"{name}_bias": linear.bias.numpy(),
    }


# ---- the definition in numpy, for one text


@dataclass(frozen=True)
class HeadResult:
    """What the graph returns for one text of M words."""

    bias: Array  # [C]
    contribution: Array  # [C, M]
    target: Array  # [M]
    since: Array  # [M]
    plane: Array  # [K+1, M, d]


def run(weights: Weights, hidden: Array, embedding: Array, members: Sequence[Sequence[int]]) -> HeadResult:
    """Run the head on the quantized outputs of the encoder; `members` are the token rows of each word."""
    z, w = word_points(weights, hidden, embedding, members)
    gamma, K = float(weights["gamma"]), int(weights["layers"])
    since, clouds = np.full(len(z), -1), [z]
    for k in range(K + 1):
        # subtle: the sets consist of distinct points, each with its multiplicity as its weight
        points, first, inverse, counts = np.unique(
            z, axis=0, return_index=True, return_inverse=True, return_counts=True
        )
        C = argmax_sets(points)
        c = np.round(means(C, points, counts) * LAYER_GRID) / LAYER_GRID
        single = C.sum(1) == 1
        leads = single & C.diagonal()
        since[(since < 0) & leads[inverse]] = k
        if k < K:
            z = np.round((z + gamma * (c[inverse] - z)) * LAYER_GRID) / LAYER_GRID
            clouds.append(z)
    target = np.where(single, first[C.argmax(1)], -1)[inverse]
    share = w / (float(weights["pseudo_weight"]) + w.sum())
    contribution = share[:, None] * (c[inverse] @ weights["v"].T)
    return HeadResult(weights["b"], contribution.T, target, since, np.array(clouds))


def word_points(
    weights: Weights, hidden: Array, embedding: Array, members: Sequence[Sequence[int]]
) -> tuple[Array, Array]:
    """Return the initial points z [M, d] and the weights w [M]."""
    units = _mean_linear(weights, "first", embedding.astype(np.int64) - ZERO, members)
    units = np.clip(np.round(units * weights["hidden_steps"]), 0, 255).astype(np.int64)
    product = _product(units, weights["second"]).astype(np.float32)
    f = (product * weights["second_unit"] + weights["second_bias"]).astype(np.float64)
    reach = MIN_REACH + (1 - MIN_REACH) * (0.5 + 0.5 * f / np.sqrt(1 + f * f))
    x = _map_inputs(weights, "read", hidden, embedding)
    projected = _mean_linear(weights, "read", x, members).astype(np.float64)
    r = np.clip(projected[:, :-1], -MAX_DIRECTION, MAX_DIRECTION)
    r = np.round(r * DIRECTION_GRID) / DIRECTION_GRID
    direction = float(weights["scale"]) * (r / np.sqrt(1 + (r * r).sum(-1, keepdims=True)))
    z = np.round(direction * reach * POINT_GRID) / POINT_GRID
    z[(z == 0).all(1), 0] = 1 / POINT_GRID  # no point at the origin
    t = projected[:, -1]
    return z, np.round((t + np.sqrt(1 + t * t)) / 2 * WEIGHT_GRID) / WEIGHT_GRID


def ood_score(weights: Weights, hidden: Array, embedding: Array, members: Sequence[Sequence[int]]) -> float:
    """Return the out-of-distribution score, which is above 0 for a text unlike the training data."""
    x = _map_inputs(weights, "near", hidden, embedding)
    near = _mean_linear(weights, "near", x, members).astype(np.float64)
    return float(((np.round(near * DIRECTION_GRID) / DIRECTION_GRID).sum(0) / len(members)).max())


def _map_inputs(weights: Weights, name: str, hidden: Array, embedding: Array) -> Array:
    """Return the inputs of a linear map: hidden states, and embeddings too if it has rows for them."""
    inputs = np.concatenate([hidden, embedding], 1)
    return inputs[:, : len(weights[name])].astype(np.int64) - ZERO


def _mean_linear(weights: Weights, name: str, x: Array, members: Sequence[Sequence[int]]) -> Array:
    """Return a linear map of tokens, averaged over the tokens of each word."""
    product = _product(x, weights[name])
    sums = np.array([product[list(rows)].sum(0) for rows in members]).astype(np.float32)
    sizes = np.array([[len(rows)] for rows in members], np.float32)
    mean: Array = sums / sizes * weights[f"{name}_unit"] + weights[f"{name}_bias"]
    return mean


def _product(x: Array, weight: Array) -> Array:
    """Return x W, exact since sums stay below 2^53; numpy multiplies int64 slowly."""
    product: Array = x.astype(np.float64) @ weight.astype(np.float64)
    return product
