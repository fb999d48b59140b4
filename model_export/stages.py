"""The encoder and its leader head learn in stages, each from the weights of the one before.

finetune      six layers of the published encoder, still with softmax, learn the training set
harden        every head attends to one token or to the null key; hidden states are those of the soft encoder
fit_head      a leader head learns on the quantized encoder, which stays as it is
tune_jointly  the quantized encoder and its head learn together

In every stage but the third the published embedding of a text must remain readable from the mean of its
hidden states: custom models find their subjects there (`EmbeddingDistillation`).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from model_export.data.training_set import Batch, Ints, TrainingSet, plan_epochs, to_device
from model_export.encoder.attention import PAD, Attention
from model_export.encoder.fake_quantization import MaxRanges
from model_export.encoder.model import Encoder
from model_export.head.leader_head import LeaderHead
from model_export.learners import Learners
from model_export.training import ParameterGroup, Report, train_loop

Loss = Callable[[Ints, float], Tensor]
State = dict[str, Any]  # of all that learns
CALIBRATION_TEXTS = 700


@dataclass(frozen=True)
class StageConfig:
    """How one of the four is trained."""

    epochs: float = 1.0
    tokens_per_batch: int = 1_800
    lr: float = 1e-4
    head_lr: float = 1e-3
    warm_up: int = 40
    anneal: float = 0.35  # the share of the steps in which softmax becomes argmax
    hidden_weight: float = 1.0  # of the distance from the soft hidden states, in units of their variance
    embedding_weight: float = 2.0  # of the distance from the published embedding
    attention_price: float = 0.0  # of attending to a token; in layers before the last less
    price_from: float = 0.0  # the share of the steps before the price, which rises over the next tenth
    reach_price: float = 0.3  # of a mean reach of one


@dataclass(frozen=True)
class StageContext:
    """The seed and the report of a run."""

    seed: int
    report: Report


def finetune(
    learners: Learners, texts: TrainingSet, config: StageConfig, context: StageContext, checkpoint: Path
) -> State:
    """Train the encoder with softmax; return all weights."""
    encoder = learners.encoder

    def compute_loss(rows: Ints, done: float) -> Tensor:
        x = token_ids_of(learners, texts, rows)
        with mixed_precision(x):
            states = encoder.soft(x)
        mean = mean_state(states[-1], x)
        return _pooled_loss(learners, texts, rows, mean, targets_of(learners, texts, rows), config)

    return _train("finetune", learners, texts, config, context, checkpoint, compute_loss)


def harden(
    learners: Learners, texts: TrainingSet, config: StageConfig, context: StageContext, checkpoint: Path
) -> State:
    """Train the encoder while softmax becomes argmax; return all weights."""
    encoder = learners.encoder
    soft, soft_head = copy.deepcopy(encoder).requires_grad_(False), copy.deepcopy(learners.pooled)

    def compute_loss(rows: Ints, done: float) -> Tensor:
        x = token_ids_of(learners, texts, rows)
        with mixed_precision(x):
            states, attention = encoder.hard(x, min(1.0, done / config.anneal))
            with torch.no_grad():
                soft_states = soft.soft(x)
        with torch.no_grad():
            soft_target = torch.sigmoid(soft_head(mean_state(soft_states[-1], x)))
            target = (soft_target + targets_of(learners, texts, rows)) / 2
        apart = [distance(*both, x) for both in zip(states, soft_states, strict=True)]
        loss = _pooled_loss(learners, texts, rows, mean_state(states[-1], x), target, config)
        cost = attention_cost(attention, config, done)
        return loss + config.hidden_weight * torch.stack(apart).mean() + cost

    return _train("harden", learners, texts, config, context, checkpoint, compute_loss)


def fit_head(
    learners: Learners, texts: TrainingSet, config: StageConfig, context: StageContext, checkpoint: Path
) -> State:
    """Train a leader head on the quantized encoder; return all weights."""
    calibrate(learners.encoder, texts)
    with torch.no_grad():  # a word starts where the pooled head would see it
        learners.head.projection.weight[0] = 0.35 * learners.pooled.linear.weight[0]
        learners.head.projection.bias[0] = 0.35 * learners.pooled.linear.bias[0]
    learners.encoder.requires_grad_(False)

    def compute_loss(rows: Ints, done: float) -> Tensor:
        _, _, _, loss = _leader_loss(learners, texts, rows, config)
        return loss

    groups = [
        ParameterGroup([*learners.head.parameters(), learners.threshold.raw], config.head_lr / config.lr)
    ]
    learners.head.train()
    _run("fit_head", groups, texts, config, context, checkpoint, compute_loss)
    learners.head.eval()
    return learners.state_dict()


def tune_jointly(
    learners: Learners, texts: TrainingSet, config: StageConfig, context: StageContext, checkpoint: Path
) -> State:
    """Train the quantized encoder and its head; return all weights."""
    learners.encoder.requires_grad_(True)

    def compute_loss(rows: Ints, done: float) -> Tensor:
        batch, hidden, attention, loss = _leader_loss(learners, texts, rows, config)
        if len(batch.token_ids) == len(rows) and texts.embeddings is not None:  # texts of one chunk
            mean = mean_state(hidden * learners.encoder.output_scales.hidden, batch.token_ids)
            apart = learners.distillation(mean, published_of(learners, texts, rows))
            loss = loss + config.embedding_weight * apart
        return loss + attention_cost(attention, config, done)

    groups = [
        ParameterGroup(trainable(learners.encoder)),
        ParameterGroup([*learners.head.parameters(), learners.threshold.raw], config.head_lr / config.lr),
        ParameterGroup(list(learners.distillation.parameters()), 5.0),
    ]
    learners.head.train()
    _run("tune_jointly", groups, texts, config, context, checkpoint, compute_loss)
    learners.head.eval()
    return learners.state_dict()


# ---- what the stages share


def mixed_precision(x: Tensor) -> AbstractContextManager[None]:
    """Products in bfloat16, on the device of `x`; what heads compare and what is added up stays float32."""
    return torch.autocast(x.device.type, torch.bfloat16)


def device_of(learners: nn.Module) -> torch.device:
    """Return the device that a module is on."""
    return next(learners.parameters()).device


def mean_state(states: Tensor, x: Tensor) -> Tensor:
    """Return the mean hidden state of each text."""
    there = (x != PAD)[..., None]
    return (states * there).sum(1) / there.sum(1)


def distance(ours: Tensor, theirs: Tensor, x: Tensor) -> Tensor:
    """Return the mean square of the distance between states of the tokens, in units of their variance."""
    there = (x != PAD)[..., None]
    n = there.sum()
    variance = ((theirs - (theirs * there).sum((0, 1)) / n) * there).square().sum()
    return ((ours - theirs) * there).square().sum() / variance


def token_ids_of(learners: nn.Module, texts: TrainingSet, rows: Ints) -> Tensor:
    """Return [B, N], the token ids of texts of one chunk, where the learners are."""
    return to_device(texts.packed.padded(rows), device_of(learners))


def targets_of(learners: nn.Module, texts: TrainingSet, rows: Ints) -> Tensor:
    """Return the targets of some texts."""
    return to_device(torch.from_numpy(texts.targets[rows]), device_of(learners))


def published_of(learners: nn.Module, texts: TrainingSet, rows: Ints) -> Tensor:
    """Return the published embeddings of some texts."""
    assert texts.embeddings is not None
    return to_device(torch.from_numpy(texts.embeddings[rows]), device_of(learners)).float()


def attention_cost(attention: Attention, config: StageConfig, done: float) -> Tensor:
    """Return the cost of attending. Late layers cost more: they take over all that was read before.

    A price costs little once the encoder has learned to attend; from the start it learns less.
    """
    rise = min(1.0, max(0.0, 10 * (done - config.price_from))) if config.price_from else 1.0
    attending = torch.stack(attention.attending)
    layers = torch.arange(1, len(attending) + 1, device=attending.device) / len(attending)
    return rise * config.attention_price * (attending * layers.sqrt()).mean()


def trainable(encoder: Encoder) -> list[nn.Parameter]:
    """Return all but the table of tokens: most of them are rare."""
    for part in (encoder.words, encoder.positions):
        part.requires_grad_(False)
    return [p for p in encoder.parameters() if p.requires_grad]


@torch.no_grad()
def calibrate(encoder: Encoder, texts: TrainingSet) -> None:
    """Set the scales of the quantized numbers by some texts."""
    short = texts.single_chunk()
    some = short.take(np.random.default_rng(0).permutation(len(short))[:CALIBRATION_TEXTS])
    ranges = MaxRanges()
    for rows in some.batches(3_000):
        encoder.hard(token_ids_of(encoder, some, rows), ranges=ranges)
    ranges.set_scales(encoder.config.heads)


@torch.no_grad()
def predict(
    encoder: Encoder, head: LeaderHead, texts: TrainingSet, max_tokens: int = 6_000
) -> np.ndarray[Any, Any]:
    """Return the logits [n, C] in whole numbers, in the order of the texts."""
    head.eval()
    logits = np.zeros((len(texts), head.config.n_logits))
    for rows in texts.batches(max_tokens):
        batch = texts.packed.batch(rows).to(device_of(encoder))
        hidden, embedding, _ = encoder.quantized(batch.token_ids)
        logits[rows] = head(encoder.output_scales, hidden, embedding, batch)[0].cpu().numpy()
    return logits


def _pooled_loss(
    learners: Learners, texts: TrainingSet, rows: Ints, mean: Tensor, target: Tensor, config: StageConfig
) -> Tensor:
    loss = binary_cross_entropy_with_logits(learners.pooled(mean), target)
    if texts.embeddings is None:
        return loss
    apart: Tensor = learners.distillation(mean, published_of(learners, texts, rows))
    return loss + config.embedding_weight * apart


def _leader_loss(
    learners: Learners, texts: TrainingSet, rows: Ints, config: StageConfig
) -> tuple[Batch, Tensor, Attention, Tensor]:
    device = device_of(learners)
    batch = texts.packed.batch(rows).to(device)
    with mixed_precision(batch.token_ids):
        hidden, embedding, attention = learners.encoder.quantized(batch.token_ids)
    logits, reach = learners.head(learners.encoder.output_scales, hidden, embedding, batch)
    logits = logits[:, 0].float()
    labels = to_device(torch.from_numpy(texts.three_labels[rows]), device)
    loss = binary_cross_entropy_with_logits(logits, targets_of(learners, texts, rows))
    loss = loss + config.reach_price * reach.float() + learners.threshold(logits, labels)
    return batch, hidden, attention, loss


def _train(
    name: str,
    learners: Learners,
    texts: TrainingSet,
    config: StageConfig,
    context: StageContext,
    checkpoint: Path,
    compute_loss: Loss,
) -> State:
    """Train the encoder with its pooled head."""
    groups = [
        ParameterGroup(trainable(learners.encoder)),
        ParameterGroup([*learners.pooled.parameters(), *learners.distillation.parameters()], 10.0),
    ]
    _run(name, groups, texts, config, context, checkpoint, compute_loss)
    return learners.state_dict()


def _run(
    name: str,
    groups: Sequence[ParameterGroup],
    texts: TrainingSet,
    config: StageConfig,
    context: StageContext,
    checkpoint: Path,
    compute_loss: Loss,
) -> None:
    torch.manual_seed(context.seed)
    rng = np.random.default_rng(context.seed)
    plan = plan_epochs(texts.packed.sizes, config.epochs, config.tokens_per_batch, rng)
    train_loop(
        name, plan, groups, compute_loss,
        lr=config.lr, warm_up=config.warm_up, report=context.report, checkpoint=checkpoint,
    )  # fmt: skip
