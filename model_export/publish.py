"""Calibrate a trained sentiment head, measure it, and write it with its encoder as bundles."""

import json
import random
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from numpy.typing import NDArray

from evaluation.folds import N_FOLDS
from model_export.bundle import write_bundle
from model_export.data.corpora import Rows
from model_export.data.training_set import batches, pad
from model_export.encoder import graph as encoder_graph
from model_export.encoder import quantized as encoder_quantized
from model_export.encoder.model import Encoder, OutputScales
from model_export.encoder.quantized import ZERO
from model_export.head import graph as head_graph
from model_export.head import ood
from model_export.head import quantized as head_quantized
from model_export.head.encoded import encode_texts
from model_export.head.float_graph import to_float
from model_export.head.leader_head import LeaderHead
from model_export.head.verification import check_head
from model_export.measure.scores import (
    balanced_accuracy,
    fit_logit_scale,
    neutral_band,
    score,
    sigmoid,
    three_labels,
)
from model_export.measure.served import served_logits
from model_export.training import Report
from service.errors import BundleError
from service.runtime.bundle import Bundle
from service.runtime.card import ENCODER, HEAD
from service.runtime.session import Runtime
from service.text.encoder import VOCABULARY_KEYS
from service.text.encoder import Encoder as ServedEncoder
from service.text.head import Head
from service.text.tokenizer import Vocabulary

TEXTS_PER_SET = 1_000  # of each split, for calibration and for figures
OOD_TEXTS_PER_SET = 250  # in-distribution texts of a data set, for the OOD score
OOD_FALSE_POSITIVE_RATE = 0.005  # of these texts
CHECKED_TEXTS = 200  # of these, for which torch and the graphs must agree
CHECKED_TOKENS_PER_RUN = 3_000
THRESHOLDS = np.arange(0.7, 3.0, 0.02).round(2)  # of three labels; below log 2 nothing would be neutral
MAX_ACCURACY_LOSS = 0.005  # of the neutral threshold, compared with the best one

Logits = NDArray[np.float64]
LogitsAndTargets = tuple[Logits, NDArray[np.float64]]  # targets are 0, .5 or 1


def fit_neutral_threshold(measured: Mapping[str, LogitsAndTargets]) -> float:
    """Return the smallest threshold whose balanced accuracy over three labels is nearly the best.

    The accuracy is the mean over the data sets that have three labels.
    """
    sets = [(x, y) for x, y in measured.values() if set(y.tolist()) == {0.0, 0.5, 1.0}]
    means = np.array([np.mean([_balanced_accuracy(x, y, t) for x, y in sets]) for t in THRESHOLDS.tolist()])
    return float(THRESHOLDS[means >= means.max() - MAX_ACCURACY_LOSS].min())


def _balanced_accuracy(logits: Logits, targets: NDArray[np.float64], threshold: float) -> float:
    return balanced_accuracy(three_labels(sigmoid(logits), neutral_band(threshold)), targets)


def compute_figures(logits: Logits, targets: NDArray[np.float64], threshold: float) -> dict[str, Any]:
    """Return metrics by the sign of the logit, and of three labels if a data set has them.

    Of a data set that has neutral texts alone, it is the share of them that are classified as neutral.
    """
    polar = targets != 0.5
    if not polar.any():
        return {"texts": len(targets), "neutral": _balanced_accuracy(logits, targets, threshold)}
    truth = targets[polar] > 0.5
    figures = {
        **asdict(score(logits[polar], truth)),
        "balanced_accuracy": balanced_accuracy(logits[polar] > 0, truth),
    }
    if not polar.all():
        figures["three_labels"] = _balanced_accuracy(logits, targets, threshold)
    return figures


def write_head(
    head: LeaderHead,
    scales: OutputScales,
    bundle: Bundle,
    sets: Mapping[str, Rows],
    models: Path,
    provenance: Mapping[str, Any],
    report: Report,
) -> None:
    """Write the head, calibrated on the validation split and with figures of the test split.

    Args:
        head: the head.
        scales: the scales of the encoder's outputs.
        bundle: the encoder.
        sets: the labelled texts.
        models: the folder of the bundles.
        provenance: further fields of the card.
        report: called with a line of each figure.

    Raises:
        BundleError: The graph does not give the logits of torch; the head is not written.
    """
    runtime = Runtime("cpu", torch.get_num_threads())
    served = ServedEncoder.load(bundle, runtime)
    texts = _validation_texts(sets)
    ood_weights, detected = _calibrate_ood(served, texts)
    card: dict[str, Any] = {
        "name": "sentiment",
        "description": "Positive, negative or neutral, for reviews, sentences and tweets.",
        "labels": ["negative", "positive"], "neutral_threshold": 0.0,
        "encoder": {"name": "encoder", "sha256": bundle.card["model_sha256"]},
        "alpha": head.config.alpha, "layers": head.config.n_layers, "dimension": head.config.dimension,
        "out_of_distribution": {"held_out": OOD_FALSE_POSITIVE_RATE, "others": detected}, **provenance,
    }  # fmt: skip

    def load() -> tuple[onnx.ModelProto, Head]:
        graph = head_graph.to_onnx(head_quantized.quantize(head, scales) | ood_weights)
        unwritten = Bundle("sentiment", HEAD, card, graph.SerializeToString(), vocabulary=None, digest="")
        return graph, Head.load(unwritten, runtime, served)

    def measure(served_head: Head, split: str) -> dict[str, LogitsAndTargets]:
        return {name: _measure(served, served_head, draw_rows(rows, split)) for name, rows in sets.items()}

    graph, served_head = load()
    check_head(graph, head, encode_texts(served, _every(CHECKED_TEXTS, texts))[0], scales)
    validation = measure(served_head, "validation")
    factor = _fit_scale(validation)
    with torch.no_grad():
        head.v.mul_(factor)
        head.b.mul_(factor)
    threshold = fit_neutral_threshold({name: (factor * x, y) for name, (x, y) in validation.items()})
    report(f"temperature {1 / factor:.2f}, threshold {threshold}")
    graph, served_head = load()
    test = measure(served_head, "test")
    card["figures"] = {name: compute_figures(x, y, threshold) for name, (x, y) in test.items() if len(x)}
    for name, figures in card["figures"].items():
        report(f"{name}: {figures}")
    card |= {"neutral_threshold": threshold, "readout": {"vector": head.v[0].tolist()}}
    write_bundle(models, HEAD, card, graph, float_model=to_float(graph))


