"""Fixtures of texts: an encoder and a head with random weights, and a thousand sentences."""

import random
from pathlib import Path

import pytest
from bundles import WORDS, load_head

from service.text.head import Head


@pytest.fixture(scope="package")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="package")
def head(folder: Path) -> Head:
    return load_head(folder)


@pytest.fixture(scope="package")
def sentences() -> list[str]:
    """A thousand sentences of one to twenty words, known and unknown, with punctuation."""
    rng = random.Random(3)
    words = [*(word for word in WORDS if not word.startswith("#")), "xyzzy", "Paris", "7", "grace", ",", ":)"]
    return [" ".join(rng.choices(words, k=rng.randint(1, 20))) + "." for _ in range(1000)]
