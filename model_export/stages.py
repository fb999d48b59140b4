"""The stages in which the encoder and its leader head are trained, each from the weights of the stage before.

finetune      trains six layers of the published encoder, with softmax
harden        turns softmax into argmax: hidden states are distilled from those of the finetuned encoder
fit_head      trains a leader head on the encoder, which does not change
tune_jointly  trains the quantized encoder and its head
refit_head    instead of all these: trains the head of a released model further

Where the encoder is trained, a loss keeps the published embedding of a text a linear map of the mean of its
hidden states, so that custom models can predict other subjects from them (`EmbeddingDistillation`).
"""

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
class StageRun:
    """What a stage trains, on what, and how."""

    model: TrainingModel
    texts: TrainingSet
    config: StageConfig
    seed: int
    report: Report

    def token_ids(self, rows: Ints) -> Tensor:
        """Return the token ids of texts of one chunk, [B, N]."""
        return token_ids_of(self.model, self.texts, rows)

    def batch(self, rows: Ints) -> Batch:
        """Return the chunks of some texts."""
        return self.texts.packed.batch(rows).to(device_of(self.model))

    def targets(self, rows: Ints) -> Tensor:
        """Return the targets of some texts."""
        return to_device(torch.from_numpy(self.texts.targets[rows]), device_of(self.model))

    def three_labels(self, rows: Ints) -> Tensor:
        """Return the labels of some texts: 0, .5, 1, or NaN if there is none."""
        return to_device(torch.from_numpy(self.texts.three_labels[rows]), device_of(self.model))

    def embedding_distance(self, mean: Tensor, rows: Ints) -> Tensor | float:
        """Return the weighted distance from mean hidden states to the published embeddings of some texts."""
        if self.texts.embeddings is None:
            return 0.0
        distance: Tensor = self.model.distillation(mean, embeddings_of(self.model, self.texts, rows))
        return self.config.embedding_weight * distance


def finetune(run: StageRun, checkpoint: Path) -> State:
    """Train the encoder with softmax; return all weights."""

    def compute_loss(rows: Ints, progress: float) -> Tensor:
        x = run.token_ids(rows)
        with mixed_precision(x):
            states = run.model.encoder.soft(x)
        return _pooled_loss(run, rows, mean_state(states[-1], x), run.targets(rows))

    return _train_encoder("finetune", run, checkpoint, compute_loss)


def harden(run: StageRun, checkpoint: Path) -> State:
    """Train the encoder while softmax becomes argmax; return all weights."""
    encoder, config = run.model.encoder, run.config
    soft, soft_head = copy.deepcopy(encoder).requires_grad_(False), copy.deepcopy(run.model.pooled)

    def compute_loss(rows: Ints, progress: float) -> Tensor:
        x = run.token_ids(rows)
        with mixed_precision(x):
            states, attention = encoder.hard(x, min(1.0, progress / config.anneal))
            with torch.no_grad():
                soft_states = soft.soft(x)
        with torch.no_grad():
            soft_target = torch.sigmoid(soft_head(mean_state(soft_states[-1], x)))
            target = (soft_target + run.targets(rows)) / 2
        distances = [state_distance(*pair, x) for pair in zip(states, soft_states, strict=True)]
        loss = _pooled_loss(run, rows, mean_state(states[-1], x), target)
        cost = attention_cost(attention, config, progress)
        return loss + config.hidden_weight * torch.stack(distances).mean() + cost

    return _train_encoder("harden", run, checkpoint, compute_loss)


def fit_head(run: StageRun, checkpoint: Path) -> State:
    """Train a new leader head on the encoder; return all weights.

    Gradients are recorded, so activations of the encoder are rounded and its weights are not.
    """
    encoder, head, pooled = run.model.encoder, run.model.head, run.model.pooled
    calibrate(encoder, run.texts)
    with torch.no_grad():  # words are placed by the direction of the pooled head
        head.projection.weight[0] = 0.35 * pooled.linear.weight[0]
        head.projection.bias[0] = 0.35 * pooled.linear.bias[0]
    encoder.requires_grad_(False)

    def compute_loss(rows: Ints, progress: float) -> Tensor:
        return _leader_loss(run, rows)[-1]

    return _train_head("fit_head", [*head.parameters()], run, checkpoint, compute_loss)


