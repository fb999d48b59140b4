"""`hardmax sequences`: the labels of sequences, by a model that is exact by construction."""

from __future__ import annotations

import argparse
from uuid import uuid4

from service.cli.described import describe_sequences
from service.cli.options import Commands, add_where, open_where, show
from service.cli.readers import read_sequences
from service.observe.progress import Progress


def add_commands(commands: Commands) -> None:
    parser = commands.add_parser(
        "sequences",
        help="tell the labels of sequences of points, by an exact model",
        description="`hardmax-export exact` makes such a model; put it into the folder of models.",
    )
    parser.add_argument(
        "file",
        metavar="FILE",
        help='one sequence per line: [[..], ..] or {"sequence": [[..], ..]}; - reads a pipe',
    )
    parser.add_argument("--model", required=True, help="a model of kind sequences")
    add_where(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    sequences, expected = read_sequences(arguments.file)
    with Progress() as progress, open_where(arguments, progress) as hardmax:
        labels = hardmax.classify_sequences(arguments.model, sequences)
    data = [label.document for label in labels]
    answer = {"id": uuid4().hex, "model": arguments.model, "data": data}
    show(answer, arguments.json, lambda found: describe_sequences(found["data"], expected))
    return 0
