"""`hardmax evaluate`: measure a model on a file of labelled rows; report as text, JSON or HTML."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from evaluation.baseline import BASELINE_NAME, Labels, baseline_accuracy
from evaluation.html import render_report, write_page
from evaluation.labels import Rows, read_rows
from evaluation.metrics import Prediction
from evaluation.metrics import evaluate as evaluate_predictions
from evaluation.report import describe_report
from evaluation.tables.writing import check_folder
from hardmax.answers import Answer
from hardmax.progress import Progress
from service.cli.options import (
    Commands,
    add_api_options,
    add_sheet_option,
    classify_rows,
    open_api,
    print_remark,
    show,
)
from service.errors import InvalidInput
from service.runtime.bundle import newest_version


def add_commands(commands: Commands) -> None:
    """Add the command `evaluate`."""
    parser = commands.add_parser("evaluate", help="measure a model on rows of texts and labels")
    parser.add_argument("--file", required=True, help="the rows")
    parser.add_argument("--model", help="default: HARDMAX_DEFAULT_MODEL")
    parser.add_argument("--against", metavar="MODEL", help="a second model, on the same rows")
    parser.add_argument(
        "--train",
        metavar="FILE",
        help="the rows that the model was trained on: compare it with a baseline trained on them",
    )
    parser.add_argument("--column", help="the column of texts")
    add_sheet_option(parser)
    parser.add_argument(
        "--label", nargs="+", default=[], help="the column of labels, or a column of 0 and 1 for each"
    )
    parser.add_argument(
        "--keep-labels", action="store_true", help="keep stars, 0/1 and a|b as labels of their own"
    )
    parser.add_argument("--html", type=Path, metavar="OUT", help="write the report as one page to this file")
    add_api_options(parser)
    parser.set_defaults(run=evaluate)


def evaluate(arguments: argparse.Namespace) -> int:
    """Run `hardmax evaluate`; return its exit status."""
    if arguments.html:
        check_folder(arguments.html)
    rows = _read(arguments, arguments.file)
    for line in rows.notes:
        print_remark(line)
    baseline = _evaluate_baseline(arguments, rows) if arguments.train else None
    truth = list(map(frozenset, rows.truth))
    models = {}
    with Progress() as progress, open_api(arguments, progress) as hardmax:
        cards = hardmax.models()  # first, because it may fail and the rows take long
        for name in dict.fromkeys([arguments.model, *([arguments.against] if arguments.against else [])]):
            metrics = _evaluate_model(hardmax, name, rows.texts, truth, progress)
            models[metrics.pop("name")] = metrics
    report: dict[str, Any] = {
        "title": " and ".join(models),
        "source": f"{len(truth):,} rows of {Path(arguments.file).name}",
        "models": models,
        "baseline": baseline,
        "warnings": [
            f"{card.name} was trained on these rows: its accuracy on others is in the report of its training"
            for card in cards
            if card.name in {newest_version(name, [model.name for model in cards]) for name in models}
            and (card.document.get("data") or {}).get("sha256") == rows.digest
        ],
    }
    show(report, arguments.json, describe_report)
    if arguments.html:
        write_page(arguments.html, render_report(report))
    return 0


def _read(arguments: argparse.Namespace, path: str) -> Rows:
    names = ("column", "label", "sheet", "keep_labels")
    return read_rows(path, min_rows=1, **{name: getattr(arguments, name) for name in names})


def _evaluate_baseline(arguments: argparse.Namespace, rows: Rows) -> dict[str, Any] | None:
    """Train the baseline on the rows of --train and measure it on `rows`."""
    train = _read(arguments, arguments.train)
    labels = list(dict.fromkeys([*train.labels, *rows.labels]))
    train_set, test_set = ((part.texts, list(map(frozenset, part.truth))) for part in (train, rows))
    try:
        accuracy = baseline_accuracy(
            train_set, test_set, labels, multi_label=train.multi_label or rows.multi_label
        )
    except ImportError:
        raise InvalidInput("--train needs scikit-learn: pip install scikit-learn", param="--train") from None
    if accuracy is None:
        raise InvalidInput(f"{arguments.train}: has a single label or no word", param="--train")
    return {"name": BASELINE_NAME, "accuracy": accuracy, "source": f"trained on {Path(arguments.train).name}"}


def _evaluate_model(
    hardmax: Any, name: str | None, texts: Sequence[str], truth: Labels, progress: Progress
) -> dict[str, Any]:
    """Return the metrics of one model, and its name."""
    predictions: list[Prediction] = []
    refused: list[Answer] = []
    multi_label, model = False, ""
    answers = classify_rows(hardmax, texts, progress, model=name)
    for text, true, answer in zip(texts, truth, answers, strict=True):
        if answer.error is not None:
            refused.append(answer)
            continue
        model = answer.model
        if unknown := true - answer.probs.keys():
            labels = ", ".join(answer.probs)
            hint = "--label: another column, --model: another model, --keep-labels: stars, 0/1 and a|b as is"
            raise InvalidInput(f"{model} has no label {min(unknown)!r}; it has {labels}. Say {hint}")
        multi_label = multi_label or "labels" in answer.document
        if len(true) != 1 and not multi_label:
            raise InvalidInput(
                f"{model} answers with one label; a row has {len(true)}: {', '.join(sorted(true))}"
            )
        predicted = frozenset(answer.labels if multi_label else [answer.label])
        leaders = tuple(leader.word for leader in answer.leaders)
        prediction = Prediction(text, true, predicted, dict(answer.probs), answer.abstain_reason, leaders)
        predictions.append(prediction)
    progress.clear()
    reason = refused[0].row["hardmax_error"] if refused else ""
    if not predictions:
        raise InvalidInput(f"no row was answered: {reason}")
    if refused:
        print_remark(f"left out: {len(refused):,} that {model} did not answer: {reason}")
    metrics = evaluate_predictions(predictions, list(predictions[0].probs), multi_label=multi_label)
    return {"name": model, **metrics}
