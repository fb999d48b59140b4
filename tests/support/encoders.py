"""Readers and planes with random weights: small, but with every part of the real ones."""

import torch

from model_export.encoder.model import Encoder, EncoderConfig, Norm
from model_export.head.leader_head import LeaderHead, LeaderHeadConfig

TINY = EncoderConfig(width=32, heads=4, layers=2, wide=64, pieces=400)


@torch.no_grad()
def random_encoder(shape: EncoderConfig = TINY, seed: int = 0, follows: float = 0.3) -> Encoder:
    """`follows`: how large the numbers are that heads compare; small ones tie often once they are whole."""
    torch.manual_seed(seed)
    encoder = Encoder(shape)
    for parameter in encoder.parameters():
        parameter.copy_(0.3 * torch.randn_like(parameter))
    for part in encoder.modules():
        if isinstance(part, Norm):
            part.gain.fill_(1.0)
    for layer in encoder.layers:
        layer.of_query.fill_(1 / (50 * follows))
    return encoder.eval()


@torch.no_grad()
def random_head(d: int = 2, labels: int = 1, seed: int = 0, use_embeddings: bool = False) -> LeaderHead:
    torch.manual_seed(seed)
    plane = LeaderHead(
        LeaderHeadConfig(TINY.width, d, labels, reach_hidden=16, use_embeddings=use_embeddings)
    )
    for linear in (plane.reach_hidden, plane.reach_output, plane.projection):
        linear.weight.copy_(0.3 * torch.randn_like(linear.weight))
        linear.bias.copy_(0.3 * torch.randn_like(linear.bias))
    plane.b.copy_(torch.randn(labels))
    return plane.eval()
