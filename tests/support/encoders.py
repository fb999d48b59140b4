"""Small encoders and heads with random weights, with every part of the real ones."""

from dataclasses import replace

import numpy as np
import torch

from model_export.data.training_set import TrainingSet
from model_export.encoder.layer import EncoderConfig, Norm
from model_export.encoder.model import Encoder
from model_export.head.leader_head import LeaderHead, LeaderHeadConfig

TINY = EncoderConfig(width=32, heads=4, layers=2, hidden=64, vocabulary=400)
RELATIVE = replace(
    TINY, position_buckets=32, embedding_grid=64.0, attention_grid=32.0, max_units=147.0, clip=True
)  # as the encoder that is distilled from mpnet


@torch.no_grad()
def random_encoder(config: EncoderConfig = TINY, seed: int = 0, follows: float = 0.3) -> Encoder:
    """Create an encoder; `follows` scales the attention scores: small ones often tie when rounded."""
    torch.manual_seed(seed)
    encoder = Encoder(config)
    for parameter in encoder.parameters():
        parameter.copy_(0.3 * torch.randn_like(parameter))
    for part in encoder.modules():
        if isinstance(part, Norm):
            part.gain.fill_(1.0)
    for layer in encoder.layers:
        layer.query_scale.fill_(1 / (50 * follows))
    return encoder.eval()


@torch.no_grad()
def random_head(d: int = 2, labels: int = 1, seed: int = 0, use_embeddings: bool = False) -> LeaderHead:
    torch.manual_seed(seed)
    head = LeaderHead(LeaderHeadConfig(TINY.width, d, labels, reach_hidden=16, use_embeddings=use_embeddings))
    for linear in (head.reach_hidden, head.reach_output, head.projection):
        linear.weight.copy_(0.3 * torch.randn_like(linear.weight))
        linear.bias.copy_(0.3 * torch.randn_like(linear.bias))
    head.b.copy_(torch.randn(labels))
    return head.eval()


@torch.no_grad()
def predict(encoder: Encoder, head: LeaderHead, texts: TrainingSet) -> np.ndarray:
    """Return the logits [n, C] in whole numbers, in the order of the texts."""
    logits = np.zeros((len(texts), head.config.n_logits))
    for rows in texts.batches(6_000):
        batch = texts.packed.batch(rows)
        hidden, embedding, _ = encoder.quantized(batch.token_ids)
        logits[rows] = head(encoder.output_scales, hidden, embedding, batch)[0].numpy()
    return logits
