"""Options that commands share: where the work is done, and how its result is shown."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from service.cli.progress import Progress
from service.settings import PREFIX, load_settings

if TYPE_CHECKING:
    from service.client.local import Local
    from service.client.remote import Client

Commands = Any  # what argparse's add_subparsers returns; it has no public name


def add_where(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print the API's own answer")
    parser.add_argument("--server", metavar="URL", help="ask this server instead of computing here")
    parser.add_argument(
        "--models-dir", metavar="FOLDER", help=f"the folder of your own models; default: {PREFIX}MODELS_DIR"
    )
    parser.add_argument(
        "--api-key", metavar="KEY", help=f"the key for --server; default: the first of {PREFIX}API_KEYS"
    )


def open_where(arguments: argparse.Namespace, progress: Progress | None = None) -> Client | Local:
    """Where the work is done: on a server, or in this process. Both have the same methods."""
    if arguments.server:
        from service.client.remote import Client

        keys = os.environ.get(f"{PREFIX}API_KEYS", "").split(",")
        return Client(arguments.server, api_key=arguments.api_key or keys[0].strip() or None)
    from service.client.local import Local

    own = {"models_dir": arguments.models_dir} if arguments.models_dir else {}
    return Local(load_settings(**own), on_progress=progress or Progress())


def show(answer: Any, as_json: bool, describe: Callable[[Any], Iterable[str]]) -> None:
    """An answer of the API (a JSON value) for programs, or described for people."""
    print(json.dumps(answer, ensure_ascii=False) if as_json else "\n".join(describe(answer)))


def tell(message: str) -> None:
    """A remark for people, on standard error."""
    print(f"hardmax: {message}", file=sys.stderr)
