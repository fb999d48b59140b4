"""all-MiniLM-L6-v2 (Apache 2.0) as published, in our module: a softmax transformer to compare with.

Positions begin after the published first token, [CLS].
"""

import json
from pathlib import Path

from safetensors.torch import load_file

from model_export.encoder.layer import EncoderConfig
from model_export.encoder.model import Encoder
from service.text.tokenizer import CHUNK_TOKENS

CONFIG = ("hidden_size", "num_attention_heads", "num_hidden_layers", "intermediate_size", "vocab_size")
LINEAR = {
    "query": "attention.self.query", "key": "attention.self.key", "value": "attention.self.value",
    "out": "attention.output.dense", "up": "intermediate.dense", "down": "output.dense",
}  # fmt: skip
NORMS = {"norm1": "attention.output.LayerNorm", "norm2": "output.LayerNorm"}
# Our name of each weight of a layer, and the published one.
PARTS = {
    **{f"{name}.{p}": f"{module}.{p}" for name, module in LINEAR.items() for p in ("weight", "bias")},
    **{f"{name}.gain": f"{module}.weight" for name, module in NORMS.items()},
    **{f"{name}.shift": f"{module}.bias" for name, module in NORMS.items()},
}


def load_minilm(folder: Path) -> Encoder:
    """Return all-MiniLM-L6-v2 from the folder of its config.json and model.safetensors."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    state = load_file(folder / "model.safetensors")
    encoder = Encoder(EncoderConfig(*(config[name] for name in CONFIG)))
    words = state["embeddings.word_embeddings.weight"]
    kinds, positions = (state[f"embeddings.{name}_embeddings.weight"] for name in ("token_type", "position"))
    positions = positions + kinds[0]
    weights = {
        "words.weight": words,
        "positions.weight": positions[1 : 1 + CHUNK_TOKENS],
        "norm.gain": state["embeddings.LayerNorm.weight"],
        "norm.shift": state["embeddings.LayerNorm.bias"],
    }
    for i in range(len(encoder.layers)):
        for name, published in PARTS.items():
            weights[f"layers.{i}.{name}"] = state[f"encoder.layer.{i}.{published}"]
    encoder.load_state_dict(weights, strict=False)
    return encoder
