"""The modules that the stages train: the encoder, its leader head, and others that only training needs."""

import torch
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity, logsigmoid, softplus

from model_export.encoder.model import Encoder
from model_export.head.leader_head import LeaderHead

LABEL_SMOOTHING = 0.04  # of three labels


class PooledHead(nn.Module):
    """A head on the mean hidden state, for the first two stages."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, 1)
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(self, mean: Tensor) -> Tensor:
        """Return one logit for each mean hidden state."""
        logit: Tensor = self.linear(mean)[:, 0]
        return logit


class EmbeddingDistillation(nn.Module):
    """The distance from the published embedding to a linear map of the mean hidden state."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.map = nn.Linear(width, width, bias=False)
        nn.init.eye_(self.map.weight)

    def forward(self, mean: Tensor, published: Tensor) -> Tensor:
        """Return the mean cosine distance over the rows of `published` that are not NaN."""
        is_known = ~published.isnan().any(1)
        distance = 1 - cosine_similarity(self.map(mean), torch.where(is_known[:, None], published, 1.0))
        return (distance * is_known).sum() / is_known.sum().clamp(min=1)


class NeutralThreshold(nn.Module):
    """The threshold t >= 0 of proportional odds: P(positive) = s(logit - t), P(negative) = s(-logit - t)."""

    def __init__(self) -> None:
        super().__init__()
        self.raw = nn.Parameter(torch.tensor(0.6))

    @property
    def value(self) -> Tensor:
        return softplus(self.raw)

    def forward(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the cross-entropy of the labels 0, .5 and 1; texts with the label NaN are skipped."""
        is_known, x, t = ~labels.isnan(), logits, self.value
        neutral = (torch.sigmoid(x + t) - torch.sigmoid(x - t)).clamp(min=1e-6).log()
        log_p = torch.stack([logsigmoid(-x - t), neutral, logsigmoid(x - t)], 1)
        of_label = log_p.gather(1, (2 * labels.nan_to_num()).long()[:, None])[:, 0]
        smoothed = (1 - 3 * LABEL_SMOOTHING) * of_label + LABEL_SMOOTHING * log_p.sum(1)
        return -(smoothed * is_known).sum() / len(logits)


class TrainingModel(nn.Module):
    """The encoder, its head, and the modules that only training needs."""

    def __init__(self, encoder: Encoder, head: LeaderHead) -> None:
        super().__init__()
        width = encoder.config.width
        self.encoder, self.head = encoder, head
        self.pooled, self.distillation = PooledHead(width), EmbeddingDistillation(width)
        self.threshold = NeutralThreshold()
