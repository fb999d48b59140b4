"""The start: one socket, then one server in this process or several workers."""

from __future__ import annotations

import contextlib
import os
import socket

from service.app import create_app
from service.engine.bundle import BUNDLED_DEFAULT
from service.engine.registry import settle_default
from service.errors import ConfigurationError
from service.observe.metrics import MULTIPROCESS_DIR, shared_metrics
from service.serving.connection import check_uvicorn
from service.serving.server import Config, MakeApp, Server, begin, misconfigured
from service.serving.workers import supervise
from service.settings import Settings

BACKLOG = 2048


def serve(settings: Settings, make_app: MakeApp = create_app) -> int:
    """Serve until a signal says stop. Exit codes: 0 after a signal, 1 inference died, 2 bad settings."""
    named = bool(settings.default_model)
    settings = settle_default(settings)  # once: all workers have the same
    begin(settings)
    bundled = settings.default_model == BUNDLED_DEFAULT and settings.bundled_models
    why = "DEFAULT_MODEL names it" if named else "it is bundled" if bundled else "the only one of MODELS_DIR"
    config = Config(settings, make_app, why)
    several = settings.workers > 1
    try:
        check_uvicorn()
        listener = listen(settings)
        with shared_metrics() if several or MULTIPROCESS_DIR in os.environ else contextlib.nullcontext():
            return supervise(config, listener) if several else Server(config).work(listener)
    except ConfigurationError as failure:
        return misconfigured(failure)


def listen(settings: Settings) -> socket.socket:
    """The socket that all workers share."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((settings.host, settings.port))
    except (OSError, OverflowError) as failure:
        listener.close()
        where = f"{settings.host}:{settings.port}"
        raise ConfigurationError(f"cannot listen on {where}: {failure}", param="PORT") from None
    listener.listen(BACKLOG)
    listener.setblocking(False)
    listener.set_inheritable(True)
    return listener
