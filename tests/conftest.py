"""What holds for all tests: threads, the event loop, hypothesis's examples, and the order."""

import os
from pathlib import Path

import pytest
from hypothesis import settings
from small_models import link_small_models

# Before anything loads numpy or torch, here and in the servers that tests start: on matrices as small as
# those of tests a second thread takes up to ten times the CPU time.
for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(name, "1")

# The same examples every time: `make fuzz` looks for new ones.
settings.register_profile("few", max_examples=20, deadline=None, derandomize=True)
settings.register_profile("many", settings.get_profile("few"), max_examples=300)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "many" if os.environ.get("CI") else "few"))


@pytest.fixture(scope="session")
def small_models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of the small pretrained models."""
    return link_small_models(tmp_path_factory.mktemp("pretrained") / "small")


@pytest.fixture
def anyio_backend() -> str:
    """The event loop of tests that are coroutines (`pytestmark = pytest.mark.anyio`)."""
    return "asyncio"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes a minute starts first: others run beside it then, and nobody waits for it at the end."""
    items.sort(key=lambda item: item.get_closest_marker("early") is None)
