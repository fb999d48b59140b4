"""`hardmax-export train rows.csv --name mine`: a plane on the bundled reader, learnt from one's own rows.

    rows -> states of the frozen reader (kept on disk) -> folds: how long, how sure -> plane
         -> what it does not know -> head bundle mine@N, checked -> report

The figures are of rows that the measured plane had not seen.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from model_export.bundle import write_bundle
from model_export.heads import graph, stored
from model_export.heads import unlike as measure_unlike
from model_export.heads.fit import CHECKS, Floats, Frozen, Ints, Task, fit, logits, temperature, tempered
from model_export.heads.plane import Plane
from model_export.heads.states import States, forget, see
from model_export.heads.verify import differing
from model_export.reader.stored import Stored
from service.cli.labels import Rows, read_rows
from service.cli.progress import Progress
from service.cli.report import Judged, described, folds, linear, measure
from service.cli.report_page import page
from service.engine.bundle import (
    HEAD,
    READER,
    Bundle,
    find_bundles,
    kind_of,
    read_bundle,
    versions_of,
)
from service.engine.runtime import Runtime
from service.errors import InvalidInput, NotFound
from service.settings import BUNDLED_MODELS
from service.texts.reader import Reader

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
MANY = 4_000  # from so many rows on, one fold is measured
CHECKED = 200  # texts that the exported graph is compared on
EVEN = 0.02


@dataclass(frozen=True)
class Held:
    """What planes said of rows that they had not seen."""

    rows: Ints
    logits: Floats  # [n, C]
    weights: list[Stored]  # the plane of each row
    steps: int
    factor: float


@dataclass(frozen=True)
class Trained:
    weights: dict[str, Any]
    report: dict[str, Any]
    thresholds: tuple[float, ...] | None
    unlike: dict[str, float]


def train(
    rows: Rows,
    states: States,
    others: States,
    *,
    seed: int = 0,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Trained:
    """`states` of `rows`, which all have words; `others`: of ordinary sentences."""
    torch.set_num_threads(1)  # small products gain nothing from a second thread
    task = Task(len(rows.labels), rows.several)
    truth = [frozenset(have) for have in rows.truth]
    parts = [np.array(part) for part in folds(truth)]
    near, apart, foreign = measure_unlike.calibrated(states, others, parts)
    parts = parts[:1] if len(rows.texts) >= MANY else parts
    held = _held_out(states, rows, task, parts, seed, progress)
    plane = fit(states, rows.targets, task, held.steps, seed=seed)
    tempered(plane, held.factor)
    thresholds = _thresholds(held, rows) if rows.several else None
    weights = {**stored.stored(plane, Frozen(states.found[0].shape[-1])), **near}
    judged = _judged(rows, states, held, thresholds, apart)
    report = _report(rows, judged, held, len(parts))
    return Trained(weights, report, thresholds, {"held_out": measure_unlike.HELD_OUT, "ordinary": foreign})


def _held_out(
    states: States,
    rows: Rows,
    task: Task,
    parts: Sequence[Ints],
    seed: int,
    progress: Callable[[int, int], None],
) -> Held:
    """Each part answered by a plane of the others; how long it learns is what tells the truth best."""
    most = max(each for each in CHECKS if each <= max(60, 2 * len(states)))
    seen: dict[int, list[tuple[Floats, Stored]]] = {}
    for number, part in enumerate(parts):
        progress(number, len(parts))
        learnt, held = np.setdiff1d(np.arange(len(states)), part), states.take(part)

        def look(steps: int, plane: Plane, held: States = held) -> None:
            weights = stored.stored(plane, Frozen(states.found[0].shape[-1]))
            seen.setdefault(steps, []).append((logits(plane, held), weights))

        fit(states.take(learnt), rows.targets[learnt], task, most, seed=seed, look=look)
    every = np.concatenate(parts)
    targets = rows.targets[every]

    def surprise(steps: int) -> tuple[float, float, Floats]:
        said = np.concatenate([found for found, _ in seen[steps]])
        factor = temperature(said, targets, task)
        loss = task.loss(torch.from_numpy(said * factor), torch.from_numpy(targets).double())
        return float(loss), factor, said * factor

    best = min(seen, key=lambda steps: surprise(steps)[0])
    _, factor, said = surprise(best)
    planes = [weights for part, (_, weights) in zip(parts, seen[best], strict=True) for _ in part]
    return Held(every, said, planes, best, factor)


def _thresholds(held: Held, rows: Rows) -> tuple[float, ...]:
    """Of each label the probability from which on it is said: that of the best F1 on held-out rows."""
    probs, truth = 1 / (1 + np.exp(-held.logits)), rows.targets[held.rows] > 0
    tried = np.linspace(0.2, 0.8, 25)

    def score(label: int, threshold: float) -> tuple[float, float]:
        said = probs[:, label] >= threshold
        f1 = 2 * (said & truth[:, label]).sum() / max(1, said.sum() + truth[:, label].sum())
        return float(f1), -abs(threshold - 0.5)

    return tuple(round(max(tried, key=partial(score, label)), 3) for label in range(probs.shape[1]))


def _judged(
    rows: Rows, states: States, held: Held, thresholds: tuple[float, ...] | None, apart: Floats
) -> list[Judged]:
    """subtle: leaders only of rows that are wrong; the report shows no others."""
    found = []
    for row, said, weights in zip(held.rows.tolist(), held.logits, held.weights, strict=True):
        probs = dict(zip(rows.labels, _probabilities(said, thresholds is not None).tolist(), strict=True))
        if thresholds is None:
            answer = frozenset([max(probs, key=probs.__getitem__)])
        else:
            answer = frozenset(
                label for (label, p), least in zip(probs.items(), thresholds, strict=True) if p >= least
            )
        truth = frozenset(rows.truth[row])
        leaders = () if answer == truth else _leaders(rows.texts[row], states, row, weights)
        undecided = "unlike the rows" if apart[row] > 0 else None
        found.append(Judged(rows.texts[row], truth, answer, probs, undecided, leaders))
    return found


def _probabilities(said: Floats, several: bool) -> Floats:
    if len(said) == 1 or several:
        p = 1 / (1 + np.exp(-said))
        return np.array([1 - p[0], p[0]]) if len(said) == 1 else p
    power = np.exp(said - said.max())
    return np.asarray(power / power.sum())


def _leaders(text: str, states: States, row: int, weights: Stored) -> tuple[str, ...]:
    """The words that the others end with, those of the heaviest clusters first."""
    reading, both = states.readings[row], states.found[row]
    told = stored.run(weights, both[:, 0], both[:, 1], states.members(row))
    worth = {
        int(leader): float(np.abs(told.contribution[:, told.target == leader].sum(1)).max())
        for leader in set(told.target.tolist()) - {-1}
    }
    order = sorted(worth, key=lambda leader: -worth[leader])
    return tuple(text[reading.starts[i] : reading.ends[i]].lower() for i in order)


def _report(rows: Rows, judged: Sequence[Judged], held: Held, parts: int) -> dict[str, Any]:
    found = measure(judged, rows.labels, several=rows.several)
    peer = linear(rows.texts, [frozenset(have) for have in rows.truth], rows.labels)
    beside = None if peer is None else float(np.mean([peer[i] for i in held.rows]))
    folded = f"{parts} folds of the rows" if parts > 1 else "a fifth of the rows, held out"
    warnings = [
        f"the label {each['label']!r} is never answered: it has too few rows, or they read like the others"
        for each in found["labels"]
        if not each["said"]
    ]
    if beside is not None and beside > found["accuracy"] + 0.5 / len(judged) ** 0.5:
        warnings.append(
            f"TF-IDF with logistic regression is better on the same rows: {beside:.1%} against "
            f"{found['accuracy']:.1%}"
        )
    if found["accuracy"] <= found["most_frequent_label"]:
        warnings.append("no better than always answering the most frequent label: more rows are needed")
    return {
        "title": "A model of one's own",
        "source": f"measured on {folded}, each by a plane that had not seen it",
        "models": {"this model": found},
        "linear": beside,
        "warnings": warnings,
    }


# ---------------------------------------- what there is


def open_reader(folder: Path) -> tuple[Bundle, Reader]:
    bundle = read_bundle(folder)
    if bundle.kind != READER:
        raise InvalidInput(f"{folder} is a bundle of kind {bundle.kind}; --reader needs a reader")
    return bundle, Reader.load(bundle, Runtime("cpu", 1))


def find_reader(wanted: Path | None, folders: Sequence[Path]) -> Path:
    if wanted is not None:
        return wanted
    for folder in find_bundles([each for each in folders if each.is_dir()]).values():
        if kind_of(folder) == READER:
            return folder
    raise NotFound("there is no reader here to stand on; say --reader FOLDER", param="reader")


# ---------------------------------------- command line


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", help="rows of texts and labels: csv, tsv, jsonl, json, parquet")
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
        "--reader", type=Path, help="the bundle of the reader to stand on (default: the bundled one)"
    )
    parser.add_argument("--html", type=Path, help="write the report as one page to this file")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument("--seed", type=int, default=0)


def run(arguments: argparse.Namespace) -> int:
    """0 when the bundle was written and the graph computes what was learnt, 1 when it does not."""
    base = _name(arguments)
    rows = read_rows(
        arguments.file,
        column=arguments.column,
        label=arguments.label,
        as_is=arguments.as_is,
        several=arguments.labels_do_not_exclude,
    )
    folder = find_reader(arguments.reader, [arguments.out, BUNDLED_MODELS])
    bundle, reader = open_reader(folder)
    digest = str(bundle.card["model_sha256"])
    cache = arguments.out / f".states-{digest[:12]}"

    def say(*lines: str) -> None:
        print(*lines, sep="\n", file=sys.stderr if arguments.json else None, flush=True)

    say(*rows.told)
    with Progress(sys.stderr) as shown:
        states, kept = see(
            reader, rows.texts, cache=cache, progress=lambda n, total: shown.count(n, total, "texts read")
        )
        others, _ = see(reader, measure_unlike.ordinary())
        rows = _only(rows, kept)
        trained = train(
            rows, states, others, seed=arguments.seed,
            progress=lambda n, total: shown.count(n, total, "fits"),
        )  # fmt: skip
    name = f"{base}@{max(versions_of(base, os.listdir(arguments.out)), default=0) + 1}"
    trained.report["title"], trained.report["models"] = name, {name: trained.report["models"]["this model"]}
    model = graph.to_onnx(trained.weights)
    card = _card(arguments, rows, trained, name, {"name": bundle.name, "sha256": digest})
    wrong = differing(model, trained.weights, states.take(np.arange(min(CHECKED, len(states)))))
    if wrong:
        say(f"{name}: not written: the graph of {wrong} texts does not compute what was learnt")
        return 1
    write_bundle(arguments.out, HEAD, card, model)
    size = sum(file.stat().st_size for file in (arguments.out / name).iterdir()) / 1e3
    forget(cache)
    if arguments.html:
        arguments.html.write_text(page(trained.report), encoding="utf-8")
    if arguments.json:
        print(json.dumps(trained.report, ensure_ascii=False))
    say(
        *([] if arguments.json else [trained.report["source"], *described(trained.report)]),
        f"{arguments.out / name}: {size:,.0f} kB, on the reader {bundle.name}; numpy and ONNX "
        "Runtime agree to the bit",
        f"next: hardmax serve --models-dir {arguments.out}, and ask for the model {base!r}",
    )
    return 0


def _card(
    arguments: argparse.Namespace, rows: Rows, trained: Trained, name: str, reader: Mapping[str, str]
) -> dict[str, Any]:
    (found,) = trained.report["models"].values()
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
        "even": EVEN,
        **({"multi": {"thresholds": list(trained.thresholds)}} if trained.thresholds else {}),
        "unlike": trained.unlike,
        "data": {"source": Path(arguments.file).name, "rows": len(rows.texts), "sha256": rows.digest},
        "figures": figures,
    }


def _only(rows: Rows, kept: Ints) -> Rows:
    """Those that have words."""
    if len(kept) == len(rows.texts):
        return rows
    return Rows(
        [rows.texts[i] for i in kept], [rows.truth[i] for i in kept], rows.labels, rows.several, rows.told
    )


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
