"""Models that nobody changes, and a clock that stands still, for all tests of the service."""

import time
from pathlib import Path

import pytest
from bundles import write_models


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """tiny, its reader, dynamics and scenes."""
    return write_models(tmp_path_factory.mktemp("models"))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What the monotonic clock says, as its one element."""
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now
