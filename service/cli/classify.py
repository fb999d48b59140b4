"""`hardmax classify`: label texts of the command line, a file or a pipe; print answers or write a file."""

import argparse
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any
from uuid import uuid4

from evaluation.tables.columns import find_column
from evaluation.tables.reading import read_table
from evaluation.tables.text import FORMAT_BY_SUFFIX, STDIN, TEXT, Row, Table
from evaluation.tables.writing import check_writable, write_rows
from hardmax import Answer
from hardmax.api import Api
from hardmax.formatting import pluralize
from hardmax.progress import Progress
from service.cli.options import (
    Commands,
    add_api_options,
    add_sheet_option,
    classify_rows,
    client_factory,
    load_cli_settings,
    open_api,
    print_json,
    print_lines,
    print_remark,
)
from service.cli.output import describe_answer
from service.errors import ConfigurationError, InvalidInput, needs
from service.runtime.registry import with_default_model

EXPLAIN = "leaders"
HELP = f"""\
  hardmax classify "A superb film."                                    one text or several
  hardmax classify --file reviews.csv --column review --out out.csv    every row with its answer
  cat lines.txt | hardmax classify -                                   one text per line

The ending of a file name is its format: {", ".join(FORMAT_BY_SUFFIX)}; any other file has one text per line.
A column with a usual name (text, review, ..) is found without --column. --out writes the same formats. A csv
file keeps separator, decimal mark and encoding of its input. Cells that begin with = + - @ become texts.
"""


