"""A server whose model ends the thread it runs in when a text says "fatal": `python tests/faulty.py`.

Like `hardmax serve` in all else, several workers under the supervisor too.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from service.app import create_app
from service.registry import Loader
from service.runtime import Runtime
from service.server import begin, greet, listen, run
from service.settings import Settings, load_settings
from service.supervisor import supervise


class Fatal:
    """A model that ends the thread it runs in."""

    max_length = 9

    def tokenise_many(self, texts: Sequence[str]) -> list[SimpleNamespace]:
        if "fatal" in texts:
            raise SystemExit
        return [SimpleNamespace(length=1, truncated=False) for _ in texts]

    def classify(self, batch: Sequence[Any], explain: str, *, trajectory: bool) -> list[dict[str, Any]]:
        return [{"label": "fine", "tokens": 1} for _ in batch]


def fatal(runtime: Runtime, settings: Settings) -> Mapping[str, Loader]:
    """Loaders that take every sentiment bundle for a `Fatal` model."""
    return {"sentiment": lambda bundle: Fatal()}


def work(settings: Settings, listener: socket.socket, greeting: bool) -> int:
    begin(settings)
    port = listener.getsockname()[1]
    app = create_app(settings, loaders=fatal)
    return run(app, listener, lambda service: greet(settings, port, service) if greeting else None)


def main() -> int:
    settings = load_settings()
    begin(settings)
    listener = listen(settings)
    return supervise(settings, listener, work) if settings.workers > 1 else work(settings, listener, True)


if __name__ == "__main__":
    sys.exit(main())
