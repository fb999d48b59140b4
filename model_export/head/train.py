"""`hardmax-export train rows.csv --name mine`: a plane on the bundled reader, learnt from one's own rows.

rows -> states of the frozen reader (kept on disk) -> folds.py -> head bundle mine@N, checked -> report
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from evaluation.labels import Rows, read_rows
from evaluation.tables.writing import check_folder
from hardmax.progress import Progress
from model_export.bundle import write_bundle
from model_export.data.training_set import Ints
from model_export.head import graph
from model_export.head.cross_validation import Trained, train
from model_export.head.encoded import MAX_CHARS, encode_texts
from model_export.head.ood import english_sentences, foreign_sentences
from model_export.head.verification import count_mismatches
from service.errors import InvalidInput
from service.report.figures import described
from service.report.page import page
from service.runtime.bundle import ENCODER, HEAD, Bundle, read_bundle, versions_of
from service.runtime.session import Runtime
from service.settings import BUNDLED_MODELS
from service.text.encoder import Encoder

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
CHECKED = 200  # texts that the exported graph is compared on
EVEN = 0.02


def open_reader(folder: Path) -> tuple[Bundle, Encoder]:
    bundle = read_bundle(folder)
    if bundle.kind != ENCODER:
        raise InvalidInput(f"{folder} is a bundle of kind {bundle.kind}; --reader needs a reader")
    return bundle, Encoder.load(bundle, Runtime("cpu", 1))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", help="rows of texts and labels: csv, tsv, jsonl, json, parquet, xlsx")
    parser.add_argument("--name", help="name of the model (default: that of the file)")
    parser.add_argument("--out", type=Path, default=Path("models"), help="folder of models (default: models)")
    parser.add_argument("--column", help="the column of texts (default: found by its name or its content)")
    parser.add_argument(
        "--label",
        nargs="+",
        default=[],
        help=(
            "the column of labels (default: found in the same way); several: one column of 0 "
            "and 1 for each label"
        ),
    )
    parser.add_argument("--as-is", action="store_true", help="keep stars, 0/1 and a|b as labels of their own")
    parser.add_argument(
        "--labels-do-not-exclude",
        action="store_true",
        help="a text may have several labels, written a|b (found by itself where a row has it)",
    )
    parser.add_argument("--description", help="what the model's card says of it")
    parser.add_argument(
        "--licence", default=None, help="what its card says of the use of it (default: not stated)"
    )
    parser.add_argument(
        "--reader",
        type=Path,
        default=BUNDLED_MODELS / "reader",
        help="the bundle of the reader to stand on (default: the bundled one)",
    )
    parser.add_argument("--html", type=Path, help="write the report as one page to this file")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument("--seed", type=int, default=0)


def run(arguments: argparse.Namespace) -> int:
    """0 when the bundle was written and the graph computes what was learnt, 1 when it does not."""
    base = _name(arguments)
    if arguments.html:
        check_folder(arguments.html)
    rows = read_rows(
        arguments.file,
        column=arguments.column,
        label=arguments.label,
        as_is=arguments.as_is,
        several=arguments.labels_do_not_exclude,
    )
    bundle, reader = open_reader(arguments.reader)
    digest = str(bundle.card["model_sha256"])
    cache = arguments.out / f".states-{digest[:12]}"

    def say(*lines: str) -> None:
        print(*lines, sep="\n", file=sys.stderr if arguments.json else None, flush=True)

    say(*rows.told)
    if long := sum(len(text) > MAX_CHARS for text in rows.texts):
        say(f"cut: {long:,} to their first {MAX_CHARS:,} characters")
    with Progress(sys.stderr) as shown:
        states, kept = encode_texts(
            reader, rows.texts, cache=cache, progress=lambda n, total: shown.count(n, total, "texts read")
        )
    if len(kept) < len(rows.texts):
        say(f"left out: {len(rows.texts) - len(kept):,} without a word")
    others = [encode_texts(reader, each)[0] for each in (english_sentences(), foreign_sentences())]
    rows = _learnt_from(rows, kept, arguments.file)
    with Progress(sys.stderr) as shown:
        trained = train(
            rows, states, others, seed=arguments.seed,
            progress=lambda n, total: shown.count(n, total, "fits"),
        )  # fmt: skip
    name = f"{base}@{max(versions_of(base, os.listdir(arguments.out)), default=0) + 1}"
    trained.report["title"], trained.report["models"] = name, {name: trained.report["models"]["this model"]}
    model = graph.to_onnx(trained.weights)
    card = _card(arguments, rows, trained, name, {"name": bundle.name, "sha256": digest})
    wrong = count_mismatches(model, trained.weights, states.take(np.arange(min(CHECKED, len(states)))))
    if wrong:
        say(f"{name}: not written: the graph of {wrong} texts does not compute what was learnt")
        return 1
    write_bundle(arguments.out, HEAD, card, model)
    size = sum(file.stat().st_size for file in (arguments.out / name).iterdir()) / 1e3
    shutil.rmtree(cache, ignore_errors=True)
    if arguments.html:
        arguments.html.write_text(page(trained.report), encoding="utf-8")
    if arguments.json:
        print(json.dumps(trained.report, ensure_ascii=False))
    say(
        *([] if arguments.json else [trained.report["source"], *described(trained.report)]),
        f"{arguments.out / name}: {size:,.0f} kB, stands on {bundle.name}; numpy and ONNX "
        "Runtime agree to the bit",
        f"next: hardmax serve --models-dir {arguments.out}, and ask for the model {base!r}",
    )
    return 0


def _card(
    arguments: argparse.Namespace, rows: Rows, trained: Trained, name: str, reader: Mapping[str, str]
) -> dict[str, Any]:
    (found,) = trained.report["models"].values()
    gamma = float(trained.weights["gamma"])
    figures = {
        "rows": found["rows"],
        "accuracy": found["accuracy"],
        "interval": list(found["interval"]),
        "balanced_accuracy": found["balanced_accuracy"],
        "linear_accuracy": trained.report["linear"],
        "labels": {each["label"]: each["recall"] for each in found["labels"]},
    }
    return {
        "name": name,
        "description": arguments.description or f"Learnt from {len(rows.texts):,} rows of one's own.",
        "licence": arguments.licence or "not stated",
        "labels": list(rows.labels),
        "reader": dict(reader),
        "alpha": gamma / (1 - gamma),
        "layers": int(trained.weights["layers"]),
        "dimension": trained.weights["read"].shape[1] - 1,
        "even": EVEN,
        **({"multi": {"thresholds": list(trained.thresholds)}} if trained.thresholds else {}),
        "unlike": trained.unlike,
        "data": {"source": Path(arguments.file).name, "rows": len(rows.texts), "sha256": rows.digest},
        "figures": figures,
    }


def _learnt_from(rows: Rows, kept: Ints, file: str) -> Rows:
    """Those that have words, and of each what is read of it."""
    texts, truth = [rows.texts[i][:MAX_CHARS] for i in kept], [rows.truth[i] for i in kept]
    have = {label for labels in truth for label in labels}
    if lost := [label for label in rows.labels if label not in have]:
        raise InvalidInput(f"{file}: no text of the label {lost[0]!r} has a word in it; take the label out")
    return Rows(texts, truth, rows.labels, rows.several, rows.told)


def _name(arguments: argparse.Namespace) -> str:
    name = arguments.name or re.sub(r"[^A-Za-z0-9._-]+", "-", Path(arguments.file).stem).strip("-._")
    if not NAME.fullmatch(name) or name in ("dynamics", "reader", "sentiment"):
        raise InvalidInput(
            f"--name: {name!r} cannot name a model: letters, digits, dots and hyphens, and not a "
            "bundled model's name"
        )
    if (arguments.out / name).exists():
        raise InvalidInput(
            f"{arguments.out / name} is in the way: a model's versions are {name}@1, {name}@2, ..; move it"
        )
    return str(name)
