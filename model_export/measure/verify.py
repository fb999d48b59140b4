"""`hardmax-export verify`: one bundle, three implementations, thousands of texts.

    ONNX Runtime   the bundle's graph, as the service runs it
    numpy          the definition (reference.py), one text at a time, nothing but the formulas, in float64
    torch          the module that was trained (model.py), on the weights as the bundle stores them

Attention is compared on the places that the graph computed: every C_i and every step must be those of the
definition, to the bit. Logits must agree to 1e-4 and labels exactly, except where float32 cannot decide a C_i
of the definition: such texts are counted. Alone or in a batch, a text must get the same numbers, to the bit.
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

from model_export.sentiment import reference
from model_export.sentiment.graph import EVENTS, OUTPUTS
from model_export.sentiment.model import HardmaxTransformer, Weights
from model_export.train.corpora import read_reviews
from service.engine.bundle import Bundle, read_bundle
from service.engine.runtime import Runtime, Session
from service.errors import InvalidInput
from service.texts.reader import Tokens
from service.texts.sentiment import Sentiment

TOLERANCE = 1e-4
ROUNDING = 3e-6  # relative error that two float32 scores may have, of places computed in float32
_BATCH = 16
Array = NDArray[Any]


@dataclass
class Parity:
    """What a comparison found; `holds` says whether the bundle may be served."""

    texts: int = 0
    sets: int = 0  # argmax sets compared, of all layers
    undecidable: int = 0  # texts with a set that float32 cannot decide
    different_sets: int = 0  # the graph's against the definition, on the same places
    different_steps: int = 0
    different_targets: int = 0  # the graph's against the definition from the start, in decidable texts
    different_labels: int = 0
    different_alone: int = 0  # texts that get other numbers alone than in a batch
    place_error: float = 0.0  # ONNX Runtime against numpy
    logit_error: float = 0.0
    torch_error: float = 0.0  # torch against numpy
    sum_error: float = 0.0  # bias + contributions against the logit

    @property
    def holds(self) -> bool:
        different = (
            self.different_sets,
            self.different_steps,
            self.different_targets,
            self.different_labels,
            self.different_alone,
        )
        errors = (self.place_error, self.logit_error, self.torch_error, self.sum_error)
        return not any(different) and max(errors) <= TOLERANCE

    def lines(self) -> list[str]:
        return [f"{field.name.replace('_', ' '):22}{getattr(self, field.name):g}" for field in fields(self)]


def stored_weights(bundle: Bundle) -> Weights:
    """The weights that a bundle's graph computes with."""
    graph = onnx.load_from_string(bundle.model).graph
    held = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    column, parts = held["column"], len(held["offsets"])
    V, d = len(held["own"]), held["readout"].shape[2] - 2
    scale = held["scale"][:, 0]
    gamma = float(held["gamma"])
    return Weights(
        words=tuple(map(str, range(V))),
        offsets=tuple((held["offsets"][:, 0] - 2).tolist()),
        clause=np.searchsorted(EVENTS, held["clause"]).astype(np.int8),
        sentence=np.searchsorted(EVENTS, held["sentence"]).astype(np.int8),
        tables=held["tables"].reshape(parts + 1, V, -1) * column,
        hidden_bias=held["hidden_bias"] * column,
        out=held["out"] / column[:, None],
        out_bias=np.zeros(d + 1, np.float32),
        own=held["own"],
        pairs=held["pairs"] * scale,
        triples=held["triples"] * scale,
        reach=held["reach"],
        readout=held["readout"][0, :, :d],
        bias=held["bias_of"][0, :, 0],
        alpha=gamma / (1 - gamma),
        layers=sum(name.startswith("layer") for name in held),
        scale=1.0,
        pseudo_weight=float(held["pseudo_weight"]),
        concession=float(held["concession"]),
        calibration=held["calibration"],
    )


def verify(bundle: Bundle, texts: Sequence[str]) -> Parity:
    """Runs every text through all three and compares."""
    if bundle.kind != "sentiment":
        problem = f"{bundle.name} is of kind {bundle.kind}; sentiment can be verified"
        raise InvalidInput(problem, param="bundle")
    runtime = Runtime("cpu", 1)
    weights, session = stored_weights(bundle), runtime.open(bundle.model)
    module = HardmaxTransformer.of(weights)
    found = Parity()
    read_texts = Sentiment.load(bundle, runtime).tokenise_many(texts)
    some = sorted((tokens for tokens in read_texts if len(tokens)), key=len)
    for at in range(0, len(some), _BATCH):
        _compare(found, some[at : at + _BATCH], weights, module, session)
    return found


