"""The command line: `hardmax serve | classify | dynamics | control | models | openapi`.

Parses, calls, prints. People get tables on standard output and progress on standard error; `--json` gives
programs the API's own answers. Errors are one line and exit code 2.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from service import __version__
from service.errors import HardmaxError, InvalidInput
from service.readers import read_cloud, read_texts
from service.settings import PREFIX, Settings, load_settings
from service.terminal import (
    Answer,
    Progress,
    describe_classification,
    describe_control,
    describe_dynamics,
    describe_models,
)

if TYPE_CHECKING:
    from service.client import Client
    from service.local import Local

BAD_INPUT = 2
INTERRUPTED = 130
PLOTTED = ["assignment", "limits", "trajectory", "polytope"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code is 0, 2 (refused, with a line that says why) or 130 (interrupted)."""
    arguments = build_parser().parse_args(argv)
    try:
        return int(arguments.run(arguments))
    except HardmaxError as refused:
        print(f"hardmax: {refused.message}", file=sys.stderr)
        return BAD_INPUT
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # the reader (head, less) has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="hardmax", description="Transformers one can see through, served.")
    parser.add_argument("--version", action="version", version=f"hardmax {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_serve(commands.add_parser("serve", help="start the HTTP service"))
    _add_classify(commands.add_parser("classify", help="the sentiment of texts, with its exact reason"))
    _add_dynamics(commands.add_parser("dynamics", help="run a cloud of points to its limits"))
    _add_control(commands.add_parser("control", help="find a matrix A under which chosen points lead"))
    _add_models(commands.add_parser("models", help="the models in MODELS_DIR, or of a server"))
    _add_openapi(commands.add_parser("openapi", help="print the OpenAPI document"))
    return parser


def _add_serve(parser: argparse.ArgumentParser) -> None:
    parser.description = f"Every flag has an environment twin: --max-points is {PREFIX}MAX_POINTS."
    for name, field in Settings.model_fields.items():
        default = "" if field.default in (PydanticUndefined, None, "") else f" (default {field.default})"
        parser.add_argument(
            f"--{name.replace('_', '-')}",
            dest=name,
            metavar=name.upper(),
            default=argparse.SUPPRESS,
            help=f"{field.description}{default}".replace("%", "%%"),
        )
    parser.set_defaults(run=serve)


def _add_classify(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("texts", nargs="*", metavar="TEXT")
    parser.add_argument("--file", help="a text a line; - reads standard input")
    parser.add_argument("--model", help="default: HARDMAX_DEFAULT_MODEL")
    parser.add_argument("--explain", choices=["none", "leaders", "full"], default="leaders")
    parser.add_argument(
        "--ray", nargs=2, metavar=("IN", "OUT"), help="parquet in, parquet out, on a Ray cluster"
    )
    parser.add_argument("--column", default="text", help="with --ray: the column of texts (default: text)")
    _add_common(parser)
    parser.set_defaults(run=classify)


def _add_dynamics(parser: argparse.ArgumentParser) -> None:
    _add_cloud(parser)
    parser.add_argument("--A", metavar="FILE", help="symmetric positive definite matrix; default: identity")
    parser.add_argument("--max-layers", type=int, default=1000)
    parser.add_argument("--stop", choices=["certified", "converged", "never"], default="certified")
    parser.add_argument("--tolerance", type=float, default=1e-9)
    parser.add_argument("--tie-tolerance", type=float, default=1e-12)
    parser.set_defaults(run=dynamics)


def _add_control(parser: argparse.ArgumentParser) -> None:
    _add_cloud(parser)
    parser.add_argument("--leaders", required=True, help="indices of the points that shall lead: 3,5")
    parser.set_defaults(run=control)


def _add_cloud(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file", metavar="FILE", help="points: csv, npy or json; - reads csv from standard input"
    )
    parser.add_argument("--alpha", type=float, default=1.0, help="step size, default 1")
    parser.add_argument("--plot", metavar="PNG", help="draw a plane cloud's way to its limits")
    _add_common(parser)


def _add_models(parser: argparse.ArgumentParser) -> None:
    _add_common(parser)
    parser.set_defaults(run=models)


def _add_openapi(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(run=openapi)


def _add_common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="the API's own answer instead of a table")
    parser.add_argument("--server", metavar="URL", help="ask this server instead of computing here")
    parser.add_argument(
        "--api-key", metavar="KEY", help=f"with --server; default: the first of {PREFIX}API_KEYS"
    )


def serve(arguments: argparse.Namespace) -> int:
    from service.server import serve as serve_http

    flags = {name: value for name, value in vars(arguments).items() if name in Settings.model_fields}
    return serve_http(load_settings(**flags))


def classify(arguments: argparse.Namespace) -> int:
    if arguments.ray:
        from service.cluster import classify_parquet

        done = classify_parquet(*arguments.ray, column=arguments.column, model=arguments.model)
        print(f"{done.texts} texts answered, {done.refused} refused (see the column hardmax_error)")
        return 0
    texts = arguments.texts + (read_texts(arguments.file) if arguments.file else [])
    if not texts:
        raise InvalidInput("nothing to classify: give texts, or --file", param="TEXT")
    with _open(arguments) as hardmax:
        results = hardmax.classify(texts, model=arguments.model, explain=arguments.explain)
    for text, result in zip(texts, results, strict=True):
        _show(arguments, result, partial(describe_classification, text))
    return 0


def dynamics(arguments: argparse.Namespace) -> int:
    points = read_cloud(arguments.file)
    with _open(arguments) as hardmax:
        result = hardmax.dynamics(
            points,
            alpha=arguments.alpha,
            A=read_cloud(arguments.A) if arguments.A else None,
            max_layers=arguments.max_layers,
            stop=arguments.stop,
            tolerance=arguments.tolerance,
            tie_tolerance=arguments.tie_tolerance,
            include=PLOTTED if arguments.plot else ["assignment"],
        )
    if arguments.plot:
        from service.plot import plot_dynamics

        plot_dynamics(result, arguments.plot)
    return _show(arguments, result, describe_dynamics)


def control(arguments: argparse.Namespace) -> int:
    points = read_cloud(arguments.file)
    leaders = _indices(arguments.leaders)
    with _open(arguments) as hardmax:
        result = hardmax.control(points, leaders=leaders)
        if arguments.plot and result.feasible:
            from service.plot import plot_control

            before = hardmax.dynamics(points, alpha=arguments.alpha, include=PLOTTED)
            after = hardmax.dynamics(points, alpha=arguments.alpha, A=result.A, include=PLOTTED)
            plot_control(before, after, leaders, arguments.plot)
    return _show(arguments, result, describe_control)


def models(arguments: argparse.Namespace) -> int:
    with _open(arguments) as hardmax:
        cards = [card.model_dump() for card in hardmax.models()]
    print(json.dumps(cards, indent=2) if arguments.json else "\n".join(describe_models(cards)))
    return 0


def openapi(arguments: argparse.Namespace) -> int:
    from service.app import create_app

    print(json.dumps(create_app(load_settings()).openapi(), indent=2, ensure_ascii=False))
    return 0


def _open(arguments: argparse.Namespace) -> Client | Local:
    """Where the work is done: on a server, or in this process. Both have one face."""
    if arguments.server:
        from service.client import Client

        keys = os.environ.get(f"{PREFIX}API_KEYS", "").split(",")
        return Client(arguments.server, api_key=arguments.api_key or keys[0].strip() or None)
    from service.local import Local

    return Local(load_settings(), on_progress=Progress())


def _show(
    arguments: argparse.Namespace, result: BaseModel, describe: Callable[[Answer], Iterable[str]]
) -> int:
    answer = result.model_dump(exclude_none=arguments.json)
    print(json.dumps(answer, ensure_ascii=False) if arguments.json else "\n".join(describe(answer)))
    return 0


def _indices(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise InvalidInput(
            f"--leaders: {text!r} is not a list of indices such as 3,5", param="--leaders"
        ) from None


if __name__ == "__main__":
    sys.exit(main())
