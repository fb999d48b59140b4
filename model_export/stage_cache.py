"""What steps of learning made, kept on the disk: a stopped run goes on where it was."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from hashlib import sha256
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray

from model_export.data.training_set import Lessons
from model_export.writing import atomic_write


class Kept:
    """What steps made, in files whose names hold a digest of all that they were made of."""

    def __init__(self, folder: Path, say: Callable[[str], None]) -> None:
        self._folder, self._say, self._digest = folder, say, ""

    def step(
        self, name: str, made_of: Sequence[Any], make: Callable[[Path], Mapping[str, Any]]
    ) -> Mapping[str, Any]:
        """`made_of`: beside the step before. `make` is given a file to go on from, if it was stopped."""
        self._digest = digest([self._digest, name, *made_of])
        file = self._folder / f"{name}-{self._digest[:12]}.pt"
        if file.exists():
            self._say(f"{name}: taken from {file.name}")
        else:
            keep(dict(make(file.with_suffix(".checkpoint"))), file)
        kept: Mapping[str, Any] = torch.load(file)
        return kept


def keep(learnt: dict[str, Any], file: Path) -> None:
    """subtle: what a stopped run goes on from is deleted last."""
    with atomic_write(file) as out:
        torch.save(learnt, out)
    file.with_suffix(".checkpoint").unlink(missing_ok=True)


def digest(content: Any) -> str:
    return sha256(json.dumps(content, sort_keys=True, default=_told).encode()).hexdigest()


def _bytes_digest(arrays: Iterable[NDArray[Any]]) -> str:
    return sha256(b"/".join(each.tobytes() for each in arrays)).hexdigest()


def _told(content: Any) -> Any:
    if isinstance(content, Lessons):
        parts = [(x.token_ids, x.position_ids, x.chunk_ids, x.bounds) for x in content.readings]
        return [_bytes_digest(chain.from_iterable(parts)), content.targets.tolist()]
    if isinstance(content, torch.nn.Module):
        return _bytes_digest(value.numpy() for value in content.state_dict().values())
    return asdict(content)
