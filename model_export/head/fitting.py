"""Fit a leader head to labelled texts on the outputs of an encoder whose weights do not change.

    start     a linear probe on each text's mean features gives the directions of the words
    steps     reach, weights and, slowly, directions are trained by gradient descent; cross-validation chooses
              the number of steps
    read-out  v and b are a logistic regression on the weighted means of leaders, a small convex problem

The features of a word are its hidden state, which depends on its context, and its input embedding. Points
start near the origin, where they are linear in the features. Further out all would have the same length, so
that an informative word could not become a leader.

Two exclusive labels have one logit, all others one each.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from model_export.data.training_set import Batch, Ints, batches
from model_export.encoder.model import OutputScales
from model_export.head.encoded import EncodedTexts
from model_export.head.leader_head import WEIGHT_GRID, LeaderHead, LeaderHeadConfig

Floats = NDArray[np.float64]
Checkpoint = Callable[[int, LeaderHead], None]

MAX_HEAD_DIMENSION = 16
SCALE = 1 / 32  # assumed value of one step of the encoder's outputs
BATCH_TEXTS = 32
FITTED_TOKENS_PER_RUN = 4_096  # of a batch for which no gradient is computed
PROBE_PENALTY = 0.5  # on the squared weights of the probe, in mean squares of a row
READOUT_PENALTY = 0.3  # on the squared weights of the read-out
CHECKPOINTS = (0, 60, 240, 960)  # numbers of steps after which the read-out is fitted again
LEARNING_RATE = 5e-4
DIRECTION_RATE = 3e-3  # of the projection, as a share of the size of its weights
INITIAL_RADIUS = 0.25  # mean length of a word's direction before training


@dataclass(frozen=True)
class Task:
    """A classification task; with `multi_label` a text may have several labels."""

    n_labels: int
    multi_label: bool

    @property
    def n_logits(self) -> int:
        """One for two exclusive labels, else one for each label."""
        return 1 if self.n_labels == 2 and not self.multi_label else self.n_labels

    @property
    def dimension(self) -> int:
        """The dimension of the points: two for two or three labels, else that of the logits."""
        return int(np.clip(self.n_logits - (not self.multi_label), 2, MAX_HEAD_DIMENSION))

    def loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Return the mean cross-entropy of logits [n, C] to targets [n, labels]."""
        if self.n_logits == 1:
            return functional.binary_cross_entropy_with_logits(logits[:, 0], targets[:, 1])
        if self.multi_label:
            return functional.binary_cross_entropy_with_logits(logits, targets) * self.n_labels
        return functional.cross_entropy(logits, targets)


def fixed_scales(width: int) -> OutputScales:
    """Return the scales that heads of custom models assume: the same for every channel."""
    scale = torch.full((width,), SCALE)
    return OutputScales(scale, scale)


