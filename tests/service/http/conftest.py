"""Fixtures of the routes: a server with low limits, and one that requires a key."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from server import Server, serving


@pytest.fixture(scope="package")
def server(models: Path) -> Iterator[Server]:
    limits = {"max_text_chars": 400, "max_client_batch_size": 8, "max_points": 300_000, "max_dimension": 32}
    with serving(models, default_model="tiny", payload_limit_mb=40, max_layers=500, **limits) as server:
        yield server


@pytest.fixture(scope="package")
def locked(models: Path) -> Iterator[Server]:
    """A server that requires an API key."""
    with serving(models, default_model="tiny", api_keys="secret") as server:
        yield server


@pytest.fixture(scope="package")
def client(server: Server) -> Iterator[httpx.Client]:
    with server.client() as client:
        yield client
