"""Attention masks and argmax sets of the torch encoder, and a record of them for the losses."""

from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn import functional

from model_export.attention.straight_through import argmax_mask

PAD = 0
NULL_KEYS = 1
MASKED = -1e9


def attention_mask(x: Tensor) -> Tensor:
    """Return [B, 1, 1, N + 1]: MASKED for padding, 0 for tokens and the null key."""
    mask = torch.zeros(x.shape, device=x.device).masked_fill(x == PAD, MASKED)[:, None, None]
    return functional.pad(mask, (0, NULL_KEYS))


def argmax_weights(scores: Tensor) -> Tensor:
    """Return attention weights that are equal over the argmax set, and 0 elsewhere."""
    mask = argmax_mask(scores)
    return mask / mask.sum(-1, keepdim=True)


@dataclass
class AttentionRecord:
    """The attention of every layer, for the losses and the tests."""

    to_tokens: list[Tensor] = field(default_factory=list)  # [] mean weight on tokens, not on the null key
    counts: list[Tensor] = field(default_factory=list)  # [B, N, N] by how many heads i attends to j

    def add(self, probs: Tensor, x: Tensor, argmax_sets: Tensor | None = None) -> None:
        """Add a layer with the softmax `probs` [B, H, N, N + 1]."""
        is_token = x != PAD
        to_tokens = (1 - probs[..., -1]) * is_token[:, None]
        self.to_tokens.append(to_tokens.sum() / (is_token.sum() * probs.shape[1]))
        if argmax_sets is not None:
            self.counts.append((argmax_sets[..., :-1] * is_token[:, None, :, None]).sum(1))
