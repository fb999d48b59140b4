"""all-mpnet-base-v2 as its authors published it (Apache 2.0), in plain torch: what our encoders are made of.

Its folder is as published: config.json, model.safetensors, tokenizer.json.

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
FILES = ("config.json", "model.safetensors", "tokenizer.json")
PADDING = 1
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


class MPNet(nn.Module):
    """The published encoder; `published.from_mpnet` runs and copies its parts."""

    layers: list[Layer]

    def __init__(self, folder: Path) -> None:
        super().__init__()
        if missing := [name for name in FILES if not (folder / name).exists()]:
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
        self.load_state_dict(_rename_weights(load_file(folder / "model.safetensors")), strict=False)

    def tokenize(self, texts: Sequence[str]) -> list[TokenIds]:
        """Return the token ids of each text."""
        return [np.array(encoding.ids, np.int32) for encoding in self.tokenizer.encode_batch(list(texts))]

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
