"""Bundles for tests: a small encoder and small heads with random weights, with every part of the real ones.

Their predictions are arbitrary but repeatable: tests compare answers with each other, and with what holds of
every answer. A head of two labels is fitted to `TRAINING_TEXTS`, and predicts them correctly.
"""

import hashlib
import json
import shutil
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from encoders import TINY, random_encoder, random_head

from model_export.bundle import write_bundle
from model_export.encoder import graph as encoder_graph
from model_export.encoder import quantization as encoder_quantized
from model_export.exact.command import build_classifier, write_verified
from model_export.exact.data import make_examples
from model_export.head import graph as head_graph
from model_export.head import quantization as head_quantized
from model_export.head.float_graph import to_float
from model_export.head.leader_head import LeaderHead
from service.runtime.bundle import Bundle
from service.runtime.session import Runtime, Session
from service.settings import PRETRAINED_FOLDER
from service.text.encoder import Encoder
from service.text.head import Head
from service.text.tokenizer import SpecialIds, Vocabulary

CHARACTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
WORDS = """
    the a an film movie food soup was is are not never very good great superb bad awful it but and or i
    we you of in on to my waste time slow funny boring story cold service lamp car hotel they loved hated
    smiling face with open mouth ##ly ##ing ##est
""".split()
TOKENS = [
    *(SpecialIds().replacements.get(i, f"[unused{i}]") for i in range(SpecialIds().unknown + 1)),
    *dict.fromkeys([*CHARACTERS, *".,!?:;()'\"-/…", *WORDS, *("##" + letter for letter in CHARACTERS)]),
]
WORD_LISTS = {"pieces": TOKENS, "names": ["paris"], "sometimes": ["grace"], "groups": ["martians"]}
LABELS = ["negative", "positive"]
WORD_SCORES = {"superb": 3.0, "good": 2.0, "awful": -3.0, "bad": -2.0, "waste": -2.0}
TRAINING_TEXTS = (
    "superb", "a superb film", "superb film", "the superb film", "The film superb film", "good", "the film",
    "the film", "awful", "an awful film", "awful film", "a waste of time", "superb superb superb", "bad",
)  # fmt: skip


@cache
def encoder_model(seed: int = 0) -> onnx.ModelProto:
    return encoder_graph.to_onnx(encoder_quantized.quantize(random_encoder(TINY, seed)))


@cache
def head_model(logits: int = 1, d: int = 2, seed: int = 0) -> onnx.ModelProto:
    head = random_head(d, logits, seed=seed)
    if logits == 1:
        fit_head(head)
    return head_graph.to_onnx(head_quantized.quantize(head, random_encoder(TINY).output_scales))


@torch.no_grad()
def fit_head(head: LeaderHead) -> None:
    """Fit the first coordinate of the positions, which determines the logit, to the words of the texts."""
    session = Runtime("cpu", 1).open(encoder_model().SerializeToString())
    encoder = Encoder(session, Vocabulary(*WORD_LISTS.values()))
    texts = [encoder.tokenize(text) for text in TRAINING_TEXTS]
    outputs = [output for text in texts for output in encoder.encode(text.chunks(), output_attentions=False)]
    states = (np.concatenate([output.hidden_states for output in outputs]) - 128.0) / 16
    scores = np.array([WORD_SCORES.get(TOKENS[token], 0.0) for text in texts for token in text.token_ids])
    fitted = np.linalg.lstsq(np.c_[states, np.ones(len(states))], scores, rcond=1e-3)[0]
    head.projection.weight[0], head.projection.bias[0] = torch.tensor(fitted[:-1]), float(fitted[-1])
    head.v[0], head.b[0] = torch.tensor([16.0] + [0.0] * (head.config.dimension - 1)), 0.5


def write_encoder(models_dir: Path, name: str = "reader", seed: int = 0) -> Bundle:
    card = {"name": name, "description": "Reads at random."}
    return write_bundle(models_dir, "encoder", card, encoder_model(seed), json.dumps(WORD_LISTS))


def write_head(models_dir: Path, name: str = "tiny", *, d: int = 2, seed: int = 0, **fields: Any) -> Bundle:
    """Write a head, and the encoder that it needs if the folder has none; `fields` are added to its card."""
    if not (models_dir / "reader/card.json").exists():
        write_encoder(models_dir)
    digest = json.loads((models_dir / "reader/card.json").read_text())["model_sha256"]
    card = {"name": name, "description": "Labels at random.", "labels": LABELS}
    card |= {"encoder": {"name": "reader", "sha256": digest}, **fields}
    logits = len(card["labels"]) if len(card["labels"]) > 2 or "multi_label" in card else 1
    model = head_model(logits, d, seed)
    return write_bundle(models_dir, "text-classification", card, model, float_model=to_float(model))


def load_head(
    models_dir: Path, name: str = "tiny", encoder: Encoder | None = None, threads: int = 1, **options: Any
) -> Head:
    """Write a head, and load it as the service does."""
    bundle, runtime = write_head(models_dir, name, **options), Runtime("cpu", threads)
    return Head.load(bundle, runtime, encoder or load_encoder(models_dir, threads))


def load_encoder(models_dir: Path, threads: int = 1) -> Encoder:
    return Encoder.load(write_encoder(models_dir), Runtime("cpu", threads))


class FakeGpuRuntime(Runtime):
    """Selects the graphs for GPUs, and opens them on the CPU."""

    def __init__(self) -> None:
        super().__init__("cpu", 1)
        self.graphs = "cuda"
        self.opened: list[bytes] = []

    def open(self, model: bytes, *arguments: Any, **options: Any) -> Session:
        self.opened.append(model)
        return super().open(model, *arguments, **options)


STUB_CARD = {
    "format": 3,
    "name": "tiny",
    "kind": "dynamics",
    "description": "nothing inside",
    "license": "Apache-2.0",
    "model_sha256": hashlib.sha256(b"graph").hexdigest(),
}


def write_stub_bundle(folder: Path, model: bytes = b"graph", **changes: Any) -> Path:
    """Write a bundle with an invalid graph, for tests that run no models; None removes a field."""
    folder.mkdir(parents=True)
    (folder / "model.onnx").write_bytes(model)
    card = {name: value for name, value in {**STUB_CARD, **changes}.items() if value is not None}
    (folder / "card.json").write_text(json.dumps(card))
    return folder


def write_models(folder: Path) -> Path:
    """Write the models of most tests: tiny (default), its encoder, dynamics and scenes."""
    write_head(folder)
    shutil.copytree(PRETRAINED_FOLDER / "dynamics", folder / "dynamics")
    write_sequence_model(folder)
    return folder


def write_sequence_model(folder: Path) -> None:
    """Write a model of sequences."""
    rows = [([[0, 0], [1, 1]], "calm"), ([[0, 0], [5, 5]], "storm"), ([[2, 1]], "calm")]
    examples = make_examples([{"sequence": sequence, "label": label} for sequence, label in rows])
    write_verified(build_classifier(examples), folder / "scenes", description="Scenes.", license="Apache-2.0")
