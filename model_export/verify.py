"""`hardmax-export verify`: one bundle, three implementations, thousands of texts.

    ONNX Runtime   the bundle's graph, as the service runs it
    numpy          the definition below, float64, one text at a time, nothing but the formulas
    torch          the module that was trained (model.py), on the weights as the bundle stores them

They must agree on every argmax set, on logits to 1e-4 and on every label; contributions must sum to logits.
A text with a set that float32 cannot decide (products that differ by less than rounding) is counted instead.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from onnx import numpy_helper

from model_export.corpus import read
from model_export.model import HardmaxTransformer, Shape, Weights
from service.bundle import Bundle, read_bundle
from service.errors import InvalidInput
from service.runtime import Runtime, Session
from service.sentiment import MAX_LENGTH
from service.tokens import Tokens, Words

TOLERANCE = 1e-4
ROUNDING = 1e-6  # relative error that two float32 inner products may have
_BATCH = 16
Array = NDArray[Any]


@dataclass
class Parity:
    """What a comparison found; `holds` says whether the bundle may be served."""

    texts: int = 0
    sets: int = 0  # argmax sets compared
    undecidable: int = 0  # sets that float32 cannot decide
    different_sets: int = 0
    different_labels: int = 0
    logit_error: float = 0.0  # ONNX Runtime against numpy
    torch_error: float = 0.0  # torch against numpy
    sum_error: float = 0.0  # bias + contributions against the logit
    without_explanation: float = 0.0  # the logit when nothing else is asked for, and alone in its batch

    @property
    def holds(self) -> bool:
        errors = (self.logit_error, self.torch_error, self.sum_error, self.without_explanation)
        return not self.different_sets and not self.different_labels and max(errors) <= TOLERANCE

    def lines(self) -> list[str]:
        return [f"{field.name.replace('_', ' '):22}{getattr(self, field.name):g}" for field in fields(self)]


@dataclass(frozen=True)
class Reference:
    """One text through the definition."""

    logit: float
    members: Array  # bool [n, n]: C at the last layer
    undecidable: int  # sets, of any layer, with a member or rival within rounding of the best


def refer(weights: Weights, ids: Array, counts: Array) -> Reference:
    """The definition: attention, step, K times; then the weighted mean and the read-out."""
    Z = weights.embedding[ids].astype(np.float64)
    A = np.eye(Z.shape[1]) if weights.metric is None else weights.metric.astype(np.float64)
    gamma = weights.alpha / (1 + weights.alpha)
    C = np.zeros((len(Z), len(Z)), bool)
    undecidable = 0
    for _ in range(weights.layers):
        scores = Z @ A @ Z.T
        norm = np.sqrt(np.einsum("id,de,ie->i", Z, A, Z))
        scale = norm[:, None] * norm.max(initial=0.0)
        gap = scores.max(axis=1, keepdims=True) - scores
        C = gap == 0
        undecidable += int(((gap < ROUNDING * scale).sum(axis=1) > 1).sum())
        P = C * counts
        Z = Z + gamma * (P @ Z / P.sum(axis=1, keepdims=True) - Z)
    share = counts * weights.word_weights[ids].astype(np.float64)
    whole = max(weights.pseudo_weight + share.sum(), 1e-9)
    logit = weights.bias + float(share @ (Z @ weights.readout.astype(np.float64))) / whole
    return Reference(logit, C, undecidable)


def stored_weights(bundle: Bundle) -> Weights:
    """The weights inside a bundle's graph."""
    graph = onnx.load_model_from_string(bundle.model).graph
    held = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    return Weights(
        embedding=held["E"].astype(np.float32) * held["scale"].astype(np.float32),
        word_weights=held["w"].reshape(-1).astype(np.float32),
        readout=held["v"][:, 0].copy(),
        bias=float(held["b"]),
        alpha=held["alpha"].item(),
        layers=int(held["depth"][0]),
        pseudo_weight=float(held["pseudo_weight"]),
        metric=held["A"].copy(),
    )


