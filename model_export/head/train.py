"""`hardmax-export train rows.csv --name mine`: train, measure and export a custom model.

rows -> encoder outputs (cached on disk) -> cross_validation.py -> head bundle mine@N, verified -> report
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from evaluation.html import render_report, write_page
from evaluation.labels import Rows, read_rows
from evaluation.report import describe_report
from evaluation.tables.writing import check_folder
from hardmax.formatting import printable
from hardmax.progress import Progress
from model_export.bundle import write_bundle
from model_export.data.training_set import Ints
from model_export.head import graph
from model_export.head.cross_validation import Trained, train
from model_export.head.encoded import MAX_TEXT_CHARS, EncodedTexts, encode_texts
from model_export.head.float_graph import to_float
from model_export.head.ood import english_sentences, foreign_sentences
from model_export.head.verification import count_mismatches
from service.errors import BundleError, InvalidInput
from service.runtime.bundle import PRETRAINED_ENCODER, Bundle, read_bundle, versions_of
from service.runtime.card import ENCODER, HEAD
from service.runtime.session import Runtime
from service.settings import PRETRAINED_FOLDER
from service.text.encoder import Encoder

MODEL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
PRETRAINED_NAMES = ("dynamics", "encoder", "encoder-small", "sentiment", "sentiment-small")
VERIFIED_TEXTS = 200  # for which the exported graph is compared with its definition
ABSTAIN_MARGIN = 0.02

Log = Callable[[str], None]


def open_encoder(folder: Path) -> tuple[Bundle, Encoder]:
    """Open the bundle of an encoder."""
    bundle = read_bundle(folder)
    if bundle.kind != ENCODER:
        raise InvalidInput(f"{folder} is a bundle of kind {bundle.kind}; --encoder needs an encoder")
    return bundle, Encoder.load(bundle, Runtime("cpu", 1))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags of the command."""
    parser.add_argument("file", help="texts with labels: csv, tsv, jsonl, json, parquet, xlsx")
    parser.add_argument("--name", help="name of the model (default: that of the file)")
    parser.add_argument(
        "--models-dir", type=Path, default=Path("models"), help="folder of models (default: models)"
    )
    parser.add_argument("--column", help="column of texts (default: found by its name or its content)")
    parser.add_argument(
        "--label",
        nargs="+",
        default=[],
        help="column of labels (default: found likewise); or several columns of 0 and 1, one for each label",
    )
    parser.add_argument(
        "--keep-labels", action="store_true", help="keep stars, 0/1 and a|b as labels of their own"
    )
    parser.add_argument(
        "--multi-label",
        action="store_true",
        help="a text may have several labels, written a|b (default: if some row has several)",
    )
    parser.add_argument("--description", help="description of the model, for its card")
    parser.add_argument(
        "--license", default="not stated", help="license of the model, for its card (default: not stated)"
    )
    parser.add_argument(
        "--encoder",
        type=Path,
        default=PRETRAINED_FOLDER / PRETRAINED_ENCODER,
        help="folder of the encoder's bundle (default: the pretrained encoder)",
    )
    parser.add_argument("--html", type=Path, help="write the report as an HTML page to this file")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument("--seed", type=int, default=0, help="seed of the random numbers (default: 0)")


