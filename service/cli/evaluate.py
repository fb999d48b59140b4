"""`hardmax evaluate`: measure a model on a file of labelled rows; report as text, JSON or HTML."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evaluation.baseline import BASELINE_NAME, baseline_accuracy
from evaluation.html import render_report, write_page
from evaluation.labels import Rows, match_labels, read_rows
from evaluation.metrics import Prediction, compare, describe_prediction, sort_errors
from evaluation.metrics import evaluate as evaluate_predictions
from evaluation.plot import check_matplotlib, check_picture, draw_report, save_figure
from evaluation.report import describe_report
from evaluation.tables.text import Table
from evaluation.tables.writing import check_folder, check_writable, write_rows
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
    parser.add_argument(
        "--against-column",
        metavar="NAME",
        help="a column with predictions to compare with",
    )
    parser.add_argument("--id", metavar="NAME", help="a column that names the rows in lists of errors")
    parser.add_argument(
        "--errors", metavar="OUT", help="write all errors to this file: csv, xlsx, jsonl and other formats"
    )
    parser.add_argument(
        "--plot", metavar="OUT", help="draw label counts, confusion matrix and calibration: png, svg, pdf"
    )
    parser.add_argument("--html", type=Path, metavar="OUT", help="write the report as one page to this file")
    add_api_options(parser)
    parser.set_defaults(run=evaluate)


def evaluate(arguments: argparse.Namespace) -> int:
    """Run `hardmax evaluate`; return its exit status."""
    _check_outputs(arguments)
    rows = _read(arguments, arguments.file)
    for line in rows.notes:
        print_remark(line)
    column = arguments.against_column
    other = rows.values(column, "--against-column") if column else None
    ids = rows.values(arguments.id, "--id") if arguments.id else [""] * len(rows.texts)
    baseline = _evaluate_baseline(arguments, rows) if arguments.train else None
    names = list(dict.fromkeys([arguments.model, *([arguments.against] if arguments.against else [])]))
    with Progress() as progress, open_api(arguments, progress) as hardmax:
        cards = hardmax.models()  # first, because it may fail and the rows take long
        results = [_predict(hardmax, name, rows, ids, progress) for name in names]
    models = {result.model: result.metrics for result in results}
    report: dict[str, Any] = {
        "title": " and ".join(models),
        "source": f"{len(rows.texts):,} rows of {Path(arguments.file).name}",
        "models": models,
        "baseline": baseline,
        "warnings": [
            f"{card.name} was trained on these rows: its accuracy on others is in the report of its training"
            for card in cards
            if card.name in {newest_version(name, [model.name for model in cards]) for name in models}
            and (card.document.get("data") or {}).get("sha256") == rows.digest
        ],
    }
    if other is not None:
        report["comparison"] = _compare_with_column(results[0], other, column)
    elif len(results) > 1:
        report["comparison"] = _compare_models(*results)
    show(report, arguments.json, describe_report)
    if arguments.html:
        write_page(arguments.html, render_report(report))
    if arguments.plot:
        save_figure(draw_report(models), arguments.plot)
    if arguments.errors:
        write_rows(arguments.errors, _errors_table(results[0]), param="--errors")
    return 0


def _check_outputs(arguments: argparse.Namespace) -> None:
    """Refuse files that cannot be written before the work."""
    for path in filter(None, [arguments.html, arguments.plot]):
        check_folder(path)
    if arguments.html:
        check_matplotlib("--html")
    if arguments.plot:
        check_picture(arguments.plot)
    if arguments.errors:
        check_writable(arguments.errors, "--errors")


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


@dataclass(frozen=True)
class _Result:
    """The predictions of one model, for the rows that it answered."""

    model: str
    predictions: dict[int, Prediction]  # by the position of the row
    metrics: dict[str, Any]
    multi_label: bool


def _predict(hardmax: Any, name: str | None, rows: Rows, ids: Sequence[str], progress: Progress) -> _Result:
    """Classify the rows, and measure the predictions of one model."""
    predictions: dict[int, Prediction] = {}
    refused: list[Answer] = []
    multi_label, model = False, ""
    for i, answer in enumerate(classify_rows(hardmax, rows.texts, progress, model=name)):
        if answer.error is not None:
            refused.append(answer)
            continue
        model = answer.model
        multi_label = multi_label or "labels" in answer.document
        truth = frozenset(rows.truth[i])
        _check_labels(truth, answer, multi_label)
        predictions[i] = Prediction(
            rows.texts[i],
            truth,
            frozenset(answer.labels if multi_label else [answer.label]),
            dict(answer.probs),
            answer.abstain_reason,
            tuple(leader.word for leader in answer.leaders),
            rows.numbers[i],
            ids[i],
        )
    progress.clear()
    reason = refused[0].row["hardmax_error"] if refused else ""
    if not predictions:
        raise InvalidInput(f"no row was answered: {reason}")
    if refused:
        print_remark(f"left out: {len(refused):,} that {model} did not answer: {reason}")
    answered = list(predictions.values())
    metrics = evaluate_predictions(answered, list(answered[0].probs), multi_label=multi_label)
    return _Result(model, predictions, metrics, multi_label)


def _check_labels(truth: frozenset[str], answer: Answer, multi_label: bool) -> None:
    """Refuse rows whose labels the model cannot predict."""
    if unknown := truth - answer.probs.keys():
        labels = ", ".join(answer.probs)
        hint = "--label: another column, --model: another model, --keep-labels: stars, 0/1 and a|b as is"
        raise InvalidInput(f"{answer.model} has no label {min(unknown)!r}; it has {labels}. Say {hint}")
    if len(truth) != 1 and not multi_label:
        names = ", ".join(sorted(truth))
        raise InvalidInput(f"{answer.model} answers with one label; a row has {len(truth)}: {names}")


def _compare_with_column(result: _Result, values: Sequence[str], column: str) -> dict[str, Any]:
    """Compare a model with the predictions in a column; rows without one are left out."""
    labels = list(next(iter(result.predictions.values())).probs)
    others = [
        match_labels(values[i], labels, multi_label=result.multi_label) or None for i in result.predictions
    ]
    if not any(others):
        raise InvalidInput(f"the column {column!r} has no predictions", param="--against-column")
    if unknown := {label for other in others if other for label in other} - set(labels):
        names = ", ".join(map(repr, sorted(unknown)[:5]))
        print_remark(f"{column}: {names} is no label of {result.model}, and counts as an error")
    return compare(list(result.predictions.values()), others, column)


def _compare_models(first: _Result, second: _Result) -> dict[str, Any]:
    others = [second.predictions[i].predicted if i in second.predictions else None for i in first.predictions]
    return compare(list(first.predictions.values()), others, second.model)


def _errors_table(result: _Result) -> Table:
    """Return all errors, the most confident first."""
    rows = []
    for error in map(describe_prediction, sort_errors(list(result.predictions.values()))):
        lists = {name: "|".join(error[name]) for name in ("truth", "predicted")}
        rows.append({**error, **lists, "leaders": "; ".join(error["leaders"])})
    names = ("row", "id", "truth", "predicted", "score", "abstain_reason", "leaders", "text")
    columns = tuple(name for name in names if name != "id" or any("id" in row for row in rows))
    return Table("errors", columns, rows)
