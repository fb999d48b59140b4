"""Models that nobody changes, for all tests of the service."""

from __future__ import annotations

from pathlib import Path

import pytest
from bundles import write_models


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """tiny, its reader, dynamics and scenes."""
    return write_models(tmp_path_factory.mktemp("models"))
