"""Files that are whole or not there: a stopped run goes on with what it finds."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def replacing(file: Path) -> Iterator[BinaryIO]:
    """What is written takes the place of `file` when it is whole; until then whatever was there stays."""
    file.parent.mkdir(parents=True, exist_ok=True)
    partly = file.with_name(f"{file.name}.part")
    with partly.open("wb") as out:
        yield out
    os.replace(partly, file)