def torch_module(weights: Weights) -> HardmaxTransformer:
    """The trained module with the stored weights in it."""
    vocabulary, dimension = weights.embedding.shape
    module = HardmaxTransformer(Shape(vocabulary, dimension, weights.layers, weights.alpha))
    module.shape = Shape(
        vocabulary,
        dimension,
        weights.layers,
        weights.alpha,
        pseudo_weight=weights.pseudo_weight,
        learn_metric=weights.metric is not None,
    )
    with torch.no_grad():
        module.E.copy_(torch.from_numpy(weights.embedding))
        module.u[:, 0].copy_(torch.from_numpy(np.log(np.maximum(weights.word_weights, 1e-30))))
        module.v.copy_(torch.from_numpy(weights.readout))
        module.b.fill_(weights.bias)
        if weights.metric is not None:
            module.B.copy_(torch.linalg.cholesky(torch.from_numpy(weights.metric)).T)
    return module


def verify(bundle: Bundle, texts: Sequence[str]) -> Parity:
    """Runs every text through all three and compares."""
    if bundle.kind != "sentiment":
        raise InvalidInput(
            f"{bundle.name} is of kind {bundle.kind}; sentiment can be verified", param="bundle"
        )
    weights = stored_weights(bundle)
    module = torch_module(weights)
    session = Runtime("cpu", 1).open(bundle.model)
    tokens = Tokens(bundle.tokenizer or "", int(bundle.card.get("max_length", MAX_LENGTH)))
    found = Parity()
    words = sorted(tokens.read(texts), key=lambda text: text.length)
    for at in range(0, len(words), _BATCH):
        _compare(found, words[at : at + _BATCH], weights, module, session)
    return found


def _compare(
    found: Parity, words: Sequence[Words], weights: Weights, module: HardmaxTransformer, session: Session
) -> None:
    ids, counts = _pad(words)
    feeds: dict[str, Array] = {"tokens": ids, "counts": counts, "detail": np.array(True)}
    logit, contribution, members, target, size = session.run(
        feeds, ("logit", "contribution", "members", "target", "size")
    )
    with torch.no_grad():
        learnt = module(torch.from_numpy(ids), torch.from_numpy(counts)).numpy()
    for b, text in enumerate(words):
        n = text.length
        reference = refer(weights, text.ids, text.counts.astype(np.float64))
        found.texts += 1
        found.sets += n
        found.undecidable += reference.undecidable
        alone: dict[str, Array] = {
            "tokens": ids[b : b + 1, : max(n, 1)],
            "counts": counts[b : b + 1, : max(n, 1)],
            "detail": np.array(False),
        }
        (single,) = session.run(alone, ("logit",))
        found.without_explanation = max(found.without_explanation, abs(float(single[0] - logit[b])))
        found.sum_error = max(
            found.sum_error, abs(weights.bias + float(contribution[b].sum()) - float(logit[b]))
        )
        if reference.undecidable:
            continue
        found.different_sets += _different(reference.members, members[b, :n, :n], target[b, :n], size[b, :n])
        found.different_labels += (reference.logit > 0) != (logit[b] > 0)
        found.logit_error = max(found.logit_error, abs(reference.logit - float(logit[b])))
        found.torch_error = max(found.torch_error, abs(reference.logit - float(learnt[b])))


def _different(expected: Array, members: Array, target: Array, size: Array) -> int:
    """Tokens whose C the graph gets wrong, in the dear output or in the cheap ones."""
    single = expected.sum(axis=1) == 1
    there = np.where(single, expected.argmax(axis=1), np.arange(len(expected)))
    wrong = (expected != members).any(axis=1) | (size != expected.sum(axis=1)) | (target != there)
    return int(wrong.sum())


def _pad(words: Sequence[Words]) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    width = max(1, *(text.length for text in words))
    ids, counts = np.zeros((len(words), width), np.int64), np.zeros((len(words), width), np.float32)
    for b, text in enumerate(words):
        ids[b, : text.length], counts[b, : text.length] = text.ids, text.counts
    return ids, counts


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("bundle", type=Path, nargs="+", help="folders of bundles")
    parser.add_argument("--data", type=Path, required=True, help="texts to verify on, as for train")
    parser.add_argument("--texts", type=int, default=2000, help="how many of them, drawn at random")


def run(arguments: argparse.Namespace) -> int:
    texts = read(arguments.data, unlabelled=False).texts
    drawn = np.random.default_rng(0).permutation(len(texts))[: arguments.texts]
    failed = False
    for folder in arguments.bundle:
        found = verify(read_bundle(folder), [texts[i] for i in drawn])
        print(f"{folder}: {'holds' if found.holds else 'FAILS'}", *found.lines(), sep="\n  ")
        failed |= not found.holds
    return int(failed)
