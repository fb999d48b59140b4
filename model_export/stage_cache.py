"""The results of training stages on the disk: an interrupted run resumes where it stopped."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray

from model_export.data.training_set import TrainingSet
from model_export.writing import atomic_write


class StageCache:
    """Results of stages, in files whose names hold a digest of all that they were made of."""

    def __init__(self, folder: Path, report: Callable[[str], None]) -> None:
        self._folder, self._report, self._digest = folder, report, ""

    def get_or_run(
        self, name: str, made_of: Sequence[Any], run: Callable[[Path], Mapping[str, Any]]
    ) -> Mapping[str, Any]:
        """Return the result of a stage from the disk, or run it.

        Args:
            name: of the stage.
            made_of: what the result depends on, besides the stage before.
            run: gets the checkpoint to resume from, which may not exist.
        """
        self._digest = digest([self._digest, name, *made_of])
        file = self._folder / f"{name}-{self._digest[:12]}.pt"
        if file.exists():
            self._report(f"{name}: taken from {file.name}")
        else:
            save(dict(run(file.with_suffix(".checkpoint"))), file)
        result: Mapping[str, Any] = torch.load(file, map_location="cpu")
        return result


def save(result: dict[str, Any], file: Path) -> None:
    """subtle: the checkpoint is deleted last."""
    with atomic_write(file) as out:
        torch.save(result, out)
    file.with_suffix(".checkpoint").unlink(missing_ok=True)


def digest(content: Any) -> str:
    """Return the SHA-256 of a value, of the texts in it and of the weights in it."""
    return sha256(json.dumps(content, sort_keys=True, default=_encode).encode()).hexdigest()


def _bytes_digest(arrays: Iterable[NDArray[Any]]) -> str:
    return sha256(b"/".join(each.tobytes() for each in arrays)).hexdigest()


def _encode(content: Any) -> Any:
    if isinstance(content, TrainingSet):
        known: list[NDArray[Any]] = [content.targets, content.three_labels]
        known += [] if content.embeddings is None else [content.embeddings]
        return [_bytes_digest(vars(content.packed).values()), _bytes_digest(known)]
    if isinstance(content, torch.nn.Module):
        return _bytes_digest(value.cpu().numpy() for value in content.state_dict().values())
    return asdict(content)