def run(arguments: argparse.Namespace) -> int:
    """Train and export a model; return 0."""
    base = _model_name(arguments)
    if arguments.html:
        check_folder(arguments.html)
    rows = read_rows(
        arguments.file,
        column=arguments.column,
        label=arguments.label,
        as_is=arguments.keep_labels,
        several=arguments.multi_label,
    )

    def log(line: str) -> None:
        print(printable(line), file=sys.stderr if arguments.json else None, flush=True)

    for line in rows.notes:
        log(line)
    bundle, encoder = open_encoder(arguments.encoder)
    cache = arguments.models_dir / f".states-{bundle.card['model_sha256'][:12]}"
    rows, texts = _encode(rows, encoder, cache, arguments.file, log)
    contrasts = [encode_texts(encoder, each)[0] for each in (english_sentences(), foreign_sentences())]
    trained = train(rows, texts, contrasts, seed=arguments.seed, log=log)
    name = f"{base}@{max(versions_of(base, os.listdir(arguments.models_dir)), default=0) + 1}"
    trained.report.update(title=name, models={name: trained.report["models"]["custom"]})
    card = _card(arguments, rows, trained, name, bundle)
    _export(arguments.models_dir, card, trained.weights, texts)
    shutil.rmtree(cache, ignore_errors=True)
    _show_report(arguments, trained.report, log)
    size_kb = sum(file.stat().st_size for file in (arguments.models_dir / name).iterdir()) / 1e3
    log(f"{arguments.models_dir / name}: {size_kb:,.0f} kB, a head on {bundle.name}; graph verified")
    log(f"next: hardmax serve --models-dir {arguments.models_dir}, and request the model {base!r}")
    return 0


def _model_name(arguments: argparse.Namespace) -> str:
    name = arguments.name or re.sub(r"[^A-Za-z0-9._-]+", "-", Path(arguments.file).stem).strip("-._")
    if not MODEL_NAME.fullmatch(name) or name in PRETRAINED_NAMES:
        raise InvalidInput(
            f"--name: {name!r} cannot name a model: letters, digits, dots and hyphens, and not the name of "
            "a pretrained model"
        )
    if arguments.models_dir.exists() and not arguments.models_dir.is_dir():
        raise InvalidInput(f"{arguments.models_dir} is not a folder", param="--models-dir")
    if (arguments.models_dir / name).exists():
        taken = f"{arguments.models_dir / name} is in the way"
        raise InvalidInput(f"{taken}: a model's versions are {name}@1, {name}@2, ..; move it")
    return str(name)


def _encode(rows: Rows, encoder: Encoder, cache: Path, file: str, log: Log) -> tuple[Rows, EncodedTexts]:
    """Encode the rows; return those that have words, and their encoder outputs."""
    if long := sum(len(text) > MAX_TEXT_CHARS for text in rows.texts):
        log(f"cut: {long:,} to their first {MAX_TEXT_CHARS:,} characters")
    with Progress(sys.stderr) as progress:
        texts, indices = encode_texts(
            encoder,
            rows.texts,
            cache=cache,
            progress=lambda done, total: progress.count(done, total, "texts encoded"),
        )
    if len(indices) < len(rows.texts):
        log(f"left out: {len(rows.texts) - len(indices):,} without a word")
    return _with_words(rows, indices, file), texts


def _with_words(rows: Rows, indices: Ints, file: str) -> Rows:
    texts, truth = [rows.texts[i][:MAX_TEXT_CHARS] for i in indices], [rows.truth[i] for i in indices]
    present = {label for labels in truth for label in labels}
    if lost := [label for label in rows.labels if label not in present]:
        raise InvalidInput(f"{file}: no text of the label {lost[0]!r} has a word in it; take the label out")
    return Rows(texts, truth, rows.labels, rows.several, rows.notes)


def _export(models_dir: Path, card: Mapping[str, Any], weights: dict[str, Any], texts: EncodedTexts) -> None:
    """Write the bundle if its graph gives the numbers of the definition, to the bit."""
    model = graph.to_onnx(weights)
    wrong = count_mismatches(model, weights, texts.take(np.arange(min(VERIFIED_TEXTS, len(texts)))))
    if wrong:
        raise BundleError(
            f"{card['name']} is not written: its graph differs from the definition on {wrong} texts"
        )
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
    arguments: argparse.Namespace, rows: Rows, trained: Trained, name: str, encoder: Bundle
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
            "labels": {each["label"]: each["recall"] for each in metrics["labels"]},
        },
    }