def add_commands(commands: Commands) -> None:
    """Add the command `classify`."""
    parser = commands.add_parser(
        "classify",
        help="label texts, with the exact reason",
        epilog=HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("texts", nargs="*", metavar="TEXT", help="what to label; - reads lines of a pipe")
    parser.add_argument("--file", help="a file with a text in every row; - is standard input")
    parser.add_argument("--column", help="the column that holds the texts")
    add_sheet_option(parser)
    parser.add_argument("--out", help="write every row with its answer to this file")
    parser.add_argument("--model", help="default: HARDMAX_DEFAULT_MODEL")
    parser.add_argument(
        "--explain",
        choices=["none", "leaders", "full"],
        default=EXPLAIN,
        help="none: the label alone; leaders (default): its reason too; full: every word too",
    )
    parser.add_argument(
        "--flip", action="store_true", help="search a small set of words whose removal changes the label"
    )
    parser.add_argument(
        "--sufficient",
        action="store_true",
        help="search a small set of words that alone gives the same label",
    )
    parser.add_argument(
        "--ray", nargs=2, metavar=("IN", "OUT"), help="classify a parquet file or folder on a Ray cluster"
    )
    add_api_options(parser)
    parser.set_defaults(run=classify)


def classify(arguments: argparse.Namespace) -> int:
    """Run `hardmax classify`; return its exit status."""
    if arguments.ray:
        return _classify_on_ray(arguments)
    if arguments.texts and arguments.file:
        raise InvalidInput("give texts or --file, not both", param="--file")
    if arguments.texts == [STDIN]:
        arguments.texts, arguments.file = [], STDIN
    for option in ("column", "sheet"):
        if arguments.texts and getattr(arguments, option):
            raise InvalidInput(f"--{option} goes with --file", param=f"--{option}")
    if arguments.texts and not arguments.out:
        return _classify_texts(arguments)
    return _classify_rows(arguments)


def _classify_texts(arguments: argparse.Namespace) -> int:
    """Classify texts of the command line: an error of one is an error of all."""
    texts = arguments.texts
    with open_api(arguments) as hardmax:
        options = _options(arguments)
        is_list = len(texts) > 1
        answers = hardmax.classify(texts, **options) if is_list else [hardmax.classify(texts[0], **options)]
    _show(answers, arguments)
    return 0


def _options(arguments: argparse.Namespace) -> dict[str, Any]:
    return {name: getattr(arguments, name) for name in ("model", "explain", "flip", "sufficient")}


def _classify_rows(arguments: argparse.Namespace) -> int:
    """Classify the rows of a file: each has an answer or an error."""
    if arguments.out:
        if arguments.flip or arguments.sufficient:
            raise InvalidInput("--out has no column for --flip and --sufficient: print them, or use --json")
        check_writable(arguments.out)
    table, column = _read(arguments)
    counts = {"abstained (see abstain_reason)": 0, "without an answer (see hardmax_error)": 0}

    def rows(answers: Iterable[Answer]) -> Iterator[Row]:
        for answer in answers:
            counts["abstained (see abstain_reason)"] += answer.abstain_reason is not None
            counts["without an answer (see hardmax_error)"] += answer.error is not None
            yield answer.row

    with Progress() as progress, open_api(arguments, progress) as hardmax:
        answers = classify_rows(hardmax, table.values(column), progress, **_options(arguments))
        if arguments.out:
            write_rows(arguments.out, table, rows(answers))
        else:
            _show(answers, arguments)
    if arguments.out:
        details = [f"{number:,} {description}" for description, number in counts.items() if number]
        print_remark(f"{arguments.out}: {', '.join([pluralize(len(table), 'row'), *details])}")
    return 0


def _read(arguments: argparse.Namespace) -> tuple[Table, str]:
    """Return the rows to classify, and their column of texts."""
    if arguments.texts:
        return Table("TEXT", (TEXT,), [{TEXT: text} for text in arguments.texts]), TEXT
    no_texts = InvalidInput("nothing to classify: give texts, --file, or a pipe")
    if sys.stdin is None or (not arguments.file and sys.stdin.isatty()):
        raise no_texts
    table = read_table(arguments.file or STDIN, column=arguments.column, sheet=arguments.sheet)
    for note in table.notes:
        print_remark(note)
    if not table.rows:
        raise InvalidInput(f"{table.source} holds no rows") if arguments.file else no_texts
    column = find_column(table, arguments.column)
    if arguments.column is None and len(table.columns) > 1:
        print_remark(f"{table.source}: the texts are in column {column!r}")
    return table, column


def _show(answers: Iterable[Answer], arguments: argparse.Namespace) -> None:
    """Print answers as JSON, as if all texts were in one request, or as lines for people.

    On a terminal a text is cut to its width; otherwise it is complete, on one line.
    """
    if not arguments.json:
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        for answer in answers:
            print_lines(describe_answer(answer, width))
        return
    answers = list(answers)
    data = [_entry(answer, index) for index, answer in enumerate(answers)]
    usage = {"texts": len(data), "tokens": sum(answer.n_tokens for answer in answers)}
    model = next((answer.model for answer in answers if answer.model), "")
    print_json({"id": uuid4().hex, "model": model, "usage": usage, "data": data})


def _entry(answer: Answer, index: int) -> dict[str, Any]:
    if answer.error:
        return {"index": index, "error": {"message": answer.row["hardmax_error"]}}
    return {**answer.document, "index": index}


def _classify_on_ray(arguments: argparse.Namespace) -> int:
    other_options = {
        "texts": arguments.texts, "--file": arguments.file, "--out": arguments.out, "--json": arguments.json,
        "--explain": arguments.explain != EXPLAIN, "--flip": arguments.flip,
        "--sufficient": arguments.sufficient,
    }  # fmt: skip
    if extra := [name for name, value in other_options.items() if value]:
        raise InvalidInput(f"--ray takes its rows from IN alone and writes OUT: leave out {', '.join(extra)}")
    try:
        from hardmax.ray_data import classify_parquet
    except ImportError as error:
        raise ConfigurationError(needs("--ray", "Ray", "ray")) from error
    source, destination = arguments.ray
    open_client, gpus = actors_of(arguments)
    column = arguments.column or TEXT
    rows = classify_parquet(source, destination, open_client, column=column, model=arguments.model, gpus=gpus)
    answered = rows.texts - rows.refused
    print_lines([f"{answered:,} texts answered, {rows.refused:,} refused (see the column hardmax_error)"])
    return 0


def actors_of(arguments: argparse.Namespace) -> tuple[Callable[[], Api], float]:
    """Return the function with which each actor opens its client, and its share of a GPU."""
    if arguments.server is not None:
        return client_factory(arguments), 0
    from service.local import Local

    # actors, not threads, use the CPUs of the cluster
    settings = with_default_model(load_cli_settings(arguments, intra_op_threads=1))
    return partial(Local, settings), 0.25 if settings.provider == "cuda" else 0
