"""A plane as numbers that a graph keeps, and the same computed in numpy, as the definition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from model_export.attention.reference import argmax_sets, means
from model_export.heads.plane import (
    DIRECTION_GRID,
    LAYER_GRID,
    LEAST_REACH,
    LONGEST_DIRECTION,
    PLACE_GRID,
    WEIGHT_GRID,
    Plane,
    Steps,
)
from model_export.reader.model import Linear
from model_export.reader.stored import ZERO, Array, Stored


@torch.no_grad()
def stored(plane: Plane, reader: Steps) -> dict[str, Array]:
    return {
        **_linear("first", plane.first, reader.of_word),
        **_linear("second", plane.second, plane.of_hidden),
        **_linear("read", plane.read, plane.steps(reader)),
        "hidden_steps": (1 / plane.of_hidden).numpy(),
        "v": np.round(plane.v.numpy() * WEIGHT_GRID) / WEIGHT_GRID,
        "b": plane.b.numpy(),
        "scale": np.array(plane.shape.scale),
        "gamma": np.array(plane.shape.alpha / (1 + plane.shape.alpha)),
        "pseudo_weight": np.array(plane.shape.pseudo_weight),
        "layers": np.array(plane.shape.layers, np.int64),
    }


def _linear(name: str, linear: Linear, scale: torch.Tensor) -> dict[str, Array]:
    weight, _, unit = linear.codes(scale)
    return {
        name: weight.T.numpy().astype(np.int8),
        f"{name}_unit": unit.numpy(),
        f"{name}_bias": linear.bias.numpy(),
    }


# ---- the definition, in numpy: one text


@dataclass(frozen=True)
class Told:
    """What the graph tells of one text of M words."""

    bias: Array  # [C]
    contribution: Array  # [C, M]
    target: Array  # [M]
    since: Array  # [M]
    plane: Array  # [K+1, M, d]


def run(weights: Stored, states: Array, words: Array, members: Sequence[Sequence[int]]) -> Told:
    """`members` are the rows of the pieces of each word."""
    z, w = places(weights, states, words, members)
    gamma, K = float(weights["gamma"]), int(weights["layers"])
    since, clouds = np.full(len(z), -1), [z]
    for k in range(K + 1):
        # subtle: the sets are of distinct points; equal places are one, and weigh as many
        points, first, twin, times = np.unique(
            z, axis=0, return_index=True, return_inverse=True, return_counts=True
        )
        C = argmax_sets(points)
        c = np.round(means(C, points, times) * LAYER_GRID) / LAYER_GRID
        alone = C.sum(1) == 1
        leads = alone & C.diagonal()
        since[(since < 0) & leads[twin]] = k
        if k < K:
            z = np.round((z + gamma * (c[twin] - z)) * LAYER_GRID) / LAYER_GRID
            clouds.append(z)
    target = np.where(alone, first[C.argmax(1)], -1)[twin]
    share = w / (float(weights["pseudo_weight"]) + w.sum())
    contribution = share[:, None] * (c[twin] @ weights["v"].T)
    return Told(weights["b"], contribution.T, target, since, np.array(clouds))


def places(
    weights: Stored, states: Array, words: Array, members: Sequence[Sequence[int]]
) -> tuple[Array, Array]:
    """z [M, d] and w [M]"""
    hidden = _linear_of(weights, "first", words.astype(np.int64) - ZERO, members)
    hidden = np.clip(np.round(hidden * weights["hidden_steps"]), 0, 255).astype(np.int64)
    product = (hidden @ weights["second"].astype(np.int64)).astype(np.float32)
    f = (product * weights["second_unit"] + weights["second_bias"]).astype(np.float64)
    reach = LEAST_REACH + (1 - LEAST_REACH) * (0.5 + 0.5 * f / np.sqrt(1 + f * f))
    told = _linear_of(weights, "read", _seen(weights, "read", states, words), members).astype(np.float64)
    r = (
        np.round(np.clip(told[:, :-1], -LONGEST_DIRECTION, LONGEST_DIRECTION) * DIRECTION_GRID)
        / DIRECTION_GRID
    )
    far = float(weights["scale"]) * (r / np.sqrt(1 + (r * r).sum(-1, keepdims=True)))
    z = np.round(far * reach * PLACE_GRID) / PLACE_GRID
    z[(z == 0).all(1), 0] = 1 / PLACE_GRID  # nobody at the origin
    t = told[:, -1]
    return z, np.round((t + np.sqrt(1 + t * t)) / 2 * WEIGHT_GRID) / WEIGHT_GRID


def unlike(weights: Stored, states: Array, words: Array, members: Sequence[Sequence[int]]) -> float:
    """Above 0: a text of these words is unlike the rows."""
    near = _linear_of(weights, "near", _seen(weights, "near", states, words), members).astype(np.float64)
    return float(((np.round(near * DIRECTION_GRID) / DIRECTION_GRID).sum(0) / len(members)).max())


def _seen(weights: Stored, name: str, states: Array, words: Array) -> Array:
    """What a linear map sees: the last states, and beside them the first ones if it has rows for them."""
    both = np.concatenate([states, words], 1)
    return both[:, : len(weights[name])].astype(np.int64) - ZERO


def _linear_of(weights: Stored, name: str, x: Array, members: Sequence[Sequence[int]]) -> Array:
    """The mean over the pieces of each word of a linear map."""
    product = x @ weights[name].astype(np.int64)
    sums = np.array([product[list(rows)].sum(0) for rows in members]).astype(np.float32)
    sizes = np.array([[len(rows)] for rows in members], np.float32)
    mean: Array = sums / sizes * weights[f"{name}_unit"] + weights[f"{name}_bias"]
    return mean
