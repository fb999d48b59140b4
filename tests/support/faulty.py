"""A server whose model ends the thread it runs in when a text says "fatal": `python tests/support/faulty.py`.

Like `hardmax serve` in all else, several workers under the supervisor too.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from fastapi import FastAPI

from service.app import create_app
from service.engine.registry import Loader
from service.engine.runtime import Runtime
from service.serving.start import serve
from service.settings import Settings, load_settings


class Fatal:
    """A model that ends the thread it runs in."""

    max_length = 9

    def tokenise_many(self, texts: Sequence[str]) -> list[SimpleNamespace]:
        if "fatal" in texts:
            raise SystemExit
        return [SimpleNamespace(length=1, truncated=False) for _ in texts]

    def classify(self, batch: Sequence[Any], explain: str, **options: Any) -> list[dict[str, Any]]:
        return [{"label": "fine", "tokens": 1} for _ in batch]


def fatal(runtime: Runtime, settings: Settings) -> Mapping[str, Loader]:
    """Loaders that take every sentiment bundle for a `Fatal` model."""
    return {"sentiment": lambda bundle: Fatal()}


def faulty(settings: Settings) -> FastAPI:
    """The application with that model, and a route whose thread nothing can interrupt."""
    app = create_app(settings, loaders=fatal)

    @app.get("/stuck")
    async def stuck() -> None:
        print("stuck", flush=True)  # noqa: T201
        await asyncio.to_thread(time.sleep, 600)

    return app


if __name__ == "__main__":
    sys.exit(serve(load_settings(), faulty))
