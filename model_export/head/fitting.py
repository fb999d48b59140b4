"""A plane of one's own rows, learnt on the frozen states of a reader.

    start     a linear probe of each text's mean states, last and first, says in which direction its words lie
    steps     reach, directions and weights learn by gradient, as many steps as the folds say is best
    read-out  v and b are a logistic regression on the places that the words end with: convex, a few numbers

First states say what words are anywhere. Last ones know their context, but a reader keeps in them above all
what it was taught: subjects are told better by both. Places begin near the origin, where they are linear in
the states: further out all words have the same length, and those that say much no longer lead.

Two labels that exclude each other have one logit, all others one each.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from model_export.data.training_set import Batch, Ints
from model_export.encoder.model import OutputScales
from model_export.head.encoded import EncodedTexts
from model_export.head.leader_head import WEIGHT_GRID, LeaderHead, LeaderHeadConfig
from service.runtime.batcher import group_by_length

Floats = NDArray[np.float64]

MAX_DIMENSION = 16
STEP = 1 / 32  # what one step of a state is taken to be worth
TEXTS = 32  # in a batch
PAIRS = 2**20  # pairs of words that are compared at once where nothing is learnt
PENALTY = 0.5  # on the squared weights of the probe, in mean squares of a row, however many there are
PENALTY_OUT = 0.3  # on the squared weights of the read-out
CHECKS = (0, 60, 240, 960)  # numbers of steps after which the read-out is made anew; the folds choose one
RATE = 5e-4
SPREAD = 0.25  # how far a usual word's direction goes in the beginning


def fixed_scales(width: int) -> OutputScales:
    """Return the scales that heads of custom models assume: the same for every channel."""
    scale = torch.full((width,), STEP)
    return OutputScales(scale, scale)


@dataclass(frozen=True)
class Task:
    """What is learnt: `several` labels may hold of one text."""

    labels: int
    several: bool

    @property
    def logits(self) -> int:
        return 1 if self.labels == 2 and not self.several else self.labels

    @property
    def dimensions(self) -> int:
        """Of the plane: two for two or three labels; one less than the labels, as their logits have."""
        return int(np.clip(self.logits - (not self.several), 2, MAX_DIMENSION))

    def loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        if self.logits == 1:
            return functional.binary_cross_entropy_with_logits(logits[:, 0], targets[:, 1])
        if self.several:
            return functional.binary_cross_entropy_with_logits(logits, targets) * self.labels
        return functional.cross_entropy(logits, targets)


def fit(
    states: EncodedTexts,
    targets: NDArray[np.float32],
    task: Task,
    steps: int,
    *,
    seed: int = 0,
    look: Callable[[int, LeaderHead], None] = lambda steps, plane: None,
) -> LeaderHead:
    """The plane after so many steps, one of `CHECKS`; `look` sees it at each of them."""
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    frozen, y = fixed_scales(states.width), torch.from_numpy(targets)
    plane = _begin(states, y, task, frozen)
    optimiser = torch.optim.AdamW(plane.parameters(), lr=RATE, weight_decay=0.01)
    order: list[Ints] = []
    for step in range(steps + 1):
        if step in CHECKS:
            _read_out(plane, frozen, states, y, task)
            look(step, plane)
        if step == steps:
            break
        if not order:
            order = np.array_split(rng.permutation(len(states)), max(1, len(states) // TEXTS))
        rows = order.pop()
        plane.train()
        logits, reach = plane(frozen, *states.batch(rows, rng))
        loss = task.loss(logits, y[rows].double()) + 0.1 * reach
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(plane.parameters(), 1.0)
        optimiser.step()
    return plane.eval()


@torch.no_grad()
def logits(plane: LeaderHead, states: EncodedTexts) -> Floats:
    """[n, C] in whole numbers, as the graph gives them."""
    plane.eval()
    frozen = fixed_scales(states.width)
    return np.asarray(_of_all(states, lambda batch: plane(frozen, *batch)[0]).numpy(), np.float64)


def _of_all(states: EncodedTexts, of: Callable[[tuple[Tensor, Tensor, Batch]], Tensor]) -> Tensor:
    """Of every text, those of similar length together."""
    runs = list(group_by_length([len(each) for each in states.readings], PAIRS, power=2))
    found = torch.cat([of(states.batch(np.array(rows))) for rows in runs])
    return found[torch.from_numpy(np.concatenate(runs)).argsort()]


def _begin(states: EncodedTexts, y: Tensor, task: Task, frozen: OutputScales) -> LeaderHead:
    W, d = states.width, task.dimensions
    x = torch.from_numpy(states.mean_features()).float() * STEP
    middle = x.mean(0)
    spread = (x - middle).view(-1, 2, W).pow(2).sum(2).mean(0).sqrt()  # of last and of first states
    scale = (0.5**0.5 / spread.clamp(min=1e-6)).repeat_interleave(W)
    weight = _probe((x - middle) * scale, y[:, 1:] if task.logits == 1 else y)
    _, size, along = torch.linalg.svd(weight, full_matrices=False)
    rank = min(d, len(size))
    direction = torch.zeros(d, 2 * W)
    direction[:rank] = along[:rank] * (size[:rank, None] / size[0].clamp(min=1e-9)).sqrt() * scale
    some = np.concatenate(
        [states.word_features(i) for i in range(0, len(states), max(1, len(states) // 200))]
    )
    usual = ((torch.from_numpy(some).float() * STEP - middle) @ direction.T).norm(dim=1).mean()
    direction = direction * (SPREAD / usual.clamp(min=1e-6))
    plane = LeaderHead(LeaderHeadConfig(W, d, task.logits, use_embeddings=True))
    with torch.no_grad():
        plane.reach_output.bias.fill_(1.0)
        plane.projection.weight.zero_()
        plane.projection.weight[:d] = direction
        plane.projection.bias.zero_()
        plane.projection.bias[:d] = -direction @ middle
    return plane


def _probe(x: Tensor, y: Tensor) -> Tensor:
    """Least squares with a ridge, [C, c]: few rows teach more so than by a logistic regression."""
    square = x.T @ x
    square.diagonal().add_(PENALTY * x.pow(2).sum(1).mean().clamp(min=1e-6))  # rows may all read alike
    found: Tensor = torch.linalg.solve(square, x.T @ (y - y.mean(0))).T
    return found


@torch.no_grad()
def _read_out(plane: LeaderHead, frozen: OutputScales, states: EncodedTexts, y: Tensor, task: Task) -> None:
    """v and b by a logistic regression on where each text is read, [n, d]."""
    plane.eval()
    x = _of_all(states, lambda batch: plane.pooled(frozen, *batch))
    with torch.enable_grad():
        v, b = regression(x.float(), y, task, PENALTY_OUT)
    plane.v.copy_(torch.round(v.double() * WEIGHT_GRID) / WEIGHT_GRID)
    plane.b.copy_(b.double())


def regression(x: Tensor, y: Tensor, task: Task, penalty: float) -> tuple[Tensor, Tensor]:
    """Logistic regression: (weights [C, c], b [C]); `penalty` on half the squares, per row."""
    weight = torch.zeros(task.logits, x.shape[1], requires_grad=True)
    b = torch.zeros(task.logits, requires_grad=True)
    found = torch.optim.LBFGS([weight, b], max_iter=60, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        found.zero_grad()
        value = task.loss(x @ weight.T + b, y) + penalty / len(x) / 2 * (weight * weight).sum()
        value.backward()  # type: ignore[no-untyped-call]
        return value

    found.step(loss)  # type: ignore[no-untyped-call]
    return weight.detach(), b.detach()


def tempered(plane: LeaderHead, factor: float) -> None:
    """All logits times `factor`."""
    with torch.no_grad():
        plane.v.copy_(torch.round(plane.v * factor * WEIGHT_GRID) / WEIGHT_GRID)
        plane.b.mul_(factor)


def temperature(logits: Floats, targets: NDArray[np.float32], task: Task) -> float:
    """The factor with which held-out logits are calibrated best, between 1/8 and 2."""
    x, y = torch.from_numpy(logits), torch.from_numpy(targets).double()
    doubt = 1 / (len(y) + 2)  # a few rows, all right, are no proof (Platt 1999)
    y = y * (1 - doubt) + (1 - y) * doubt / max(1, y.shape[1] - 1)
    tried = np.geomspace(0.125, 2.0, 41)
    return float(min(tried, key=lambda factor: float(task.loss(x * factor, y))))