def _measure(encoder: ServedEncoder, head: Head, rows: Rows) -> LogitsAndTargets:
    """Return the logits of some texts, as the service computes them, and their targets."""
    rows = rows[:TEXTS_PER_SET]
    return served_logits(encoder, head, [row.text for row in rows]), np.array([row.target for row in rows])


def _fit_scale(measured: Mapping[str, LogitsAndTargets]) -> float:
    """Return the factor on the logits that minimizes the log-loss of positive and negative texts."""
    x, y = (np.concatenate(parts) for parts in zip(*measured.values(), strict=True))
    return fit_logit_scale(x[y != 0.5], y[y != 0.5] > 0.5)


def write_encoder(
    encoder: Encoder,
    vocabulary: Vocabulary,
    sets: Mapping[str, Rows],
    models: Path,
    provenance: Mapping[str, Any],
) -> Bundle:
    """Write the encoder with both of its graphs and its vocabulary.

    Raises:
        BundleError: The graph does not give the states of torch.
    """
    config = encoder.config
    card = {
        "name": "encoder",
        "description": "A transformer whose heads attend to one token or to none, quantized to int8.",
        "layers": config.layers, "heads": config.heads, "width": config.width, **provenance,
    }  # fmt: skip
    lists: dict[str, Any] = {
        key: list(vocabulary.tokens) if field == "tokens" else sorted(getattr(vocabulary, field))
        for field, key in VOCABULARY_KEYS.items()
    }
    lists["ratings"] = vocabulary.ratings
    weights = encoder_quantized.quantize(encoder)
    graph, float_graph = encoder_graph.to_onnx(weights), encoder_graph.to_onnx(weights, "float")
    bundle = write_bundle(models, ENCODER, card, graph, json.dumps(lists, ensure_ascii=False), float_graph)
    served = ServedEncoder.load(bundle, Runtime("cpu", torch.get_num_threads()))
    _check_states(encoder, served, _every(CHECKED_TEXTS, _validation_texts(sets)))
    return bundle


@torch.no_grad()
def _check_states(encoder: Encoder, served: ServedEncoder, texts: list[str]) -> None:
    """Raise BundleError if the graph of the encoder does not give the states of torch."""
    chunks = [chunk for text in texts for chunk in served.tokenize(text).chunks()]
    outputs = served.encode(chunks, output_attentions=False)
    n_equal = 0
    for rows in batches(np.array([len(token_ids) for token_ids, _ in chunks]), CHECKED_TOKENS_PER_RUN):
        states = encoder.quantized(pad([chunks[i][0] for i in rows], 0))[:2]
        for i, *of_chunk in zip(rows.tolist(), *states, strict=True):
            expected = (outputs[i].hidden_states, outputs[i].input_embeddings)
            n_equal += all(
                np.array_equal(state[: len(codes)].numpy() + ZERO, codes)
                for state, codes in zip(of_chunk, expected, strict=True)
            )
    if not chunks or n_equal < len(chunks):
        problem = f"torch and the graph agree on the states of {n_equal} of {len(chunks)} chunks"
        raise BundleError(f"encoder: {problem}", param="model.onnx")


def _validation_texts(sets: Mapping[str, Rows]) -> list[str]:
    """Return texts of all data sets."""
    return [row.text for rows in sets.values() for row in draw_rows(rows, "validation")[:OOD_TEXTS_PER_SET]]


def _every(n: int, texts: list[str]) -> list[str]:
    """Return about `n` of the texts."""
    return texts[:: 1 + len(texts) // n]


def _calibrate_ood(encoder: ServedEncoder, texts: list[str]) -> tuple[dict[str, Any], float]:
    """Return the weights of an OOD score for other languages, and the share of texts that it detects."""
    in_distribution, _ = encode_texts(encoder, texts)
    foreign, _ = encode_texts(encoder, ood.foreign_sentences())
    n = len(in_distribution)
    folds = np.array_split(np.random.default_rng(0).permutation(n), N_FOLDS)
    score = ood.calibrate(in_distribution, [foreign], folds, np.ones(n), [OOD_FALSE_POSITIVE_RATE])
    return score.weights, score.detected


def draw_rows(rows: Rows, split: str) -> Rows:
    """Return the labelled rows of a split in a fixed random order."""
    rows = [row for row in rows if row.split == split and row.target is not None]
    random.Random(0).shuffle(rows)
    return rows
