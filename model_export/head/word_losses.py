"""Losses on single words: leaders should be the words that decide, on the side that they decide for.

They use the marked words of the everyday sentences (data/everyday.py), and joined texts, whose parts have a
target of their own.
"""

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, softplus

from model_export.data.training_set import NOT_MARKED, Batch
from model_export.head.leader_head import HeadOutput, LeaderHead

SIDE_MARGIN = 1.5  # of the logit that a marked word and its leader have alone
LENGTH_MARGIN = 0.5  # by which the longest marked point should exceed the longest other one
LONG_TEXT_WORDS = 40  # from which the evidence should not come from one leader


def word_loss(head: LeaderHead, output: HeadOutput, batch: Batch, part_targets: Tensor) -> Tensor:
    """Return the sum of all losses on words."""
    return (
        side_loss(head, output, batch)
        + leader_loss(output, batch)
        + part_loss(head, output, batch, part_targets)
    )


def side_loss(head: LeaderHead, output: HeadOutput, batch: Batch) -> Tensor:
    """Return the loss of marked words that, or whose leaders, stand on the other side of the boundary."""
    assert batch.marks is not None
    marked = batch.marks.abs() == 1
    n_marked = (marked.sum(1, keepdim=True) * marked.any(1).sum()).clamp(min=1)
    total = torch.zeros((), device=marked.device)
    for points in (output.words.direction, output.leader_points):
        logit = (points @ head.readout[0]).float()
        total = total + (softplus(SIDE_MARGIN - batch.marks * logit) * marked / n_marked).sum()
    return total * _share(marked.any(1))


def leader_loss(output: HeadOutput, batch: Batch) -> Tensor:
    """Return the loss of texts in which an unmarked word has a longer point than all marked ones."""
    assert batch.marks is not None
    length = output.words.points.norm(dim=-1).float()
    marked = batch.marks.abs() == 1
    longest_marked = length.masked_fill(~marked, -1e4).amax(1)
    longest_other = length.masked_fill(batch.marks != NOT_MARKED, 0.0).amax(1)
    has_marks = marked.any(1)
    loss = softplus(4 * (longest_other - longest_marked + LENGTH_MARGIN)) / 4
    return torch.where(has_marks, loss, 0.0).sum() / len(loss)


def part_loss(head: LeaderHead, output: HeadOutput, batch: Batch, targets: Tensor) -> Tensor:
    """Return the cross-entropy of the logits that the parts of joined texts have alone."""
    assert batch.parts is not None
    is_joined = ~targets.isnan().any(1)
    logits = head.part_logits(output, batch.parts, batch.is_word).float()
    loss = binary_cross_entropy_with_logits(logits, targets.nan_to_num(0.5), reduction="none").mean(1)
    return (loss * is_joined).sum() / len(loss)


def concentration(head: LeaderHead, output: HeadOutput, batch: Batch) -> Tensor:
    """Return the mean, over long texts, of the sum of the squared shares of the evidence of leaders."""
    assert output.attention is not None
    n_words = batch.is_word.sum(1)
    followers = (output.words.weights * batch.is_word)[:, None] @ output.attention  # [B, 1, M]
    evidence = followers[:, 0] * (output.words.points @ head.readout[0]).abs()
    share = evidence / evidence.sum(1, keepdim=True).clamp(min=1e-9)
    is_long = n_words >= LONG_TEXT_WORDS
    return (share.square().sum(1) * is_long).sum().float() / len(share)


def _share(rows: Tensor) -> Tensor:
    """Return the share of the texts of a batch, so that a loss is a mean over all of them."""
    return rows.sum() / len(rows)
