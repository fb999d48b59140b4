"""The quantized weights of a leader head, as its graph stores them."""

import numpy as np
import torch

from model_export.encoder.layer import Linear
from model_export.encoder.model import OutputScales
from model_export.encoder.quantization import Array
from model_export.head.leader_head import WEIGHT_GRID, LeaderHead


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
