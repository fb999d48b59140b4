"""The hardmax transformer for texts, to be read beside the paper (arXiv 2407.01602, section 4, on sentiment).

A token is a place in the text: what a word means there comes from its window. With h the hidden layer,

    h_i = relu( hidden_bias + sum over offsets o of T_o[x_(i+o)] )        T_0 is another table under a negator
    o_i = h_i U + own[x_i] + pairs[x_(i-1), x_i] + triples[x_(i-2), x_(i-1), x_i] + out_bias
    z_i = scale * reach[x_i] * r_i / sqrt(1 + |r_i|^2),   r_i = the first d numbers of o_i
    w_i = softplus(the last number of o_i + concession, if i is conceded)

and then, as in the paper with A = I and gamma = alpha / (1 + alpha),

    C_i = { j : <z_i, z_j> = max_l <z_i, z_l> },      z_i <- z_i + gamma (mean of C_i - z_i),      K times
    logit_c = s(n) (b_c + sum_i w_i <v_c, z_i> / (W0 + sum_i w_i))

The paper's places are the words' own and its read-out is the plain mean; here a window moves them and weights
count them. `reach` bounds how long a word's place may be: the word decides who may lead, the window what it
means. A place is under a negator when its clause holds one before it: "I do not think that this is good".
It is conceded when a "but" comes behind it in its sentence: "the blender is loud, but it works".
While training T_o = E W_o, with E pretrained word vectors, and E (W_0 + W_under) under a negator; `weights`
multiplies the tables out.
Shapes: B texts, N places, V words, S offsets, H hidden numbers, d dimensions, C logits.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import dropout as drop
from torch.nn.functional import embedding, embedding_bag, max_pool1d, one_hot, pad, softplus

from service.errors import MalformedInput, NotFound

Floats = NDArray[np.float32]
Bytes = NDArray[np.int8]
PAIR = (92821, 68917)  # the factors of the hash: previous word, word
TRIPLE = 31337  # and of the word before these
SCOPE = 10  # places from a negator to the last one under it
CONCEDED = 24  # places from the first one conceded to the word that concedes it
ENDS, NEGATES, CONCEDES = 1, 2, 2  # what a word may do to its clause, and to its sentence
NEGATORS = frozenset("not never no nobody none nothing neither nor without hardly barely".split())
CLAUSE_ENDS = frozenset(". ! ? ; : … , but and because although though however yet except while".split())
CONCEDERS = frozenset("but however".split())
SENTENCE_ENDS = frozenset(". ! ? …".split())


@dataclass(frozen=True)
class Shape:
    """What is chosen before training."""

    dimension: int = 2
    layers: int = 2
    alpha: float = 1.0
    offsets: tuple[int, ...] = (-2, -1, 0, 1, 2)
    hidden: int = 48
    bits: int = 20  # of the hashed tables of pairs and triples
    scale: float = 3.0
    pseudo_weight: float = 1.0  # W0: as if so much weight of neutral words stood in every text
    outputs: int = 1  # 1 logit for two labels, else one a label


@dataclass(frozen=True)
class Weights:
    """A trained model as arrays: all that the export needs. Row 0 of the tables is padding and zero."""

    words: tuple[str, ...]
    offsets: tuple[int, ...]
    clause: Bytes  # [V]: ENDS, NEGATES or 0
    sentence: Bytes  # [V]: ENDS, CONCEDES or 0
    tables: Floats  # [S + 1, V, H], the last one instead of that of offset 0 under a negator
    hidden_bias: Floats  # [H]
    out: Floats  # [h, d+1]
    out_bias: Floats  # [d+1]
    own: Floats  # [V, d+1]
    pairs: Floats  # [R, d+1]
    triples: Floats  # [R, d+1]
    reach: Floats  # [V]
    readout: Floats  # [C, d]
    bias: Floats  # [C]
    alpha: float
    layers: int
    scale: float
    pseudo_weight: float
    concession: float  # what being conceded adds to the number that the weight is made of
    calibration: Floats  # [L]: s(n) = calibration[min(n, L - 1)] for a text of n tokens

    def save(self, path: Path) -> None:
        arrays: dict[str, Any] = {
            name: value for name, value in vars(self).items() if isinstance(value, np.ndarray)
        }
        rest = {name: value for name, value in vars(self).items() if name not in arrays}
        np.savez(path, rest=np.array(json.dumps(rest)), **arrays)

    @classmethod
    def load(cls, path: Path) -> Weights:
        try:
            with np.load(path) as file:
                arrays = {name: file[name] for name in file.files}
            rest: dict[str, Any] = json.loads(str(arrays.pop("rest")))
            rest |= {name: tuple(rest[name]) for name in ("words", "offsets")}
            return cls(**arrays, **rest)
        except FileNotFoundError:
            raise NotFound(f"{path}: no such weights", param="weights") from None
        except (KeyError, ValueError, OSError, TypeError) as damage:
            raise MalformedInput(f"{path} does not hold weights: {damage}", param="weights") from damage


def hashes(x: Tensor, rows: int) -> tuple[Tensor, Tensor]:
    """The rows of the pair and of the triple that end at each place; before a text stands padding.

    `rows` is a power of 2.
    """
    one, two = pad(x[:, :-1], (1, 0)), pad(x[:, :-2], (2, 0))  # [B, N]
    pair = one * PAIR[0] + x * PAIR[1]
    return pair & (rows - 1), (pair + two * TRIPLE) & (rows - 1)


def clause_of(words: Sequence[str]) -> Bytes:
    """[V], what each word does to its clause."""
    return np.array([NEGATES if w in NEGATORS else ENDS if w in CLAUSE_ENDS else 0 for w in words], np.int8)


def sentence_of(words: Sequence[str]) -> Bytes:
    """[V], what each word does to its sentence."""
    found = (CONCEDES if w in CONCEDERS else ENDS if w in SENTENCE_ENDS else 0 for w in words)
    return np.fromiter(found, np.int8)


def negators(does: Tensor) -> Tensor:
    """[B, N] -> [B, N]: the place of the negator that each place is under, or -1. `does` is clause[x].

    It is the last word before it, or at it, that does anything to the clause, if that word negates.
    """
    number = torch.arange(does.shape[1], device=does.device)
    event = torch.where(does > 0, 2 * number + 1 + does, 0).float()  # grows along the text; odd: negates
    last = max_pool1d(pad(event, (SCOPE, 0)), SCOPE + 1, 1).long()
    place = (last - 1 - NEGATES) // 2
    return torch.where((last % 2 == 1) & (number > place), place, -1)


def conceded(does: Tensor) -> Tensor:
    """[B, N] -> bool [B, N]: whether the next word that does anything to the sentence concedes what is here.

    `does` is sentence[x]. The word that concedes is conceded too.
    """
    rank = torch.arange(does.shape[1], 0, -1, device=does.device)
    event = torch.where(does > 0, 2 * rank - 1 + does, 0).float()  # falls along the text; odd: concedes
    return max_pool1d(pad(event, (0, CONCEDED)), CONCEDED + 1, 1).long() % 2 == 1


class HardmaxTransformer(nn.Module):
    """Hard argmax forward; the gradient flows through the values z_j only, never through the choice of j."""

    reach: Tensor
    clause: Tensor
    sentence: Tensor

    def __init__(self, vectors: Floats, reach: Floats, clause: Bytes, sentence: Bytes, shape: Shape) -> None:
        """`vectors` [V, width] with a zero row for padding, `reach`, `clause` and `sentence` [V]."""
        super().__init__()
        V, width = vectors.shape
        d, H, S = shape.dimension, shape.hidden, len(shape.offsets)
        self.shape = shape
        self.E = nn.Parameter(torch.from_numpy(vectors).clone())
        self.own = nn.Parameter(torch.zeros(V, d + 1))
        self.pairs = nn.Parameter(torch.zeros(1 << shape.bits, d + 1))
        self.triples = nn.Parameter(torch.zeros(1 << shape.bits, d + 1))
        self.W = nn.Parameter(torch.randn(width, S * H) / (width * S) ** 0.5)
        self.W_under = nn.Parameter(torch.zeros(width, H))  # beside that of offset 0
        self.hidden_bias = nn.Parameter(torch.zeros(H))
        self.U = nn.Parameter(torch.randn(shape.hidden, d + 1) / shape.hidden**0.5)
        self.out_bias = nn.Parameter(torch.tensor([*[0.0] * d, -0.5]))
        self.concession = nn.Parameter(torch.zeros(1))
        self.v = nn.Parameter(6.0 * _directions(shape.outputs, d))
        self.b = nn.Parameter(torch.zeros(shape.outputs))
        self.register_buffer("reach", torch.from_numpy(reach))
        self.register_buffer("clause", torch.from_numpy(clause))
        self.register_buffer("sentence", torch.from_numpy(sentence))

    @property
    def tables(self) -> list[nn.Parameter]:
        """The parameters of which a batch touches few rows."""
        return [self.E, self.own, self.pairs, self.triples]

    def window(self, x: Tensor, dropout: float) -> Tensor:
        """The pre-activation of every place, [B, N] -> [B, N, H]: each word is multiplied out once."""
        S, (B, N) = len(self.shape.offsets) + 1, x.shape
        words, place = torch.unique(x, return_inverse=True)  # [U], [B, N]
        vectors = embedding(words, self.E, padding_idx=0, sparse=True)
        W = torch.cat([self.W, self.W_under], 1)
        rows = (drop(vectors, dropout, self.training) @ W).view(len(words) * S, -1)
        if words[0] != 0:  # a text that fills the batch: beyond its ends there is padding all the same
            rows = torch.cat([rows, rows.new_zeros(S, rows.shape[1])])
        beyond = 0 if words[0] == 0 else len(words)
        low, high = -min(self.shape.offsets), max(self.shape.offsets)
        wide = pad(place, (max(low, 0), max(high, 0)), value=beyond)
        under = negators(self.clause[x]) >= 0
        bags = torch.stack(
            [
                *(
                    wide[:, max(low, 0) + o : max(low, 0) + o + N] * S + k
                    for k, o in enumerate(self.shape.offsets)
                ),
                torch.where(under, place, beyond) * S + S - 1,
            ],
            -1,
        )
        return embedding_bag(bags.view(-1, S), rows, mode="sum").view(B, N, -1) + self.hidden_bias

    def places(
        self, x: Tensor, dropout: tuple[float, float] = (0.0, 0.0), forget: float = 0.0, gain: float = 0.0
    ) -> tuple[Tensor, Tensor]:
        """z [B, N, d] and w [B, N] of x [B, N]; training forgets the share `forget` of the runs.

        subtle: a place of little reach chooses a leader, and no gradient comes through that choice.
        So while training its direction gets, times `gain`, the gradient of a place that stands alone.
        """
        d, there = self.shape.dimension, (x > 0).float()
        hidden = torch.relu(self.window(x, dropout[0]))
        o = (
            drop(hidden, dropout[1], self.training) @ self.U
            + embedding(x, self.own, sparse=True)
            + self.out_bias
        )
        for rows, table in zip(hashes(x, len(self.pairs)), (self.pairs, self.triples), strict=True):
            found = embedding(rows, table, sparse=True)
            if self.training and forget:
                found = found * (torch.rand(x.shape) >= forget)[..., None]
            o = o + found
        r = o[..., :d]
        direction = r * torch.rsqrt(1 + r.square().sum(-1, keepdim=True))
        far = self.shape.scale * direction * there[..., None]
        z = far * self.reach[x][..., None]
        weight = softplus(o[..., d] + self.concession * conceded(self.sentence[x])) * there
        return z + gain * (far - far.detach()), weight

    def forward(self, x: Tensor, layers: int | None = None) -> Tensor:
        """x [B, N] ids, 0 = padding -> logits [B, C], not calibrated."""
        return self.read_out(*self.places(x), layers)

    def read_out(self, z: Tensor, w: Tensor, layers: int | None = None, skip: float = 0.0) -> Tensor:
        """The layers, then the logits [B, C] of places z [B, N, d] with weights w [B, N].

        While training the share `skip` of the texts goes past the layers: a place must also speak for itself.
        """
        start = z
        for _ in range(self.shape.layers if layers is None else layers):
            z = self.layer(z)
        if self.training and skip:
            z = torch.where(torch.rand(len(z), 1, 1) < skip, start, z)
        return self.b + ((w[:, None] @ z)[:, 0] @ self.v.T) / (self.shape.pseudo_weight + w.sum(1))[:, None]

    def layer(self, z: Tensor) -> Tensor:
        """One step of the dynamics, [B, N, d] -> [B, N, d]."""
        gamma = self.shape.alpha / (1 + self.shape.alpha)
        return z + gamma * (z.gather(1, attend(z)[..., None].expand_as(z)) - z)

    @classmethod
    def of(cls, weights: Weights) -> HardmaxTransformer:
        """The module that answers as these weights do: its word vectors are the tables, side by side."""
        tables = weights.tables.copy()
        tables[-1] -= tables[weights.offsets.index(0)]
        S, V, H = tables.shape
        shape = Shape(
            dimension=weights.readout.shape[1], layers=weights.layers, alpha=weights.alpha,
            offsets=weights.offsets, hidden=len(weights.out),
            bits=int(np.log2(len(weights.pairs))), scale=weights.scale, pseudo_weight=weights.pseudo_weight,
            outputs=len(weights.bias),
        )  # fmt: skip
        vectors = np.ascontiguousarray(tables.transpose(1, 0, 2)).reshape(V, S * H)
        model = cls(vectors, weights.reach.copy(), weights.clause.copy(), weights.sentence.copy(), shape)
        W, W_under = np.split(np.eye(S * H, dtype=np.float32), [S * H - H], axis=1)
        values = {
            "own": weights.own, "pairs": weights.pairs, "triples": weights.triples, "U": weights.out,
            "hidden_bias": weights.hidden_bias, "out_bias": weights.out_bias, "v": weights.readout,
            "b": weights.bias, "W": W, "W_under": W_under, "concession": [weights.concession],
        }  # fmt: skip
        with torch.no_grad():
            for name, value in values.items():
                getattr(model, name).copy_(torch.from_numpy(np.array(value)))
        return model.eval()

    @torch.no_grad()
    def weights(self, words: tuple[str, ...]) -> Weights:
        """The trained arrays, with the tables multiplied out."""
        V, shape = len(self.E), self.shape
        by_offset = (self.E @ self.W).view(V, len(shape.offsets), -1).transpose(0, 1)
        under = by_offset[shape.offsets.index(0)] + self.E @ self.W_under
        tables = torch.cat([by_offset, under[None]])
        tables[:, 0] = 0.0
        return Weights(
            words=words, offsets=shape.offsets, clause=self.clause.numpy(), sentence=self.sentence.numpy(),
            tables=tables.numpy(), concession=float(self.concession),
            hidden_bias=_array(self.hidden_bias),
            out=_array(self.U), out_bias=_array(self.out_bias),
            own=_array(self.own), pairs=_array(self.pairs), triples=_array(self.triples),
            reach=_array(self.reach), readout=_array(self.v), bias=_array(self.b), alpha=shape.alpha,
            layers=shape.layers, scale=shape.scale, pseudo_weight=shape.pseudo_weight,
            calibration=np.ones(1, np.float32),
        )  # fmt: skip


@torch.no_grad()
def attend(z: Tensor) -> Tensor:
    """The member of C_i for every i, [B, N]: places that differ do not tie; if two did, the first is taken.

    subtle: padding stands at the origin, so its product is 0 and loses to <z_i, z_i> > 0: no mask is needed.
    """
    return torch.bmm(z, z.transpose(1, 2)).argmax(-1)


def _directions(outputs: int, d: int) -> Tensor:
    """[C, d]: the first axis for one logit, else spread evenly over the first plane."""
    if outputs == 1:
        return one_hot(torch.zeros(1, dtype=torch.long), d).float()
    angle = torch.arange(outputs) * (2 * torch.pi / outputs)
    found = torch.zeros(outputs, d)
    found[:, 0] = angle.cos()
    if d > 1:
        found[:, 1] = angle.sin()
    return found


def _array(parameter: Tensor) -> Floats:
    return np.ascontiguousarray(parameter.detach().numpy(), dtype=np.float32)
