"""SetFit by its own package: an encoder tuned on pairs of rows that share a label or do not, then a logistic
regression on its states.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

PAIRS, TOGETHER = 40, 16  # of a row, as in its paper; in a step
STEPS = 100  # and no more of them


def set_fit(encoder: Path, texts: Sequence[str], truth: NDArray[Any], seed: int) -> Any:
    """A model whose `predict` says numbers of labels; of each label whether, where `truth` does."""
    from datasets import Dataset
    from setfit import SetFitModel, Trainer, TrainingArguments

    strategy = {"multi_target_strategy": "one-vs-rest"} if truth.ndim > 1 else {}
    model = SetFitModel.from_pretrained(str(encoder), device="cpu", **strategy)
    with tempfile.TemporaryDirectory() as folder:
        how = TrainingArguments(
            output_dir=folder, max_steps=min(STEPS, PAIRS * len(texts) // TOGETHER),
            batch_size=TOGETHER, seed=seed, report_to="none", save_strategy="no",
            logging_strategy="no", show_progress_bar=False,
        )  # fmt: skip
        rows = Dataset.from_dict({"text": list(texts), "label": truth.tolist()})
        Trainer(model=model, args=how, train_dataset=rows).train()
    return model


def said(model: Any, texts: Sequence[str]) -> NDArray[Any]:
    return np.asarray(model.predict(list(texts), show_progress_bar=False))
