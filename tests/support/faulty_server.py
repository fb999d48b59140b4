"""A server whose model ends its thread when a text is "fatal": `python tests/support/faulty_server.py`.

Otherwise it is like `hardmax serve`, also with several workers; it prints when it loads clouds.
"""

import asyncio
import os
import sys
import time
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI

from service import server
from service.app import Lifespan, make_app
from service.loaders import Loaders, domain_loaders
from service.runtime.bundle import Bundle
from service.runtime.registry import Loader
from service.runtime.session import Runtime
from service.settings import Settings, load_settings
from service.text.encoder import Encoder
from service.text.tokenizer import TokenizedText

KILL_AFTER_S = "FAULTY_SERVER_KILL_AFTER_S"  # the variable with another time than the service has


class CrashingEncoder(Encoder):
    """An encoder that ends the thread it runs in."""

    def tokenize(self, text: str, *, fold_names: bool = True) -> TokenizedText:
        if text == "fatal":
            raise SystemExit
        return super().tokenize(text, fold_names=fold_names)


def loaders_with_encoder(encoder_class: type[Encoder]) -> Loaders:
    """Return loaders that make every encoder an instance of this class."""

    def loaders(runtime: Runtime, settings: Settings) -> Mapping[str, Loader]:
        ordinary = domain_loaders(runtime, settings)

        def load_encoder(bundle: Bundle) -> Encoder:
            encoder: Encoder = ordinary["encoder"](bundle)
            encoder.__class__ = encoder_class
            return encoder

        def load_dynamics(bundle: Bundle) -> Any:
            print(f"loads {bundle.name}", flush=True)  # noqa: T201
            return ordinary["dynamics"](bundle)

        return {**ordinary, "encoder": load_encoder, "dynamics": load_dynamics}

    return loaders


def create_faulty_app(settings: Settings, lifespan: Lifespan) -> FastAPI:
    """Create the application with that model, and a route whose thread nothing can interrupt."""
    server.KILL_AFTER_S = float(os.environ.get(KILL_AFTER_S, server.KILL_AFTER_S))
    app = make_app(settings, lifespan, loaders=loaders_with_encoder(CrashingEncoder))

    @app.get("/stuck")
    async def stuck() -> None:
        print("stuck", flush=True)  # noqa: T201
        await asyncio.to_thread(time.sleep, 600)

    return app


if __name__ == "__main__":
    sys.exit(server.serve(load_settings(), create_faulty_app))
