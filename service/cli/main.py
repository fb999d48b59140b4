"""`hardmax serve | classify | evaluate | dynamics | control | sequences | models | openapi`.

Each group of commands is a module with its parsers and functions. This module has `serve`, `models` and
`openapi`. Commands print tables to standard output and progress to standard error; with `--json` they print
the API's own answer. An error is one line and exit code 2.
"""

import argparse
import io
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, get_args, get_origin

from pydantic_core import PydanticUndefined

from hardmax.formatting import describe_os_error
from service import __version__
from service.cli import classify, clouds, evaluate
from service.cli.options import Commands, add_api_options, api_key_of, open_api, print_remark, show
from service.cli.output import describe_models
from service.errors import HardmaxError, InvalidInput, Unauthorized, needs
from service.runtime.bundle import roll_back
from service.settings import PREFIX, Settings, load_settings

COMMAND_NAMES = ("serve", "models", "openapi", "classify", "evaluate", "dynamics", "control", "sequences")
BAD_INPUT = 2
INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. Exit codes: 0 done, 1 the answer is no, 2 an error of one line, 130 stopped."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # as stderr does with letters that it cannot encode
    parser = build_parser()
    arguments = parser.parse_args(argv)
    if "run" not in arguments:
        parser.error(f"say which command: {', '.join(COMMAND_NAMES)}; hardmax --help describes them")
    try:
        status = int(arguments.run(arguments))
        if sys.stdout is not None:
            sys.stdout.flush()  # at exit, a full disk would be a traceback
        return status
    except Unauthorized:
        problem = "does not accept this API key" if api_key_of(arguments) else "needs an API key"
        print_remark(f"{arguments.server} {problem}: give one with --api-key KEY, or in {PREFIX}API_KEYS")
        return BAD_INPUT
    except HardmaxError as error:
        print_remark(error.message)
        return BAD_INPUT
    except ModuleNotFoundError as error:
        if error.name != "onnxruntime":
            raise
        print_remark(needs("to compute here", "onnxruntime", "cpu") + ", or --server URL")
        return BAD_INPUT
    except KeyboardInterrupt:
        return INTERRUPTED
    except OSError as error:
        null = os.open(os.devnull, os.O_WRONLY)  # buffered output cannot be written either
        os.dup2(null, sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):  # the program that reads the output (head, less) has ended
            return 0
        print_remark(describe_os_error(error))
        return BAD_INPUT


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    purpose = "Classify texts and run clouds of points by hardmax transformers, with the reason."
    parser = argparse.ArgumentParser(prog="hardmax", description=purpose)
    parser.add_argument("--version", action="version", version=f"hardmax {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND")
    _add_serving(commands)
    for group in (classify, evaluate, clouds):
        group.add_commands(commands)
    return parser


def _add_serving(commands: Commands) -> None:
    serve = commands.add_parser("serve", help="start the HTTP service")
    serve.description = f"Every flag is also an environment variable: --max-points is {PREFIX}MAX_POINTS."
    for name, field in Settings.model_fields.items():
        default = "" if field.default in (PydanticUndefined, None, "") else f" (default {field.default})"
        choices = get_args(field.annotation) if get_origin(field.annotation) is Literal else ()
        flag = name.replace("_", "-")
        serve.add_argument(
            f"--{flag}",
            dest=name,
            metavar=" | ".join(choices) or name.upper(),
            default=argparse.SUPPRESS,
            help=f"{field.description}{default}".replace("%", "%%"),
            **({"nargs": "?", "const": "true"} if field.annotation is bool else {}),
        )
        if field.annotation is bool:
            serve.add_argument(
                f"--no-{flag}", dest=name, action="store_const", const="false", default=argparse.SUPPRESS,
                help=f"--{flag} false",
            )  # fmt: skip
    serve.set_defaults(run=run_serve)
    models = commands.add_parser("models", help="list the models, here or of a server; go back to a version")
    models.add_argument("rollback", nargs="*", metavar="rollback NAME", help="serve the version before again")
    add_api_options(models)
    models.set_defaults(run=run_models)
    openapi = commands.add_parser("openapi", help="print the OpenAPI document, as JSON")
    openapi.add_argument("--json", action="store_true", help="no effect: the document is JSON in any case")
    openapi.set_defaults(run=run_openapi)


def run_serve(arguments: argparse.Namespace) -> int:
    """Run `hardmax serve` until it is stopped; return its exit status."""
    from service.server import serve

    flags = {name: value for name, value in vars(arguments).items() if name in Settings.model_fields}
    return serve(load_settings(**flags))


def run_models(arguments: argparse.Namespace) -> int:
    """Run `hardmax models`; return its exit status."""
    if arguments.rollback:
        if len(arguments.rollback) != 2 or arguments.rollback[0] != "rollback" or arguments.server:
            raise InvalidInput("say hardmax models, or hardmax models rollback NAME --models-dir FOLDER")
        folder = Path(arguments.models_dir) if arguments.models_dir else load_settings().models_dir
        if folder is None:
            raise InvalidInput("rollback needs the folder of your models: say --models-dir")
        source, new = roll_back(folder, arguments.rollback[1])
        message = f"{new} is {source} again, and is what {arguments.rollback[1]} serves"
        show({"model": new, "again": source}, arguments.json, lambda _: [message])
        return 0
    with open_api(arguments) as hardmax:
        cards = [card.document for card in hardmax.models()]
    show({"models": cards}, arguments.json, lambda answer: describe_models(answer["models"]))
    return 0


def run_openapi(arguments: argparse.Namespace) -> int:
    """Run `hardmax openapi`; return its exit status."""
    from service.app import create_app

    print(json.dumps(create_app(load_settings()).openapi(), indent=2, ensure_ascii=False))
    return 0


if __name__ == "__main__":
    sys.exit(main())
