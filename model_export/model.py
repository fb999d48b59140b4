"""The hardmax transformer for texts, to be read beside the paper (arXiv 2407.01602, on sentiment analysis).

A text is a cloud of its distinct tokens i with multiplicities c_i. Symbols: Z the cloud, A (default I),
alpha, gamma = alpha / (1 + alpha), C_i the tokens that i attends to, K layers that share everything.

    C_i = { j : <A z_i, z_j> = max_l <A z_i, z_l> }
    z_i <- z_i + gamma (mean of C_i - z_i)                                    K times
    logit = b + sum_i c_i w_i <v, z_i> / (W0 + sum_i c_i w_i)

The paper's read-out is the plain mean: w_i = 1 and W0 = 0 (`weighted=False`). A learnt weight a token keeps
the read-out linear, so the logit is still exactly the bias plus what each token contributes.
This module knows nothing of data, training or files other than the one `Weights` are kept in.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from service.errors import MalformedInput, NotFound

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Shape:
    """What is chosen before training."""

    vocabulary: int
    dimension: int
    layers: int = 2
    alpha: float = 1.0
    weighted: bool = True
    pseudo_weight: float = 0.0  # W0: as if so much weight of neutral words stood in every text
    learn_alpha: bool = False
    learn_metric: bool = False  # A = B'B instead of I
    reach: int = 0  # while training only so many of the longest tokens may be attended to; 0: all
    spread: float = 0.4  # root-mean-square length of an embedding before training; see HardmaxTransformer


@dataclass(frozen=True)
class Weights:
    """A trained model as arrays: all that the export needs. Row 0 of the tables is padding and zero."""

    embedding: Floats  # [V, d]
    word_weights: Floats  # [V], > 0 for every real token; all 1 in the paper's read-out
    readout: Floats  # [d]
    bias: float
    alpha: float
    layers: int
    pseudo_weight: float = 0.0
    metric: Floats | None = None  # A [d, d], None for the identity

    def sharpened(self, factor: float) -> Weights:
        """The same answers with every logit times `factor`."""
        return replace(self, readout=(self.readout * factor).astype(np.float32), bias=self.bias * factor)

    def save(self, path: str | Path) -> None:
        arrays = {name: value for name, value in vars(self).items() if value is not None}
        np.savez(path, **arrays)

    @classmethod
    def load(cls, path: str | Path) -> Weights:
        try:
            with np.load(path) as file:
                a = {name: file[name] for name in file.files}
                return cls(
                    embedding=a["embedding"], word_weights=a["word_weights"], readout=a["readout"],
                    bias=float(a["bias"]), alpha=float(a["alpha"]), layers=int(a["layers"]),
                    pseudo_weight=float(a["pseudo_weight"]), metric=a.get("metric"),
                )  # fmt: skip
        except FileNotFoundError as missing:
            raise NotFound(f"{path}: no such weights") from missing
        except (KeyError, ValueError, OSError) as damage:
            raise MalformedInput(f"{path} does not hold weights: {damage}") from damage


class HardmaxTransformer(nn.Module):
    """Hard argmax forward; the gradient flows through the values z_j only, never through the choice of j.

    subtle: the embedding starts small. Wide, nearly every token leads itself in high dimension, attention
    has nothing to do and the model is a bag of words; small, the first informative words grow past the
    others and lead them.
    """

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        V, d = shape.vocabulary, shape.dimension
        self.shape = shape
        self.E = nn.Parameter(torch.randn(V, d) * (shape.spread / d**0.5))
        self.u = nn.Parameter(torch.zeros(V, 1), requires_grad=shape.weighted)  # w = exp(u) > 0
        self.B = nn.Parameter(torch.eye(d), requires_grad=shape.learn_metric)
        self.v = nn.Parameter(10.0 * nn.functional.normalize(torch.randn(d), dim=0))
        self.b = nn.Parameter(torch.zeros(()))
        self.log_alpha = nn.Parameter(torch.tensor(shape.alpha).log(), requires_grad=shape.learn_alpha)
        with torch.no_grad():
            self.E[0] = 0.0

    @torch.no_grad()
    def lean(self, ratio: Tensor, strength: float) -> None:
        """Start from what naive Bayes knows: token i lies `strength` * ratio_i along v, and at random across
        v.

        `ratio` [V] is the logarithm of how much likelier a text with the token is positive than negative.
        Rare tokens then have a sensible place before they have been met often enough to be moved.
        """
        along = nn.functional.normalize(self.v, dim=0)
        self.E.add_(torch.outer(strength * ratio - self.E @ along, along))
        self.E[0] = 0.0
        if self.shape.weighted:
            self.u[:, 0] = torch.log(0.3 + ratio.abs())

    def forward(self, tokens: Tensor, counts: Tensor) -> Tensor:
        """tokens [B, N] distinct ids, 0 = padding; counts [B, N] multiplicities -> logit [B]."""
        Z = self.states(tokens)[-1]  # [B, N, d]
        u = nn.functional.embedding(tokens, self.u, padding_idx=0, sparse=True)  # [B, N, 1]
        w = counts * u[..., 0].exp()  # [B, N], 0 at padding
        W = (self.shape.pseudo_weight + w.sum(1)).clamp_min(1e-9)  # [B]
        return self.b + (w * (Z @ self.v)).sum(1) / W

    def states(self, tokens: Tensor) -> list[Tensor]:
        """The cloud before the first layer and after each, K + 1 times [B, N, d]."""
        Z = nn.functional.embedding(tokens, self.E, padding_idx=0, sparse=True)
        states = [Z]
        for _ in range(self.shape.layers):
            states.append(self.layer(states[-1]))
        return states

    def layer(self, Z: Tensor) -> Tensor:
        """One step of the dynamics, [B, N, d] -> [B, N, d]."""
        gamma = torch.sigmoid(self.log_alpha)  # alpha / (1 + alpha)
        leader = self.attend(Z)  # [B, N]
        return Z + gamma * (Z.gather(1, leader[..., None].expand_as(Z)) - Z)

    @torch.no_grad()
    def attend(self, Z: Tensor) -> Tensor:
        """The member of C_i for every i, [B, N]. Distinct trained tokens do not tie; if two did, the first
        is taken.

        By Cauchy-Schwarz a short token rarely leads any but itself, so training may look at the longest
        (`reach`) and the token itself alone, at a fraction of the cost. Validated and served is the whole.
        subtle: padding sits at the origin, so its product is 0 and loses to <A z_i, z_i> > 0: no mask is
        needed.
        """
        Y = Z @ self.B.T if self.shape.learn_metric else Z  # <Ax, y> = <Bx, By>
        if not self.training or not 0 < self.shape.reach < Z.shape[1]:
            return torch.bmm(Y, Y.transpose(1, 2)).argmax(-1)
        own = Y.square().sum(-1)  # [B, N]
        longest = own.topk(self.shape.reach, dim=1).indices  # [B, reach]
        keys = Y.gather(1, longest[..., None].expand(-1, -1, Y.shape[2]))  # [B, reach, d]
        best, place = torch.bmm(Y, keys.transpose(1, 2)).max(-1)  # [B, N]
        return torch.where(own > best, torch.arange(Z.shape[1]), longest.gather(1, place))

    @classmethod
    def of(cls, weights: Weights) -> HardmaxTransformer:
        """The module that has these weights."""
        shape = Shape(
            vocabulary=len(weights.embedding),
            dimension=len(weights.readout),
            layers=weights.layers,
            alpha=weights.alpha,
            pseudo_weight=weights.pseudo_weight,
            learn_metric=weights.metric is not None,
        )
        model = cls(shape)
        with torch.no_grad():
            model.E.copy_(torch.from_numpy(weights.embedding))
            model.u.copy_(torch.from_numpy(np.maximum(weights.word_weights, 1e-30)).log()[:, None])
            model.v.copy_(torch.from_numpy(weights.readout))
            model.b.fill_(weights.bias)
            if weights.metric is not None:
                model.B.copy_(torch.from_numpy(np.linalg.cholesky(weights.metric).T))
        return model

    @torch.no_grad()
    def weights(self) -> Weights:
        """The trained arrays, detached from torch."""
        return Weights(
            embedding=self.E.numpy().copy(),
            word_weights=self.u[:, 0].exp().numpy(),
            readout=self.v.numpy().copy(),
            bias=float(self.b.detach()),
            alpha=float(self.log_alpha.detach().exp()),
            layers=self.shape.layers,
            pseudo_weight=self.shape.pseudo_weight,
            metric=(self.B.T @ self.B).numpy() if self.shape.learn_metric else None,
        )
