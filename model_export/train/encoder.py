"""The teacher: all-MiniLM-L6-v2 (Apache 2.0), a small pretrained encoder, fitted to our labels.

It has read far more English than we have: what denies what, who is of which opinion. It labels sentences that
nobody labelled; nothing of it is exported. Its folder is as published: config.json, model.safetensors,
tokenizer.json.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from model_export.train.material import Ints
from service.errors import NotFound

Pieces = NDArray[np.int32]
FILES = ("config.json", "model.safetensors", "tokenizer.json")
LONGEST = 64  # pieces of a text: its two ends
CHARACTERS = 4_000  # of a text that are cut into pieces
TOGETHER = 8_192  # texts that are sorted by length together
HALF_PRECISION = torch.cpu.get_capabilities().get("avx512_bf16", False)  # elsewhere it is slower
MARKUP = re.compile(r"<[^<>]{0,200}>")


@dataclass(frozen=True)
class Fitting:
    epochs: int = 2
    rate: float = 1e-4
    warm_up: int = 100  # steps
    pieces: int = 1_024  # a batch
    decay: float = 0.01
    sure: float = 0.97  # labels are moved to it and to 1 - it
    seed: int = 0


class Encoder(nn.Module):
    """BERT's layers over pieces of words, the mean of what they end with, one logit."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        if missing := [name for name in FILES if not (folder / name).exists()]:
            raise NotFound(f"{folder}: an encoder needs {', '.join(missing)}", param="encoder")
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.tokenizer.no_padding()
        self.tokenizer.no_truncation()
        width, eps = config["hidden_size"], config["layer_norm_eps"]
        self.words = nn.Embedding(config["vocab_size"], width, padding_idx=0)
        self.places = nn.Embedding(config["max_position_embeddings"], width)
        self.norm = nn.LayerNorm(width, eps)
        layer = nn.TransformerEncoderLayer(
            width, config["num_attention_heads"], config["intermediate_size"], dropout=0.0,
            activation="gelu", layer_norm_eps=eps, batch_first=True,
        )  # fmt: skip
        self.layers = nn.TransformerEncoder(layer, config["num_hidden_layers"], enable_nested_tensor=False)
        self.head = nn.Linear(width, 1)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)
        self.load_state_dict(_published(load_file(folder / "model.safetensors")), strict=False)

    def pieces(self, texts: Sequence[str], longest: int = LONGEST) -> list[Pieces]:
        """Ids of the pieces of each text; of a long one its two ends."""
        clean = [MARKUP.sub(" ", text)[:CHARACTERS] for text in texts]
        ids = [np.array(found.ids, np.int32) for found in self.tokenizer.encode_batch(clean)]
        half = longest // 2
        return [
            each if len(each) <= longest else np.concatenate([each[:half], each[half - longest :]])
            for each in ids
        ]

    def forward(self, x: Tensor) -> Tensor:
        """x [B, N] ids, 0 = padding -> logits [B]."""
        there = x > 0
        half = torch.autocast("cpu", dtype=torch.bfloat16, enabled=HALF_PRECISION)
        with half, sdpa_kernel(SDPBackend.MATH):  # for short texts it is faster than the flash kernel
            begin = self.norm(self.words(x) + self.places.weight[: x.shape[1]])
            states = self.layers(begin, src_key_padding_mask=~there).float()
        mean = (states * there[..., None]).sum(1) / there.sum(1, keepdim=True)
        logit: Tensor = self.head(mean)[:, 0]
        return logit

    def asked(self, texts: Sequence[str], kept: Path) -> NDArray[np.float32]:
        """The logits, kept in the folder: a run that was stopped asks nothing twice."""
        digest = sha256(self.head.weight.detach().numpy().tobytes() + "\0".join(texts).encode())
        file = kept / f"{digest.hexdigest()[:16]}.npy"
        if not file.exists():
            kept.mkdir(parents=True, exist_ok=True)
            np.save(file, self.logits(texts))
        return np.asarray(np.load(file), np.float32)

    @torch.no_grad()
    def logits(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """[n], in the order of the texts."""
        self.eval()
        found = np.zeros(len(texts), np.float32)
        for at in range(0, len(texts), TOGETHER):
            pieces = self.pieces(texts[at : at + TOGETHER])
            for rows in _batches(pieces, np.arange(len(pieces)), 8_192):
                found[at + rows] = self(_padded(pieces, rows)).float().numpy()
        return found


def fitted(
    folder: Path,
    texts: Sequence[str],
    targets: NDArray[np.float32],
    epochs: Sequence[Ints],
    how: Fitting,
    keep: Path,
    say: Callable[[str], None] = print,
) -> Encoder:
    """The encoder of `folder` fitted on the rows of each epoch; kept as `keep` for the next run."""
    torch.manual_seed(how.seed)
    encoder = Encoder(folder)
    for part in (encoder.words, encoder.places, encoder.norm):
        part.requires_grad_(False)
    if keep.exists():
        encoder.load_state_dict(torch.load(keep))
        return encoder.eval()
    rng = np.random.default_rng(how.seed)
    pieces = encoder.pieces(texts)
    plans = [list(_batches(pieces, rng.permutation(rows), how.pieces)) for rows in epochs]
    steps, step, began = sum(map(len, plans)), 0, time.monotonic()
    learnt = [p for p in encoder.parameters() if p.requires_grad]
    optimiser = torch.optim.AdamW(learnt, lr=how.rate, weight_decay=how.decay, fused=True)
    for epoch, plan in enumerate(plans):
        encoder.train()
        total = 0.0
        for at in rng.permutation(len(plan)):
            rows, step = plan[at], step + 1
            optimiser.param_groups[0]["lr"] = how.rate * min(1, step / how.warm_up) * (1 - step / (steps + 1))
            target = torch.from_numpy(targets[rows]).clamp(1 - how.sure, how.sure)
            loss = nn.functional.binary_cross_entropy_with_logits(encoder(_padded(pieces, rows)), target)
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(learnt, 1.0)
            optimiser.step()
            total += float(loss.detach())
        seconds = time.monotonic() - began
        say(f"encoder: epoch {epoch + 1}/{len(plans)}, {seconds:.0f} s, loss {total / len(plan):.4f}")
    torch.save(encoder.state_dict(), keep)
    return encoder.eval()


def _batches(pieces: Sequence[Pieces], rows: Ints, most: int) -> Iterator[Ints]:
    """Parts of `rows` of like length, at most `most` pieces with padding each."""
    for at in range(0, len(rows), TOGETHER):
        near = sorted(rows[at : at + TOGETHER].tolist(), key=lambda row: len(pieces[row]))
        part: list[int] = []
        for row in near:
            if part and len(pieces[row]) * (len(part) + 1) > most:
                yield np.array(part)
                part = []
            part.append(row)
        yield np.array(part)


def _padded(pieces: Sequence[Pieces], rows: Ints) -> Tensor:
    """[B, N], zeros behind the end of a text."""
    x = np.zeros((len(rows), max(len(pieces[row]) for row in rows)), np.int64)
    for b, row in enumerate(rows):
        x[b, : len(pieces[row])] = pieces[row]
    return torch.from_numpy(x)


def _published(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """The published names -> ours. All texts are of the first kind: its row is added to the places."""
    found = {
        "words.weight": state["embeddings.word_embeddings.weight"],
        "places.weight": state["embeddings.position_embeddings.weight"]
        + state["embeddings.token_type_embeddings.weight"][0],
        "norm.weight": state["embeddings.LayerNorm.weight"],
        "norm.bias": state["embeddings.LayerNorm.bias"],
    }
    parts = {
        "self_attn.out_proj": "attention.output.dense",
        "norm1": "attention.output.LayerNorm",
        "linear1": "intermediate.dense",
        "linear2": "output.dense",
        "norm2": "output.LayerNorm",
    }
    layers = {int(name.split(".")[2]) for name in state if name.startswith("encoder.layer.")}
    for i in layers:
        for end in ("weight", "bias"):
            theirs, ours = f"encoder.layer.{i}", f"layers.layers.{i}"
            attention = [state[f"{theirs}.attention.self.{part}.{end}"] for part in ("query", "key", "value")]
            found[f"{ours}.self_attn.in_proj_{end}"] = torch.cat(attention)
            for name, published in parts.items():
                found[f"{ours}.{name}.{end}"] = state[f"{theirs}.{published}.{end}"]
    return found
