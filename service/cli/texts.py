"""`hardmax classify`: texts of the command line, a file or a pipe; answers on the screen or in a file."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Iterable, Sequence
from typing import Any
from uuid import uuid4

from service.cli.answered_rows import WRITTEN, check_writable, write_rows
from service.cli.options import Commands, add_where, open_where, tell
from service.cli.progress import Progress
from service.cli.rows import READ, STDIN, TEXT, Table, find_column, read_table
from service.cli.tables import describe_classification, describe_refusal
from service.client.rows import Answering, to_row
from service.errors import HardmaxError, InvalidInput
from service.schemas.texts import Classification

Result = Classification | HardmaxError

HELP = f"""\
  hardmax classify "A superb film."                                    one text or several
  hardmax classify --file reviews.csv --column review --out out.csv    every row with its answer beside it
  cat lines.txt | hardmax classify                                     one text per line

The end of a file's name says what it is: {", ".join(READ)}; any other file has one text per line.
A column with a usual name (text, review, ..) is found without --column. --out writes {", ".join(WRITTEN)}.
"""


def add_commands(commands: Commands) -> None:
    parser = commands.add_parser(
        "classify",
        help="tell the sentiment of texts, with the exact reason",
        epilog=HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("texts", nargs="*", metavar="TEXT")
    parser.add_argument("--file", help="a file with a text in every row; - is standard input")
    parser.add_argument("--column", help="the column that holds the texts")
    parser.add_argument("--out", help="write every row with its answer to this file")
    parser.add_argument("--model", help="default: HARDMAX_DEFAULT_MODEL")
    parser.add_argument(
        "--explain",
        choices=["none", "leaders", "full"],
        default="leaders",
        help="none: the label alone; leaders (default): its reason too; full: every word too",
    )
    parser.add_argument(
        "--ray", nargs=2, metavar=("IN", "OUT"), help="classify a parquet file or folder on a Ray cluster"
    )
    add_where(parser)
    parser.set_defaults(run=classify)


def classify(arguments: argparse.Namespace) -> int:
    if arguments.ray:
        return _classify_on_ray(arguments)
    if arguments.texts and arguments.file:
        raise InvalidInput("give texts or --file, not both", param="--file")
    if arguments.texts and not arguments.out:
        return _classify_given(arguments)
    return _classify_rows(arguments)


def _classify_given(arguments: argparse.Namespace) -> int:
    """Texts of the command line: one that cannot be answered refuses all."""
    texts = arguments.texts
    with open_where(arguments) as hardmax:
        asked = texts[0] if len(texts) == 1 else texts
        answers = hardmax.classify(asked, model=arguments.model, explain=arguments.explain)
    if arguments.json:
        print(json.dumps(_envelope(answers.id, answers.model, answers), ensure_ascii=False))
    else:
        _print_described(texts, answers)
    return 0


def _classify_rows(arguments: argparse.Namespace) -> int:
    """Rows of a file: each has its answer or its own error."""
    if arguments.out:
        check_writable(arguments.out)
    table, column = _read(arguments)
    texts = table.values(column)
    with Progress() as progress, open_where(arguments, progress) as hardmax:
        answers = Answering(
            hardmax,
            texts,
            model=arguments.model,
            explain=arguments.explain,
            on_progress=lambda done, total: progress.count(done, total, "texts"),
        )
        if arguments.out:
            write_rows(arguments.out, table, map(to_row, answers))
        elif arguments.json:
            found = list(answers)
            progress.clear()
            print(json.dumps(_envelope(uuid4().hex, answers.model, found), ensure_ascii=False))
        else:
            _print_described(texts, answers, progress)
    if arguments.out:
        refused = f", {answers.refused} without an answer (see hardmax_error)" if answers.refused else ""
        tell(f"{arguments.out}: {len(table)} rows{refused}")
    return 0


def _read(arguments: argparse.Namespace) -> tuple[Table, str]:
    """The rows that are asked about, and their column of texts."""
    if arguments.texts:
        return Table("TEXT", (TEXT,), [{TEXT: text} for text in arguments.texts]), TEXT
    nothing = InvalidInput("nothing to classify: give texts, --file, or a pipe")
    if not arguments.file and sys.stdin.isatty():
        raise nothing
    table = read_table(arguments.file or STDIN, column=arguments.column)
    if not table.rows:
        raise InvalidInput(f"{arguments.file} holds no rows") if arguments.file else nothing
    column = find_column(table, arguments.column)
    if arguments.column is None and len(table.columns) > 1:
        tell(f"{table.source}: the texts are in column {column!r}")
    return table, column


def _envelope(answer_id: str, model: str, answers: Sequence[Result]) -> dict[str, Any]:
    """The API's answer, as if all texts had been asked at once; a text that is refused has its error."""
    data: list[dict[str, Any]] = []
    for index, answer in enumerate(answers):
        if isinstance(answer, Classification):
            data.append(answer.model_dump(exclude_none=True))
        else:
            data.append({"index": index, "error": {"message": to_row(answer)["hardmax_error"]}})
    tokens = sum(entry.get("tokens", 0) for entry in data)
    return {"id": answer_id, "model": model, "usage": {"texts": len(data), "tokens": tokens}, "data": data}


def _print_described(
    texts: Sequence[str], answers: Iterable[Result], progress: Progress | None = None
) -> None:
    """On a terminal a text is cut to its width; elsewhere it is whole, on one line."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for text, answer in zip(texts, answers, strict=True):
        if progress:
            progress.clear()
        if isinstance(answer, Classification):
            lines = describe_classification(text, answer.model_dump(), width)
        else:
            lines = describe_refusal(text, to_row(answer)["hardmax_error"], width)
        print("\n".join(lines))


def _classify_on_ray(arguments: argparse.Namespace) -> int:
    from service.client.ray_data import classify_parquet

    done = classify_parquet(*arguments.ray, column=arguments.column or TEXT, model=arguments.model)
    print(f"{done.texts} texts answered, {done.refused} refused (see the column hardmax_error)")
    return 0
