"""Fake quantization in torch: rounding that lets gradients pass, and observers that set the scales."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from model_export.attention.straight_through import straight_through
from model_export.encoder.attention import PAD


def fake_quantize(x: Tensor, low: float = -128.0, high: float = 127.0) -> Tensor:
    """Return the nearest whole numbers in a range; the gradient passes inside the range."""
    clipped = x.clamp(low, high)
    return straight_through(torch.round(clipped), clipped)


def fake_quantize_rows(table: Tensor, x: Tensor) -> Tensor:
    """Return rows of a table that is quantized to int8 with a scale per row."""
    rows = functional.embedding(x, table)
    unit = (rows.detach().abs().amax(-1, keepdim=True) / 127).clamp(min=1e-9)
    return fake_quantize(rows / unit, -127) * unit


class Observer:
    """Is shown the numbers that will be quantized, and ignores them."""

    def observe(self, module: nn.Module, name: str, values: Tensor, x: Tensor | None = None) -> None:
        """Observe `values` [.., channels], without those of padding if token ids `x` are given."""


class MaxObserver(Observer):
    """Records the largest absolute value of each channel, and sets the scales by them."""

    def __init__(self) -> None:
        self._max_abs: dict[tuple[nn.Module, str], Tensor] = {}

    def observe(self, module: nn.Module, name: str, values: Tensor, x: Tensor | None = None) -> None:
        """Record the largest absolute value of each channel."""
        values = values.detach().float().abs()
        if x is not None:
            values = values[x != PAD]
        max_abs = values.flatten(0, -2).amax(0) if values.ndim > 1 else values
        key = module, name
        self._max_abs[key] = torch.maximum(self._max_abs.get(key, max_abs), max_abs)

    @torch.no_grad()
    def set_scales(self, heads: int) -> None:
        """Set the scales of all observed numbers. The queries or keys of one head share a scale."""
        for (module, name), max_abs in self._max_abs.items():
            if name in ("query", "key"):
                width = len(max_abs) // heads
                max_abs = max_abs.view(heads, -1).amax(1, keepdim=True).expand(-1, width).flatten()
            scale: Tensor = getattr(module, f"{name}_scale")
            scale.copy_(_scale(max_abs, 255 if name == "expanded" else 127))


def _scale(max_abs: Tensor, steps: int) -> Tensor:
    """Return the value of one step of each channel.

    subtle: rarely used channels get a step of usual size, or their noise would take all steps.
    """
    return torch.maximum(max_abs, 0.3 * max_abs.median()).clamp(min=1e-4) * 1.05 / steps
