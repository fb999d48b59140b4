"""Whole numbers in torch: rounding that lets gradients pass, and the scales that quantized numbers have."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from model_export.attention.straight_through import straight_through
from model_export.encoder.attention import PAD


def fake_quantize(x: Tensor, low: float = -128.0, high: float = 127.0) -> Tensor:
    """Return the nearest whole numbers in a range; the gradient passes inside the range."""
    cut = x.clamp(low, high)
    return straight_through(torch.round(cut), cut)


def fake_quantize_rows(table: Tensor, x: Tensor) -> Tensor:
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
        """Record the largest absolute value of each channel."""
        values = values.detach().float().abs()
        if x is not None:
            values = values[x != PAD]
        high = values.flatten(0, -2).amax(0) if values.ndim > 1 else values
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
