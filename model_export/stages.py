"""The stages in which the encoder and its leader head are trained, each from the weights of the stage before.

teach         fine-tunes all twelve published layers, with softmax, on all labels: the teacher
finetune      trains some of these layers, with softmax: hidden states are distilled from those of the teacher
harden        turns softmax into argmax, with the same losses
fit_head      trains a leader head on the encoder, which does not change
tune_jointly  trains the quantized encoder and its head

Where the encoder is trained, a loss keeps the published embedding of a text a linear map of the mean of its
hidden states, so that custom models can predict other subjects from them (`EmbeddingDistillation`).
"""

from collections.abc import Callable, Sequence
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
from model_export.head.word_losses import concentration, word_loss
from model_export.teacher import TeacherModel, label_loss, mixed_precision
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
    word_weight: float = 0.5  # of the losses on words
    concentration_price: float = 0.3  # cost of evidence from one leader, in long texts


@dataclass(frozen=True)
class StageRun:
    """What a stage trains, on what, and how."""

    model: TrainingModel
    texts: TrainingSet
    config: StageConfig
    seed: int
    report: Report
    teacher: TeacherModel | None = None
    layers: Sequence[int] = ()  # of the teacher, from which the encoder is made

    def token_ids(self, rows: Ints) -> Tensor:
        """Return the token ids of texts of one chunk, [B, N]."""
        return token_ids_of(self.model, self.texts, rows)

    def batch(self, rows: Ints) -> Batch:
        """Return the chunks of some texts."""
        return self.texts.packed.batch(rows).to(device_of(self.model))

    def targets(self, rows: Ints) -> Tensor:
        """Return the targets of some texts."""
        return to_device(torch.from_numpy(self.texts.targets[rows]), device_of(self.model))

    def labels(self, rows: Ints) -> Tensor:
        """Return the labels of some texts: 0, .5, 1, or NaN if there is none."""
        return to_device(torch.from_numpy(self.texts.labels[rows]), device_of(self.model))

    def part_targets(self, rows: Ints) -> Tensor:
        """Return the targets of the parts of some texts, NaN for texts that are not joined."""
        return to_device(torch.from_numpy(self.texts.part_targets[rows]), device_of(self.model))

    def hidden_distance(self, states: Sequence[Tensor], x: Tensor) -> Tensor | float:
        """Return the weighted distance of the states of all layers from the teacher's."""
        if self.teacher is None:
            return 0.0
        with torch.no_grad(), mixed_precision(x):
            targets = self.teacher.encoder.soft(x)
        last = [next_layer - 1 for next_layer in self.layers[1:]] + [len(targets) - 1]
        pairs = zip(states, [targets[i] for i in last], strict=True)
        distances = [state_distance(state, target, x) for state, target in pairs]
        return self.config.hidden_weight * torch.stack(distances).mean()

    def embedding_distance(self, mean: Tensor, rows: Ints) -> Tensor | float:
        """Return the weighted distance from mean hidden states to the published embeddings of some texts."""
        if self.texts.embeddings is None:
            return 0.0
        distance: Tensor = self.model.distillation(mean, embeddings_of(self.model, self.texts, rows))
        return self.config.embedding_weight * distance


def teach(
    model: TeacherModel, texts: TrainingSet, noise: NDArray[np.float32], config: StageConfig, seed: int,
    report: Report, checkpoint: Path,
) -> State:  # fmt: skip
    """Fine-tune the teacher on labelled texts, whose labels are wrong as often as `noise` says."""
    device = device_of(model)

    def compute_loss(rows: Ints, progress: float) -> Tensor:
        labels = torch.from_numpy((2 * texts.labels[rows]).astype(np.int64))
        known = (labels, torch.from_numpy(noise[rows]), torch.from_numpy(texts.has_neutral[rows]))
        logits = model(texts.packed.batch(rows).to(device))
        return label_loss(logits, *(to_device(values, device) for values in known))

    groups = [
        ParameterGroup(trainable_parameters(model.encoder)),
        ParameterGroup([*model.head.parameters()], config.head_lr / config.lr),
    ]
    return _train("teach", groups, model, texts, config, seed, report, checkpoint, compute_loss)


def finetune(run: StageRun, checkpoint: Path) -> State:
    """Train the encoder with softmax; return all weights."""

    def compute_loss(rows: Ints, progress: float) -> Tensor:
        x = run.token_ids(rows)
        with mixed_precision(x):
            states = run.model.encoder.soft(x)
        return _pooled_loss(run, rows, states, x)

    return _train_encoder("finetune", run, checkpoint, compute_loss)


