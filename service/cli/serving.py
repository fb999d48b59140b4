"""`hardmax serve`, and what is served: `hardmax models`, `hardmax openapi`."""

from __future__ import annotations

import argparse
import json

from pydantic_core import PydanticUndefined

from service.cli.described import describe_models
from service.cli.options import Commands, add_where, open_where, show
from service.settings import PREFIX, Settings, load_settings


def add_commands(commands: Commands) -> None:
    serve = commands.add_parser("serve", help="start the HTTP service")
    serve.description = f"Every flag is also an environment variable: --max-points is {PREFIX}MAX_POINTS."
    for name, field in Settings.model_fields.items():
        default = "" if field.default in (PydanticUndefined, None, "") else f" (default {field.default})"
        serve.add_argument(
            f"--{name.replace('_', '-')}",
            dest=name,
            metavar=name.upper(),
            default=argparse.SUPPRESS,
            help=f"{field.description}{default}".replace("%", "%%"),
        )
    serve.set_defaults(run=run_serve)
    models = commands.add_parser("models", help="list the models, here or of a server")
    add_where(models)
    models.set_defaults(run=run_models)
    openapi = commands.add_parser("openapi", help="print the OpenAPI document")
    openapi.set_defaults(run=run_openapi)


def run_serve(arguments: argparse.Namespace) -> int:
    from service.serving.start import serve

    flags = {name: value for name, value in vars(arguments).items() if name in Settings.model_fields}
    return serve(load_settings(**flags))


def run_models(arguments: argparse.Namespace) -> int:
    with open_where(arguments) as hardmax:
        cards = [card.document for card in hardmax.models()]
    show({"models": cards}, arguments.json, lambda answer: describe_models(answer["models"]))
    return 0


def run_openapi(arguments: argparse.Namespace) -> int:
    from service.app import create_app

    print(json.dumps(create_app(load_settings()).openapi(), indent=2, ensure_ascii=False))
    return 0
