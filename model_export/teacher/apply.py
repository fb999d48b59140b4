"""The outputs of a teacher for the training texts, computed once in bfloat16 and stored in a file."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from model_export.data.training_set import batches, pad, to_device
from model_export.teacher.encoder import PADDING, Teacher
from model_export.training import Report

Float16Array = NDArray[np.float16]
TEXTS_PER_FLUSH = 16_384
TOKENS_PER_BATCH = {"cpu": 1_500, "cuda": 32_768}


def apply_teacher(
    teacher: Teacher, function: Callable[[Tensor], Tensor], texts: list[str], file: Path, report: Report
) -> Float16Array:
    """Return the outputs of `function`, a method of `teacher`, for the token ids of each text, [n, width].

    The result is written to `file`; an interrupted run resumes.
    """
    device, count_file = teacher.words.weight.device, file.with_suffix(".done")
    width = function(torch.full((1, 1), PADDING + 1, device=device)).shape[1]
    n_done = int(count_file.read_text()) if count_file.exists() and file.exists() else 0
    outputs = np.lib.format.open_memmap(
        file, mode="r+" if n_done else "w+", dtype=np.float16, shape=(len(texts), width)
    )
    for start in range(n_done, len(texts), TEXTS_PER_FLUSH):
        token_ids = teacher.tokenize(texts[start : start + TEXTS_PER_FLUSH])
        for rows in batches(np.array([len(ids) for ids in token_ids]), TOKENS_PER_BATCH[device.type]):
            x = to_device(pad([token_ids[i] for i in rows.tolist()], PADDING), device)
            with torch.inference_mode(), torch.autocast(device.type, torch.bfloat16):
                outputs[start + rows] = function(x).float().cpu().numpy()
        outputs.flush()
        n_done = start + len(token_ids)
        count_file.write_text(str(n_done))
        report(f"{file.name}: {n_done} of {len(texts)} texts")
    return outputs
