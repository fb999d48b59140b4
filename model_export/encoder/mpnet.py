"""The teacher: all-mpnet-base-v2 (Apache 2.0), a large pretrained encoder, in plain torch.

It labels the unlabelled sentences of the training set; nothing of it is exported. Its folder is as published:
config.json, model.safetensors, tokenizer.json.

Shapes: B texts, N tokens, H heads, W width.
"""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn import functional

from model_export.attention.position_buckets import position_buckets
from service.errors import NotFound

TokenIds = NDArray[np.int32]
TEACHER_FILES = ("config.json", "model.safetensors", "tokenizer.json")
PADDING = 1
MAX_TEACHER_TOKENS = 64  # of a text; longer ones lose their middle
NEGATIVE_INDEX, NEUTRAL_INDEX, POSITIVE_INDEX = range(3)
BUCKETS = 32  # of relative positions


class Layer(nn.Module):
    """A layer of MPNet."""

    def __init__(self, width: int, heads: int, hidden: int, eps: float) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.norm1, self.norm2 = nn.LayerNorm(width, eps), nn.LayerNorm(width, eps)
        self.up, self.down = nn.Linear(width, hidden), nn.Linear(hidden, width)

    def forward(self, x: Tensor, position_bias: Tensor) -> Tensor:
        """Return the next states of x [B, N, W]; `position_bias` [B, H, N, N] is far below 0 for padding."""
        B, N, W = x.shape
        q, k, v = self.qkv(x).view(B, N, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        context = functional.scaled_dot_product_attention(q, k, v, attn_mask=position_bias.to(q.dtype))
        x = self.norm1(x + self.out(context.transpose(1, 2).reshape(B, N, W)))
        x = self.norm2(x + self.down(functional.gelu(self.up(x))))
        return x


class Teacher(nn.Module):
    """MPNet with mean pooling and a head of three logits."""

    layers: list[Layer]

    def __init__(self, folder: Path) -> None:
        super().__init__()
        if missing := [name for name in TEACHER_FILES if not (folder / name).exists()]:
            raise NotFound(f"{folder}: the teacher needs {', '.join(missing)}", param="teacher")
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.tokenizer.no_padding()
        self.tokenizer.no_truncation()
        width, eps, heads = config["hidden_size"], config["layer_norm_eps"], config["num_attention_heads"]
        self.words = nn.Embedding(config["vocab_size"], width)
        self.positions = nn.Embedding(config["max_position_embeddings"], width)
        self.norm = nn.LayerNorm(width, eps)
        self.distance = nn.Embedding(BUCKETS, heads)  # shared by all layers
        self.layers = nn.ModuleList(  # type: ignore[assignment]
            Layer(width, heads, config["intermediate_size"], eps) for _ in range(config["num_hidden_layers"])
        )
        self.head = nn.Linear(width, 3)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)
        self.load_state_dict(_rename_weights(load_file(folder / "model.safetensors")), strict=False)
        for table in (self.words, self.positions, self.distance):
            table.requires_grad_(False)

    def tokenize(self, texts: Sequence[str], max_tokens: int = MAX_TEACHER_TOKENS) -> list[TokenIds]:
        """Return the token ids of each text; of a long text, those of its two ends."""
        ids = [np.array(encoding.ids, np.int32) for encoding in self.tokenizer.encode_batch(list(texts))]
        half = max_tokens // 2
        return [
            row if len(row) <= max_tokens else np.concatenate([row[:half], row[half - max_tokens :]])
            for row in ids
        ]

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits [B, 3] of token ids [B, N]: negative, neutral, positive."""
        logits: Tensor = self.head(self.embed(x))
        return logits

    def embed(self, x: Tensor) -> Tensor:
        """Return the mean hidden state [B, W] of token ids [B, N]."""
        is_token = x != PADDING
        mask = torch.zeros(x.shape, device=x.device).masked_fill(~is_token, -1e4)[:, None, None]
        position_bias = mask + self.position_bias(x.shape[1])
        y = self.norm(self.words(x) + self.positions(is_token.cumsum(1) * is_token + PADDING))
        for layer in self.layers:
            y = layer(y, position_bias)
        mean: Tensor = (y * is_token[..., None]).sum(1) / is_token.sum(1, keepdim=True)
        return mean

    def position_bias(self, n: int) -> Tensor:
        """Return what each head adds to the scores for the distance i - j, [H, N, N]."""
        i = torch.arange(n, device=self.distance.weight.device)
        scores: Tensor = self.distance(position_buckets(i[:, None] - i, BUCKETS)).permute(2, 0, 1)
        return scores


def _rename_weights(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the published weights by the names of this module."""
    state = {name.removeprefix("mpnet."): value for name, value in state.items()}
    renamed = {
        "words.weight": state["embeddings.word_embeddings.weight"],
        "positions.weight": state["embeddings.position_embeddings.weight"],
        "norm.weight": state["embeddings.LayerNorm.weight"],
        "norm.bias": state["embeddings.LayerNorm.bias"],
        "distance.weight": state["encoder.relative_attention_bias.weight"],
    }
    names = {
        "out": "attention.attn.o",
        "norm1": "attention.LayerNorm",
        "up": "intermediate.dense",
        "down": "output.dense",
        "norm2": "output.LayerNorm",
    }
    for i in {int(name.split(".")[2]) for name in state if name.startswith("encoder.layer.")}:
        for end in ("weight", "bias"):
            source, target = f"encoder.layer.{i}", f"layers.{i}"
            qkv = [state[f"{source}.attention.attn.{part}.{end}"] for part in "qkv"]
            renamed[f"{target}.qkv.{end}"] = torch.cat(qkv)
            for name, published in names.items():
                renamed[f"{target}.{name}.{end}"] = state[f"{source}.{published}.{end}"]
    return renamed
