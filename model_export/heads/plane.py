"""The plane on a reader: words are places, hardmax layers move them to their leaders, the leaders decide.

    r_i, t_i = linear in the last state of word i               the mean over its pieces;
                                                                 `lexical`: and in its first state
    z_i = scale reach_i r_i / sqrt(1 + |r_i|^2)                  reach_i: a small network over the word alone
    w_i = (t_i + sqrt(1 + t_i^2)) / 2
    z_i <- z_i + gamma (c_i - z_i),  c_i the mean over C_i = argmax_j <z_i, z_j>          K layers
    logit = b + sum_i w_i <v, c_i> / (W0 + sum_i w_i)            read at the leader(s) that i ends with

Numbers that are compared or added lie on grids of powers of two, in double precision: every product and sum
of them is exact. The rest is made of sqrt and division, which are rounded the same everywhere.

Shapes: B texts, M words, d dimensions, C labels (1 for two).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from model_export.data.lessons import Batch
from model_export.reader.model import Linear, through, whole

LEAST_REACH = 1 / 32  # a place of length 0 would follow everybody
DIRECTION_GRID, PLACE_GRID, LAYER_GRID, WEIGHT_GRID = 2.0**12, 2.0**10, 2.0**20, 2.0**12
LONGEST_DIRECTION = 64.0
SOFTNESS = 2.0  # of the softmax whose gradient the choice of a leader has


@dataclass(frozen=True)
class PlaneShape:
    width: int = 384
    d: int = 2
    labels: int = 1
    hidden: int = 64  # of the network for the reach
    layers: int = 8
    alpha: float = 1.0
    scale: float = 4.0
    pseudo_weight: float = 0.5  # W0
    lexical: bool = False  # a place is told by the first state of a word too: by what the word is anywhere


class Steps(Protocol):
    """A reader, as far as a plane knows it: what one step of its states is worth, [W] each."""

    @property
    def of_word(self) -> Tensor: ...

    @property
    def of_last(self) -> Tensor: ...


def grid(x: Tensor, step: float) -> Tensor:
    return through(torch.round(x * step) / step, x)


def _somewhere(z: Tensor) -> Tensor:
    """On the grid, and nobody at the origin."""
    z = grid(z, PLACE_GRID)
    return z + functional.pad((z == 0).all(-1, keepdim=True) / PLACE_GRID, (0, z.shape[-1] - 1))


class Plane(nn.Module):
    of_hidden: Tensor

    def __init__(self, shape: PlaneShape) -> None:
        super().__init__()
        self.shape = shape
        self.first, self.second = Linear(shape.width, shape.hidden), Linear(shape.hidden, 1)
        self.read = Linear(shape.width * (1 + shape.lexical), shape.d + 1)
        self.v = nn.Parameter(torch.zeros(shape.labels, shape.d, dtype=torch.float64))
        self.b = nn.Parameter(torch.zeros(shape.labels, dtype=torch.float64))
        self.register_buffer("of_hidden", torch.full((shape.hidden,), 1 / 32))
        with torch.no_grad():
            nn.init.normal_(self.first.weight, std=0.02)
            nn.init.normal_(self.second.weight, std=0.05)
            self.second.bias.fill_(-0.5)
            nn.init.normal_(self.read.weight, std=0.02)
            if shape.labels == 1:
                self.v[0, 0] = 4.0
            else:
                nn.init.normal_(self.v, std=1.0)

    def steps(self, reader: Steps) -> Tensor:
        """What one step of the states is worth that `read` maps."""
        return torch.cat([reader.of_last, reader.of_word]) if self.shape.lexical else reader.of_last

    def places(self, reader: Steps, state: Tensor, first: Tensor, batch: Batch) -> tuple[Tensor, ...]:
        """Of whole states: how far each word would be [B, M, d], its reach [B, M, 1], its weight [B, M]."""
        weight, _, unit = self.first.codes(reader.of_word)
        hidden = batch.by_word(first @ weight.T) * unit + self.first.bias
        hidden = whole(hidden * (1 / self.of_hidden), 0.0, 255.0)
        weight, _, unit = self.second.codes(self.of_hidden)
        f = (hidden @ weight.T * unit + self.second.bias).double()
        reach = LEAST_REACH + (1 - LEAST_REACH) * (0.5 + 0.5 * f / torch.sqrt(1 + f * f))
        weight, _, unit = self.read.codes(self.steps(reader))
        seen = torch.cat([state, first], -1) if self.shape.lexical else state
        told = (batch.by_word(seen @ weight.T) * unit + self.read.bias).double()
        r = told[..., :-1].clamp(-LONGEST_DIRECTION, LONGEST_DIRECTION)
        r = grid(r, DIRECTION_GRID)
        far = self.shape.scale * (r / torch.sqrt(1 + (r * r).sum(-1, keepdim=True)))
        t = told[..., -1]
        w = grid((t + torch.sqrt(1 + t * t)) / 2, WEIGHT_GRID)
        return far, reach, w

    def follow(self, z: Tensor, there: Tensor) -> tuple[Tensor, Tensor]:
        """c_i [B, M, d] and C_i [B, M, M]; equal places are one point."""
        score = (z @ z.transpose(1, 2)).masked_fill(~there[:, None], -torch.inf)
        chosen = (score == score.amax(-1, keepdim=True)).to(z.dtype)
        mean = chosen @ z / chosen.sum(-1, keepdim=True)
        return torch.round(mean * LAYER_GRID) / LAYER_GRID, chosen

    def forward(self, reader: Steps, state: Tensor, first: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """Logits [B, C]; the mean reach."""
        far, reach, w = self.places(reader, state, first, batch)
        c = self._read_at(far, _somewhere(far * reach), batch.there)
        logits = self.b + torch.einsum("bd,cd->bc", self._mean(c, w, batch.there), grid(self.v, WEIGHT_GRID))
        mean_reach = (reach[..., 0] * batch.there).sum() / batch.there.sum()
        return logits, mean_reach

    def read_at(self, reader: Steps, state: Tensor, first: Tensor, batch: Batch) -> Tensor:
        """[B, d] of which the logits are a linear map."""
        far, reach, w = self.places(reader, state, first, batch)
        return self._mean(self._read_at(far, _somewhere(far * reach), batch.there), w, batch.there)

    def _mean(self, c: Tensor, w: Tensor, there: Tensor) -> Tensor:
        w = w * there
        share = w / (self.shape.pseudo_weight + w.sum(1, keepdim=True))
        return torch.einsum("bm,bmd->bd", share, c)

    def _read_at(self, far: Tensor, z: Tensor, there: Tensor) -> Tensor:
        """Where each place is read: at its leader(s). The gradient is that of a softmax, as of every head, in
        which a word asks with its whole direction: how far it reaches does not change whom it follows.
        """
        with torch.no_grad():
            y, gamma = z, self.shape.alpha / (1 + self.shape.alpha)
            for _ in range(self.shape.layers):
                c, _ = self.follow(y, there)
                y = torch.round((y + gamma * (c - y)) * LAYER_GRID) / LAYER_GRID
            value, _ = self.follow(y, there)
        if not torch.is_grad_enabled():
            return value
        score = (far @ z.transpose(1, 2) / SOFTNESS).masked_fill(~there[:, None], -torch.inf)
        return through(value, torch.softmax(score, -1) @ z)
