"""The buckets of relative positions that MPNet and T5 have."""

import math

import torch
from torch import Tensor

N_EXACT, MAX_DISTANCE = 8, 128  # the first 8 distances have a bucket each, further ones share them


def position_buckets(distance: Tensor, n_buckets: int) -> Tensor:
    """Return the bucket of each distance i - j; half of the buckets are for j > i."""
    size, half = distance.abs(), n_buckets // 2
    logarithm = torch.log(size.clamp(min=1).float() / N_EXACT) / math.log(MAX_DISTANCE / N_EXACT)
    far = (N_EXACT + (logarithm * (half - N_EXACT)).long()).clamp(max=half - 1)
    return (distance < 0).long() * half + torch.where(size < N_EXACT, size, far)