def fit(
    texts: EncodedTexts,
    targets: NDArray[np.float32],
    task: Task,
    steps: int,
    *,
    seed: int = 0,
    checkpoint: Checkpoint = lambda steps, head: None,
) -> LeaderHead:
    """Return a head after a number of steps.

    Args:
        texts: the training data, encoded.
        targets: [n, labels], 1 for the labels of a text.
        task: labels and loss.
        steps: one of CHECKPOINTS.
        seed: of the random numbers.
        checkpoint: called with the head at each of CHECKPOINTS up to `steps`.
    """
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    scales, y = fixed_scales(texts.width), torch.from_numpy(targets)
    head = _initial_head(texts, y, task)
    optimizer = _optimizer(head)
    order: list[Ints] = []
    for step in range(steps + 1):
        if step in CHECKPOINTS:
            _fit_readout(head, texts, y, task)
            checkpoint(step, head)
        if step == steps:
            break
        if not order:
            order = np.array_split(rng.permutation(len(texts)), max(1, len(texts) // BATCH_TEXTS))
        rows = order.pop()
        head.train()
        logits, reach = head(scales, *texts.batch(rows, rng))
        loss = task.loss(logits, y[rows].double()) + 0.1 * reach
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(head.parameters(), 1.0)
        optimizer.step()
    return head.eval()


def _optimizer(head: LeaderHead) -> torch.optim.Optimizer:
    """Return AdamW with a smaller rate for the projection.

    The step of AdamW is as large as its rate, whatever the gradient. The weights of the projection are a
    thousandth of the others: at the same rate a few rows would overwrite the result of the probe.
    """
    projection = list(head.projection.parameters())
    size = float(head.projection.weight.detach()[:-1].pow(2).mean().sqrt())
    others = [p for name, p in head.named_parameters() if not name.startswith("projection.")]
    groups: list[dict[str, Any]] = [{"params": projection, "lr": DIRECTION_RATE * size}, {"params": others}]
    return torch.optim.AdamW(groups, lr=LEARNING_RATE, weight_decay=0.01)


@torch.no_grad()
def predict_logits(head: LeaderHead, texts: EncodedTexts, scales: OutputScales | None = None) -> Floats:
    """Return the logits that the graph gives, [n, C]; without `scales`, those of a custom model."""
    head.eval()
    scales = scales or fixed_scales(texts.width)
    return np.asarray(_map_batches(texts, lambda batch: head(scales, *batch)[0]).numpy(), np.float64)


def _map_batches(texts: EncodedTexts, function: Callable[[tuple[Tensor, Tensor, Batch]], Tensor]) -> Tensor:
    """Apply a function to batches of texts of similar length; return its rows in the order of the texts."""
    lengths = np.array([len(text.token_ids) for text in texts.tokenized])
    rows = list(batches(lengths, FITTED_TOKENS_PER_RUN))
    outputs = torch.cat([function(texts.batch(batch)) for batch in rows])
    return outputs[torch.from_numpy(np.concatenate(rows)).argsort()]


def _initial_head(texts: EncodedTexts, y: Tensor, task: Task) -> LeaderHead:
    """Return a head whose directions are the singular vectors of a linear probe."""
    W, d = texts.width, task.dimension
    x = torch.from_numpy(texts.mean_features()).float() * SCALE
    center = x.mean(0)
    deviation = (x - center).view(-1, 2, W).pow(2).sum(2).mean(0).sqrt()  # of hidden states, of embeddings
    scale = (0.5**0.5 / deviation.clamp(min=1e-6)).repeat_interleave(W)
    weight = _fit_probe((x - center) * scale, y[:, 1:] if task.n_logits == 1 else y)
    _, size, directions = torch.linalg.svd(weight, full_matrices=False)
    rank = min(d, len(size))
    direction = torch.zeros(d, 2 * W)
    direction[:rank] = directions[:rank] * (size[:rank, None] / size[0].clamp(min=1e-9)).sqrt() * scale
    sample = range(0, len(texts), max(1, len(texts) // 200))
    words = torch.from_numpy(np.concatenate([texts.word_features(i) for i in sample])).float() * SCALE
    radius = ((words - center) @ direction.T).norm(dim=1).mean()
    direction = direction * (INITIAL_RADIUS / radius.clamp(min=1e-6))
    head = LeaderHead(LeaderHeadConfig(W, d, task.n_logits, use_embeddings=True))
    with torch.no_grad():
        head.reach_output.bias.fill_(1.0)
        head.projection.weight.zero_()
        head.projection.weight[:d] = direction
        head.projection.bias.zero_()
        head.projection.bias[:d] = -direction @ center
    return head


def _fit_probe(x: Tensor, y: Tensor) -> Tensor:
    """Return the weights [C, c] of a ridge regression, better than logistic regression with few rows."""
    gram = x.T @ x
    gram.diagonal().add_(PROBE_PENALTY * x.pow(2).sum(1).mean().clamp(min=1e-6))  # if all texts are alike
    weights: Tensor = torch.linalg.solve(gram, x.T @ (y - y.mean(0))).T
    return weights


@torch.no_grad()
def _fit_readout(head: LeaderHead, texts: EncodedTexts, y: Tensor, task: Task) -> None:
    """Set v and b by a logistic regression on the pooled leaders [n, d]."""
    head.eval()
    scales = fixed_scales(texts.width)
    x = _map_batches(texts, lambda batch: head.pooled(scales, *batch))
    with torch.enable_grad():
        v, b = logistic_regression(x.float(), y, task, READOUT_PENALTY)
    head.v.copy_(torch.round(v.double() * WEIGHT_GRID) / WEIGHT_GRID)
    head.b.copy_(b.double())


def logistic_regression(x: Tensor, y: Tensor, task: Task, penalty: float) -> tuple[Tensor, Tensor]:
    """Return weights [C, c] and biases [C]; `penalty` is on half the squared weights, per row."""
    weight = torch.zeros(task.n_logits, x.shape[1], requires_grad=True)
    b = torch.zeros(task.n_logits, requires_grad=True)
    optimizer = torch.optim.LBFGS([weight, b], max_iter=60, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        value = task.loss(x @ weight.T + b, y) + penalty / len(x) / 2 * (weight * weight).sum()
        value.backward()  # type: ignore[no-untyped-call]
        return value

    optimizer.step(loss)  # type: ignore[no-untyped-call]
    return weight.detach(), b.detach()


def scale_logits(head: LeaderHead, factor: float) -> None:
    """Multiply all logits by a factor."""
    with torch.no_grad():
        head.v.copy_(torch.round(head.v * factor * WEIGHT_GRID) / WEIGHT_GRID)
        head.b.mul_(factor)


def fit_logit_scale(logits: Floats, targets: NDArray[np.float32], task: Task) -> float:
    """Return the factor between 1/8 and 2 that calibrates held-out logits best (Platt 1999)."""
    x, y = torch.from_numpy(logits), torch.from_numpy(targets).double()
    smoothing = 1 / (len(y) + 2)  # a few correct rows do not justify a high confidence
    y = y * (1 - smoothing) + (1 - y) * smoothing / max(1, y.shape[1] - 1)
    candidates = np.geomspace(0.125, 2.0, 41)
    return float(min(candidates, key=lambda factor: float(task.loss(x * factor, y))))