def refit_head(run: StageRun, checkpoint: Path, states: NDArray[np.uint8]) -> State:
    """Train the leader head further on `states` [T, 2, W], which the encoder as released gives.

    Return all weights. The reach of words stays: without the encoder it would only shrink, and with it the
    difference between opinion words and others.
    """
    head = run.model.head

    def compute_loss(rows: Ints, progress: float) -> Tensor:
        batch = run.batch(rows)
        x = to_device(run.texts.packed.padded_states(states, rows), batch.token_ids.device).float() - ZERO
        return _head_loss(run, rows, batch, x[:, :, 0], x[:, :, 1])

    parameters = [*head.projection.parameters(), head.v, head.b]
    return _train_head("refit_head", parameters, run, checkpoint, compute_loss)


def tune_jointly(run: StageRun, checkpoint: Path) -> State:
    """Train the quantized encoder and its head; return all weights."""
    model, config = run.model, run.config
    model.encoder.requires_grad_(True)

    def compute_loss(rows: Ints, progress: float) -> Tensor:
        batch, hidden, attention, loss = _leader_loss(run, rows)
        if len(batch.token_ids) == len(rows):  # texts of one chunk
            mean = mean_state(hidden * model.encoder.output_scales.hidden, batch.token_ids)
            loss = loss + run.embedding_distance(mean, rows)
        return loss + attention_cost(attention, config, progress)

    groups = [
        ParameterGroup(trainable_parameters(model.encoder)),
        ParameterGroup([*model.head.parameters(), model.threshold.raw], config.head_lr / config.lr),
        ParameterGroup(list(model.distillation.parameters()), 5.0),
    ]
    return _train("tune_jointly", groups, run, checkpoint, compute_loss)


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


def _pooled_loss(run: StageRun, rows: Ints, mean: Tensor, target: Tensor) -> Tensor:
    loss = binary_cross_entropy_with_logits(run.model.pooled(mean), target)
    return loss + run.embedding_distance(mean, rows)


def _leader_loss(run: StageRun, rows: Ints) -> tuple[Batch, Tensor, AttentionRecord, Tensor]:
    """Return a batch, its hidden states, their attention, and the loss of the leader head."""
    batch = run.batch(rows)
    with mixed_precision(batch.token_ids):
        hidden, embedding, attention = run.model.encoder.quantized(batch.token_ids)
    return batch, hidden, attention, _head_loss(run, rows, batch, hidden, embedding)


def _head_loss(run: StageRun, rows: Ints, batch: Batch, hidden: Tensor, embedding: Tensor) -> Tensor:
    """Return the loss of the leader head on the quantized outputs of the encoder."""
    model = run.model
    logits, reach = model.head(model.encoder.output_scales, hidden, embedding, batch)
    logits = logits[:, 0].float()
    loss = binary_cross_entropy_with_logits(logits, run.targets(rows))
    neutral = model.threshold(logits, run.three_labels(rows))
    total: Tensor = loss + run.config.reach_price * reach.float() + neutral
    return total


def _train_encoder(name: str, run: StageRun, checkpoint: Path, compute_loss: Loss) -> State:
    """Train the encoder with its pooled head; return all weights."""
    model = run.model
    groups = [
        ParameterGroup(trainable_parameters(model.encoder)),
        ParameterGroup([*model.pooled.parameters(), *model.distillation.parameters()], 10.0),
    ]
    return _train(name, groups, run, checkpoint, compute_loss)


def _train_head(
    name: str, parameters: list[nn.Parameter], run: StageRun, checkpoint: Path, compute_loss: Loss
) -> State:
    """Train parameters of the head and the threshold; return all weights."""
    config = run.config
    groups = [ParameterGroup([*parameters, run.model.threshold.raw], config.head_lr / config.lr)]
    return _train(name, groups, run, checkpoint, compute_loss)


def _train(
    name: str, groups: Sequence[ParameterGroup], run: StageRun, checkpoint: Path, compute_loss: Loss
) -> State:
    torch.manual_seed(run.seed)
    rng = np.random.default_rng(run.seed)
    config, model = run.config, run.model
    plan = plan_epochs(run.texts.packed.sizes, config.epochs, config.tokens_per_batch, rng)
    model.head.train()
    train_loop(
        name, plan, groups, compute_loss,
        lr=config.lr, warm_up=config.warm_up, report=run.report, checkpoint=checkpoint,
    )  # fmt: skip
    model.head.eval()
    return model.state_dict()
