"""Train, measure and export a custom model; command.py has the flags.

rows -> encoder outputs (cached on disk) -> cross_validation.py -> head bundle mine@N, verified -> report
"""

import argparse
import json
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from evaluation.html import render_report, write_page
from evaluation.labels import Rows
from evaluation.report import describe_report
from hardmax.progress import Progress
from model_export.bundle import write_bundle
from model_export.data.training_set import Ints
from model_export.head import graph
from model_export.head.cross_validation import Log, TrainedHead, train
from model_export.head.encoded import MAX_TEXT_CHARS, EncodedTexts, encode_texts
from model_export.head.float_graph import to_float
from model_export.head.ood import english_sentences, foreign_sentences
from model_export.head.verification import check_head
from service.errors import BundleError, InvalidInput
from service.runtime.bundle import Bundle, read_bundle, versions_of
from service.runtime.card import ENCODER, HEAD
from service.runtime.session import Runtime
from service.text.encoder import Encoder

Encode = Callable[..., tuple[EncodedTexts, Ints]]  # encode_texts with an encoder

VERIFIED_TEXTS = 200  # for which the exported graph is checked
ABSTAIN_MARGIN = 0.02


def open_encoder(folder: Path) -> tuple[Bundle, Encoder]:
    """Open the bundle of an encoder."""
    bundle = read_bundle(folder)
    if bundle.kind != ENCODER:
        raise InvalidInput(f"{folder} is a bundle of kind {bundle.kind}; --encoder needs an encoder")
    return bundle, Encoder.load(bundle, Runtime("cpu", 1))


def train_model(arguments: argparse.Namespace, base: str, rows: Rows, log: Log) -> None:
    """Train, measure and write the next version of the model `base`."""
    bundle, encoder = open_encoder(arguments.encoder)
    cache = arguments.models_dir / f".states-{bundle.card['model_sha256'][:12]}"
    encode = partial(encode_texts, encoder, fold_names=arguments.fold_names)
    rows, encoded = _encode(rows, encode, cache, arguments.file, log)
    contrasts = [encode(texts)[0] for texts in (english_sentences(), foreign_sentences())]
    trained = train(rows, encoded, contrasts, seed=arguments.seed, log=log)
    name = f"{base}@{max(versions_of(base, os.listdir(arguments.models_dir)), default=0) + 1}"
    trained.report.update(title=name, models={name: trained.report["models"]["custom"]})
    card = _card(arguments, rows, trained, name, bundle)
    _export(arguments.models_dir, card, trained, encoded)
    shutil.rmtree(cache, ignore_errors=True)
    _show_report(arguments, trained.report, log)
    size_kb = sum(file.stat().st_size for file in (arguments.models_dir / name).iterdir()) / 1e3
    log(f"{arguments.models_dir / name}: {size_kb:,.0f} kB, a head on {bundle.name}; graph verified")
    log(f"next: hardmax serve --models-dir {arguments.models_dir}, and request the model {base!r}")


def _encode(rows: Rows, encode: Encode, cache: Path, file: str, log: Log) -> tuple[Rows, EncodedTexts]:
    """Encode the rows; return those that have words, and their encoder outputs."""
    if n_long := sum(len(text) > MAX_TEXT_CHARS for text in rows.texts):
        log(f"cut: {n_long:,} to their first {MAX_TEXT_CHARS:,} characters")
    with Progress(sys.stderr) as progress:
        texts, indices = encode(
            rows.texts,
            cache=cache,
            progress=lambda n_done, total: progress.count(n_done, total, "texts encoded"),
        )
    if len(indices) < len(rows.texts):
        log(f"left out: {len(rows.texts) - len(indices):,} without a word")
    return _with_words(rows, indices, file), texts


def _with_words(rows: Rows, indices: Ints, file: str) -> Rows:
    texts, truth = [rows.texts[i][:MAX_TEXT_CHARS] for i in indices], [rows.truth[i] for i in indices]
    present = {label for labels in truth for label in labels}
    if absent := [label for label in rows.labels if label not in present]:
        raise InvalidInput(f"{file}: no text of the label {absent[0]!r} has a word in it; remove the label")
    numbers = [rows.numbers[i] for i in indices]
    return Rows(texts, truth, rows.labels, rows.multi_label, rows.notes, numbers)


def _export(models_dir: Path, card: Mapping[str, Any], trained: TrainedHead, texts: EncodedTexts) -> None:
    """Write the bundle if its graph gives the numbers of torch."""
    model = graph.to_onnx(trained.weights)
    try:
        check_head(model, trained.head, texts.take(np.arange(min(VERIFIED_TEXTS, len(texts)))))
    except BundleError as error:
        raise BundleError(f"{card['name']} is not written: {error.message}", param="model.onnx") from error
    write_bundle(models_dir, HEAD, card, model, float_model=to_float(model))


def _show_report(arguments: argparse.Namespace, report: Mapping[str, Any], log: Log) -> None:
    if arguments.html:
        write_page(arguments.html, render_report(dict(report)))
    if arguments.json:
        print(json.dumps(report))
        return
    for line in (report["source"], *describe_report(dict(report))):
        log(line)


def _card(
    arguments: argparse.Namespace, rows: Rows, trained: TrainedHead, name: str, encoder: Bundle
) -> dict[str, Any]:
    (metrics,) = trained.report["models"].values()
    baseline = trained.report["baseline"]
    gamma = float(trained.weights["gamma"])
    return {
        "name": name,
        "description": arguments.description or f"Trained on {len(rows.texts):,} rows.",
        "license": arguments.license,
        "labels": list(rows.labels),
        "encoder": {"name": encoder.name, "sha256": encoder.card["model_sha256"]},
        "alpha": gamma / (1 - gamma),
        "layers": int(trained.weights["layers"]),
        "dimension": trained.weights["read"].shape[1] - 1,
        "fold_names": arguments.fold_names,
        "abstain_margin": ABSTAIN_MARGIN,
        **({"multi_label": {"thresholds": list(trained.thresholds)}} if trained.thresholds else {}),
        "out_of_distribution": trained.ood,
        "data": {"source": Path(arguments.file).name, "rows": len(rows.texts), "sha256": rows.digest},
        "figures": {
            "rows": metrics["rows"],
            "accuracy": metrics["accuracy"],
            "interval": list(metrics["interval"]),
            "balanced_accuracy": metrics["balanced_accuracy"],
            "linear_accuracy": baseline["accuracy"] if baseline else None,
            "labels": {label["label"]: label["recall"] for label in metrics["labels"]},
        },
    }
