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
from model_export.encoder import quantization as encoder_quantized
from model_export.encoder.model import Encoder, OutputScales
from model_export.encoder.quantization import ZERO
from model_export.head import graph as head_graph
from model_export.head import ood
from model_export.head import quantization as head_quantized
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
from model_export.training_model import TrainingModel
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


def write_models(
    model: TrainingModel, name: str, vocabulary: Vocabulary, sets: Mapping[str, Rows], models: Path,
    provenance: Mapping[str, Any], report: Report,
) -> None:  # fmt: skip
    """Write a head and its encoder, in the folder `models`.

    Raises:
        BundleError: A graph does not give the results of torch.
    """
    encoder_name = name.replace("sentiment", "encoder")
    bundle = write_encoder(model.encoder, encoder_name, vocabulary, sets, models, provenance)
    publisher = HeadPublisher(model.head, model.encoder.output_scales, bundle, sets)
    publisher.write(name, models, provenance, report)


class HeadPublisher:
    """Calibrates a head on the validation split, measures it on the test split, and writes it."""

    def __init__(
        self, head: LeaderHead, scales: OutputScales, bundle: Bundle, sets: Mapping[str, Rows]
    ) -> None:
        self._head, self._scales, self._bundle, self._sets = head, scales, bundle, sets
        self._runtime = Runtime("cpu", torch.get_num_threads())
        self._encoder = ServedEncoder.load(bundle, self._runtime)
        texts = _validation_texts(sets)
        self._ood_weights, self._detected = _calibrate_ood(self._encoder, texts)
        self._checked, _ = encode_texts(self._encoder, _every(CHECKED_TEXTS, texts))

    def write(self, name: str, models: Path, provenance: Mapping[str, Any], report: Report) -> None:
        """Write the head; `report` is called with a line of each figure.

        Raises:
            BundleError: The graph does not give the logits of torch; the head is not written.
        """
        check_head(self._to_graph(), self._head, self._checked, self._scales)
        threshold = self._calibrate(report)
        graph = self._to_graph()
        figures = {
            set_name: compute_figures(*measured, threshold)
            for set_name, measured in self._measure(graph, "test").items() if len(measured[0])
        }  # fmt: skip
        for set_name, of_set in figures.items():
            report(f"{set_name}: {of_set}")
        card = {
            **self._card(name), "neutral_threshold": threshold, **provenance, "figures": figures,
            "readout": {"vector": self._head.v[0].tolist()},
        }  # fmt: skip
        write_bundle(models, HEAD, card, graph, float_model=to_float(graph))

    @torch.no_grad()
    def _calibrate(self, report: Report) -> float:
        """Scale the logits so that probabilities are right; return the threshold of neutral texts."""
        measured = self._measure(self._to_graph(), "validation")
        factor = _fit_scale(measured)
        self._head.v.mul_(factor)
        self._head.b.mul_(factor)
        threshold = fit_neutral_threshold({name: (factor * x, y) for name, (x, y) in measured.items()})
        report(f"temperature {1 / factor:.2f}, threshold {threshold}")
        return threshold

    def _to_graph(self) -> onnx.ModelProto:
        return head_graph.to_onnx(head_quantized.quantize(self._head, self._scales) | self._ood_weights)

    def _measure(self, graph: onnx.ModelProto, split: str) -> dict[str, LogitsAndTargets]:
        """Return the logits of texts of each data set, as the service computes them, and their targets."""
        card = {**self._card("unwritten"), "neutral_threshold": 0.0}
        bundle = Bundle("unwritten", HEAD, card, graph.SerializeToString(), vocabulary=None, digest="")
        head, measured = Head.load(bundle, self._runtime, self._encoder), {}
        for name, rows in self._sets.items():
            drawn = draw_rows(rows, split)[:TEXTS_PER_SET]
            logits = served_logits(self._encoder, head, [row.text for row in drawn])
            measured[name] = logits, np.array([row.target for row in drawn])
        return measured

    def _card(self, name: str) -> dict[str, Any]:
        config, encoder = self._head.config, self._bundle
        return {
            "name": name,
            "description": "Positive, negative or neutral, for reviews, sentences and tweets.",
            "labels": ["negative", "positive"],
            "encoder": {"name": encoder.name, "sha256": encoder.card["model_sha256"]},
            "alpha": config.alpha, "layers": config.n_layers, "dimension": config.dimension,
            "out_of_distribution": {"held_out": OOD_FALSE_POSITIVE_RATE, "others": self._detected},
        }  # fmt: skip


def _fit_scale(measured: Mapping[str, LogitsAndTargets]) -> float:
    """Return the factor on the logits that minimizes the log-loss of positive and negative texts."""
    x, y = (np.concatenate(parts) for parts in zip(*measured.values(), strict=True))
    return fit_logit_scale(x[y != 0.5], y[y != 0.5] > 0.5)


def write_encoder(
    encoder: Encoder,
    name: str,
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
        "name": name,
        "description": "A transformer whose heads attend to one token or to none, quantized to int8.",
        "layers": config.layers, "heads": config.heads, "width": config.width, **provenance,
    }  # fmt: skip
    lists = {
        key: list(vocabulary.tokens) if field == "tokens" else sorted(getattr(vocabulary, field))
        for field, key in VOCABULARY_KEYS.items()
    }
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