def _compare(
    found: Parity, texts: Sequence[Tokens], weights: Weights, module: HardmaxTransformer, session: Session
) -> None:
    width = max(2, *map(len, texts))
    ids = np.stack([np.pad(tokens.ids, (0, width - len(tokens))) for tokens in texts])
    together = dict(zip(OUTPUTS, session.run({"tokens": ids}, tuple(OUTPUTS)), strict=True))
    with torch.no_grad():
        learnt = module(torch.from_numpy(ids)).numpy().astype(np.float64)
    for b, tokens in enumerate(texts):
        n = len(tokens)
        expected = reference.answer(weights, tokens.ids)
        found.texts += 1
        found.sets += n * weights.layers
        _compare_layers(found, together["states"][:, b, :, :n], together["target"][b, :n], weights)
        short = np.pad(tokens.ids, (0, max(0, 2 - n)))[None]
        alone = dict(zip(OUTPUTS, session.run({"tokens": short}, tuple(OUTPUTS)), strict=True))
        found.different_alone += any(
            (alone[name][0, ..., :n] != together[name][b, ..., :n]).any()
            for name in ("bias", "contribution", "target", "since", "negator")
        )
        logit, contribution = together["logit"][b], together["contribution"][b, :, :n]
        total = together["bias"][b] + contribution.sum(axis=1, dtype=np.float64)
        found.sum_error = max(found.sum_error, _largest(total - logit))
        found.place_error = max(
            found.place_error, _largest(expected.states[0] - together["states"][0, b, :, :n].T)
        )
        if not all(map(_decidable, expected.states[:-1])):
            found.undecidable += 1
            continue
        first = np.where(_is_one_point(expected), expected.targets[-1].argmax(axis=1), -1)
        found.different_targets += int((first != together["target"][b, :n]).sum())
        found.different_labels += _label(expected.logit) != _label(logit)
        found.logit_error = max(found.logit_error, _largest(expected.logit - logit))
        factor = weights.calibration[min(n, len(weights.calibration) - 1)]
        found.torch_error = max(found.torch_error, _largest(expected.logit - factor * learnt[b]))


def _compare_layers(found: Parity, states: Array, target: Array, weights: Weights) -> None:
    """Every layer of the graph against the definition, on the places that the graph has."""
    gamma = weights.alpha / (1 + weights.alpha)
    for k in range(weights.layers):
        z = states[k].T
        C = reference.attend(z)
        found.different_steps += int((reference.step(z, C, gamma) != states[k + 1].T).any(axis=1).sum())
    one = np.array([(z[members] == z[members][0]).all() for members in C])
    found.different_sets += int((np.where(one, C.argmax(axis=1), -1) != target).sum())


def _is_one_point(answer: reference.Answer) -> Array:
    """Whether all of C_i at the last layer is one point, with or without twins."""
    z = answer.states[-2]
    return np.array([(z[members] == z[members][0]).all() for members in answer.targets[-1]])


def _decidable(z: Array) -> bool:
    """Whether every score that is not the best, or of the best point's twins, is well below it."""
    scores, length = reference.scores(z), np.sqrt((z * z).sum(axis=1))
    best = scores.max(axis=1, keepdims=True)
    near = best - scores < ROUNDING * np.outer(length, np.full(len(z), length.max()))
    return all((z[members] == z[i]).all() for members, i in zip(near, scores.argmax(axis=1), strict=True))


def _largest(values: Array) -> float:
    return float(np.abs(values).max(initial=0.0))


def _label(logit: Array) -> int:
    return int(logit[0] > 0) if len(logit) == 1 else int(logit.argmax())


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("bundle", type=Path, nargs="+", help="folders of bundles")
    parser.add_argument("--data", type=Path, required=True, help="the archive of IMDb reviews")
    parser.add_argument("--texts", type=int, default=2000, help="how many of them, drawn at random")


def run(arguments: argparse.Namespace) -> int:
    texts = [row.text for row in read_reviews(arguments.data)]
    drawn = np.random.default_rng(0).permutation(len(texts))[: arguments.texts]
    failed = False
    for folder in arguments.bundle:
        found = verify(read_bundle(folder), [texts[i] for i in drawn])
        print(f"{folder}: {'holds' if found.holds else 'FAILS'}", *found.lines(), sep="\n  ")
        failed |= not found.holds
    return int(failed)
