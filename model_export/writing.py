"""Write files atomically: a stopped run leaves the old file or the new one."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def atomic_write(file: Path) -> Iterator[BinaryIO]:
    """Open a file that takes the place of `file` when the block ends without an exception."""
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_name(f"{file.name}.part")
    with partial.open("wb") as out:
        yield out
    os.replace(partial, file)
