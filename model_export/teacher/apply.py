"""What a teacher says of the training texts: computed once, in bfloat16, and kept in a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from model_export.data.training_set import batches, padded, to_device
from model_export.teacher.encoder import PADDING, Teacher
from model_export.training import Report

Halves = NDArray[np.float16]
TEXTS_PER_FLUSH = 16_384
TOKENS_PER_BATCH = {"cpu": 1_500, "cuda": 32_768}


def apply_teacher(
    teacher: Teacher, function: Callable[[Tensor], Tensor], texts: list[str], file: Path, report: Report
) -> Halves:
    """Return `function` of the token ids of each text, [n, width]; `function` is a method of `teacher`.

    The result is written to `file`; an interrupted run resumes.
    """
    device, done_file = teacher.words.weight.device, file.with_suffix(".done")
    width = function(torch.full((1, 1), PADDING + 1, device=device)).shape[1]
    done = int(done_file.read_text()) if done_file.exists() and file.exists() else 0
    found = np.lib.format.open_memmap(
        file, mode="r+" if done else "w+", dtype=np.float16, shape=(len(texts), width)
    )
    for at in range(done, len(texts), TEXTS_PER_FLUSH):
        part = teacher.tokenize(texts[at : at + TEXTS_PER_FLUSH])
        for rows in batches(np.array([len(each) for each in part]), TOKENS_PER_BATCH[device.type]):
            x = to_device(padded([part[i] for i in rows.tolist()], PADDING), device)
            with torch.inference_mode(), torch.autocast(device.type, torch.bfloat16):
                found[at + rows] = function(x).float().cpu().numpy()
        found.flush()
        done_file.write_text(str(at + len(part)))
        report(f"{file.name}: {at + len(part)} of {len(texts)} texts")
    return found
