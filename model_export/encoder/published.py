"""The encoder made of layers of all-mpnet-base-v2, as its authors published it (Apache 2.0).

Positions begin after the published first token, <s>. Most heads of most tokens attend to it, so it
becomes the null key of each layer.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from model_export.encoder.layer import EncoderConfig, Layer
from model_export.encoder.model import Encoder
from model_export.encoder.mpnet import BUCKETS, PADDING, MPNet
from service.text.tokenizer import CHUNK_TOKENS

FIRST_POSITION = 3  # of mpnet: 0 is unused, 1 padding, 2 that of <s>
END_TOKEN = 2  # </s>
FIRST_WORDPIECE = 4  # of mpnet's vocabulary: BERT's follows its own four tokens
# Grids for the sums of mpnet's layers: those after the attention are small, those after the network large.
MPNET = EncoderConfig(
    width=768, hidden=3072, position_buckets=BUCKETS,
    embedding_grid=128.0, attention_grid=32.0, output_grid=16.0, max_units=147.0, clip=True, eps=1e-5,
)  # fmt: skip


@torch.no_grad()
def from_mpnet(mpnet: MPNet, rows: Sequence[int], texts: Sequence[str]) -> Encoder:
    """Return an encoder made of all layers of mpnet.

    Args:
        mpnet: all-mpnet-base-v2 as published.
        rows: the row of its embedding table for each token of our vocabulary.
        texts: texts on which the states of <s> and </s> are averaged, for the null keys.
    """
    config = replace(MPNET, vocabulary=len(rows), layers=len(mpnet.layers))
    encoder = Encoder(config)
    encoder.words.weight.copy_(mpnet.words.weight[list(rows)])
    encoder.positions.weight.copy_(mpnet.positions.weight[FIRST_POSITION : FIRST_POSITION + CHUNK_TOKENS])
    encoder.norm.gain.copy_(mpnet.norm.weight)
    encoder.norm.shift.copy_(mpnet.norm.bias)
    sinks = _sink_states(mpnet, texts)
    for i, layer in enumerate(encoder.layers):
        _copy_layer(layer, mpnet, i, sinks[i])
    return encoder


@torch.no_grad()
def take_layers(encoder: Encoder, layers: Sequence[int]) -> Encoder:
    """Return a copy of an encoder with some of its layers."""
    taken = Encoder(replace(encoder.config, layers=len(layers)))
    state = {k: v for k, v in encoder.state_dict().items() if not k.startswith("layers.")}
    for i, layer in enumerate(layers):
        prefix = f"layers.{layer}."
        state |= {
            f"layers.{i}.{name.removeprefix(prefix)}": value
            for name, value in encoder.state_dict().items()
            if name.startswith(prefix)
        }
    taken.load_state_dict(state)
    return taken


def _sink_states(mpnet: MPNet, texts: Sequence[str]) -> list[Tensor]:
    """Return the mean state, at each layer, of that of <s> and </s> which gets more attention."""
    ids = mpnet.tokenize(texts)
    x = torch.full((len(ids), max(map(len, ids))), PADDING)
    for row, tokens in zip(x, ids, strict=True):
        row[: len(tokens)] = torch.from_numpy(tokens.astype("int64"))
    is_token = x != PADDING
    mask = torch.zeros(x.shape).masked_fill(~is_token, -1e4)[:, None, None]
    position_bias = mask + mpnet.position_bias(x.shape[1])
    state = mpnet.norm(mpnet.words(x) + mpnet.positions(is_token.cumsum(1) * is_token + PADDING))
    sinks = []
    for layer in mpnet.layers:
        B, N, W = state.shape
        q, k, _ = layer.qkv(state).view(B, N, 3, layer.heads, -1).permute(2, 0, 3, 1, 4)
        probs = torch.softmax(q @ k.transpose(-1, -2) / (W // layer.heads) ** 0.5 + position_bias, -1)
        probs = probs * is_token[:, None, :, None]
        to_start, to_end = probs[..., 0].sum(), (probs * (x == END_TOKEN)[:, None, None]).sum()
        sinks.append(state[:, 0].mean(0) if to_start >= to_end else state[x == END_TOKEN].mean(0))
        state = layer(state, position_bias)
    return sinks


def _copy_layer(layer: Layer, mpnet: MPNet, i: int, sink: Tensor) -> None:
    """Copy the weights of layer i of mpnet, with the null key from the state `sink`.

    subtle: attention weights add up to one. So the null key's value can be subtracted from all values and
    added to the output's bias, which leaves the null key with the value zero.
    """
    published = mpnet.layers[i]
    parts = zip(
        (layer.query, layer.key, layer.value),
        published.qkv.weight.chunk(3), published.qkv.bias.chunk(3), strict=True,
    )  # fmt: skip
    for linear, weight, bias in parts:
        linear.weight.copy_(weight)
        linear.bias.copy_(bias)
    null_value = layer.value(sink)
    layer.null_key.copy_(layer.key(sink))
    layer.out.weight.copy_(published.out.weight)
    layer.out.bias.copy_(published.out.bias + published.out.weight @ null_value)
    layer.value.bias.sub_(null_value)
    layer.up.load_state_dict(published.up.state_dict())
    layer.down.load_state_dict(published.down.state_dict())
    for norm, source in ((layer.norm1, published.norm1), (layer.norm2, published.norm2)):
        norm.gain.copy_(source.weight)
        norm.shift.copy_(source.bias)
    layer.position_bias.copy_(mpnet.distance.weight)
