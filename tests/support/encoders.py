"""A published encoder in small: two layers, random weights, a vocabulary of whole words."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

CONFIG = {
    "vocab_size": 400, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
    "intermediate_size": 32, "max_position_embeddings": 128, "layer_norm_eps": 1e-12,
    "hidden_dropout_prob": 0.1,
}  # fmt: skip
SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")


def write_encoder(folder: Path, words: Sequence[str]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG))
    vocabulary = {word: i for i, word in enumerate(dict.fromkeys([*SPECIALS, *words]))}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    tokenizer.save(str(folder / "tokenizer.json"))
    save_file(published_weights(), folder / "model.safetensors")
    return folder


def published_weights() -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    width, inner = CONFIG["hidden_size"], CONFIG["intermediate_size"]
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (CONFIG["vocab_size"], width),
        "embeddings.position_embeddings.weight": (CONFIG["max_position_embeddings"], width),
        "embeddings.token_type_embeddings.weight": (2, width),
        "pooler.dense.weight": (width, width),
    }
    for i in range(CONFIG["num_hidden_layers"]):
        products = {
            "attention.self.query": (width, width), "attention.self.key": (width, width),
            "attention.self.value": (width, width), "attention.output.dense": (width, width),
            "intermediate.dense": (inner, width), "output.dense": (width, inner),
        }  # fmt: skip
        for name, (rows, columns) in products.items():
            shapes[f"encoder.layer.{i}.{name}.weight"] = (rows, columns)
            shapes[f"encoder.layer.{i}.{name}.bias"] = (rows,)
    found = {name: 0.3 * torch.randn(shape) for name, shape in shapes.items()}
    norms = ["embeddings.LayerNorm"]
    for i in range(CONFIG["num_hidden_layers"]):
        norms += [f"encoder.layer.{i}.attention.output.LayerNorm", f"encoder.layer.{i}.output.LayerNorm"]
    for norm in norms:
        found |= {f"{norm}.weight": 1 + 0.1 * torch.randn(width), f"{norm}.bias": 0.1 * torch.randn(width)}
    return found
