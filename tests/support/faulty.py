"""A server whose model ends the thread it runs in when a text says "fatal": `python tests/support/faulty.py`.

Like `hardmax serve` in all else, several workers under the supervisor too; it says when it loads clouds.
"""

import asyncio
import sys
import time
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI

from service.app import create_app
from service.loaders import Loaders, domain_loaders
from service.runtime.bundle import Bundle
from service.runtime.registry import Loader
from service.runtime.session import Runtime
from service.server import serve
from service.settings import Settings, load_settings
from service.text.encoder import Encoder
from service.text.tokenizer import TokenizedText


class Fatal(Encoder):
    """A reader that ends the thread it runs in."""

    def tokenize(self, text: str) -> TokenizedText:
        if text == "fatal":
            raise SystemExit
        return super().tokenize(text)


def reading_with(kind: type[Encoder]) -> Loaders:
    """Loaders that make every reader one of that kind."""

    def loaders(runtime: Runtime, settings: Settings) -> Mapping[str, Loader]:
        ordinary = domain_loaders(runtime, settings)

        def load(bundle: Bundle) -> Encoder:
            reader: Encoder = ordinary["encoder"](bundle)
            reader.__class__ = kind
            return reader

        def tell(bundle: Bundle) -> Any:
            print(f"loads {bundle.name}", flush=True)  # noqa: T201
            return ordinary["dynamics"](bundle)

        return {**ordinary, "encoder": load, "dynamics": tell}

    return loaders


def faulty(settings: Settings) -> FastAPI:
    """The application with that model, and a route whose thread nothing can interrupt."""
    app = create_app(settings, loaders=reading_with(Fatal))

    @app.get("/stuck")
    async def stuck() -> None:
        print("stuck", flush=True)  # noqa: T201
        await asyncio.to_thread(time.sleep, 600)

    return app


if __name__ == "__main__":
    sys.exit(serve(load_settings(), faulty))
