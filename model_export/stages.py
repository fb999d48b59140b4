"""The stages in which the encoder and its leader head are trained, each from the weights of the stage before.

finetune      trains six layers of the published encoder, with softmax
harden        turns softmax into argmax: hidden states are distilled from those of the finetuned encoder
fit_head      trains a leader head on the quantized encoder, which does not change
tune_jointly  trains the quantized encoder and its head

In every stage but the third, a loss keeps the published embedding of a text a linear map of the mean of its
hidden states, so that custom models can predict other subjects from them (`EmbeddingDistillation`).
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
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from model_export.data.training_set import Batch, Ints, TrainingSet, plan_epochs, to_device
from model_export.encoder.attention import PAD, AttentionRecord
from model_export.encoder.fake_quantization import MaxObserver
from model_export.encoder.model import Encoder
from model_export.encoder.quantized import ZERO
from model_export.head.leader_head import LeaderHead
from model_export.training import ParameterGroup, Report, train_loop
from model_export.training_model import TrainingModel

Loss = Callable[[Ints, float], Tensor]
State = dict[str, Any]
CALIBRATION_TEXTS = 700


@dataclass(frozen=True)
class StageConfig:
    """The settings of one stage."""

    epochs: float = 1.0
    tokens_per_batch: int = 1_800
    lr: float = 1e-4
    head_lr: float = 1e-3
    warm_up: int = 40
    anneal: float = 0.35  # softmax becomes argmax over this share of the steps
    hidden_weight: float = 1.0  # of the distance from the soft hidden states, in units of their variance
    embedding_weight: float = 2.0  # of the distance from the published embedding
    attention_price: float = 0.0  # cost of attending to a token, lower in layers before the last
    price_from: float = 0.0  # share of the steps after which the price rises, over the next tenth
    reach_price: float = 0.3  # cost of a mean reach of one


@dataclass(frozen=True)
class StageContext:
    """The seed and the report of a run."""

    seed: int
    report: Report


def finetune(
    model: TrainingModel, texts: TrainingSet, config: StageConfig, context: StageContext, checkpoint: Path
) -> State:
    """Train the encoder with softmax; return all weights."""

    def compute_loss(rows: Ints, progress: float) -> Tensor:
        x = token_ids_of(model, texts, rows)
        with mixed_precision(x):
            states = model.encoder.soft(x)
        mean = mean_state(states[-1], x)
        return _pooled_loss(model, texts, rows, mean, targets_of(model, texts, rows), config)

    return _train_pooled("finetune", model, texts, config, context, checkpoint, compute_loss)


def harden(
    model: TrainingModel, texts: TrainingSet, config: StageConfig, context: StageContext, checkpoint: Path
) -> State:
    """Train the encoder while softmax becomes argmax; return all weights."""
    soft, soft_head = copy.deepcopy(model.encoder).requires_grad_(False), copy.deepcopy(model.pooled)

    def compute_loss(rows: Ints, progress: float) -> Tensor:
        x = token_ids_of(model, texts, rows)
        with mixed_precision(x):
            states, attention = model.encoder.hard(x, min(1.0, progress / config.anneal))
            with torch.no_grad():
                soft_states = soft.soft(x)
        with torch.no_grad():
            soft_target = torch.sigmoid(soft_head(mean_state(soft_states[-1], x)))
            target = (soft_target + targets_of(model, texts, rows)) / 2
        distances = [state_distance(*pair, x) for pair in zip(states, soft_states, strict=True)]
        loss = _pooled_loss(model, texts, rows, mean_state(states[-1], x), target, config)
        cost = attention_cost(attention, config, progress)
        return loss + config.hidden_weight * torch.stack(distances).mean() + cost

    return _train_pooled("harden", model, texts, config, context, checkpoint, compute_loss)


def fit_head(
    model: TrainingModel, texts: TrainingSet, config: StageConfig, context: StageContext, checkpoint: Path
) -> State:
    """Train a new leader head on the quantized encoder; return all weights."""
    calibrate(model.encoder, texts)
    with torch.no_grad():  # words are placed by the direction of the pooled head
        model.head.projection.weight[0] = 0.35 * model.pooled.linear.weight[0]
        model.head.projection.bias[0] = 0.35 * model.pooled.linear.bias[0]
    model.encoder.requires_grad_(False)

    def compute_loss(rows: Ints, progress: float) -> Tensor:
        _, _, _, loss = _leader_loss(model, texts, rows, config)
        return loss

    _train_head([*model.head.parameters()], model, texts, config, context, checkpoint, compute_loss)
    return model.state_dict()


def refit_head(
    model: TrainingModel,
    texts: TrainingSet,
    config: StageConfig,
    context: StageContext,
    checkpoint: Path,
    states: NDArray[np.uint8],
) -> State:
    """Train the leader head further on `states` [T, 2, W], which the encoder as released gives.

    Return all weights. The reach of words stays: without the encoder it would only shrink, and with it the
    difference between opinion words and others.
    """
    device, head = device_of(model), model.head

    def compute_loss(rows: Ints, progress: float) -> Tensor:
        batch = texts.packed.batch(rows).to(device)
        x = to_device(texts.packed.padded_states(states, rows), device).float() - ZERO
        return _head_loss(model, texts, rows, batch, x[:, :, 0], x[:, :, 1], config)

    trained = [*head.projection.parameters(), head.v, head.b]
    _train_head(trained, model, texts, config, context, checkpoint, compute_loss)
    return model.state_dict()


def tune_jointly(
    model: TrainingModel, texts: TrainingSet, config: StageConfig, context: StageContext, checkpoint: Path
) -> State:
    """Train the quantized encoder and its head; return all weights."""
    model.encoder.requires_grad_(True)

    def compute_loss(rows: Ints, progress: float) -> Tensor:
        batch, hidden, attention, loss = _leader_loss(model, texts, rows, config)
        if len(batch.token_ids) == len(rows) and texts.embeddings is not None:  # texts of one chunk
            mean = mean_state(hidden * model.encoder.output_scales.hidden, batch.token_ids)
            distance = model.distillation(mean, embeddings_of(model, texts, rows))
            loss = loss + config.embedding_weight * distance
        return loss + attention_cost(attention, config, progress)

    groups = [
        ParameterGroup(trainable_parameters(model.encoder)),
        ParameterGroup([*model.head.parameters(), model.threshold.raw], config.head_lr / config.lr),
        ParameterGroup(list(model.distillation.parameters()), 5.0),
    ]
    model.head.train()
    _run("tune_jointly", groups, texts, config, context, checkpoint, compute_loss)
    model.head.eval()
    return model.state_dict()


# ---- shared by the stages


def mixed_precision(x: Tensor) -> AbstractContextManager[None]:
    """Return a context in which products are bfloat16; scores and sums stay float32."""
    return torch.autocast(x.device.type, torch.bfloat16)


def device_of(module: nn.Module) -> torch.device:
    """Return the device that a module is on."""
    return next(module.parameters()).device


def mean_state(states: Tensor, x: Tensor) -> Tensor:
    """Return the mean hidden state of each text."""
    is_token = (x != PAD)[..., None]
    return (states * is_token).sum(1) / is_token.sum(1)


def state_distance(states: Tensor, target: Tensor, x: Tensor) -> Tensor:
    """Return the mean squared distance of the states of tokens, in units of the variance of the target."""
    is_token = (x != PAD)[..., None]
    mean = (target * is_token).sum((0, 1)) / is_token.sum()
    return ((states - target) * is_token).square().sum() / ((target - mean) * is_token).square().sum()


def token_ids_of(module: nn.Module, texts: TrainingSet, rows: Ints) -> Tensor:
    """Return the token ids of texts of one chunk, [B, N], on the device of the module."""
    return to_device(texts.packed.padded(rows), device_of(module))


def targets_of(module: nn.Module, texts: TrainingSet, rows: Ints) -> Tensor:
    """Return the targets of some texts."""
    return to_device(torch.from_numpy(texts.targets[rows]), device_of(module))


def embeddings_of(module: nn.Module, texts: TrainingSet, rows: Ints) -> Tensor:
    """Return the published embeddings of some texts."""
    assert texts.embeddings is not None
    return to_device(torch.from_numpy(texts.embeddings[rows]), device_of(module)).float()


def attention_cost(attention: AttentionRecord, config: StageConfig, progress: float) -> Tensor:
    """Return the cost of attending to tokens. It is higher in late layers, whose receptive fields are larger.

    The price rises late, because an encoder that pays it from the start learns less.
    """
    rise = min(1.0, max(0.0, 10 * (progress - config.price_from))) if config.price_from else 1.0
    to_tokens = torch.stack(attention.to_tokens)
    layers = torch.arange(1, len(to_tokens) + 1, device=to_tokens.device) / len(to_tokens)
    return rise * config.attention_price * (to_tokens * layers.sqrt()).mean()


def trainable_parameters(encoder: Encoder) -> list[nn.Parameter]:
    """Return all parameters but the embedding tables, since most tokens are rare."""
    for table in (encoder.words, encoder.positions):
        table.requires_grad_(False)
    return [p for p in encoder.parameters() if p.requires_grad]


@torch.no_grad()
def calibrate(encoder: Encoder, texts: TrainingSet) -> None:
    """Set the scales of the quantized numbers by some texts."""
    short = texts.single_chunk()
    sample = short.take(np.random.default_rng(0).permutation(len(short))[:CALIBRATION_TEXTS])
    observer = MaxObserver()
    for rows in sample.batches(3_000):
        encoder.hard(token_ids_of(encoder, sample, rows), observer=observer)
    observer.set_scales(encoder.config.heads)


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
    model: TrainingModel, texts: TrainingSet, rows: Ints, mean: Tensor, target: Tensor, config: StageConfig
) -> Tensor:
    loss = binary_cross_entropy_with_logits(model.pooled(mean), target)
    if texts.embeddings is None:
        return loss
    distance: Tensor = model.distillation(mean, embeddings_of(model, texts, rows))
    return loss + config.embedding_weight * distance


def _leader_loss(
    model: TrainingModel, texts: TrainingSet, rows: Ints, config: StageConfig
) -> tuple[Batch, Tensor, AttentionRecord, Tensor]:
    """Return a batch, its hidden states, their attention, and the loss of the leader head."""
    device = device_of(model)
    batch = texts.packed.batch(rows).to(device)
    with mixed_precision(batch.token_ids):
        hidden, embedding, attention = model.encoder.quantized(batch.token_ids)
    return batch, hidden, attention, _head_loss(model, texts, rows, batch, hidden, embedding, config)


def _head_loss(
    model: TrainingModel,
    texts: TrainingSet,
    rows: Ints,
    batch: Batch,
    hidden: Tensor,
    embedding: Tensor,
    config: StageConfig,
) -> Tensor:
    """Return the loss of the leader head on the quantized outputs of the encoder."""
    logits, reach = model.head(model.encoder.output_scales, hidden, embedding, batch)
    logits = logits[:, 0].float()
    labels = to_device(torch.from_numpy(texts.three_labels[rows]), device_of(model))
    loss = binary_cross_entropy_with_logits(logits, targets_of(model, texts, rows))
    total: Tensor = loss + config.reach_price * reach.float() + model.threshold(logits, labels)
    return total


def _train_pooled(
    name: str,
    model: TrainingModel,
    texts: TrainingSet,
    config: StageConfig,
    context: StageContext,
    checkpoint: Path,
    compute_loss: Loss,
) -> State:
    """Train the encoder with its pooled head; return all weights."""
    groups = [
        ParameterGroup(trainable_parameters(model.encoder)),
        ParameterGroup([*model.pooled.parameters(), *model.distillation.parameters()], 10.0),
    ]
    _run(name, groups, texts, config, context, checkpoint, compute_loss)
    return model.state_dict()


def _train_head(
    parameters: list[nn.Parameter],
    model: TrainingModel,
    texts: TrainingSet,
    config: StageConfig,
    context: StageContext,
    checkpoint: Path,
    compute_loss: Loss,
) -> None:
    groups = [ParameterGroup([*parameters, model.threshold.raw], config.head_lr / config.lr)]
    model.head.train()
    _run("fit_head", groups, texts, config, context, checkpoint, compute_loss)
    model.head.eval()


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
