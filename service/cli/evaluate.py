"""`hardmax evaluate`: how good a model is on a file of labelled rows, as text, JSON, or a page to send."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from evaluation.labels import read_rows
from evaluation.tables.writing import check_folder
from hardmax.answers import Answer
from hardmax.progress import Progress
from service.cli.options import Commands, add_where, answered, open_where, show, tell
from service.errors import InvalidInput
from service.report.figures import FOLDS, Judged, Truth, described, linear, measure
from service.report.page import page


def add_commands(commands: Commands) -> None:
    parser = commands.add_parser("evaluate", help="measure a model on rows of texts and labels")
    parser.add_argument("--file", required=True, help="the rows")
    parser.add_argument("--model", help="default: HARDMAX_DEFAULT_MODEL")
    parser.add_argument("--against", metavar="MODEL", help="a second model, on the same rows")
    parser.add_argument("--column", help="the column of texts")
    parser.add_argument(
        "--label", nargs="+", default=[], help="the column of labels, or a column of 0 and 1 for each"
    )
    parser.add_argument("--as-is", action="store_true", help="keep stars, 0/1 and a|b as labels of their own")
    parser.add_argument("--html", type=Path, metavar="OUT", help="write the report as one page to this file")
    add_where(parser)
    parser.set_defaults(run=evaluate)


def evaluate(arguments: argparse.Namespace) -> int:
    if arguments.html:
        check_folder(arguments.html)
    found = read_rows(
        arguments.file, column=arguments.column, label=arguments.label, as_is=arguments.as_is, least=1
    )
    for line in found.told:
        tell(line)
    truth = list(map(frozenset, found.truth))
    models = {}
    with Progress() as progress, open_where(arguments, progress) as hardmax:
        cards = hardmax.models()  # first: it may fail, and the rows are long work
        for name in dict.fromkeys([arguments.model, *([arguments.against] if arguments.against else [])]):
            said = _asked(hardmax, name, found.texts, truth, progress)
            models[said.pop("name")] = said
    labels = [each["label"] for each in next(iter(models.values()))["labels"]]
    beside = linear(found.texts, truth, labels) if len(truth) >= 2 * FOLDS else None
    report: dict[str, Any] = {
        "title": " and ".join(models),
        "source": f"{len(truth):,} rows of {Path(arguments.file).name}",
        "models": models,
        "linear": beside,
        "warnings": [
            f"{card.name} learnt from these very rows: how good it is on others, its training's report says"
            for card in cards
            if card.name.partition("@")[0] in {name.partition("@")[0] for name in models}
            and card.document.get("data", {}).get("sha256") == found.digest
        ],
    }
    if arguments.html:
        arguments.html.write_text(page(report), encoding="utf-8")
    show(report, arguments.json, described)
    return 0


def _asked(
    hardmax: Any, name: str | None, texts: Sequence[str], truth: Truth, progress: Progress
) -> dict[str, Any]:
    """What one model says of the rows, measured."""
    judged: list[Judged] = []
    refused: list[Answer] = []
    several, called = False, ""
    answers = answered(hardmax, texts, progress, name)
    for text, true, answer in zip(texts, truth, answers, strict=True):
        if answer.error is not None:
            refused.append(answer)
            continue
        called = answer.model
        unknown = true - answer.probs.keys()
        if unknown:
            have = ", ".join(answer.probs)
            say = "--label: another column, --model: another model, --as-is: stars, 0/1 and a|b as they stand"
            raise InvalidInput(f"{called} has no label {min(unknown)!r}; it has {have}. Say {say}")
        several = several or "labels" in answer.document
        said = frozenset(answer.labels if several else [answer.label])
        leaders = tuple(leader.word for leader in answer.leaders)
        judged.append(Judged(text, true, said, dict(answer.probs), answer.undecided, leaders))
    progress.clear()
    why = refused[0].row["hardmax_error"] if refused else ""
    if not judged:
        raise InvalidInput(f"no row was answered: {why}")
    if refused:
        tell(f"left out: {len(refused):,} that {called} did not answer: {why}")
    found = measure(judged, list(judged[0].probs), several=several)
    return {"name": called, **found}
