"""The leader head: words are points, hardmax layers move them to their leaders, the leaders decide.

    r_i, t_i = linear in the hidden state of word i, the mean over its tokens; optionally in its input
               embedding too
    z_i = scale reach_i r_i / sqrt(1 + |r_i|^2)                   reach_i: a small network over the embedding
    w_i = (t_i + sqrt(1 + t_i^2)) / 2
    z_i <- z_i + gamma (c_i - z_i),  c_i the mean over C_i = argmax_j <z_i, z_j>          K layers
    logit = b + sum_i w_i <v, c_i> / (W0 + sum_i w_i)             c_i after the last layer

Numbers that are compared or added are multiples of powers of two, in double precision: their products and
sums are exact. All other operations are sqrt and division, which are rounded alike everywhere.

Shapes: B texts, M words, T tokens, W width of the encoder, d dimensions, C logits (1 for two labels).
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from model_export.attention.straight_through import hardmax, round_to_grid, straight_through
from model_export.data.training_set import NOT_MARKED, Batch
from model_export.encoder.fake_quantization import fake_quantize
from model_export.encoder.layer import Linear
from model_export.encoder.model import OutputScales

MIN_REACH = 1 / 32  # a point at the origin would attend to all others
DIRECTION_GRID, POINT_GRID, LAYER_GRID, WEIGHT_GRID = 2.0**12, 2.0**10, 2.0**20, 2.0**12  # steps per unit
MAX_DIRECTION = 64.0
FUNCTION_WORD_COST = 20.0  # of the reach of a function word; that of another word costs 1
UNMARKED_WORD_COST = 5.0  # of another word of a text whose deciding words are marked
SOFTMAX_TEMPERATURE = 2.0  # of the softmax whose gradient the choice of a leader has


@dataclass(frozen=True)
class LeaderHeadConfig:
    """The shape and the constants of a leader head."""

    width: int = 384
    dimension: int = 2
    n_logits: int = 1
    reach_hidden: int = 64  # hidden units of the network that computes the reach
    n_layers: int = 8
    alpha: float = 1.0
    scale: float = 4.0
    pseudo_weight: float = 0.5  # W0
    use_embeddings: bool = False  # the direction of a word depends on its input embedding too


@dataclass(frozen=True)
class WordPoints:
    """The words of a batch before the first hardmax layer."""

    direction: Tensor  # [B, M, d] the points at full reach
    points: Tensor  # [B, M, d] on the grid, none at the origin
    weights: Tensor  # [B, M]
    reach_cost: Tensor


@dataclass(frozen=True)
class HeadOutput:
    """The logits of a batch, and what losses on words need."""

    logits: Tensor  # [B, C]
    words: WordPoints
    leader_points: Tensor  # [B, M, d] c_i after the last layer
    attention: Tensor | None  # [B, M, M] of the softmax whose gradient the choice of a leader has


class LeaderHead(nn.Module):
    """The head in torch: exact forward pass on quantized encoder outputs, straight-through gradients."""

    hidden_scale: Tensor

    def __init__(self, config: LeaderHeadConfig) -> None:
        super().__init__()
        self.config = config
        self.reach_hidden = Linear(config.width, config.reach_hidden)
        self.reach_output = Linear(config.reach_hidden, 1)
        self.projection = Linear(config.width * (1 + config.use_embeddings), config.dimension + 1)
        self.v = nn.Parameter(torch.zeros(config.n_logits, config.dimension, dtype=torch.float64))
        self.b = nn.Parameter(torch.zeros(config.n_logits, dtype=torch.float64))
        self.register_buffer("hidden_scale", torch.full((config.reach_hidden,), 1 / 32))
        with torch.no_grad():
            nn.init.normal_(self.reach_hidden.weight, std=0.02)
            nn.init.normal_(self.reach_output.weight, std=0.05)
            self.reach_output.bias.fill_(-0.5)
            nn.init.normal_(self.projection.weight, std=0.02)
            if config.n_logits == 1:
                self.v[0, 0] = 4.0
            else:
                nn.init.normal_(self.v, std=1.0)

    def forward(
        self, scales: OutputScales, hidden: Tensor, embedding: Tensor, batch: Batch
    ) -> tuple[Tensor, Tensor]:
        """Return the logits [B, C] and the cost of the words' reach.

        Args:
            scales: the value of one step of the encoder's quantized outputs.
            hidden: quantized hidden states of the last layer, [1, T, W].
            embedding: quantized input embeddings, [1, T, W].
            batch: which tokens belong to which word of which text.
        """
        output = self.classify(scales, hidden, embedding, batch)
        return output.logits, output.words.reach_cost

    def classify(self, scales: OutputScales, hidden: Tensor, embedding: Tensor, batch: Batch) -> HeadOutput:
        """Return the logits with the points of the words and of their leaders."""
        words = self.word_points(scales, hidden, embedding, batch)
        leader_points, attention = self._leader_points(words, batch.is_word)
        pooled = self._pool(words.weights, leader_points, batch.is_word)
        logits = self.b + torch.einsum("bd,cd->bc", pooled, self.readout)
        return HeadOutput(logits, words, leader_points, attention)

    @property
    def readout(self) -> Tensor:
        """v, on its grid."""
        return round_to_grid(self.v, WEIGHT_GRID)

    def pooled(self, scales: OutputScales, hidden: Tensor, embedding: Tensor, batch: Batch) -> Tensor:
        """Return the weighted mean of the leaders' points [B, d], of which the logits are a linear map."""
        words = self.word_points(scales, hidden, embedding, batch)
        leader_points, _ = self._leader_points(words, batch.is_word)
        return self._pool(words.weights, leader_points, batch.is_word)

    def word_points(
        self, scales: OutputScales, hidden: Tensor, embedding: Tensor, batch: Batch
    ) -> WordPoints:
        """Return the initial point and the weight of each word."""
        reach = self._reach(scales, embedding, batch)
        weight, _, unit = self.projection.codes(self.input_scale(scales))
        x = torch.cat([hidden, embedding], -1) if self.config.use_embeddings else hidden
        projected = (batch.mean_by_word(x @ weight.T) * unit + self.projection.bias).double()
        r = round_to_grid(projected[..., :-1].clamp(-MAX_DIRECTION, MAX_DIRECTION), DIRECTION_GRID)
        direction = self.config.scale * (r / torch.sqrt(1 + (r * r).sum(-1, keepdim=True)))
        t = projected[..., -1]
        weights = round_to_grid((t + torch.sqrt(1 + t * t)) / 2, WEIGHT_GRID)
        points = _off_origin(direction * reach)
        return WordPoints(direction, points, weights, _reach_cost(reach[..., 0], batch))

    def input_scale(self, scales: OutputScales) -> Tensor:
        """Return the value of one step of every input channel of the projection."""
        inputs = [scales.hidden, scales.embedding] if self.config.use_embeddings else [scales.hidden]
        return torch.cat(inputs)

    def _reach(self, scales: OutputScales, embedding: Tensor, batch: Batch) -> Tensor:
        """Return the reach of each word, a share of the full one, [B, M, 1]."""
        weight, _, unit = self.reach_hidden.codes(scales.embedding)
        units = batch.mean_by_word(embedding @ weight.T) * unit + self.reach_hidden.bias
        units = fake_quantize(units * (1 / self.hidden_scale), 0.0, 255.0)
        weight, _, unit = self.reach_output.codes(self.hidden_scale)
        f = (units @ weight.T * unit + self.reach_output.bias).double()
        return MIN_REACH + (1 - MIN_REACH) * (0.5 + 0.5 * f / torch.sqrt(1 + f * f))

    def _leader_points(self, words: WordPoints, is_word: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return c_i after the last layer, and the attention that its gradient has.

        The gradient is that of a softmax over the initial points in which the query is the word's full
        direction, because the leader of a word does not depend on its reach.
        """
        z = words.points
        with torch.no_grad():
            y, gamma = z, self.config.alpha / (1 + self.config.alpha)
            for _ in range(self.config.n_layers):
                c = _attend(y, is_word)
                y = torch.round((y + gamma * (c - y)) * LAYER_GRID) / LAYER_GRID
            c = _attend(y, is_word)
        if not torch.is_grad_enabled():
            return c, None
        scores = words.direction @ z.transpose(1, 2) / SOFTMAX_TEMPERATURE
        probs = torch.softmax(scores.masked_fill(~is_word[:, None], -torch.inf), -1)
        return straight_through(c, probs @ z), probs

    def _pool(self, weights: Tensor, leader_points: Tensor, is_word: Tensor) -> Tensor:
        """Return the weighted mean of the leaders' points over some words, [B, d]."""
        w = weights * is_word
        share = w / (self.config.pseudo_weight + w.sum(1, keepdim=True))
        return torch.einsum("bm,bmd->bd", share, leader_points)

    def part_logits(self, output: HeadOutput, parts: Tensor, is_word: Tensor) -> Tensor:
        """Return the logits [B, 2] that the words of each part of a text have alone; C is 1."""
        pooled = [
            self._pool(output.words.weights, output.leader_points, is_word & (parts == part))
            for part in (0, 1)
        ]
        return self.b[0] + torch.stack(pooled, 1) @ self.readout[0]


def _attend(z: Tensor, is_word: Tensor) -> Tensor:
    """Return c_i [B, M, d] on the grid."""
    scores = (z @ z.transpose(1, 2)).masked_fill(~is_word[:, None], -torch.inf)
    return torch.round(hardmax(scores, z) * LAYER_GRID) / LAYER_GRID


def _reach_cost(reach: Tensor, batch: Batch) -> Tensor:
    """Return the mean reach, in which words that should not lead have a larger weight."""
    weight = batch.is_word.float()
    if batch.marks is not None:
        weight = weight * (1 + (UNMARKED_WORD_COST - 1) * (batch.marks == NOT_MARKED))
    if batch.function_words is not None:
        is_function = batch.function_words
        if batch.marks is not None:  # a marked one decides, whatever it is
            is_function = is_function & (batch.marks % NOT_MARKED == 0)
        weight = torch.where(is_function, FUNCTION_WORD_COST, weight)
        weight = weight * batch.is_word
    return (reach * weight).sum() / batch.is_word.sum()


def _off_origin(z: Tensor) -> Tensor:
    """Round to the grid and move a point at the origin by one step."""
    z = round_to_grid(z, POINT_GRID)
    return z + torch.nn.functional.pad((z == 0).all(-1, keepdim=True) / POINT_GRID, (0, z.shape[-1] - 1))
