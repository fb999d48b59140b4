"""The models and the application that the contract is checked against."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.contract.application import serving, write_models


@pytest.fixture(scope="session")
def models_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_models(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="session")
def open_client(models_dir: Path) -> Iterator[Callable[..., TestClient]]:
    """A client of the application with these settings; the same settings share one."""
    opened: dict[str, TestClient] = {}
    with ExitStack() as stack:

        def open_client(**settings: Any) -> TestClient:
            key = repr(settings)
            if key not in opened:
                opened[key] = stack.enter_context(serving(models_dir, **settings))
            return opened[key]

        yield open_client
