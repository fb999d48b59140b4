"""The teacher: all twelve published layers with softmax, on the tokens of the encoder that learns from it.

It is fine-tuned on all labels. The encoder learns from its logits and its hidden states.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from model_export.data.training_set import Batch, PackedTexts, batches
from model_export.encoder.model import Encoder

Logits = NDArray[np.float32]
Float16Array = NDArray[np.float16]
NEGATIVE_INDEX, NEUTRAL_INDEX, POSITIVE_INDEX = range(3)
TOKENS_PER_RUN = {"cpu": 1_500, "cuda": 65_536}


class TeacherModel(nn.Module):
    """An encoder with softmax, mean pooling and a head of three logits."""

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        self.encoder = encoder
        self.head = nn.Linear(encoder.config.width, 3)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, batch: Batch) -> Tensor:
        """Return the logits [B, 3] of some texts: negative, neutral, positive."""
        logits: Tensor = self.head(self.embed(batch))
        return logits

    def embed(self, batch: Batch) -> Tensor:
        """Return the mean hidden state of some texts, [B, W]."""
        with mixed_precision(batch.token_ids):
            states = self.encoder.soft(batch.token_ids)[-1]
        return batch.mean_by_text(states.float())


def mixed_precision(x: Tensor) -> AbstractContextManager[None]:
    """Return a context in which products are bfloat16; scores and sums stay float32.

    Processors without instructions for bfloat16 multiply it a hundred times slower than float32.
    """
    has_bfloat16 = x.is_cuda or torch.ops.mkldnn._is_mkldnn_bf16_supported()
    return torch.autocast(x.device.type, torch.bfloat16, enabled=has_bfloat16)


@torch.inference_mode()
def predict(model: TeacherModel, texts: PackedTexts) -> Logits:
    """Return the logits of all texts, [n, 3]."""
    logits = np.empty((len(texts), 3), np.float32)
    for rows, batch in _runs(model, texts):
        logits[rows] = model(batch).float().cpu().numpy()
    return logits


@torch.inference_mode()
def embed(model: TeacherModel, texts: PackedTexts) -> Float16Array:
    """Return the mean hidden state of all texts, [n, W]."""
    embeddings = np.empty((len(texts), model.encoder.config.width), np.float16)
    for rows, batch in _runs(model, texts):
        embeddings[rows] = model.embed(batch).cpu().numpy()
    return embeddings


def _runs(model: TeacherModel, texts: PackedTexts) -> Iterator[tuple[NDArray[np.int64], Batch]]:
    device = next(model.parameters()).device
    for rows in batches(texts.sizes, TOKENS_PER_RUN[device.type]):
        yield rows, texts.batch(rows).to(device)


def positive_probs(logits: Logits, has_neutral: NDArray[np.bool_]) -> NDArray[np.float32]:
    """Return the probability that each text is positive.

    The neutral logit counts for both sides, where the data set of a text has neutral texts or no labels.
    """
    p = np.exp(logits - logits.max(1, keepdims=True))
    p = p / p.sum(1, keepdims=True)
    negative, neutral, positive = p.T
    two_labels = positive / (positive + negative)
    return np.asarray(np.where(has_neutral, positive + neutral / 2, two_labels), np.float32)


def label_loss(logits: Tensor, labels: Tensor, noise: Tensor, has_neutral: Tensor) -> Tensor:
    """Return the cross-entropy over three labels, or over two for texts of data sets without neutral ones."""
    log_p = logits[:, [NEGATIVE_INDEX, POSITIVE_INDEX]].log_softmax(1)
    label = (labels // 2)[:, None]
    two_labels = (1 - noise) * log_p.gather(1, label)[:, 0] + noise * log_p.gather(1, 1 - label)[:, 0]
    log_p = logits.log_softmax(1)
    three_labels = (1 - 1.5 * noise) * log_p.gather(1, labels[:, None])[:, 0] + 0.5 * noise * log_p.sum(1)
    return -torch.where(has_neutral, three_labels, two_labels).mean()
