"""What holds for all tests: one thread for numpy, and the order."""

import os

import pytest

# Before anything loads numpy, here and in the servers that tests start: on matrices as small as those of
# tests a second thread takes up to ten times the CPU time.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes a minute starts first: others run beside it then, and nobody waits for it at the end."""
    items.sort(key=lambda item: item.get_closest_marker("early") is None)
