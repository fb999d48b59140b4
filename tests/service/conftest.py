"""The models that most tests of the service are served with."""

from pathlib import Path

import pytest
from bundles import write_models


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the models tiny, its encoder, dynamics and scenes, which no test changes."""
    return write_models(tmp_path_factory.mktemp("models"))
