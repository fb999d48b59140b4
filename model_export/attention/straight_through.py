"""Hardmax attention in torch: the argmax set of each query, and gradients through a softmax.

Verified against the definition in reference.py by tests/model_export/attention/test_straight_through.py.
"""

from typing import Any

import torch
from torch import Tensor


def argmax_mask(scores: Tensor) -> Tensor:
    """Return 1 for every key of the argmax set C_i of each query, else 0, in the type of `scores`."""
    return (scores == scores.amax(-1, keepdim=True)).to(scores.dtype)


def hardmax(scores: Tensor, values: Tensor) -> Tensor:
    """Return c_i, the mean of the values over the argmax set of each query."""
    mask = argmax_mask(scores)
    return mask @ values / mask.sum(-1, keepdim=True)


class _StraightThrough(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: Tensor, gradient: Tensor) -> Tensor:
        return value.view_as(value)

    @staticmethod
    def backward(ctx: Any, output: Tensor) -> tuple[None, Tensor]:
        return None, output


def straight_through(value: Tensor, gradient: Tensor) -> Tensor:
    """Return `value`, with the gradient of `gradient`."""
    result: Tensor = _StraightThrough.apply(value, gradient)  # type: ignore[no-untyped-call]
    return result


def round_to_grid(x: Tensor, steps_per_unit: float) -> Tensor:
    """Round to multiples of 1 / `steps_per_unit`; the gradient passes unchanged."""
    return straight_through(torch.round(x * steps_per_unit) / steps_per_unit, x)
