"""Settings of all tests: threads, the event loop, hypothesis profiles, and the order."""

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from small_models import link_small_models

# Set before numpy or torch is imported, here and in the servers that tests start: for the small matrices of
# tests, a second thread takes up to ten times the CPU time.
for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(name, "1")

# Repeatable examples, except for `--hypothesis-profile=long` (`make fuzz`), which searches for new ones.
settings.register_profile("few", max_examples=20, deadline=None, derandomize=True)
settings.register_profile("many", settings.get_profile("few"), max_examples=100)
settings.register_profile("long", max_examples=10_000, deadline=None, database=None)
settings.load_profile("many" if os.environ.get("CI") else "few")


@pytest.fixture(scope="session")
def small_models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the small pretrained models."""
    return link_small_models(tmp_path_factory.mktemp("pretrained") / "small")


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the models tiny, its encoder, dynamics and scenes, which no test changes."""
    from bundles import write_models  # imports torch

    return write_models(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="session")
def pretrained() -> Any:
    """A `Local` of the pretrained models, which are loaded once."""
    from hardmax import Local  # imports numpy

    return Local()


@pytest.fixture
def anyio_backend() -> str:
    """The event loop of tests that are coroutines (`pytestmark = pytest.mark.anyio`)."""
    return "asyncio"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start tests that take a minute first, so that parallel workers do not wait for them at the end."""
    items.sort(key=lambda item: item.get_closest_marker("early") is None)
