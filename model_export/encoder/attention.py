"""What the heads of the torch encoder attend to: masks, argmax sets, and a record of them for the losses."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn import functional

from model_export.attention.straight_through import argmax_mask

PAD = 0
NULL_KEYS = 1
MASKED = -1e9


def mask_of(x: Tensor) -> Tensor:
    """[B, 1, 1, N + 1]: MASKED for padding, 0 for tokens and the null key."""
    mask = torch.zeros(x.shape, device=x.device).masked_fill(x == PAD, MASKED)[:, None, None]
    return functional.pad(mask, (0, NULL_KEYS))


def argmax_share(share: Tensor) -> Tensor:
    """Return the same share to all that are largest."""
    chosen = argmax_mask(share)
    return chosen / chosen.sum(-1, keepdim=True)


@dataclass
class Attention:
    """What the heads did, for the losses and the tests."""

    attending: list[Tensor] = field(default_factory=list)  # [] each: the share that attends to a token
    counts: list[Tensor] = field(default_factory=list)  # [B, N, N]: by how many heads i attends to j

    def record(self, share: Tensor, x: Tensor, argmax_sets: Tensor | None = None) -> None:
        """Add a layer: `share` [B, H, N, N + 1] of the softmax."""
        there = x != PAD
        attending = (1 - share[..., -1]) * there[:, None]
        self.attending.append(attending.sum() / (there.sum() * share.shape[1]))
        if argmax_sets is not None:
            self.counts.append((argmax_sets[..., :-1] * there[:, None, :, None]).sum(1))
