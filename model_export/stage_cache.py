"""Cache the results of training stages on the disk, so that an interrupted run resumes where it stopped."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from model_export.data.training_set import TrainingSet
from model_export.writing import atomic_write


class StageCache:
    """Results of stages, in files whose names contain a digest of all inputs."""

    def __init__(self, folder: Path, report: Callable[[str], None]) -> None:
        self._folder, self._report, self._digest = folder, report, ""

    def get_or_run(
        self, name: str, inputs: Sequence[Any], run: Callable[[Path], Mapping[str, Any]]
    ) -> Mapping[str, Any]:
        """Return the result of a stage from the disk, or run it.

        Args:
            name: of the stage.
            inputs: all that the result depends on, besides the result of the previous stage.
            run: called with the checkpoint to resume from, which may not exist.
        """
        self._digest = digest([self._digest, name, *inputs])
        file = self._folder / f"{name}-{self._digest[:12]}.pt"
        if file.exists():
            self._report(f"{name}: taken from {file.name}")
        else:
            save(dict(run(file.with_suffix(".checkpoint"))), file)
        result: Mapping[str, Any] = torch.load(file, map_location="cpu")
        return result


def save(result: dict[str, Any], file: Path) -> None:
    """Save a result, and then delete its checkpoint."""
    with atomic_write(file) as out:
        torch.save(result, out)
    file.with_suffix(".checkpoint").unlink(missing_ok=True)


def digest(content: Any) -> str:
    """Return the SHA-256 of a value, which may contain training sets, modules and dataclasses."""
    return sha256(json.dumps(content, sort_keys=True, default=_to_json).encode()).hexdigest()


def _bytes_digest(arrays: Iterable[NDArray[Any]]) -> str:
    return sha256(b"/".join(array.tobytes() for array in arrays)).hexdigest()


def _to_json(content: Any) -> Any:
    if isinstance(content, TrainingSet):
        arrays = [array for array in vars(content).values() if isinstance(array, np.ndarray)]
        return [_bytes_digest(vars(content.packed).values()), _bytes_digest(arrays)]
    if isinstance(content, torch.nn.Module):
        return _bytes_digest(value.cpu().numpy() for value in content.state_dict().values())
    return asdict(content)
