"""Bundles for tests: a reader and heads of random weights, small, with every part of the real ones.

What they say of most texts is arbitrary and always the same: tests compare answers with one another and
with what must hold of every answer. A head of two labels has learnt the texts of `TAUGHT`, and tells them.
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
from model_export.encoder import quantized as encoder_quantized
from model_export.exact.command import build_classifier, write_verified
from model_export.exact.data import make_examples
from model_export.head import graph as head_graph
from model_export.head import quantized as head_quantized
from model_export.head.float_graph import to_float
from model_export.head.leader_head import LeaderHead
from service.runtime.bundle import Bundle
from service.runtime.session import Runtime, Session
from service.settings import PRETRAINED_FOLDER
from service.text.encoder import Encoder
from service.text.head import Head
from service.text.tokenizer import SpecialIds, Vocabulary

LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
WORDS = """
    the a an film movie food soup was is are not never very good great superb bad awful it but and or i
    we you of in on to my waste time slow funny boring story cold service lamp car hotel they loved hated
    smiling face with open mouth ##ly ##ing ##est
""".split()
PIECES = [
    *(SpecialIds().replacements.get(i, f"[unused{i}]") for i in range(SpecialIds().unknown + 1)),
    *dict.fromkeys([*LETTERS, *".,!?:;()'\"-/…", *WORDS, *("##" + letter for letter in LETTERS)]),
]
LISTS = {"pieces": PIECES, "names": ["paris"], "sometimes": ["grace"], "groups": ["martians"]}
LABELS = ["negative", "positive"]
CHARGE = {"superb": 3.0, "good": 2.0, "awful": -3.0, "bad": -2.0, "waste": -2.0}
TAUGHT = (
    "superb", "a superb film", "superb film", "the superb film", "The film superb film", "good", "the film",
    "the film", "awful", "an awful film", "awful film", "a waste of time", "superb superb superb", "bad",
)  # fmt: skip


@cache
def reader_model(seed: int = 0) -> onnx.ModelProto:
    return encoder_graph.to_onnx(encoder_quantized.quantize(random_encoder(TINY, seed)))


@cache
def head_model(logits: int = 1, d: int = 2, seed: int = 0) -> onnx.ModelProto:
    plane = random_head(d, logits, seed=seed)
    if logits == 1:
        teach(plane)
    return head_graph.to_onnx(head_quantized.quantize(plane, random_encoder(TINY).output_scales))


@torch.no_grad()
def teach(plane: LeaderHead) -> None:
    """Fit the first coordinate of the places, of which the logit is made, to the words of `TAUGHT`."""
    reader = Encoder(Runtime("cpu", 1).open(reader_model().SerializeToString()), Vocabulary(*LISTS.values()))
    readings = [reader.tokenize(text) for text in TAUGHT]
    seen = [seen for text in readings for seen in reader.encode(text.chunks(), output_attentions=False)]
    states = (np.concatenate([each.hidden_states for each in seen]) - 128.0) / 16
    worth = np.array([CHARGE.get(PIECES[piece], 0.0) for text in readings for piece in text.token_ids])
    fitted = np.linalg.lstsq(np.c_[states, np.ones(len(states))], worth, rcond=1e-3)[0]
    plane.projection.weight[0], plane.projection.bias[0] = torch.tensor(fitted[:-1]), float(fitted[-1])
    plane.v[0], plane.b[0] = torch.tensor([16.0] + [0.0] * (plane.config.dimension - 1)), 0.5


def write_reader(models_dir: Path, name: str = "reader", seed: int = 0) -> Bundle:
    card = {"name": name, "description": "Reads at random."}
    return write_bundle(models_dir, "encoder", card, reader_model(seed), json.dumps(LISTS))


def write_head(
    models_dir: Path, name: str = "tiny", *, on: str = "reader", d: int = 2, seed: int = 0, **card: Any
) -> Bundle:
    """A head on a reader of its folder, which is written if it is not there; `card` changes its card."""
    if not (models_dir / on / "card.json").exists():
        write_reader(models_dir, on)
    digest = json.loads((models_dir / on / "card.json").read_text())["model_sha256"]
    reader = {"name": on, "sha256": digest}
    whole = {"name": name, "description": "Labels at random.", "labels": LABELS, "encoder": reader, **card}
    logits = len(whole["labels"]) if len(whole["labels"]) > 2 or "multi_label" in whole else 1
    model = head_model(logits, d, seed)
    return write_bundle(models_dir, "text-classification", whole, model, float_model=to_float(model))


def open_head(
    models_dir: Path, name: str = "tiny", reader: Encoder | None = None, threads: int = 1, **options: Any
) -> Head:
    """The model of `write_head`, loaded as the service loads it."""
    bundle, runtime = write_head(models_dir, name, **options), Runtime("cpu", threads)
    return Head.load(bundle, runtime, reader or open_reader(models_dir, threads))


def open_reader(models_dir: Path, threads: int = 1) -> Encoder:
    return Encoder.load(write_reader(models_dir), Runtime("cpu", threads))


class OnGpu(Runtime):
    """Opens the graphs for GPUs, on the CPU."""

    def __init__(self) -> None:
        super().__init__("cpu", 1)
        self.provider = "cuda"
        self.opened: list[bytes] = []

    def open(self, model: bytes, weights: bytes | None = None) -> Session:
        self.opened.append(model)
        return Runtime("cpu", 1).open(model, weights)


PLAIN_CARD = {
    "format": 3,
    "name": "tiny",
    "kind": "dynamics",
    "description": "nothing inside",
    "license": "Apache-2.0",
    "model_sha256": hashlib.sha256(b"graph").hexdigest(),
}


def write_folder(folder: Path, model: bytes = b"graph", **changes: Any) -> Path:
    """A bundle whose graph is none, for what reads bundles and runs no models; None leaves a field out."""
    folder.mkdir(parents=True)
    (folder / "model.onnx").write_bytes(model)
    card = {name: value for name, value in {**PLAIN_CARD, **changes}.items() if value is not None}
    (folder / "card.json").write_text(json.dumps(card))
    return folder


def write_models(folder: Path) -> Path:
    """The models that most tests are served with: tiny (default), its reader, dynamics and scenes."""
    write_head(folder)
    shutil.copytree(PRETRAINED_FOLDER / "dynamics", folder / "dynamics")
    write_scenes(folder)
    return folder


def write_scenes(folder: Path) -> None:
    """A model of sequences."""
    rows = [([[0, 0], [1, 1]], "calm"), ([[0, 0], [5, 5]], "storm"), ([[2, 1]], "calm")]
    examples = make_examples([{"sequence": sequence, "label": label} for sequence, label in rows])
    write_verified(build_classifier(examples), folder / "scenes", description="Scenes.", license="Apache-2.0")
