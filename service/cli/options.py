"""Options that commands share: a server or this process, JSON or text."""

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from hardmax.answers import Answer
from hardmax.api import Api
from hardmax.formatting import UNPRINTABLE, printable
from hardmax.operations import TEXTS_PER_REQUEST
from hardmax.progress import Progress
from service.settings import PREFIX, Settings, load_settings

Commands = Any  # what argparse's add_subparsers returns; it has no public name


def add_api_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that choose between a server and this process."""
    parser.add_argument("--json", action="store_true", help="print the API's own answer")
    parser.add_argument(
        "--server", metavar="URL", help="send requests to this server instead of computing here"
    )
    parser.add_argument(
        "--models-dir", metavar="FOLDER", help=f"the folder of your own models; default: {PREFIX}MODELS_DIR"
    )
    parser.add_argument(
        "--api-key", metavar="KEY", help=f"the key for --server; default: the first of {PREFIX}API_KEYS"
    )


def add_sheet_option(parser: argparse.ArgumentParser) -> None:
    """Add the option that chooses a sheet of a workbook."""
    parser.add_argument(
        "--sheet",
        metavar="NAME",
        help="sheet of an xlsx file (default: all with the columns of the first)",
    )


def open_api(arguments: argparse.Namespace, progress: Progress | None = None) -> Api:
    """Return a client of a server, or the same methods in this process."""
    if arguments.server is not None:  # "", the value of an empty variable, is an error
        return client_factory(arguments)()
    from service.local import Local

    return Local(load_cli_settings(arguments), on_progress=progress or Progress())


def client_factory(arguments: argparse.Namespace) -> Callable[[], Api]:
    """Return a function that opens a client of the server."""
    from hardmax import Client

    return partial(Client, arguments.server, api_key=api_key_of(arguments))


def api_key_of(arguments: argparse.Namespace) -> str | None:
    """Return the key for a server: that of the command line, or else the first one of the environment."""
    keys = os.environ.get(f"{PREFIX}API_KEYS", "").split(",")
    return arguments.api_key or keys[0].strip() or None


def load_cli_settings(arguments: argparse.Namespace, **flags: Any) -> Settings:
    """Return the settings, with the flags of the command line."""
    folder = {"models_dir": arguments.models_dir} if arguments.models_dir else {}
    return load_settings(**folder, **flags)


def classify_rows(hardmax: Api, texts: Sequence[Any], progress: Progress, **options: Any) -> Iterator[Answer]:
    """Yield the answer to each text, or its error, batch by batch."""
    for start in range(0, len(texts), TEXTS_PER_REQUEST):
        batch = texts[start : start + TEXTS_PER_REQUEST]
        answers = hardmax.classify(batch, errors="keep", progress=False, **options)
        progress.clear()
        yield from answers
        progress.count(start + len(batch), len(texts), "texts")


def show(answer: Any, as_json: bool, describe: Callable[[Any], Iterable[str]]) -> None:
    """Print an answer of the API as JSON, or as lines for people."""
    if as_json:
        print_json(answer)
    else:
        print_lines(describe(answer))


def print_lines(lines: Iterable[str]) -> None:
    """Print lines for people, without characters that would control the terminal."""
    print(printable("\n".join(lines)))


def print_json(answer: Any) -> None:
    """Print JSON for programs, with characters that would control a terminal escaped.

    Letters that the output cannot encode are escaped too.
    """
    text = json.dumps(answer, ensure_ascii=not str(sys.stdout.encoding).lower().startswith("utf"))
    print(UNPRINTABLE.sub(lambda match: f"\\u{ord(match[0]):04x}", text))


def print_remark(message: str) -> None:
    """Print a remark for people, on standard error."""
    print(f"hardmax: {printable(message)}", file=sys.stderr)