def harden(run: StageRun, checkpoint: Path) -> State:
    """Train the encoder while softmax becomes argmax; return all weights."""
    config = run.config

    def compute_loss(rows: Ints, progress: float) -> Tensor:
        x = run.token_ids(rows)
        with mixed_precision(x):
            states, attention = run.model.encoder.hard(x, min(1.0, progress / config.anneal))
        return _pooled_loss(run, rows, states, x) + attention_cost(attention, config, progress)

    return _train_encoder("harden", run, checkpoint, compute_loss)


def fit_head(run: StageRun, checkpoint: Path) -> State:
    """Train a new leader head on the encoder; return all weights.

    Gradients are recorded, so activations of the encoder are rounded and its weights are not.
    """
    encoder, head, pooled = run.model.encoder, run.model.head, run.model.pooled
    calibrate(encoder, run.texts)
    with torch.no_grad():  # words are placed by the direction of the pooled head
        head.projection.weight[0, : encoder.config.width] = 0.35 * pooled.linear.weight[0]
        head.projection.bias[0] = 0.35 * pooled.linear.bias[0]
    encoder.requires_grad_(False)

    def compute_loss(rows: Ints, progress: float) -> Tensor:
        return _leader_loss(run, rows)[-1]

    parameters = [*head.parameters(), run.model.threshold.raw]
    groups = [ParameterGroup(parameters, run.config.head_lr / run.config.lr)]
    return _train_stage("fit_head", groups, run, checkpoint, compute_loss)


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
    return _train_stage("tune_jointly", groups, run, checkpoint, compute_loss)


# ---- shared by the stages


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


def _pooled_loss(run: StageRun, rows: Ints, states: Sequence[Tensor], x: Tensor) -> Tensor:
    """Return the loss of the head on the mean state, with the distances from both teachers' states."""
    mean = mean_state(states[-1], x)
    logits = run.model.pooled(mean)
    loss = binary_cross_entropy_with_logits(logits, run.targets(rows))
    loss = loss + run.model.threshold(logits, run.labels(rows))
    total: Tensor = loss + run.embedding_distance(mean, rows) + run.hidden_distance(states, x)
    return total


def _leader_loss(run: StageRun, rows: Ints) -> tuple[Batch, Tensor, AttentionRecord, Tensor]:
    """Return a batch, its hidden states, their attention, and the loss of the leader head."""
    batch = run.batch(rows)
    with mixed_precision(batch.token_ids):
        hidden, embedding, attention = run.model.encoder.quantized(batch.token_ids)
    return batch, hidden, attention, _head_loss(run, rows, batch, hidden, embedding)


def _head_loss(run: StageRun, rows: Ints, batch: Batch, hidden: Tensor, embedding: Tensor) -> Tensor:
    """Return the loss of the leader head on the quantized outputs of the encoder."""
    model, config = run.model, run.config
    output = model.head.classify(model.encoder.output_scales, hidden, embedding, batch)
    logits = output.logits[:, 0].float()
    loss = binary_cross_entropy_with_logits(logits, run.targets(rows))
    loss = loss + model.threshold(logits, run.labels(rows))
    loss = loss + config.word_weight * word_loss(model.head, output, batch, run.part_targets(rows))
    loss = loss + config.concentration_price * concentration(model.head, output, batch)
    total: Tensor = loss + config.reach_price * output.words.reach_cost.float()
    return total


def _train_encoder(name: str, run: StageRun, checkpoint: Path, compute_loss: Loss) -> State:
    """Train the encoder with its pooled head; return all weights."""
    model = run.model
    heads = [*model.pooled.parameters(), *model.distillation.parameters(), model.threshold.raw]
    groups = [ParameterGroup(trainable_parameters(model.encoder)), ParameterGroup(heads, 10.0)]
    return _train_stage(name, groups, run, checkpoint, compute_loss)


def _train_stage(
    name: str, groups: Sequence[ParameterGroup], run: StageRun, checkpoint: Path, compute_loss: Loss
) -> State:
    settings = run.config, run.seed, run.report, checkpoint, compute_loss
    return _train(name, groups, run.model, run.texts, *settings)


def _train(
    name: str, groups: Sequence[ParameterGroup], model: nn.Module, texts: TrainingSet, config: StageConfig,
    seed: int, report: Report, checkpoint: Path, compute_loss: Loss,
) -> State:  # fmt: skip
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    plan = plan_epochs(texts.packed.sizes, config.epochs, config.tokens_per_batch, rng)
    model.train()
    train_loop(
        name, plan, groups, compute_loss,
        lr=config.lr, warm_up=config.warm_up, report=report, checkpoint=checkpoint,
    )  # fmt: skip
    return model.eval().state_dict()
